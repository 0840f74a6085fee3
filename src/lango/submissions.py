"""Define what a client submits to a session: a message, results of tools, or an answer to what a turn waits for."""

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct

from lango.config import ServerLimits
from lango.errors import AttachmentRefused
from lango.messages import MIME_TYPE, Attachment, Message
from lango.model_options import ModelOptions
from lango.sessions import WhenBusy
from lango.tools import Tool
from lango.waits import Answer


class TurnRequest(Struct, frozen=True):
    """What the client's request sets for the turn, in addition to what it submits."""

    idempotency_key: str | None = None
    """The same key again returns the same turn; with another request it raises `IdempotencyKeyReused`."""
    client_tools: Sequence[Tool] | None = None
    """Tools that the client runs: their calls end the turn. After a pause, None keeps those of the turn that paused."""
    options: ModelOptions | None = None
    """They hold for the model calls of this turn. After a pause, None keeps those of the turn that paused."""
    at_revision: int | None = None
    """Raise `StaleSession`, and store nothing, unless the session has this revision and no running or queued turn."""
    when_busy: WhenBusy | None = None
    """How a message is handled while a turn of the session runs, or None to follow the setting `agent.when_busy`."""
    digest: str | None = None
    """What a repeated idempotency key must come with, or None for the same message."""


class SubmittedMessage(Struct, frozen=True):
    """A message of the user. A workflow that waits for input gets its text, unless results or a history are with it."""

    text: str
    attachments: Sequence[Attachment] = ()
    state_delta: Mapping[str, Any] = {}
    """Changes the session's state when the turn starts."""
    results: Mapping[str, Mapping[str, Any]] = {}
    """Results of open client calls, by their ids; the message closes the other ones."""
    history: Sequence[Message] = ()
    """Earlier messages of the client: stored before this one in the same transaction, and marked as the client's."""
    request: TurnRequest = TurnRequest()
    may_answer: bool = True
    """Whether it may answer what a workflow asks a person; if not, it is always a new message."""


class SubmittedResults(Struct, frozen=True):
    """Results of client calls and long-running tools. The model continues when all calls of its answer have one."""

    results: Mapping[str, Mapping[str, Any]]
    """By the calls' ids; those of calls that wait for none are left out."""
    will_continue: bool | None = False
    """Whether these are updates of long-running tools, which more results follow, or may follow if it is None."""
    history: Sequence[Message] = ()
    """A history that ends with the calls: the session starts with it."""
    request: TurnRequest = TurnRequest()


class SubmittedAnswer(Struct, frozen=True):
    """The answer to a wait. It is accepted once; the idempotency key of its request returns the same turn again."""

    wait_id: str
    answer: Answer
    request: TurnRequest = TurnRequest()


class SubmittedEnd(Struct, frozen=True):
    """The end of a wait whose time has come, or that an event has answered. The runtime submits it, and no client."""

    wait_id: str
    seq: int
    """The message that opened the wait."""
    call_id: str
    result: Mapping[str, Any]
    """The result of the call that waits."""
    request: TurnRequest = TurnRequest()


Submission = SubmittedMessage | SubmittedResults | SubmittedAnswer | SubmittedEnd


def check_attachments(attachments: Sequence[Attachment], limits: ServerLimits) -> None:
    """Raise `AttachmentRefused` for files that are too many, too large, empty or of no valid type."""
    if len(attachments) > limits.max_attachments:
        raise AttachmentRefused(
            f"a message may have {limits.max_attachments} files, not {len(attachments)} "
            "(setting server.limits.max_attachments)"
        )
    total = sum(len(file.data) for file in attachments)
    if total > limits.max_attachment_bytes:
        raise AttachmentRefused(
            f"the files of a message may have {limits.max_attachment_bytes} bytes together, not {total} "
            "(setting server.limits.max_attachment_bytes)"
        )
    for file in attachments:
        if not (file.data and MIME_TYPE.fullmatch(file.mime_type)):
            raise AttachmentRefused(f"the file {file.name!r} is empty, or its type {file.mime_type!r} is not valid")
