"""Track the text and tokens of a turn so far, and make its text events."""

from collections.abc import Callable, Mapping
from typing import Any

from msgspec import Struct

from lango.events import TextDelta, ThoughtDelta, Usage
from lango.store.tool_calls.approvals import ApprovalRequest
from lango.store.tool_calls.credential_requests import CredentialRequest
from lango.store.tool_calls.input_requests import InputRequest
from lango.turns.text_blocks import TextBlocks

NextId = Callable[[], int]


class TurnProgress(Struct, kw_only=True):
    """The text, tokens and state of a turn so far."""

    next_id: NextId
    blocks: TextBlocks
    has_text_since_tool: bool = False
    usage_by_model: dict[str, Usage] = {}
    """The tokens of the model calls so far; their cost is not known yet."""
    finish_reason: str = ""
    awaits_approval: bool = False
    """An approval request is open."""
    awaits_input: bool = False
    """An input request of a workflow is open."""
    awaits_credential: bool = False
    """A credential request is open."""
    awaits_client: bool = False
    """A client call is open."""
    awaits_result: bool = False
    """A long-running tool has no result yet."""
    error: tuple[str, str] | None = None
    output: Any = None
    """The final output of a workflow; None: it has none."""
    call_ids: set[str] = set()
    """Ids of the tool calls."""
    ended_by_tool: bool = False
    """A tool's result ended the turn: no answer follows."""
    invocation_ids: list[str] = []
    durations_s: dict[str, float] = {}
    """The duration of each finished call."""
    approval_requests: Mapping[str, ApprovalRequest] = {}
    """The stored open approval requests, by the ids of their calls."""
    input_requests: Mapping[str, InputRequest] = {}
    """The stored open input requests, by the ids of their calls."""

    credential_requests: Mapping[str, CredentialRequest] = {}
    """The stored open credential requests, by the ids of their calls."""
    summaries: int = 0
    """How many summaries of earlier events were made."""

    def add_usage(self, model: str, usage: Usage) -> None:
        """Count the tokens of a model call."""
        self.usage_by_model[model] = self.usage_by_model.get(model, Usage()) + usage

    @property
    def is_pending(self) -> bool:
        """Whether the turn waits for an answer, and the agent continues with it."""
        asks = self.awaits_approval or self.awaits_input or self.awaits_credential
        return asks or self.awaits_client or self.awaits_result

    @property
    def text(self) -> str:
        """The text of the turn so far."""
        return self.blocks.text

    def text_event(self, block: int, text: str, *, thought: bool = False) -> TextDelta | ThoughtDelta:
        """Make the event of a piece of a block, and remember the piece: the final ADK event repeats it."""
        if not thought:
            self.has_text_since_tool = self.has_text_since_tool or not text.isspace()
            self.error = None  # text after an error: the agent has recovered
        return self.blocks.add(block, text, thought=thought)
