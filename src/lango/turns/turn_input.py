"""Hold what starts or continues a turn, and check its attachments."""

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct, field

from lango.config import ServerSettings
from lango.errors import AttachmentRefused
from lango.messages import MIME_TYPE, Attachment
from lango.store import NewEvent
from lango.store.turns.approvals import ApprovalAnswer
from lango.tools import Tool


class TurnInput(Struct):
    """What a turn is about: the user's message as an event, and as the store keeps it."""

    event: Any
    """The message as an ADK event; only `lango.adk` reads it."""
    entry: NewEvent
    answered_call_id: str = ""
    """The call that it answers a question about, going on with that invocation."""
    approval_answer: ApprovalAnswer | None = None
    """What was said to that question, and by whom."""
    client_tools: Mapping[str, Tool] = field(default_factory=dict[str, Tool])
    """What the client runs itself in this turn."""

    is_retry: bool = False
    """The results that it is about are stored, and the turn that brought them failed before it was answered."""

    @property
    def brings_client_results(self) -> bool:
        """It brings what the client's tools returned, and nothing else."""
        return bool(self.entry.client_results) and self.entry.message is not None and self.entry.message.role == "tool"


def check_attachments(attachments: Sequence[Attachment], limits: ServerSettings) -> None:
    """Raise `AttachmentRefused` for files that a message may not bring."""
    if len(attachments) > limits.max_attachments:
        raise AttachmentRefused(
            f"a message may bring {limits.max_attachments} files, not {len(attachments)} "
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
            raise AttachmentRefused(f"the file {file.name!r} is empty, or its type {file.mime_type!r} is none")
