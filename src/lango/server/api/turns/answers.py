"""Read the answers of a client to what its turns wait for, and continue the turns with them."""

from typing import Annotated, Any, Self, assert_never

from fastapi import Depends, Path
from pydantic import ConfigDict, Field, model_validator

from lango.grants import NewGrant
from lango.server.context import Context, ServerContext
from lango.server.schemas import RequestBody, SessionIdPath
from lango.server.security.auth import Caller, CurrentCaller
from lango.server.streaming.sse import EventStreamResponse
from lango.server.streaming.turn_streams import TurnRef
from lango.store.tool_calls.approvals import MAX_REASON_CHARACTERS
from lango.submissions import (
    Submission,
    SubmittedApproval,
    SubmittedCredential,
    SubmittedInput,
    SubmittedResults,
    TurnRequest,
)

CallIdPath = Annotated[str, Path(max_length=512, examples=["call_1"])]


class GrantBody(RequestBody):
    """What is granted besides the approval of one call: later calls of the same tool run without asking."""

    arguments: dict[str, dict[str, Any]] | None = None
    """For each argument `{"equals": value}`, `{"glob": "src/*"}` or `{"any": true}`; null: whatever the arguments."""
    expires_in_s: float | None = None
    """How long it holds; null: as long as the setting `tools.grant_expires_s` says."""

    @property
    def grant(self) -> NewGrant:
        """The grant."""
        return NewGrant(self.arguments, self.expires_in_s)


class ApprovalAnswer(RequestBody):
    """The answer to an approval request."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"approved": True}, {"approved": False, "reason": "Ask me first."}]}
    )

    approved: bool
    grant: GrantBody | None = None
    """Only with an approval."""
    reason: Annotated[str, Field(max_length=MAX_REASON_CHARACTERS)] = ""
    """Only with a refusal: the model reads it as the result of the call."""
    payload: Any = None
    """What a tool that asked by its own code gets with the answer; null: the payload that it asked with."""

    @property
    def new_grant(self) -> NewGrant | None:
        """The grant that comes with the answer."""
        return self.grant and self.grant.grant


class InputAnswer(RequestBody):
    """The answer to an input request: a value that fits its schema, or a text."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [{"value": {"size": 3}}, {"value": "yes"}],
            "anyOf": [{"required": ["value"]}, {"required": ["decline"], "properties": {"decline": {"const": True}}}],
        }
    )

    value: Any = None
    """A text is read as JSON where the schema does not accept a text."""
    decline: bool = False
    """Instead of a value: tell the running tool that asks that the user does not want to give one."""

    @model_validator(mode="after")
    def _has_answer(self) -> Self:
        if "value" not in self.model_fields_set and not self.decline:
            raise ValueError("send a value, or decline")
        return self


class CredentialAnswer(RequestBody):
    """The answer to a credential request."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"value": "https://example.com/callback?code=...&state=..."}]}
    )

    value: Any
    """The address that the user was sent to after allowing the access, a key, a name and a password, or ADK's JSON."""


class ToolResult(RequestBody):
    """A result of a client tool or of a long-running tool."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"result": {"status": "delivered"}}]})

    result: dict[str, Any]
    will_continue: bool = False
    """It is an update of a long-running tool: more results follow."""


Answer = ApprovalAnswer | InputAnswer | CredentialAnswer | ToolResult


async def submit_answer(
    context: ServerContext, caller: Caller, session_id: str, call_id: str, answer: Answer, key: str | None = None
) -> TurnRef:
    """Submit an answer to what a call in a session of the caller waits for, as a turn that continues with it."""
    await context.authenticator.check_token_quota(caller)
    await context.get_session(caller, session_id)
    return await context.turns.submit(caller, session_id, _submission(call_id, answer, TurnRequest(key)))


def _submission(call_id: str, answer: Answer, request: TurnRequest) -> Submission:
    match answer:
        case ApprovalAnswer(approved=approved, reason=reason, payload=payload):
            return SubmittedApproval(call_id, approved, answer.new_grant, reason, payload=payload)
        case InputAnswer(value=value, decline=decline):
            return SubmittedInput(call_id, value, decline, request)
        case CredentialAnswer(value=value):
            return SubmittedCredential(call_id, value, request)
        case ToolResult(result=result, will_continue=will_continue):
            return SubmittedResults({call_id: result}, will_continue, request=request)
        case _ as unexpected:
            assert_never(unexpected)


class _AnsweredCall:
    """The call that the path of a route names, and who answers what it waits for."""

    def __init__(self, session_id: SessionIdPath, call_id: CallIdPath, caller: CurrentCaller, context: Context) -> None:
        self._session_id = session_id
        self._call_id = call_id
        self._caller = caller
        self._context = context

    async def answer(self, answer: Answer, key: str | None = None) -> EventStreamResponse:
        """Submit an answer, and stream the turn that continues with it."""
        turn = await submit_answer(self._context, self._caller, self._session_id, self._call_id, answer, key)
        return self._context.event_response(self._context.turns.follow(turn))


AnsweredCall = Annotated[_AnsweredCall, Depends()]
