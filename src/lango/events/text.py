"""Follow the text of a turn by its events, remove what is withdrawn, and put texts one after the other.

Agents that run in parallel speak at once: the deltas of their texts alternate. A terminal and most protocols of other
clients can only append text, so they read the events of a turn through a `TextOrder`.
"""

import itertools
from collections.abc import AsyncIterable, AsyncIterator, Iterable, Sequence
from typing import TypeVar

from msgspec import Struct
from msgspec.structs import replace

from lango.events import (
    TextDelta,
    TextEnd,
    TextWithdrawn,
    ThoughtDelta,
    ToolEnd,
    ToolProgress,
    ToolStart,
    TurnDone,
    TurnError,
    TurnEvent,
    WaitOpened,
    is_final,
    turn_of_event,
)

Event = TypeVar("Event", bound=TurnEvent)

MAX_JOINED = 100_000
"""The longest text that joined pieces have: many WebSocket clients refuse a message of more than 1 MiB."""


def is_withdrawn(event: TurnEvent, withdrawal: TextWithdrawn) -> bool:
    """Whether an event has text that a later event withdraws."""
    return isinstance(event, TextDelta | ThoughtDelta) and _place(event) == _place(withdrawal)


def _place(event: TextDelta | ThoughtDelta | TextWithdrawn) -> tuple[int, int]:
    """Return the turn and the block of an event: each turn numbers its own blocks."""
    return turn_of_event(event.id), event.block


def join_text_deltas(events: Iterable[TurnEvent]) -> list[TurnEvent]:
    """Join the text deltas of each block, under the id of the last, up to `MAX_JOINED` characters each.

    Deltas of other blocks may lie between them, but no other event.
    """
    joined: list[TurnEvent] = []
    waiting: list[_Joined] = []
    growing: dict[int, _Joined] = {}
    """The newest text of each block; all of them are in `waiting`."""
    for event in events:
        match event:
            case TextDelta() | ThoughtDelta():
                last = growing.get(event.block)
                if last is None or not last.add(event):
                    growing[event.block] = _Joined([event], len(event.text))
                    waiting.append(growing[event.block])
            case TextEnd():
                growing.pop(event.block, None)
                waiting.append(_Joined([event], 0))
            case _:
                joined += _in_order(waiting)
                joined.append(event)
                waiting, growing = [], {}
    return joined + _in_order(waiting)


class _Joined(Struct):
    """Pieces of one text, or the end of one."""

    pieces: list[TextDelta | ThoughtDelta | TextEnd]
    length: int

    def add(self, event: TextDelta | ThoughtDelta) -> bool:
        """Add a piece, if it belongs to the same text and is not too long."""
        if type(event) is not type(self.pieces[0]) or self.length + len(event.text) > MAX_JOINED:
            return False
        self.pieces.append(event)
        self.length += len(event.text)
        return True

    def to_event(self) -> TurnEvent:
        if len(self.pieces) == 1:
            return self.pieces[0]
        return replace(self.pieces[-1], text="".join(one.text for one in self.pieces if not isinstance(one, TextEnd)))


def _in_order(waiting: list[_Joined]) -> list[TurnEvent]:
    return sorted((one.to_event() for one in waiting), key=lambda event: event.id)


def without_withdrawn(events: Iterable[Event], withdrawal: TextWithdrawn) -> list[Event]:
    """Return the events whose text is not withdrawn, in order."""
    return [event for event in events if not is_withdrawn(event, withdrawal)]


def remove_withdrawn(events: Sequence[TurnEvent]) -> list[TurnEvent]:
    """Return events without withdrawn text and without the withdrawals, in order."""
    withdrawals = [event for event in events if isinstance(event, TextWithdrawn)]
    return [
        event
        for event in events
        if not isinstance(event, TextWithdrawn) and not any(is_withdrawn(event, one) for one in withdrawals)
    ]


def join_texts(texts: Iterable[tuple[str, str]]) -> str:
    """Join pieces of text, each with its author: a blank line keeps the texts of different authors apart."""
    joined, last = list[str](), ""
    for author, text in texts:
        if text:
            joined += ([_gap(joined[-1])] if joined and author != last else []) + [text]
            last = author
    return "".join(joined)


def _gap(before: str) -> str:
    """Return what is missing of a blank line after a text."""
    return "\n\n"[min(2, len(before) - len(before.rstrip("\n"))) :]


class StreamedText:
    """The text of a turn, as its events so far show it: one block after the other, in the order in which they began."""

    def __init__(self, events: Iterable[TurnEvent] = ()) -> None:
        self._blocks: dict[tuple[int, int], list[TextDelta]] = {}
        for event in events:
            self.add(event)

    def add(self, event: TurnEvent) -> None:
        """Add the next event of the turn."""
        if isinstance(event, TextDelta):
            self._blocks.setdefault(_place(event), []).append(event)
        elif isinstance(event, TextWithdrawn):
            self._blocks.pop(_place(event), None)

    @property
    def text(self) -> str:
        """The text that is valid now."""
        return join_texts((delta.author, delta.text) for delta in self._deltas)

    @property
    def by_author(self) -> list[tuple[str, str]]:
        """The valid text of one author after the other."""
        groups = itertools.groupby(self._deltas, lambda delta: delta.author)
        return [(author, "".join(delta.text for delta in deltas)) for author, deltas in groups]

    @property
    def _deltas(self) -> list[TextDelta]:
        return [delta for _, deltas in sorted(self._blocks.items()) for delta in deltas]


