"""Keep the messages that an AG-UI client has during a run, to remove withdrawn text from them."""

from collections.abc import Sequence

from ag_ui.core import (
    AssistantMessage,
    FunctionCall,
    Message,
    MessagesSnapshotEvent,
    ReasoningMessage,
    ToolCall,
    ToolMessage,
)
from msgspec import Struct

from lango.event_text import without_withdrawn
from lango.events import TextDelta, TextWithdrawn, ThoughtDelta


class _StreamedMessage(Struct):
    """A message that is made of pieces of text, or of thoughts."""

    id: str
    is_thought: bool
    pieces: list[TextDelta | ThoughtDelta]

    def to_message(self) -> AssistantMessage | ReasoningMessage:
        content = "".join(piece.text for piece in self.pieces)
        if self.is_thought:
            return ReasoningMessage(id=self.id, content=content)
        return AssistantMessage(
            id=self.id, content=content, name=(self.pieces[0].author if self.pieces else "") or None
        )


class RunMessages:
    """The messages of a client: those that it sent, and those that the events of the run made."""

    def __init__(self, sent: Sequence[Message]) -> None:
        self._messages: list[Message | _StreamedMessage] = list(sent)

    def add_text(self, message_id: str, event: TextDelta | ThoughtDelta) -> None:
        """Add a piece to the message with this id, which is the newest, or a new one."""
        last = self._messages[-1] if self._messages else None
        if isinstance(last, _StreamedMessage) and last.id == message_id:
            last.pieces.append(event)
        else:
            self._messages.append(_StreamedMessage(message_id, isinstance(event, ThoughtDelta), [event]))

    def add_call(self, call_id: str, name: str, arguments: str) -> None:
        """Add a tool call, which a client keeps in a message with the id of the call."""
        call = ToolCall(id=call_id, function=FunctionCall(name=name, arguments=arguments))
        self._messages.append(AssistantMessage(id=call_id, tool_calls=[call]))

    def add_result(self, message_id: str, call_id: str, content: str) -> None:
        """Add the result of a tool call."""
        self._messages.append(ToolMessage(id=message_id, tool_call_id=call_id, content=content))

    def withdraw(self, withdrawal: TextWithdrawn) -> MessagesSnapshotEvent | None:
        """Remove withdrawn text; return the event that replaces the messages of the client, if any changed."""
        changed = False
        for message in self._messages:
            if isinstance(message, _StreamedMessage):
                kept = without_withdrawn(message.pieces, withdrawal)
                changed = changed or len(kept) < len(message.pieces)
                message.pieces = kept
        if not changed:
            return None
        # a client keeps the reasoning that a snapshot does not have: it is replaced by an empty message
        return MessagesSnapshotEvent(
            messages=[
                one.to_message() if isinstance(one, _StreamedMessage) else one
                for one in self._messages
                if not isinstance(one, _StreamedMessage) or one.pieces or one.is_thought
            ]
        )
