"""Read answers to waits, write waits as JSON, and describe both in the OpenAPI document."""

from collections.abc import Mapping
from typing import Annotated, Any

import msgspec
from msgspec import Struct
from pydantic import PlainValidator, WithJsonSchema

from lango.events import to_jsonable
from lango.json_values import convert
from lango.waits import (
    Answer,
    ApprovalWait,
    ClientResultWait,
    CredentialWait,
    EventWait,
    InputWait,
    LongRunningWait,
    QuestionWait,
    TimerWait,
    Wait,
)


class ShownApproval(ApprovalWait, frozen=True, kw_only=True, tag="approval"):
    """A tool call that runs with exactly these arguments once a person approves it, and what it would change."""

    diff: str = ""
    """What the call would change in a file now, as a unified diff; empty if it cannot be shown."""


ShownWait = (
    ShownApproval
    | InputWait
    | CredentialWait
    | ClientResultWait
    | LongRunningWait
    | TimerWait
    | EventWait
    | QuestionWait
)


class SessionWaits(Struct, frozen=True):
    """What the turns of a session wait for, in order."""

    waits: list[ShownWait]


class InboxEntry(Struct, frozen=True):
    """A wait, with the title of its session."""

    wait: Wait
    title: str
    agent: str
    """The agent whose session waits: name it in `?agent=` to answer."""


class InboxPage(Struct, frozen=True):
    """A page of what waits for the caller, the newest first."""

    items: list[InboxEntry]
    next_cursor: str | None = None
    """Pass it as `cursor` for the next page; null on the last page."""


def answer_component() -> dict[str, Any]:
    """Return the schemas of answers to waits for the OpenAPI document, by their names."""
    (answer,), found = msgspec.json.schema_components([Answer], ref_template="#/components/schemas/{name}")
    examples = [{"type": "approve"}, {"type": "refuse", "reason": "Ask me first."}, {"type": "value", "value": 3}]
    return found | {"Answer": answer | {"description": "An answer to a wait.", "examples": examples}}


def shown_json(value: Struct) -> Any:
    """Return waits as values that JSON has."""
    return msgspec.to_builtins(value, enc_hook=to_jsonable)


def with_diff(wait: ApprovalWait, diff: str) -> ShownApproval:
    """Return an approval with what its call would change."""
    return ShownApproval(**msgspec.structs.asdict(wait), diff=diff)


def _read_answer(value: object) -> Answer:
    if not isinstance(value, Mapping) or "type" not in value:
        raise ValueError("send an object with a type: approve, refuse, value, decline, credential, result or wake")
    try:
        return convert(value, Answer)
    except msgspec.ValidationError as error:
        raise ValueError(str(error)) from error


AnswerBody = Annotated[Answer, PlainValidator(_read_answer), WithJsonSchema({"$ref": "#/components/schemas/Answer"})]
"""An answer in a request. A test runs its examples."""
