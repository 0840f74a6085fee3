"""Readers of a turn that is run again get each text once, whichever agents spoke beside each other."""

from collections.abc import Sequence
from itertools import groupby

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from lango.events import Accepted, TextDelta, TextEnd, TextWithdrawn, ThoughtDelta, ToolEnd, ToolStart, TurnEvent
from lango.events.text import StreamedText, join_text_deltas
from lango.store import Turn
from lango.turns.turn_log import TurnLog
from lango.turns.turn_sink import ResumedEvents

PIECES = st.lists(st.text("ab", min_size=1, max_size=3), min_size=1, max_size=4)
AUTHORS = st.sampled_from(["a", "b"])


def turn_log() -> TurnLog:
    log = TurnLog(Turn(1, 1))
    log.emit(Accepted(log.next_id(), 1))
    return log


def emit_text(log: TurnLog, pieces: Sequence[str], author: str = "a", *, ends: bool = False) -> None:
    block = log.next_block()
    for piece in pieces:
        log.emit(TextDelta(log.next_id(), piece, author, block))
    if ends:
        log.emit(TextEnd(log.next_id(), block, author))


def repeat(log: TurnLog, resumed: ResumedEvents, text: str, author: str) -> None:
    """Emit a stored response again, as the second run does."""
    block = log.next_block()
    resumed.emit(TextDelta(log.next_id(), text, author, block))
    resumed.emit(TextEnd(log.next_id(), block, author))


@given(st.lists(st.tuples(AUTHORS, PIECES, st.integers(0, 5)), min_size=1, max_size=5), st.data())
def test_readers_end_with_the_stored_texts_and_the_new_ones(
    responses: list[tuple[str, list[str], int]], data: st.DataObject
) -> None:
    """The responses alternate; each is stored and perhaps ended, or was lost before it was complete."""
    log = turn_log()
    queues: list[list[TurnEvent]] = []
    stored: list[tuple[str, str]] = []
    open_authors: set[str] = set()
    for author, pieces, lost in responses:
        block = log.next_block()
        queue: list[TurnEvent] = [TextDelta(0, piece, author, block) for piece in pieces]
        is_stored = lost < 3 and author not in open_authors  # an agent goes on after its stored response only
        if is_stored:
            stored.append((author, "".join(pieces)))
            queue.append(TextEnd(0, block, author))
        else:
            open_authors.add(author)
        # the process died before it logged the last events
        queues.append(queue[: len(queue) - data.draw(st.integers(0, min(2, len(queue))))] if lost else queue)
    while left := [queue for queue in queues if queue]:
        event = data.draw(st.sampled_from(left)).pop(0)
        assert isinstance(event, TextDelta | TextEnd)
        log.emit(replace(event, id=log.next_id()))
    read_before, count = join_text_deltas(log.events), len(log.events)
    resumed = ResumedEvents(log, log.events)
    for author, text in data.draw(st.permutations(stored)) if data.draw(st.booleans()) else stored:
        repeat(log, resumed, text, author)
    for author in ("a", "b"):
        resumed.begin_model_call(author)
        block = log.next_block()
        resumed.emit(TextDelta(log.next_id(), f"new of {author}", author, block))
        resumed.emit(TextEnd(log.next_id(), block, author))
    read = [*read_before, *log.events[count:]]
    shown = StreamedText(read)
    for author in ("a", "b"):
        own = sorted(text for one, text in [*stored, ("a", "new of a"), ("b", "new of b")] if one == author)
        texts = _texts(read, author)
        assert sorted(texts) == own, (texts, own)
    assert shown.text.count("new of") == 2
    assert [event.id for event in read] == sorted({event.id for event in read})
    ends = [event.block for event in read if isinstance(event, TextEnd)]
    withdrawn = [event.block for event in read if isinstance(event, TextWithdrawn)]
    assert len(ends) == len(set(ends)), "a block ends once"
    blocks = {event.block for event in read if isinstance(event, TextDelta)}
    assert blocks - set(withdrawn) == set(ends) - set(withdrawn), "every block ends"


def _texts(events: Sequence[TurnEvent], author: str) -> list[str]:
    """Return the valid texts of an author's blocks."""
    blocks: dict[int, str] = {}
    for event in events:
        if isinstance(event, TextDelta) and event.author == author:
            blocks[event.block] = blocks.get(event.block, "") + event.text
        elif isinstance(event, TextWithdrawn):
            blocks.pop(event.block, None)
    return list(blocks.values())


def test_a_text_continues_in_the_block_that_readers_have() -> None:
    log = turn_log()
    emit_text(log, ["I am "], "anna")
    emit_text(log, ["And I am "], "ben")
    count, resumed = len(log.events), ResumedEvents(log, log.events)
    repeat(log, resumed, "And I am Ben.", "ben")
    resumed.begin_model_call("anna")
    emitted = log.events[count:]
    assert [type(event) for event in emitted] == [TextDelta, TextEnd, TextWithdrawn]
    assert emitted[0] == TextDelta(emitted[0].id, "Ben.", "ben", 2)
    assert [event.block for event in emitted if isinstance(event, TextEnd | TextWithdrawn)] == [2, 1]


def test_a_text_that_a_second_run_changes_replaces_the_first_one() -> None:
    log = turn_log()
    emit_text(log, ["It is one", " o'clock."], ends=True)
    count, resumed = len(log.events), ResumedEvents(log, log.events)
    block = log.next_block()
    for piece in ("It is ", "two o'clock."):
        resumed.emit(TextDelta(log.next_id(), piece, "a", block))
    resumed.emit(TextEnd(log.next_id(), block, "a"))
    assert StreamedText(log.events).text == "It is two o'clock."
    assert [type(event) for event in log.events[count:]] == [TextWithdrawn, TextDelta, TextDelta, TextEnd]
    assert [event.id for event in log.events] == sorted({event.id for event in log.events})


def test_a_response_keeps_the_thoughts_that_readers_have() -> None:
    log = turn_log()
    log.emit(ThoughtDelta(log.next_id(), "hm", "a", log.next_block()))
    count, resumed = len(log.events), ResumedEvents(log, log.events)
    repeat(log, resumed, "said", "a")
    assert log.events[count:] == [
        TextDelta(log.events[count].id, "said", "a", 1),
        TextEnd(log.events[-1].id, 1, "a"),
    ]


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
    repeat(log, resumed, "all of it", "a")
    resumed.begin_model_call("a")
    assert not any(isinstance(event, TextWithdrawn) for event in log.events)
