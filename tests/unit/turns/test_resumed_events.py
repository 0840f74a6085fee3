"""Readers of a turn that is run again get each text once, however the events of the first run were joined for them."""

from collections.abc import Sequence
from itertools import groupby
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from lango.event_text import StreamedText
from lango.events import Accepted, TextDelta, TextWithdrawn, ToolEnd, ToolStart, TurnEvent
from lango.store import Turn
from lango.turns.resumed_events import ResumedEvents
from lango.turns.turn_log import TurnLog

PIECES = st.lists(st.text("ab", min_size=1, max_size=3), min_size=1, max_size=4)


def turn_log() -> TurnLog:
    log = TurnLog(Turn(1, 1))
    log.emit(Accepted(log.next_id(), 1))
    return log


def emit_text(log: TurnLog, pieces: Sequence[str], author: str = "a") -> None:
    for piece in pieces:
        log.emit(TextDelta(log.next_id(), piece, author))


def join(events: Sequence[TurnEvent], cuts: st.DataObject) -> list[TurnEvent]:
    """Join pieces of text that follow each other, at random: a reader gets them under the id of the last one."""
    joined: list[TurnEvent] = []
    for event in events:
        last = joined[-1] if joined else None
        match last, event:
            case TextDelta(), TextDelta() if last.author == event.author and cuts.draw(st.booleans()):
                joined[-1] = TextDelta(event.id, last.text + event.text, event.author)
            case _:
                joined.append(event)
    return joined


@given(st.lists(PIECES, min_size=1, max_size=3), PIECES, st.integers(0, 3), st.data())
def test_readers_end_with_the_stored_text_and_the_new_one(
    streamed: list[list[str]], new: list[str], stored: int, data: st.DataObject
) -> None:
    log = turn_log()
    for pieces in streamed:
        emit_text(log, pieces)
    stored = min(stored, len(streamed))
    read_before = join(log.events, data)
    count = len(log.events)
    resumed = ResumedEvents(log, log.events)
    for pieces in streamed[:stored]:
        resumed.emit(TextDelta(log.next_id(), "".join(pieces), "a"))
    resumed.begin_model_call("a")
    for piece in new:
        resumed.emit(TextDelta(log.next_id(), piece, "a"))
    read = [*read_before, *log.events[count:]]
    expected = "".join("".join(pieces) for pieces in [*streamed[:stored], new])
    assert StreamedText(read).text == expected
    assert [event.id for event in read] == sorted({event.id for event in read})


@given(PIECES, PIECES, st.data())
def test_text_of_another_author_stays(of_a: list[str], of_b: list[str], data: st.DataObject) -> None:
    log = turn_log()
    queues = {"a": list(of_a), "b": list(of_b)}
    while any(queues.values()):
        author = data.draw(st.sampled_from([name for name, left in queues.items() if left]))
        emit_text(log, [queues[author].pop(0)], author)
    read_before, count = join(log.events, data), len(log.events)
    resumed = ResumedEvents(log, log.events)
    resumed.emit(TextDelta(log.next_id(), "".join(of_b), "b"))
    resumed.begin_model_call("a")
    resumed.emit(TextDelta(log.next_id(), "new", "a"))
    read = [*read_before, *log.events[count:]]
    for author, text in (("a", "new"), ("b", "".join(of_b))):
        own: list[Any] = [event for event in read if not isinstance(event, TextDelta) or event.author == author]
        assert StreamedText(own).text == text


def test_steps_that_readers_have_are_not_emitted_again() -> None:
    log = turn_log()
    log.emit(ToolStart(log.next_id(), "c1", "note"))
    count = len(log.events)
    resumed = ResumedEvents(log, log.events)
    resumed.emit(ToolStart(log.next_id(), "c1", "note"))
    resumed.emit(ToolEnd(log.next_id(), "c1", "note", ok=True))
    resumed.emit(ToolStart(log.next_id(), "c2", "note"))
    kinds = [kind for kind, _ in groupby(type(event) for event in log.events[count:])]
    assert kinds == [ToolEnd, ToolStart]


def test_nothing_is_withdrawn_if_all_text_was_stored() -> None:
    log = turn_log()
    emit_text(log, ["all ", "of it"])
    resumed = ResumedEvents(log, log.events)
    resumed.emit(TextDelta(log.next_id(), "all of it", "a"))
    resumed.begin_model_call("a")
    assert not any(isinstance(event, TextWithdrawn) for event in log.events)
