"""O1: what is recalled for a question: the ranking, the room, time, and values that changed."""

from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta

import pytest

from lango.history import count_tokens
from lango.memory.dates import find_periods, with_days
from lango.memory.recall.question import read_question
from lango.memory.recall.ranking import matched, weigh
from lango.memory.recall.session_recall import recalled_text
from lango.store.memory.observations import Batch, Observation, Priority, SessionMemory
from lango.store.search.memory_entries import Memory

TODAY = date(2026, 11, 19)
MANY = 400
ROOM = 400


def note(text: str, seq: int, priority: Priority = "medium", number: int = 1) -> Observation:
    return Observation(text, seq, seq, priority, "2026-11-15", number)


def memory(*notes: Observation, shown: bool = False) -> SessionMemory:
    return SessionMemory((Batch(1, 999, notes, batch=1),), notes_tokens=None if shown else 0)


def messages(*texts: str, first: int = 1, days: int = 1) -> list[Memory]:
    """Messages of which each is said some days after the one before, and far enough apart to be no neighbours."""
    start = datetime(2026, 1, 1, tzinfo=UTC)
    return [
        Memory(f"e{at}", "user", text, (start + timedelta(days * at)).timestamp(), "s", first + 10 * at)
        for at, text in enumerate(texts)
    ]


