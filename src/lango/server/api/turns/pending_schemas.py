"""Define the bodies of requests and responses about what waits: approvals, grants, inputs and results."""

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from lango.grants import NewGrant
from lango.server.schemas import RecordView, RequestBody
from lango.store.tool_calls.approvals import MAX_REASON_CHARACTERS


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


class ApprovalRequest(RecordView):
    """A request to approve a tool call with exactly these arguments."""

    call_id: str
    name: str
    arguments: Mapping[str, Any]
    asked_at: Annotated[datetime, Field(validation_alias="requested_at")]
    expires_at: datetime | None
    """After this time the call counts as rejected; null: it never expires."""
    diff: str = ""
    """What the call would change in a file now, as a unified diff; empty: it cannot be shown."""


class ApprovalRequests(BaseModel):
    """The open approval requests of a session."""

    approvals: list[ApprovalRequest]


class Grant(RecordView):
    """A grant of a session: calls of the tool that fit run without asking, while it is active."""

    id: int
    tool: str
    arguments: dict[str, Any] | None
    """The pattern of each argument; null: whatever the arguments."""
    granted_by: str
    granted_at: datetime
    expires_at: datetime | None
    """Null: it does not expire."""
    revoked_at: datetime | None
    revoked_by: str | None
    """The user who revoked it, or `rewind`."""
    active: bool
    """It has neither expired nor been revoked."""


class GrantList(BaseModel):
    """The grants of a session, the newest first."""

    grants: list[Grant]


class InputRequest(RecordView):
    """A request of a workflow, or of a running tool, for a person's input."""

    call_id: str
    message: str
    input_schema: Annotated[dict[str, Any] | None, Field(validation_alias="schema", serialization_alias="schema")]
    """The JSON schema of the value; null: any value."""
    payload: Any
    """What the workflow shows besides the message."""
    path: str
    """The node that requests the input."""
    tool_call_id: str
    """The running tool call that asks; empty: a workflow does."""
    asked_at: Annotated[datetime, Field(validation_alias="requested_at")]
    expires_at: datetime | None
    """After this time the request is closed; null: it never expires."""


class InputRequests(BaseModel):
    """The open input requests of a session, in order."""

    inputs: list[InputRequest]


class AwaitedResult(RecordView):
    """A call of a long-running tool that waits for a result, or for a further one."""

    call_id: str
    name: str
    arguments: Mapping[str, Any]
    asked_at: Annotated[datetime, Field(validation_alias="called_at")]


class AwaitedResults(BaseModel):
    """The calls of a session that wait for results, in order."""

    results: list[AwaitedResult]


class ToolResult(RequestBody):
    """A result of a client tool or of a long-running tool."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"result": {"status": "delivered"}}]})

    result: dict[str, Any]
    will_continue: bool = False
    """It is an update of a long-running tool: more results follow."""
