"""Put waits into words, and read the answers that clients of agents send as plain values."""

from typing import Any, cast

from msgspec import json, to_builtins

from lango.errors import InvalidAnswer
from lango.events import to_jsonable
from lango.json_values import to_client_json
from lango.waits import (
    Answer,
    ApprovalWait,
    Approve,
    ClientResultWait,
    Credential,
    CredentialWait,
    Decline,
    EventWait,
    InputWait,
    LongRunningWait,
    QuestionWait,
    Refuse,
    Result,
    TimerWait,
    ToolResultWait,
    Value,
    Wait,
    Wake,
)

_YES = frozenset({"yes", "y", "approve", "approved", "ok", "allow"})
_NO = frozenset({"no", "n", "refuse", "refused", "deny", "decline"})


def asks_client(wait: Wait) -> bool:
    """Whether the client can answer a wait; results of long-running tools, times and events come from elsewhere."""
    return not isinstance(wait, ToolResultWait)


def question_text(wait: Wait) -> str:
    """Describe in words what a wait is for."""
    match wait:
        case ApprovalWait():
            arguments = json.encode(to_client_json(to_builtins(wait.arguments, enc_hook=to_jsonable))).decode()
            hint = f" {wait.hint}" if wait.hint else ""
            return f"May the tool {wait.tool} run with {arguments}?{hint}"
        case CredentialWait():
            what = wait.message or "A tool needs access to one of your accounts."
            return f"{what} {wait.auth_url}".strip()
        case InputWait() | QuestionWait():
            return wait.message or "The agent needs a value."
        case ClientResultWait() | LongRunningWait():
            return f"The tool {wait.tool} waits for its result."
        case TimerWait():
            until = "" if wait.expires_at is None else f" until {wait.expires_at.isoformat(timespec='seconds')}"
            return f"The agent waits{until}: {wait.reason or wait.tool}."
        case EventWait():
            return f"The agent waits for the event {wait.event}: {wait.reason or wait.tool}."


def value_to_answer(wait: Wait, value: Any) -> Answer:
    """Read the answer to a wait. Raise `InvalidAnswer` if it does not say yes or no to an approval."""
    match wait:
        case ApprovalWait():
            return _approval(value)
        case CredentialWait():
            return Credential(value)
        case InputWait():
            return Value(value)
        case QuestionWait():
            return Decline() if value == {"declined": True} else Value(value)
        case TimerWait():
            return Wake()
        case ClientResultWait() | LongRunningWait() | EventWait():
            return Result(cast("dict[str, Any]", value) if isinstance(value, dict) else {"result": value})


def _approval(value: Any) -> Approve | Refuse:
    match value:
        case True | {"approved": True}:
            return Approve()
        case {"approved": False, "reason": str(reason)}:
            return Refuse(reason)
        case False | {"approved": False}:
            return Refuse()
        case {"result": str(text)}:
            return _approval(text)
        case str(text) if text.strip().rstrip(".!").lower() in _YES:
            return Approve()
        case str(text) if text.strip().rstrip(".!").lower() in _NO:
            return Refuse()
        case _:
            raise InvalidAnswer(
                'the agent waits for an approval: answer with the text yes or no, or with the data {"approved": true}'
            )
