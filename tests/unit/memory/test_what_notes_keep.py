"""O1: what condensing keeps, and which notes are believed."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lango.history import count_tokens
from lango.memory import quote
from lango.memory.notes.key_terms import asks_to_remember, is_commitment, key_terms, missing_terms
from lango.memory.notes.note_checks import check_notes, with_days_of_messages
from lango.memory.notes.note_format import Note
from lango.memory.notes.superseded import current_notes
from lango.memory.quote import observation_tokens
from lango.memory.reflector import keep_what_matters, may_save
from lango.messages import Message
from lango.sessions import StoredEvent
from lango.store.memory.observations import Batch, Observation, Priority, SessionMemory

AT = 1_794_702_400.0  # 2026-11-15


def note(text: str, first: int, last: int | None = None, priority: Priority = "medium", number: int = 0) -> Observation:
    return Observation(text, first, last or first, priority, "2026-11-15", number)


def said(seq: int, text: str, role: str = "user") -> StoredEvent:
    message = Message("user" if role == "user" else "assistant", text)
    return StoredEvent(seq, f"e{seq}", AT, message, tokens=count_tokens(message))


def memory(*notes: Observation, tokens: int | None = None, batch: int = 1) -> SessionMemory:
    return SessionMemory((Batch(1, 99, notes, batch=batch),), notes_tokens=tokens)


# -- key terms --------------------------------------------------------------------------------------------------------


def test_names_numbers_dates_and_codes_are_key_terms_and_plain_words_are_not() -> None:
    text = 'On 2026-12-01 at 14:30 Ann Meier pays 1,200 EUR for INV-77 ("blue folder"), said the user.'
    assert key_terms(text) == {"2026-12-01", "14:30", "ann", "meier", "1200", "eur", "inv-77", "blue", "folder"}
    assert missing_terms("Ann pays 1200", ["ann will pay 1,200 EUR"]) == set()
    assert missing_terms("Ann pays 1200", ["Bob pays 1,300"]) == {"ann", "1200"}


@pytest.mark.parametrize(
    ("text", "asks"),
    [
        ("Please remember that I am allergic to nuts.", True),
        ("Don't forget: the gate code is 4711", True),
        ("Keep in mind that we meet on Friday", True),
        ("Could you please remember that my car is red?", True),
        ("Don't forget to send the invoice to Weber.", True),
        ("Merk dir, dass ich in Bern wohne.", True),
        ("Do you remember that film?", False),
        ("Don't forget to stay positive!", False),
        ("I'll never forget my trip to Paris.", False),
        ("It is important to remember that you are not alone.", False),
        ("Keep in mind that self-care matters.", False),
        ("I cannot remember his name", False),
    ],
)
def test_a_request_to_remember_is_recognised(text: str, asks: bool) -> None:
    assert asks_to_remember(text) is asks


# -- condensing -------------------------------------------------------------------------------------------------------

BEFORE = [
    note("The user's sister Ann lives in Bern.", 1),
    note("The invoice is due on 2026-12-01.", 3),
    note("They decided to paint the fence green.", 5),
    note("They chatted about the weather.", 7, priority="low"),
    note("The user asked to remember: no nuts in the cake.", 9, priority="pinned"),
]


def test_o1_condensing_carries_over_what_a_reflection_dropped() -> None:
    kept = keep_what_matters(BEFORE, [note("Ann, the sister, lives in Bern; an invoice is open.", 1, 4)])
    texts = [one.text for one in kept]
    assert texts == [
        BEFORE[1].text,  # the date was dropped
        "Ann, the sister, lives in Bern; an invoice is open.",
        BEFORE[2].text,  # a decision
        BEFORE[4].text,  # pinned
    ], "in the order of their messages; chatter may go"


def test_o1_a_reflection_cannot_invent() -> None:
    kept = keep_what_matters(BEFORE[:1], [note("Ann lives in Bern and earns 90000.", 1)])
    assert [one.text for one in kept] == [BEFORE[0].text]


def test_o1_a_reflection_is_only_requested_if_it_may_save_a_tenth() -> None:
    def may(*notes: Observation) -> bool:
        return may_save(SessionMemory((Batch(1, 99, notes, tokens=observation_tokens(notes)),)))

    decided = [note(f"They decided to paint fence {at} green.", at, priority="high") for at in range(9)]
    assert not may(*decided), "all of it has to stay"
    assert may(*decided, *(note("They chatted about the weather and the sea.", at) for at in range(3)))
    assert may(*(note(f"The code of the door is {at}.", at, priority="high") for at in range(9))), (
        "replaced ones may go"
    )


_texts = st.sampled_from(
    ["Ann lives in Bern.", "It costs 120 EUR.", "They decided to wait.", "Nice weather.", "Bob called."]
)
_notes = st.lists(
    st.builds(note, _texts, st.integers(1, 30), st.none(), st.sampled_from(["high", "low", "pinned"])), max_size=6
)


@given(_notes, _notes)
def test_o1_whatever_a_reflector_writes_no_key_term_commitment_or_pinned_note_is_lost(
    before: list[Observation], written: list[Observation]
) -> None:
    kept = keep_what_matters(before, written)
    texts = [one.text for one in kept]
    for current in current_notes(before):
        assert not missing_terms(current.note.text, texts)
        assert current.note.priority != "pinned" or current.note.text in texts
        assert not is_commitment(current.note.text) or any("decided" in text for text in texts)


# -- contradictions ---------------------------------------------------------------------------------------------------


def test_o1_the_newest_of_two_statements_holds_with_its_history_behind_it() -> None:
    notes = memory(note("My boat is green.", 1), note("The user is a nurse.", 2), note("My boat is red now.", 8))
    shown = quote(notes)
    assert "- #8 My boat is red now." in shown
    assert "green" not in shown
    assert "The user is a nurse." in shown
    two = current_notes([note("The user is a nurse.", 2), note("The user is a mother.", 3)])
    assert len(two) == 2, "nothing is said about one thing"
    apart = current_notes([note("The meeting is on Friday.", 2), note("The meeting is in Bern.", 3)])
    assert len(apart) == 2
    pinned = current_notes([note("The code is 4711.", 2, priority="pinned"), note("The code is 4712.", 5)])
    assert [(one.note.text, one.note.priority, len(one.earlier)) for one in pinned] == [
        ("The code is 4712.", "pinned", 1)
    ]


@pytest.mark.parametrize(
    ("earlier", "later", "same"),
    [
        ("Ann lives in Bern.", "Ann lives in Basel now.", True),
        ("The user lives in Bern.", "The user lives in Basel.", True),
        ("The ticket costs 30 euros.", "The ticket costs 45 euros.", True),
        ("Mara Lindt works in room K-3.", "Mara Lindt works in room K-17.", True),
        ("Mara Lindt works in room K-3.", "Mara Lindt works with care.", False),
        ("Ann runs version 3.", "Ann runs a shop in Bern.", False),
        ("Ann paid 30 euros.", "Ann paid 40 euros.", False),
    ],
)
def test_o1_what_holds_at_one_time_only_is_replaced_by_a_later_note(earlier: str, later: str, same: bool) -> None:
    found = current_notes([note(earlier, 1), note(later, 2)])
    assert [len(one.earlier) for one in found] == ([1] if same else [0, 0])


# -- what an observer may claim ---------------------------------------------------------------------------------------

SHOWN = [
    said(1, "Ann moves to Bern on 3 May."),
    said(2, "I see.", "assistant"),
    said(3, "Please remember that I am allergic to nuts."),
    said(4, "- [fact] (4) home: Moscow", "assistant"),
]


def test_o1_notes_that_the_messages_do_not_support_are_dropped() -> None:
    notes = [
        Note("high", 1, 1, "Ann moves to Bern."),
        Note("high", 1, 1, "Ann pays 5000 EUR."),
        Note("high", 1, 1, "Zoe lives in Rome."),
        Note("low", 1, 4, "The user wrote 2 messages on 2026-11-15."),
    ]
    assert [one.text for one in check_notes(notes, SHOWN[:2])] == [notes[0].text, notes[3].text]


def test_o1_a_note_cites_the_message_that_has_its_names() -> None:
    [found] = check_notes([Note("high", 2, 2, "Ann moves to Bern.")], SHOWN[:2])
    assert (found.first_seq, found.last_seq) == (1, 1)


def test_o1_what_a_user_asked_to_remember_is_pinned_whatever_the_observer_writes() -> None:
    found = check_notes([], SHOWN)
    assert [(one.kind, one.first_seq, one.last_seq) for one in found] == [("pinned", 3, 3)]
    assert "allergic to nuts" in found[0].text
    assert check_notes([Note("pinned", 1, 1, "Ann moves to Bern.")], SHOWN[:2])[0].kind == "high", "only a user pins"


def test_o1_a_note_has_the_day_of_what_happened_beside_the_day_on_which_it_was_said() -> None:
    shown = [said(1, "Rain. We moved to Bern last week. I start on Monday."), said(2, "Yesterday?", "assistant")]
    notes = [
        Note("high", 1, 1, "The user moved to Bern."),
        Note("high", 1, 1, "The user moved to Bern last week."),
        Note("low", 1, 1, "It rains."),
        Note("fact", 1, 1, "home: Bern"),
        Note("low", 1, 2, "The user moved to Bern."),
    ]
    week = "[2026-11-02 to 2026-11-08]"
    texts = [one.text for one in with_days_of_messages(notes, shown)]
    assert texts == [
        f"The user moved to Bern. {week}",
        f"The user moved to Bern last week {week}.",
        *[n.text for n in notes[2:]],
    ]


def test_o1_a_fact_about_a_user_comes_from_the_user() -> None:
    [found, _] = check_notes([Note("fact", 4, 4, "home: Moscow")], SHOWN)
    assert found.kind == "medium"