class LastText:
    """The text of a turn after its last tool call, for clients that can use nothing else; complete at its end."""

    def __init__(self) -> None:
        self._streamed = StreamedText()

    def add(self, event: TurnEvent) -> str:
        """Add the next event of the turn; return the text that can be sent now."""
        self._streamed.add(event)
        if isinstance(event, ToolStart):
            self._streamed = StreamedText()
        return self._streamed.text if isinstance(event, TurnDone) else ""


class FinalText:
    """The text of a turn for clients that cannot withdraw any.

    Text is passed on as it is streamed. After a withdrawal, text of the same author is held until its response is
    complete. Then comes what continues the text that was already sent, or the whole text on a new line. Its events come
    from a `TextOrder`, so no text begins before another one has ended.
    """

    def __init__(self) -> None:
        self._sent: list[TextDelta] = []
        self._held: list[TextDelta] = []
        self._withdrawn: dict[str, str] = {}
        """The text of each author that was sent and is withdrawn, while that author's text is held."""
        self._needs_new_line = False

    def add(self, event: TurnEvent) -> str:
        """Add the next event of the turn; return the text that can be sent now."""
        match event:
            case TextDelta() if event.author in self._withdrawn:
                self._held.append(event)
                return ""
            case TextDelta():
                return self._send([event])
            case TextWithdrawn():
                self._withdraw(event)
                return ""
            case TextEnd() | ToolStart():
                return self._end_response(event.author)
            case WaitOpened() | TurnDone():
                authors = list(dict.fromkeys(delta.author for delta in self._held))
                return "".join(self._end_response(author) for author in authors)
            case _:
                return ""

    def _end_response(self, author: str) -> str:
        """Return the held text, not sent yet, of an author whose response is complete."""
        if author not in self._withdrawn:
            return ""
        withdrawn = self._withdrawn.pop(author)
        own = [delta for delta in self._held if delta.author == author]
        self._held = [delta for delta in self._held if delta.author != author]
        text = "".join(delta.text for delta in own)
        sent = "".join(delta.text for delta in self._sent)
        if withdrawn and sent.endswith(withdrawn) and text.startswith(withdrawn):
            self._sent += own
            return text[len(withdrawn) :]
        self._needs_new_line = self._needs_new_line or bool(withdrawn)
        return self._send(own)

    def _send(self, deltas: list[TextDelta]) -> str:
        text = "".join(delta.text for delta in deltas)
        last = next((delta for delta in reversed(self._sent) if delta.text), None)
        if text and last and last.author != deltas[0].author:
            text = f"{_gap(last.text)}{text}"
        elif text and self._needs_new_line:
            text = f"\n{text}"
        self._needs_new_line = self._needs_new_line and not text
        self._sent += deltas
        return text

    def _withdraw(self, withdrawal: TextWithdrawn) -> None:
        self._held = without_withdrawn(self._held, withdrawal)
        sent = "".join(delta.text for delta in self._sent if is_withdrawn(delta, withdrawal))
        before = self._withdrawn.get(withdrawal.author, "")
        self._withdrawn[withdrawal.author] = max(before, sent, key=len)  # one is the end of the other


# -- one text at a time ------------------------------------------------------------------------------------------------


async def one_text_at_a_time(events: AsyncIterable[TurnEvent]) -> AsyncIterator[TurnEvent]:
    """Yield the events of a turn so that its texts follow each other: `one_text_at_a_time(runtime.stream(...))`."""
    order = TextOrder()
    async for event in events:
        for ready in order.add(event):
            yield ready


class TextOrder:
    """Orders the events of a turn by their texts: a text is held while an earlier one has not ended.

    The calls that follow a held text are held with it, and those of other agents while a text has not ended. All other
    events are passed on as they come.
    """

    def __init__(self) -> None:
        self._current = 0
        """The block that is passed on as it comes, or 0."""
        self._author = ""
        """The author of the current block."""
        self._held: dict[int, list[TurnEvent]] = {}
        """The events of the other blocks, and those of the calls that follow them, in the order in which they began.

        Calls that follow no held block have a negative number.
        """
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
                    if event.block:
                        self._current, self._author = event.block, event.author
                    return None
                self._held[event.block] = []
                return event.block
            case TextEnd() if event.block in self._held:
                self._ended.add(event.block)
                return event.block
            case ToolStart():
                number = next((n for n in reversed(self._held) if _author_of(self._held[n]) == event.author), None)
                if number is None and self._current and event.author != self._author:
                    number = min([0, *self._held]) - 1
                    self._held[number] = []
                    self._ended.add(number)
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
            held = self._held.pop(number)
            ready += held
            self._current, self._author = (0, "") if number in self._ended else (number, _author_of(held))
        return ready


def _author_of(held: list[TurnEvent]) -> str:
    first = held[0]
    return first.author if isinstance(first, TextDelta | ThoughtDelta | ToolStart) else ""
