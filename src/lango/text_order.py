"""Put the texts of a turn one after the other, for readers that can show only one text at a time.

Agents that run in parallel speak at once: the deltas of their texts alternate. A terminal and most protocols of other
clients can only append text, so they read the events of a turn through a `TextOrder`.
"""

from collections.abc import AsyncIterable, AsyncIterator

from lango.events import (
    TextDelta,
    TextEnd,
    TextWithdrawn,
    ThoughtDelta,
    ToolEnd,
    ToolProgress,
    ToolStart,
    TurnError,
    TurnEvent,
    is_final,
)


async def one_text_at_a_time(events: AsyncIterable[TurnEvent]) -> AsyncIterator[TurnEvent]:
    """Yield the events of a turn so that its texts follow each other: `one_text_at_a_time(runtime.stream(...))`."""
    order = TextOrder()
    async for event in events:
        for ready in order.add(event):
            yield ready


class TextOrder:
    """Orders the events of a turn by their texts: a text is held while an earlier one has not ended.

    The calls that follow a held text are held with it. All other events are passed on as they come.
    """

    def __init__(self) -> None:
        self._current = 0
        """The block that is passed on as it comes, or 0."""
        self._held: dict[int, list[TurnEvent]] = {}
        """The events of the other blocks, and those of the calls that follow them, in the order in which they began."""
        self._ended: set[int] = set()
        """The held blocks that are complete."""
        self._block_of_call: dict[str, int] = {}
        """The blocks of calls whose events are held."""

    def add(self, event: TurnEvent) -> list[TurnEvent]:
        """Add the next event of the turn; return the events that can be shown now."""
        if is_final(event):
            held = [one for events in self._held.values() for one in events]
            self.__init__()
            return [*held, event]
        if isinstance(event, TextWithdrawn) and self._held.pop(event.block, None) is not None:
            return []  # its text was not shown
        number = self._holding_block(event)
        if number is not None:
            self._held[number].append(event)
            return []
        if isinstance(event, TextEnd | TextWithdrawn) and event.block == self._current:
            return [event, *self._take_next()]
        return [event]

    def _holding_block(self, event: TurnEvent) -> int | None:
        """Return the block that an event is held with, or None if it can be shown."""
        match event:
            case TextDelta() | ThoughtDelta():
                if event.block in self._held:
                    return event.block
                if self._current in (0, event.block) or not event.block:
                    self._current = event.block or self._current
                    return None
                self._held[event.block] = []
                return event.block
            case TextEnd() if event.block in self._held:
                self._ended.add(event.block)
                return event.block
            case ToolStart():
                number = next((n for n, held in self._held.items() if _author_of(held) == event.author), None)
                if number is not None:
                    self._block_of_call[event.call_id] = number
                return number
            case ToolEnd() | ToolProgress() | TurnError():
                number = self._block_of_call.get(event.call_id or "")
                return number if number in self._held else None
            case _:
                return None

    def _take_next(self) -> list[TurnEvent]:
        """Return the held events up to the next text that has not ended, which becomes the current one."""
        self._current, ready = 0, list[TurnEvent]()
        while self._held and not self._current:
            number = next(iter(self._held))
            ready += self._held.pop(number)
            self._current = 0 if number in self._ended else number
        return ready


def _author_of(held: list[TurnEvent]) -> str:
    first = held[0]
    return first.author if isinstance(first, TextDelta | ThoughtDelta) else ""
