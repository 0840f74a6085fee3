"""Readers that show one text at a time get each text whole, however the texts of parallel agents alternate."""

from collections.abc import Sequence
from itertools import groupby

from hypothesis import given
from hypothesis import strategies as st

from lango.events import (
    TextDelta,
    TextEnd,
    TextWithdrawn,
    ThoughtDelta,
    ToolEnd,
    ToolStart,
    TurnDone,
    TurnEvent,
)
from lango.events.text import TextOrder


def ordered(*events: TurnEvent) -> list[TurnEvent]:
    order = TextOrder()
    return [ready for event in events for ready in order.add(event)]


def of_block(block: int, texts: Sequence[str], end: str) -> list[TurnEvent]:
    """Return the events of one agent: its text, and a call after it."""
    author = f"agent{block}"
    events: list[TurnEvent] = [TextDelta(0, text, author, block) for text in texts]
    match end:
        case "withdrawn":
            return [*events, TextWithdrawn(0, block, author)]
        case "calls":
            call = ToolStart(0, f"c{block}", "look", author=author), ToolEnd(0, f"c{block}", "look")
            return [*events, TextEnd(0, block, author), *call]
        case "open":
            return events
        case _:
            return [*events, TextEnd(0, block, author)]


BLOCKS = st.lists(
    st.tuples(
        st.lists(st.sampled_from(["a", "b"]), min_size=1, max_size=3),
        st.sampled_from(["ended", "calls", "withdrawn", "open"]),
    ),
    min_size=1,
    max_size=4,
)


@given(BLOCKS, st.data())
def test_each_text_is_shown_in_one_piece_and_no_event_is_lost(
    blocks: list[tuple[list[str], str]], data: st.DataObject
) -> None:
    queues = [of_block(block, texts, end) for block, (texts, end) in enumerate(blocks, 1)]
    expected = [list(queue) for queue in queues]
    given_events: list[TurnEvent] = []
    while left := [queue for queue in queues if queue]:
        given_events.append(data.draw(st.sampled_from(left)).pop(0))
    shown = ordered(*given_events, TurnDone(0, 1))
    begun = [event for event in shown if isinstance(event, TextDelta | ToolStart)]
    runs = [
        one for one, _ in groupby(begun, lambda event: event.block if isinstance(event, TextDelta) else event.call_id)
    ]
    assert len(runs) == len(set(runs)), "no text continues after another one, or after a call of another agent"
    for block, (queue, (_, end)) in enumerate(zip(expected, blocks, strict=True), 1):
        own = [event for event in shown if _block_of(event) == block]
        assert own == queue or (end == "withdrawn" and own == []), "withdrawn before it was shown"
    assert isinstance(shown[-1], TurnDone)


def _block_of(event: TurnEvent) -> int:
    match event:
        case TextDelta() | TextEnd() | TextWithdrawn():
            return event.block
        case ToolStart() | ToolEnd():
            return int(event.call_id[1:])
        case _:
            return 0


def test_the_text_that_began_first_is_not_delayed() -> None:
    order = TextOrder()
    first, thought = TextDelta(1, "I", "anna", 1), ThoughtDelta(2, "hm", "ben", 2)
    beside, more = TextDelta(3, "And I", "ben", 2), TextDelta(4, " am", "anna", 1)
    end = TextEnd(5, 1, "anna")
    assert [order.add(event) for event in (first, thought, beside, more)] == [[first], [], [], [more]]
    assert order.add(end) == [end, thought, beside]
    later = TextDelta(6, " am Ben", "ben", 2)
    assert order.add(later) == [later], "the next text is shown as it comes"
    last = TurnDone(7, 1)
    assert order.add(last) == [last]
    of_next_turn = TextDelta(8, "again", "anna", 1)
    assert order.add(of_next_turn) == [of_next_turn]