def recalled(
    message: str,
    found: Sequence[Memory] = (),
    notes: SessionMemory | None = None,
    room: int = ROOM,
    *,
    shown: Sequence[str] = (),
    common: Sequence[str] = (),
) -> str:
    """Recall among messages of a long session, in which only the `common` words are in many messages."""
    question = read_question(message, TODAY, "english")
    terms = [*question.terms, *question.context]
    counted = [(term, MANY // 2 if term.text in common else 2) for term in terms]
    weights = weigh(counted, question, MANY, MANY // 10, "english")
    return recalled_text(question, weights, notes or SessionMemory(), found, room, shown)


def seqs(text: str) -> list[int]:
    lines = [line for line in text.splitlines() if line.startswith("- ")]
    return [int(line.partition("#")[2].split(" ")[0].split("-")[0]) for line in lines]


def test_o1_the_room_is_filled_in_order_of_score_and_shown_in_order_of_time() -> None:
    found = messages("A lamp is a light.", "The lamp of Ines is in the cellar.", "Ines slept.", "Nothing of note.")
    assert seqs(recalled("Where is the lamp of Ines?", found)) == [1, 11, 21]
    least = min(room for room in range(ROOM) if recalled("Where is the lamp of Ines?", found, room=room))
    assert seqs(recalled("Where is the lamp of Ines?", found, room=least)) == [11]
    for room in range(0, ROOM, 7):
        assert count_tokens(recalled("Where is the lamp of Ines?", found, room=room)) <= room


def test_o1_a_word_that_many_messages_have_counts_little_and_a_prefix_is_no_form_of_a_word() -> None:
    found = messages("The shelf, the shelf!", "The lamp is old.", "They live in Liverpool.", "She lived by the sea.")
    least = 62
    assert seqs(recalled("Is the lamp on the shelf?", found, room=least, common=["shelf"])) == [11]
    assert recalled("Is it on a shelf?", found, common=["shelf"]) == "", "alone it tells nothing"
    assert seqs(recalled("Where do they live?", found)) == [21, 31], "other forms"
    assert "is old" not in recalled("Where do they live?", found)
    question = read_question("Liverpool?", TODAY, "english")
    weights = weigh([(term, 1) for term in question.terms], question, MANY, 40, "english")
    assert matched("They live there.", weights) == set()


@pytest.mark.parametrize(
    ("language", "question", "text"),
    [
        ("english", "Which companies collaborate on games?", "collaborating company gaming"),
        ("german", "Welche Häuser?", "des Hauses der Häusern"),
        ("english", "Где живут кошки?", "кошка жила"),
    ],
)
def test_o1_other_forms_of_a_word_match(language: str, question: str, text: str) -> None:
    asked = read_question(question, TODAY, language)  # pyright: ignore[reportArgumentType]
    weights = weigh([(term, 1) for term in asked.terms], asked, MANY, 40, language)  # pyright: ignore[reportArgumentType]
    assert matched(text, weights)


def test_o1_an_answer_beside_a_message_with_the_words_is_recalled_with_it() -> None:
    [asked, far] = messages("What is the retired pilot teaching you?", "A sunny day.")
    answer = Memory("a", "lango", "Mostly how to land.", asked.created_at, "s", asked.seq + 1)
    assert seqs(recalled("Who is the pilot?", [asked, answer, far])) == [1, 2]


def test_o1_a_message_of_another_day_answers_nothing_although_it_is_the_next_one() -> None:
    [asked, later] = messages("What is the retired pilot teaching you?", "A sunny day.")
    for seconds, shown in ((60.0, [1, 2]), (86_400.0, [1])):
        beside = Memory("a", "lango", "Mostly how to land.", (asked.created_at or 0.0) + seconds, "s", asked.seq + 1)
        assert seqs(recalled("Who is the pilot?", [asked, beside, later])) == shown


def test_o1_what_an_apostrophe_leaves_is_no_word() -> None:
    found = messages("That's great, it's awesome!", "He didn't see it.", "The lamp of Ann broke.")
    assert seqs(recalled("What didn't Ann's lamp do?", found)) == [21]


def test_o1_what_another_speaker_tells_of_themselves_is_no_answer_about_the_one_who_is_named() -> None:
    found = messages(
        "Ann: I drink tea.", "Bob: I drink milk.", "Bob: Do you drink tea, Ann?", "Bob: I saw Ann drink tea."
    )
    assert seqs(recalled("What does Ann drink?", found)) == [1, 21, 31]
    assert seqs(recalled("What do Ann and Bob drink?", found)) == [1, 11, 21, 31]
    assert seqs(recalled("What does she drink?", found)) == [1, 11, 21, 31]
    assert seqs(recalled("What did Ann drink on 2026-01-02?", found)) == [1, 21, 31], "also on the day of the question"


def test_o1_a_long_message_is_quoted_with_its_best_sentences_and_cannot_close_the_quote() -> None:
    around = "We talked about the weather for a while. " * 40
    [long] = messages(f"{around}The lamp </recalled> is in the cellar. {around}")
    text = recalled("Where is the lamp?", [long])
    assert '\n2026-01-01:\n- #1 user: "' in text
    assert "The lamp &lt;/recalled> is in the cellar." in text
    assert text.count("</recalled>") == 1
    assert count_tokens(text) < ROOM // 2, "one message does not fill the room"
    [endless] = messages("word " * 200 + "the lamp is in the cellar " + "word " * 200)
    assert "lamp" in recalled("Where is the lamp?", [endless], room=120)


def test_o1_a_note_that_its_message_says_as_well_takes_no_room_and_a_shown_one_is_not_recalled() -> None:
    found = messages("The lamp of Ines is broken.", "Weather.")
    assert recalled("lamp?", found, memory(note("The lamp is broken.", 1))).count("broken") == 1
    dated = memory(note("The lamp is broken [2026-11-09 to 2026-11-15].", 1))
    assert recalled("lamp?", found, dated).count("broken") == 1
    both = recalled("lamp?", found, memory(note("Ines bought another lamp for 30 euros.", 1)))
    assert "30 euros" in both
    assert "is broken" in both
    assert recalled("lamp?", [], memory(note("The lamp is broken.", 1), shown=True)) == ""


def test_o1_a_message_that_mostly_informs_recalls_one_sentence_that_has_most_of_its_words() -> None:
    close, far = messages("Rain. " * 100 + "Ines put the lamp into the cellar. " + "Rain. " * 100, "A lamp is a light.")
    informs = "The lamp of Ines fell. The cellar is dark."
    assert "Ines put the lamp into the cellar." in recalled(informs, [close, far])
    assert seqs(recalled(informs, [close, far])) == [1]
    assert recalled(informs, [far]) == ""
    assert recalled(f"{informs} It was cold and wet and late that evening. How are you?", [far]) == ""
    assert seqs(recalled("The lamp fell. Where did Ines put the lamp, in the cellar?", [close, far])) == [1, 11]


# -- values that changed ----------------------------------------------------------------------------------------------


def test_o1_an_old_value_is_marked_as_earlier_with_its_successor() -> None:
    said = messages("My boat is green.", "My boat is red now.", "The boat is old.")
    notes = memory(note("My boat is green.", 1), note("My boat is red now.", 11, number=2))
    for known in (notes, SessionMemory()):
        text = recalled("What colour is my boat?", said[:1] + said[2:], known, shown=["My boat is red now."])
        assert [line for line in text.splitlines() if "green" in line and "red" not in line] == [], text
        assert "(earlier; since" in text
    past = recalled("What colour was my boat before?", [], notes)
    assert "#11 My boat is red now. (before: #1 green.)" in past


@pytest.mark.parametrize(
    ("said_later", "marked"),
    [
        ("Mara Lindt moved, the new room is K-8.", True),
        ("Mara Lindt works in room K-17.", True),
        ("Mara Lindt pays 30 euros for the room.", False),
        ("Mara Berger moved to room K-9.", False),
        ("Mara Lindt works in room K-3.", False),
    ],
)
def test_o1_what_the_window_says_of_a_thing_marks_what_is_recalled_of_it(said_later: str, marked: bool) -> None:
    shown = [f"The survey went out. {said_later} The draft can wait."]
    found = messages("Mara Lindt works in room K-3.")
    assert ("(earlier; since" in recalled("Where do I find Mara Lindt?", found, shown=shown)) == marked
    of_note = recalled("Where do I find Mara Lindt?", [], memory(note(found[0].text, 1)), shown=shown)
    assert ("K-3" not in of_note) == marked, "a note only says what holds"


# -- time -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "days"),
    [
        ("what happened on 2026-05-07", "2026-05-07"),
        ("on 7 May 2023", "2023-05-07"),
        ("on May 7th", "2026-05-07"),
        ("on December 24", "2026-12-24"),
        ("in March 2023", "2023-03"),
        ("last May", "2026-05"),
        ("in December", "2025-12"),
        ("in 2022", "2022"),
        ("yesterday", "2026-11-18"),
        ("two weeks ago", "2026-11-02 to 2026-11-08"),
        ("a couple of months ago", "2026-09"),
        ("last week", "2026-11-09 to 2026-11-15"),
        ("on Monday", "2026-11-16"),
        ("next month", "2026-12"),
        ("I may go on 31 February, 9000 years ago", ""),
    ],
)
def test_o1_dates_are_read_relative_to_the_day_of_a_text(text: str, days: str) -> None:
    assert ", ".join(map(str, find_periods(text, TODAY))) == days


def test_o1_relative_dates_of_a_text_are_written_beside_them_once() -> None:
    text = with_days("We moved last week, on 7 May 2023 we met.", TODAY)
    assert text == "We moved last week [2026-11-09 to 2026-11-15], on 7 May 2023 we met."
    assert with_days(text, TODAY) == text


def test_o1_days_in_a_question_select_messages_by_their_time() -> None:
    found = messages(*(f"The choir sang, {number}." for number in range(12)), days=30)
    most = 70
    assert seqs(recalled("What did the choir do last May?", found, room=most))[0] in (41, 51), "1 and 31 May"
    assert recalled("What happened last May?", found, room=most, common=["happened"]), "its time is enough"


def test_o1_before_an_event_the_messages_before_it_come_first() -> None:
    found = messages("The piano was loud.", "We had the move to Bern.", "The piano was quiet.")
    question = "How was the piano {} the move to Bern?"
    least = 90
    assert seqs(recalled(question.format("before"), found, room=least)) == [1, 11]
    assert seqs(recalled(question.format("after"), found, room=least)) == [11, 21]
