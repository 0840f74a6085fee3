"""The text of a turn: withdrawn text is gone, and clients that cannot withdraw get only what is final."""

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from lango.events import (
    IDS_PER_TURN,
    TextDelta,
    TextEnd,
    TextWithdrawn,
    ThoughtDelta,
    ToolStart,
    TurnDone,
    TurnEvent,
)
from lango.events.text import FinalText, StreamedText, is_withdrawn, join_text_deltas, without_withdrawn

WORDS = st.text("ab ", min_size=1, max_size=4)


def deltas(*texts: str, first_id: int = 1, author: str = "a") -> list[TurnEvent]:
    """Return the pieces of one block."""
    return [TextDelta(first_id + at, text, author, first_id) for at, text in enumerate(texts)]


def sent(*steps: TurnEvent | str) -> list[str]:
    """Return the pieces that a client gets; a step that is a text is an author whose response is complete."""
    final = FinalText()
    pieces = [final.add(TextEnd(0, 0, step) if isinstance(step, str) else step) for step in steps]
    return [piece for piece in (*pieces, final.add(TurnDone(0, 1))) if piece]


def test_only_the_text_of_the_block_is_withdrawn() -> None:
    events = [
        TextDelta(1, "before ", "a", 1),
        TextDelta(2, "other ", "b", 2),
        ThoughtDelta(3, "hm", "a", 3),
        TextDelta(4, "gone", "a", 3),
        ToolStart(5, "c", "note", author="a"),
    ]
    withdrawal = TextWithdrawn(6, 3, "a")
    assert [event.id for event in without_withdrawn(events, withdrawal)] == [1, 2, 5]
    assert not is_withdrawn(TextDelta(7, "again", "a", 4), withdrawal)
    assert not is_withdrawn(TextDelta(IDS_PER_TURN + 7, "in the next turn", "a", 3), withdrawal)
    text = StreamedText([*events, withdrawal, TextDelta(7, "again", "a", 4)])
    assert text.text == "before \n\nother \n\nagain", "a blank line keeps authors apart"


@given(st.lists(st.tuples(st.sampled_from([1, 2, 3]), WORDS | st.none()), max_size=12), st.data())
def test_joined_texts_are_those_of_the_pieces_whatever_alternates(
    steps: list[tuple[int, str | None]], data: st.DataObject
) -> None:
    """A text of None is the end of a block; the events are joined in groups, as they are written."""
    events: list[TurnEvent] = []
    for id_, (block, text) in enumerate(steps, 1):
        ended = any(isinstance(event, TextEnd) and event.block == block for event in events)
        kind = data.draw(st.sampled_from([TextDelta, ThoughtDelta])) if text else None
        if not ended:
            events.append(kind(id_, text, str(block), block) if kind and text else TextEnd(id_, block, str(block)))
    cut = data.draw(st.integers(0, len(events)))
    joined = [*join_text_deltas(events[:cut]), *join_text_deltas(events[cut:])]
    assert texts_of(joined) == texts_of(events)
    assert StreamedText(joined).text == StreamedText(events).text
    assert [event.id for event in joined] == sorted({event.id for event in joined})
    assert joined[-1:] == [] or joined[-1].id == events[-1].id
    for block in (1, 2, 3):
        own = [event for event in joined if isinstance(event, TextEnd | TextDelta) and event.block == block]
        assert not any(isinstance(event, TextEnd) for event in own[:-1]), "nothing follows the end of a block"


def texts_of(events: Sequence[TurnEvent]) -> dict[tuple[str, int], str]:
    found: dict[tuple[str, int], str] = {}
    for event in events:
        if isinstance(event, TextDelta | ThoughtDelta):
            place = event.type, event.block
            found[place] = found.get(place, "") + event.text
    return found


def test_text_is_sent_as_it_comes_while_nothing_is_withdrawn() -> None:
    assert sent(*deltas("one ", "two ", "three")) == ["one ", "two ", "three"]


def test_a_second_response_that_begins_alike_is_continued() -> None:
    again = deltas("Half of ", "the answer", first_id=11)
    assert sent(*deltas("Half of", " the"), TextWithdrawn(10, 1, "a"), *again) == ["Half of", " the", " answer"]


def test_another_second_response_is_sent_whole_on_a_new_line() -> None:
    again = deltas("All of ", "it", first_id=11)
    assert sent(*deltas("Half of"), TextWithdrawn(10, 1, "a"), *again) == ["Half of", "\nAll of it"]


def test_text_after_the_response_is_sent_as_it_comes_again() -> None:
    later = deltas("more ", "of it", first_id=21)
    steps = (*deltas("x"), TextWithdrawn(10, 1, "a"), *deltas("y", first_id=11), "a", *later)
    assert sent(*steps) == ["x", "\ny", "more ", "of it"]


def test_a_response_without_text_starts_the_next_one_on_a_new_line() -> None:
    assert sent(*deltas("x"), TextWithdrawn(10, 1, "a"), "a", *deltas("y", first_id=11)) == ["x", "\ny"]


def test_the_text_of_other_authors_is_not_held() -> None:
    parallel = deltas("other", first_id=11, author="b")
    again = deltas("mine and more", first_id=21)
    steps = (*deltas("mine"), TextWithdrawn(10, 1, "a"), *parallel, *again)
    assert sent(*steps) == ["mine", "\n\nother", "\n\nmine and more"], "what continues would stand after the other's"


@given(st.lists(st.tuples(st.lists(WORDS, max_size=3), st.booleans()), max_size=5))
def test_both_follow_the_same_text_through_any_number_of_withdrawals(
    attempts: Sequence[tuple[Sequence[str], bool]],
) -> None:
    """Each attempt streams some text, and is withdrawn or stored."""
    next_id, stored, streamed, final, client = 0, "", StreamedText(), FinalText(), ""
    for block, (texts, is_stored) in enumerate(attempts, 1):
        for text in texts:
            next_id += 1
            event = TextDelta(next_id, text, "a", block)
            streamed.add(event)
            client += final.add(event)
        if is_stored:
            stored += "".join(texts)
            client += final.add(TextEnd(next_id, block, author="a"))
        else:
            next_id += 1
            withdrawal = TextWithdrawn(next_id, block, "a")
            streamed.add(withdrawal)
            assert final.add(withdrawal) == ""
        assert streamed.text == stored
    client += final.add(TurnDone(next_id, 1))
    assert _contains_in_order(client, [texts for texts, is_stored in attempts if is_stored])
    if all(is_stored for _, is_stored in attempts):
        assert client == stored


def _contains_in_order(text: str, responses: Sequence[Sequence[str]]) -> bool:
    """Whether a text has each response whole, one after the other, perhaps with withdrawn text between."""
    at = 0
    for response in responses:
        found = text.find("".join(response), at)
        if found < 0:
            return False
        at = found + len("".join(response))
    return True
