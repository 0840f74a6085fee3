"""Define what a client submits to a session: a message, results of tools, or an answer to what a turn waits for."""

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from lango.config import ServerLimits
from lango.errors import AttachmentRefused
from lango.messages import MIME_TYPE, Attachment, Message
from lango.tools import Tool
from lango.waits import Answer


class AgentOptions(Struct, frozen=True, omit_defaults=True):
    """What an agent gets instead of its own in one turn; empty: its own."""

    system: str = ""
    """The whole system text of its requests."""
    model: str = ""


class ModelOptions(Struct, frozen=True, omit_defaults=True):
    """What a request sets for the model calls of its turn; a field that it does not set is as configured."""

    tool_choice: str = "auto"
    """`auto`, `none`, `required`, or the name of a tool; a call is only forced in the first model call of the turn."""
    response_schema: Mapping[str, Any] | None = None
    """A JSON schema that the answer must follow."""
    json_object: bool = False
    """Whether the answer must be a JSON object, of any shape."""
    temperature: float | None = None
    top_p: float | None = None
    max_tokens: int | None = None
    """The limit of each model call."""
    stop: tuple[str, ...] = ()
    instruction: str = ""
    """The client's: every agent that answers reads it after its own instruction, marked as the client's."""
    model: str = ""
    """Used instead of the root agent's model, by every agent that shares it."""
    session_instruction: str = ""
    """Used instead of the instruction of the root agent."""
    agents: Mapping[str, AgentOptions] = {}
    """What agents get instead of their own, by their names: a developer tries it."""
    client_request: Mapping[str, Any] | None = None
    """The parameters of the request, which no model reads: the API that took it shows them again."""
    parallel_tool_calls: bool = True
    """Whether one answer of the model may call several tools; if not, only its first call counts."""

    @property
    def shapes_answer(self) -> bool:
        """Whether the answer must be JSON."""
        return self.response_schema is not None or self.json_object

    @property
    def for_next_turn(self) -> "ModelOptions":
        """The options after a pause: a forced call was made, and another request is answered."""
        choice = "none" if self.tool_choice == "none" else "auto"
        return replace(self, tool_choice=choice, client_request=None)


class TurnRequest(Struct, frozen=True):
    """What the client's request sets for the turn, besides what it submits."""

    idempotency_key: str | None = None
    """The same key again returns the same turn; with another request it raises `IdempotencyKeyReused`."""
    client_tools: Sequence[Tool] | None = None
    """Tools that the client runs: their calls end the turn. After a pause, None keeps those of the turn that paused."""
    options: ModelOptions | None = None
    """They hold for the model calls of this turn. After a pause, None keeps those of the turn that paused."""
    at_revision: int | None = None
    """Raise `StaleSession`, and store nothing, unless the session has this revision and no running or queued turn."""
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


Submission = SubmittedMessage | SubmittedResults | SubmittedAnswer


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
