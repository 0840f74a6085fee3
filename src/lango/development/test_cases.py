"""Define test cases: conversations as they are expected, and how they are checked."""

import re
from collections.abc import Collection, Mapping
from itertools import count
from pathlib import Path
from typing import Any, Literal

from msgspec import Struct, ValidationError, field

from lango.errors import UsageError
from lango.json_values import convert
from lango.messages import Attachment
from lango.waits import ApprovalWait, Approve, InputWait, LongRunningWait, Refuse, Result, Value, Wait

_ID_CHARACTERS = 40

EVAL_USER = re.compile(r"eval-[0-9a-f]{8}")
"""The users that cases run as, unless they name one."""

Order = Literal["exact", "in_order", "any_order"]


class Call(Struct, frozen=True):
    """A tool call by its name and arguments."""

    name: str
    args: Mapping[str, Any] = {}


class Exchange(Struct, frozen=True):
    """One message of a conversation, the tool calls that follow it and the answer."""

    text: str
    files: tuple[Attachment, ...] = ()
    calls: tuple[Call, ...] = ()
    answer: str = ""


class AnswerCheck(Struct, frozen=True, forbid_unknown_fields=True):
    """How one answer is checked."""

    match: Literal["exact", "regex", "similar", "judge", "any"]
    pattern: str = ""
    """Of `regex`: a regular expression that is found somewhere in the answer."""
    threshold: float = 0.8
    """Of `similar`: the least ROUGE-1 score."""
    question: str = ""
    """Of `judge`: what must be true of the answer; empty: it means the same as the expected one."""


class Reply(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """What a person answered to something that a turn waited for."""

    answer: Approve | Refuse | Value | Result
    to: str = ""
    """The tool that waited; empty: a workflow that needed a value."""
    question: str = ""
    """What the workflow asked, for the people who edit the case."""
    schema: Mapping[str, Any] | None = None
    """What the value had to fit, for the form that edits it."""

    def fits(self, wait: Wait) -> bool:
        """Whether it answers a wait."""
        match wait:
            case ApprovalWait():
                return isinstance(self.answer, Approve | Refuse) and self.to == wait.tool
            case LongRunningWait():
                return isinstance(self.answer, Result) and self.to == wait.tool
            case InputWait():
                return isinstance(self.answer, Value)
            case _:
                return False


class CaseChecks(Struct, frozen=True, forbid_unknown_fields=True):
    """The field `lango` of a case: its checks, which replace those of the set, and the replies of a person."""

    tools: Order | Literal["any"] | None = None
    """`any`: tool calls are not checked."""
    ignore_args: bool = False
    answers: AnswerCheck | list[AnswerCheck] | None = None
    """One check for all answers, or one for each message."""
    replies: list[list[Reply]] = []
    """For each message, what a person answers to the approvals and inputs that its turn waits for, in order."""

    def answer(self, at: int) -> AnswerCheck | None:
        """Return the check of the answer to a message."""
        return self.answers[at] if isinstance(self.answers, list) else self.answers


def readable_id(text: str, taken: Collection[str] = ()) -> str:
    """Return an id for a case after a text, such as `where-is-my-order`, that none of the others has."""
    words = re.findall(r"[^\W_]+", text.lower())
    base = ""
    for word in words:
        if base and len(base) + len(word) >= _ID_CHARACTERS:
            break
        base = f"{base}-{word}" if base else word[:_ID_CHARACTERS]
    base = base or "case"
    return next(id_ for number in count(1) if (id_ := base if number == 1 else f"{base}-{number}") not in taken)


class Case(Struct, frozen=True):
    """A conversation as it is expected."""

    file: Path
    id: str
    exchanges: tuple[Exchange, ...]
    checks: CaseChecks = field(default_factory=CaseChecks)
    state: Mapping[str, Any] = {}
    user_id: str = ""
    session_id: str = ""


def read_case_checks(fields: Any, messages: int) -> CaseChecks:
    """Read the checks of a case with a number of messages. Raise `UsageError`."""
    try:
        checks = convert(fields, CaseChecks)
    except ValidationError as error:
        raise UsageError(str(error)) from error
    if isinstance(checks.answers, list) and len(checks.answers) != messages:
        raise UsageError(f"`answers` has {len(checks.answers)} checks, and the conversation {messages} messages")
    answers = checks.answers if isinstance(checks.answers, list) else [checks.answers]
    for answer in answers:
        if answer is not None and answer.match == "regex":
            _check_pattern(answer.pattern)
    return checks


def _check_pattern(pattern: str) -> None:
    if not pattern:
        raise UsageError("a check with `regex` needs a `pattern`")
    try:
        re.compile(pattern)
    except re.error as error:
        raise UsageError(f"the pattern {pattern!r} is not a regular expression: {error}") from error
