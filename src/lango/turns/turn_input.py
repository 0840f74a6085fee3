"""Define what starts or continues a turn, and check its attachments."""

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct, field, to_builtins

from lango.config import ServerSettings
from lango.errors import AttachmentRefused
from lango.messages import MIME_TYPE, Attachment
from lango.store import NewEvent
from lango.store.turns.approvals import ApprovalAnswer
from lango.tools import Tool


class TurnInput(Struct):
    """What starts or continues a turn: a message, an approval or results of client tools."""

    event: Any
    """The input as an ADK event; only `lango.adk` reads it."""
    entry: NewEvent
    """The same input as the store keeps it."""
    answered_call_id: str = ""
    """The call whose approval request it answers; the turn continues that call's invocation."""
    approval_answer: ApprovalAnswer | None = None
    """The answer to that approval request."""
    client_tools: Mapping[str, Tool] = field(default_factory=dict[str, Tool])
    """The tools that the client runs itself in this turn, by name."""
    is_retry: bool = False
    """The client's results are stored, and the turn that brought them failed before the model answered."""

    quota_id: str | None = None
    """The quota that the turn's tokens are counted against."""

    @property
    def request(self) -> dict[str, Any]:
        """What came with the input and is not in its message: another process needs it to run the turn."""
        about: dict[str, Any] = {}
        if self.client_tools:
            about["client_tools"] = [
                {"name": tool.name, "description": tool.description, "parameters": tool.parameters}
                for tool in self.client_tools.values()
            ]
        if self.approval_answer is not None:
            about["approval_answer"] = to_builtins(self.approval_answer)
        if self.is_retry:
            about["retry_of"] = self.event.id
        if self.quota_id is not None:
            about["quota"] = self.quota_id
        return about

    @property
    def brings_client_results(self) -> bool:
        """Whether it brings results of client tools and nothing else."""
        return bool(self.entry.client_results) and self.entry.message is not None and self.entry.message.role == "tool"


def check_attachments(attachments: Sequence[Attachment], limits: ServerSettings) -> None:
    """Raise `AttachmentRefused` for files that are too many, too large, empty or of no valid type."""
    if len(attachments) > limits.max_attachments:
        raise AttachmentRefused(
            f"a message may have {limits.max_attachments} files, not {len(attachments)} "
            "(setting server.max_attachments)"
        )
    total = sum(len(file.data) for file in attachments)
    if total > limits.max_attachment_bytes:
        raise AttachmentRefused(
            f"the files of a message may have {limits.max_attachment_bytes} bytes together, not {total} "
            "(setting server.max_attachment_bytes)"
        )
    for file in attachments:
        if not (file.data and MIME_TYPE.fullmatch(file.mime_type)):
            raise AttachmentRefused(f"the file {file.name!r} is empty, or its type {file.mime_type!r} is not valid")
