"""Describe waits in a line, and read answers from texts: for the inbox, `lango run` and the chat."""

import json
import time
from datetime import UTC
from typing import Any, assert_never

from msgspec import to_builtins

from lango.errors import UsageError
from lango.events import to_jsonable
from lango.history.pairing import parse_result_text
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
    NewGrant,
    QuestionWait,
    Refuse,
    Result,
    TimerWait,
    Value,
    Wait,
    Wake,
)

_YES, _NO = ("y", "yes", "approve"), ("n", "no", "deny", "refuse")


def describe_wait(wait: Wait) -> str:
    """Say in a line what is asked."""
    match wait:
        case ApprovalWait():
            return f"{_call(wait)}{f': {wait.hint}' if wait.hint else ''}"
        case ClientResultWait() | LongRunningWait():
            return _call(wait)
        case TimerWait():
            return f"{wait.reason or wait.tool}: continues {_in_words(wait)}"
        case EventWait():
            until = f", until {_in_words(wait)}" if wait.expires_at is not None else ""
            fits = f" {json.dumps(dict(wait.match), ensure_ascii=False)}" if wait.match else ""
            return f"{wait.reason or wait.tool}: waits for the event {wait.event}{fits}{until}"
        case InputWait() | QuestionWait():
            return wait.message
        case CredentialWait():
            return wait.message or "a tool needs access to one of your accounts"
        case _:
            assert_never(wait)


def _in_words(wait: TimerWait | EventWait) -> str:
    """Return when a wait ends by itself, and how long that is from now, such as `2026-05-01 09:00 UTC (in 2 h)`."""
    if wait.expires_at is None:
        return ""
    left_s = max(0.0, wait.expires_at.timestamp() - time.time())
    sizes = ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s"))
    size, unit = next((one for one in sizes if left_s >= 2 * one[0]), sizes[-1])
    return f"{wait.expires_at.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC (in {left_s / size:.0f} {unit})"


def _call(wait: ApprovalWait | ClientResultWait | LongRunningWait) -> str:
    return f"{wait.tool} {json.dumps(dict(wait.arguments), ensure_ascii=False, default=str)}"


def read_answer(
    wait: Wait,
    text: str,
    *,
    grant: NewGrant | None = None,
    reason: str = "",
    update: bool = False,
    payload: Any = None,
) -> Answer:
    """Return the answer that a text stands for. Raise `UsageError` for one that does not fit the wait."""
    if update and not isinstance(wait, LongRunningWait):
        raise UsageError("--update works only for a long-running tool, and this is not one")
    if isinstance(wait, ApprovalWait):
        return _read_decision(wait, text.strip().lower(), grant, reason, payload)
    if grant is not None or reason or payload is not None:
        raise UsageError("--always, --reason and --payload work only for an approval, and this is not one")
    match wait:
        case QuestionWait() if text.strip().lower() in (*_NO, "decline"):
            return Decline()
        case InputWait() | QuestionWait():
            return Value(text)
        case CredentialWait():
            return Credential(text)
        case TimerWait():
            if text.strip().lower() not in (*_YES, "wake", "now"):
                raise UsageError("a timer is answered with wake; `lango inbox cancel` ends it without an answer")
            return Wake()
        case ClientResultWait() | LongRunningWait() | EventWait():
            return Result(parse_result_text(text.strip()), will_continue=update)
        case _:
            assert_never(wait)


def _read_decision(wait: ApprovalWait, word: str, grant: NewGrant | None, reason: str, payload: Any) -> Answer:
    if payload is not None and wait.payload is None:
        raise UsageError(f"{wait.tool} asks without a payload: leave out --payload")
    if word in _YES and not reason:
        return Approve(grant, payload)
    if word in _NO and grant is None:
        return Refuse(reason, payload)
    if word in (*_YES, *_NO):
        raise UsageError("--always comes with yes, and --reason with no")
    raise UsageError(f"{wait.tool} waits for an approval: answer yes or no")


def wait_json(wait: Wait) -> dict[str, Any]:
    """Return a wait as plain JSON."""
    return to_builtins(wait, enc_hook=to_jsonable)
