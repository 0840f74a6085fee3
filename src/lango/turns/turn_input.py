"""Define what starts or continues a turn, and check its attachments."""

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from lango.store import NewEvent
from lango.store.turns.turns import StoredClientTool, StoredRequest
from lango.store.waits.due import EndedWait
from lango.store.waits.waits import WaitAnswer
from lango.submissions import ModelOptions
from lango.tools import Tool


class TurnInput(Struct, frozen=True, eq=False):
    """What starts or continues a turn: a message, an answer to what a turn waits for, or results of tools."""

    event: Any
    """The input as an ADK event; only `lango.adk` reads it."""
    entry: NewEvent
    """The same input as the store keeps it."""
    answer: WaitAnswer | None = None
    """The answer to a request that it brings; the turn continues the invocation that asks."""
    ended: EndedWait | None = None
    """The wait for a time or an event that it ends."""
    sent: NewEvent | None = None
    """The message that the user sent, where it answers an input request."""
    client_tools: Mapping[str, Tool] = {}
    """The tools that the client runs itself in this turn, by name."""
    options: ModelOptions = ModelOptions()
    """What the request sets for the model calls of this turn."""
    digest: str | None = None
    """A hash of the request, where it is more than a message: a repeated idempotency key must come with the same."""
    is_retry: bool = False
    """The client's results are stored, and the turn that brought them failed before the model answered."""

    is_continued: bool = False
    """It is the note from which a turn continues after an update of the app."""
    quota_id: str | None = None
    """The quota that the turn's tokens are counted against."""
    tokens_per_day: int | None = None
    """The tokens that the quota allows in a day, or None if it has no limit: a turn that was queued checks it again."""

    def request(self, trace: Mapping[str, str]) -> StoredRequest:
        """Return what the turn's row keeps of the request that brought it; `trace` has the ids of its trace."""
        tools = self.client_tools.values()
        return StoredRequest(
            client_tools=[StoredClientTool(tool.name, tool.description, tool.parameters) for tool in tools],
            options=self.options,
            answer=self.answer and replace(self.answer, content=""),
            retry_of=self.event.id if self.is_retry else "",
            quota=self.quota_id,
            tokens_per_day=self.tokens_per_day,
            trace=trace,
        )

    @property
    def continues_invocation(self) -> bool:
        """Whether it continues an invocation that paused, and is not a new message."""
        return self.answer is not None or self.brings_client_results or self.is_retry

    @property
    def answered_kind(self) -> str:
        """The kind of the request that it answers, or "" if it answers none."""
        return self.answer.kind if self.answer is not None else ""

    @property
    def brings_client_results(self) -> bool:
        """Whether it brings results of client tools and nothing else."""
        return bool(self.entry.client_results) and self.entry.message is not None and self.entry.message.role == "tool"


def request_digest(kind: str, *parts: Any) -> str:
    """Return a hash of a request that is not a message, by which a repeated one is recognised."""
    content = json.dumps([kind, *parts], sort_keys=True, default=repr)
    return hashlib.sha256(content.encode()).hexdigest()
