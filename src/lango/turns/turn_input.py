"""Define what starts or continues a turn, and check its attachments."""

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from msgspec import Struct, to_builtins
from msgspec.structs import replace

from lango.store import NewEvent
from lango.store.tool_calls.approvals import ApprovalAnswer
from lango.store.tool_calls.credential_requests import CredentialAnswer
from lango.store.tool_calls.input_requests import InputAnswer
from lango.submissions import ModelOptions
from lango.tools import Tool


class TurnInput(Struct):
    """What starts or continues a turn: a message, an approval, an input, a credential or results of tools."""

    event: Any
    """The input as an ADK event; only `lango.adk` reads it."""
    entry: NewEvent
    """The same input as the store keeps it."""
    answered_call_id: str = ""
    """The call whose approval request it answers; the turn continues that call's invocation."""
    approval_answer: ApprovalAnswer | None = None
    """The answer to that approval request."""
    input_answer: InputAnswer | None = None
    """The input request of a workflow that it answers."""
    credential_answer: CredentialAnswer | None = None
    """The credential request that it answers."""
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

    quota_id: str | None = None
    """The quota that the turn's tokens are counted against."""
    tokens_per_day: int | None = None
    """The tokens that the quota allows in a day, or None if it has no limit: a turn that was queued checks it again."""

    @property
    def request(self) -> dict[str, Any]:
        """What came with the input and is not in its message: another process needs it to run the turn."""
        about: dict[str, Any] = {}
        if self.client_tools:
            about["client_tools"] = [
                {"name": tool.name, "description": tool.description, "parameters": tool.parameters}
                for tool in self.client_tools.values()
            ]
        if self.options != ModelOptions():
            about["options"] = to_builtins(self.options)
        if self.approval_answer is not None:
            about["approval_answer"] = to_builtins(self.approval_answer)
        if self.input_answer is not None:
            about["input_answer"] = to_builtins(self.input_answer)
        if self.credential_answer is not None:  # without the credential, which the store keeps encrypted
            about["credential_answer"] = to_builtins(replace(self.credential_answer, sealed=""))
        if self.is_retry:
            about["retry_of"] = self.event.id
        if self.quota_id is not None:
            about["quota"] = self.quota_id
        if self.tokens_per_day is not None:
            about["tokens_per_day"] = self.tokens_per_day
        return about

    @property
    def continues_invocation(self) -> bool:
        """Whether it continues an invocation that paused, and is no new message."""
        answers = self.answered_call_id or self.input_answer is not None or self.credential_answer is not None
        return bool(answers or self.brings_client_results or self.is_retry)

    @property
    def brings_client_results(self) -> bool:
        """Whether it brings results of client tools and nothing else."""
        return bool(self.entry.client_results) and self.entry.message is not None and self.entry.message.role == "tool"


def request_digest(kind: str, *parts: Any) -> str:
    """Return a hash of a request that is no message, by which a repeated one is recognised."""
    content = json.dumps([kind, *parts], sort_keys=True, default=repr)
    return hashlib.sha256(content.encode()).hexdigest()
