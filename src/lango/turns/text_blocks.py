"""Know which text of a turn belongs to which response of a model, while agents speak at once.

Each model response of a turn is a block of text. The deltas of a response name its block, so readers can keep apart the
texts of parallel agents, which are emitted as they come.
"""

from collections.abc import Callable

from msgspec import Struct

from lango.events import TextDelta, TextEnd, TextWithdrawn, ThoughtDelta
from lango.events.text import join_texts


class _Block(Struct):
    """The text of one model response."""

    author: str
    branch: str
    stored_before: int
    """How many messages the run had stored when it began."""
    pieces: list[str] = []


class TextBlocks:
    """The texts of the model responses of one run of a turn, by the numbers of their blocks."""

    def __init__(self, next_id: Callable[[], int], next_block: Callable[[], int]) -> None:
        self._next_id = next_id
        self._next_block = next_block
        self._blocks: dict[int, _Block] = {}
        self._streaming: list[int] = []
        """The blocks that have not ended, in the order in which they began."""
        self._failed: set[tuple[str, str]] = set()
        """The agents whose model failed, each with its branch."""
        self._stored = 0

    @property
    def text(self) -> str:
        """The text of the run so far, one block after the other."""
        return join_texts((block.author, piece) for block in self._blocks.values() for piece in block.pieces)

    def begin(self, author: str, branch: str) -> int:
        """Begin the text of a model response; return its number."""
        number = self._next_block()
        self._blocks[number] = _Block(author, branch, self._stored)
        self._streaming.append(number)
        return number

    def add(self, number: int, text: str, *, thought: bool = False) -> TextDelta | ThoughtDelta:
        """Add a piece to a block, and make its event."""
        block = self._blocks[number]
        if thought:
            return ThoughtDelta(self._next_id(), text, block.author, number)
        block.pieces.append(text)
        return TextDelta(self._next_id(), text, block.author, number)

    def end(self, number: int) -> TextEnd:
        """End a block, and make its event."""
        self._streaming.remove(number)
        return TextEnd(self._next_id(), number, self._blocks[number].author)

    def note_failure(self, author: str, branch: str) -> None:
        """Note that the model of an agent failed before its response was complete."""
        self._failed.add((author, branch))

    def take_failed(self, author: str, branch: str) -> TextWithdrawn | None:
        """Remove the block of a failed response of an agent, and make the event of it; None if there is none."""
        lane = author, branch
        number = self.streaming_in(author, branch) if lane in self._failed else None
        self._failed.discard(lane)
        return None if number is None else self.withdraw(number)

    def withdraw(self, number: int) -> TextWithdrawn:
        """Remove a block, and make the event of it."""
        self._streaming.remove(number)
        return TextWithdrawn(self._next_id(), number, self._blocks.pop(number).author)

    def note_stored(self, messages: int = 1) -> None:
        """Note that messages of the turn were stored."""
        self._stored += messages

    def place_of(self, number: int) -> list[int] | None:
        """Return the place of a block that is stored next, or None if no other agent spoke since it began.

        It is the number of the block, and how many messages were stored since that began.
        """
        passed = self._stored - self._blocks[number].stored_before
        return [number, passed] if passed or len(self._streaming) > 1 else None

    def text_of(self, number: int) -> str:
        """Return the text of a block, without its thoughts."""
        return "".join(self._blocks[number].pieces)

    def find_streaming(self, author: str, branch: str, text: str) -> int | None:
        """Find the block whose complete text an event of ADK repeats.

        The branch of the event is only a hint: ADK gives an agent after a `ParallelAgent` a branch of that.
        """
        own = [number for number in self._streaming if self._blocks[number].author == author]
        same = [number for number in own if self.text_of(number) == text]
        near = [number for number in same or own if self._blocks[number].branch == branch]
        return next(iter(near or same), None)

    def streaming_in(self, author: str, branch: str) -> int | None:
        """Find the block that the partial events of an agent in a branch continue."""
        for number in self._streaming:
            if (self._blocks[number].author, self._blocks[number].branch) == (author, branch):
                return number
        return None
