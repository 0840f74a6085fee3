"""Keep apart the texts of agents that speak at once, and emit them one after the other.

Each model response of a turn is a block of text. Parallel agents stream their blocks at the same time; readers get them
whole, in the order in which they began: the text of a later block is held until the blocks before it have ended.
"""

from collections.abc import Callable, Iterator

from msgspec import Struct
from msgspec.structs import replace

from lango.event_text import join_texts
from lango.events import TextDelta, ThoughtDelta, ToolEnd, ToolStart, TurnError, TurnEvent


class _Block(Struct):
    """The text of one model response."""

    author: str
    branch: str
    pieces: list[str] = []
    ended: bool = False
    held: list[TurnEvent] = []
    """Its events, and those of the calls that follow it, while another block is being emitted."""


class TextBlocks:
    """The texts of a turn's model responses, and the order in which they are emitted."""

    def __init__(self, next_id: Callable[[], int]) -> None:
        self._next_id = next_id
        self._blocks: list[_Block] = []
        self._streaming: set[int] = set()
        self._current: int | None = None
        """The block that is being emitted."""
        self._block_of_event: dict[int, int] = {}
        """The blocks of the pieces that were made and not emitted yet, by event id."""
        self._block_of_call: dict[str, int] = {}
        """The blocks of calls whose events are held."""

    @property
    def text(self) -> str:
        """The text of the turn so far."""
        return join_texts((block.author, piece) for block in self._blocks for piece in block.pieces)

    def begin(self, author: str, branch: str) -> int:
        """Begin the text of a model response; return its number."""
        self._blocks.append(_Block(author, branch))
        self._streaming.add(len(self._blocks) - 1)
        return len(self._blocks) - 1

    def add(self, number: int, text: str, *, thought: bool = False) -> TextDelta | ThoughtDelta:
        """Add a piece to a block, and make its event."""
        block = self._blocks[number]
        id_ = self._next_id()
        self._block_of_event[id_] = number
        if thought:
            return ThoughtDelta(id_, text, block.author)
        block.pieces.append(text)
        return TextDelta(id_, text, block.author)

    def has_text(self, number: int) -> bool:
        """Whether a block has text, and not only thoughts."""
        return bool(self._blocks[number].pieces)

    def find_streaming(self, author: str, branch: str, text: str) -> int | None:
        """Find the block whose complete text an event of ADK repeats.

        The branch of the event is only a hint: ADK gives an agent after a `ParallelAgent` a branch of that.
        """
        own = [number for number in sorted(self._streaming) if self._blocks[number].author == author]
        same = [number for number in own if "".join(self._blocks[number].pieces) == text]
        near = [number for number in same or own if self._blocks[number].branch == branch]
        return next(iter(near or same), None)

    def streaming_in(self, author: str, branch: str) -> int | None:
        """Find the block that the partial events of an agent in a branch continue."""
        for number in sorted(self._streaming):
            if (self._blocks[number].author, self._blocks[number].branch) == (author, branch):
                return number
        return None

    def end(self, number: int) -> Iterator[TurnEvent]:
        """End a block; yield the events that waited for it."""
        self._streaming.discard(number)
        self._blocks[number].ended = True
        if number == self._current:
            yield from self._emit_next()

    def in_order(self, event: TurnEvent) -> Iterator[TurnEvent]:
        """Yield an event, unless it has to wait for the end of an earlier block."""
        number = self._waits_in(event)
        if number is None:
            yield event
        else:
            self._blocks[number].held.append(event)

    def _waits_in(self, event: TurnEvent) -> int | None:
        """Return the block that an event is held with, or None if it can be emitted."""
        match event:
            case TextDelta() | ThoughtDelta():
                number = self._block_of_event.pop(event.id, None)
                if self._current is None or number is None:
                    self._current = number if number is not None and not self._blocks[number].ended else self._current
                    return None
                return None if number == self._current else number
            case ToolStart():
                own = [number for number, block in enumerate(self._blocks) if block.held]
                number = next((number for number in own if self._blocks[number].author == event.author), None)
                if number is not None:
                    self._block_of_call[event.call_id] = number
                return number
            case ToolEnd() | TurnError():
                return self._block_of_call.get(event.call_id or "")
            case _:
                return None

    def _emit_next(self) -> Iterator[TurnEvent]:
        self._current = None
        for number, block in enumerate(self._blocks):
            if not block.held:
                continue
            held, block.held = block.held, []
            self._current = None if block.ended else number
            for event in held:
                id_ = self._next_id()  # ids follow the order in which events are emitted
                if isinstance(event, ToolStart):
                    self._block_of_call.pop(event.call_id, None)
                yield replace(event, id=id_)
            if not block.ended:
                return

    def emit_all(self) -> Iterator[TurnEvent]:
        """Yield everything that is held: the turn ends."""
        for block in self._blocks:
            block.ended = True
        yield from self._emit_next()
