"""Full-text search over the sessions of a user."""

import asyncio
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lango.messages import Message
from lango.runtime.sessions.sessions import Sessions
from lango.sessions import SessionId
from lango.store import Store
from lango.store.search.index import BATCH, INDEXED_CHARACTERS
from lango.store.search.query import Hit
from lango.store.search.terms import parse_terms
from lango.store.sessions.sessions import create_session
from tests.contract.test_fork_and_rewind import following, rows
from tests.contract.test_store import Writer
from tests.support.examples import examples


@pytest.fixture
def sessions(store: Store) -> Sessions:
    return Sessions(store, "app")


async def write_messages(store: Store, id_: str, *texts: str, user: str = "user", app: str = "app") -> Writer:
    writer = Writer(store, await store.write(create_session, SessionId(app, user, id_), None, time.time()))
    for number, text in enumerate(texts):
        await writer.add(Message("assistant" if number % 2 else "user", text), invocation_id=f"i{number}")
    return writer


async def found(sessions: Sessions, words: str, user: str = "user", **how: Any) -> list[tuple[str, int]]:
    return [(hit.session_id, hit.seq) for hit in await sessions.search(words, user_id=user, **how)]


def marked(hit: Hit) -> list[str]:
    return [hit.text[start:end] for start, end in hit.marks]


async def test_words_are_found_whatever_their_case_accents_and_width(store: Store, sessions: Sessions) -> None:
    await write_messages(store, "s", "The weather in Zürich", "It is \uff33\uff35\uff2e\uff2e\uff39 there, naïve one.")
    assert await found(sessions, "zurich") == [("s", 1)]
    assert await found(sessions, "ZÜRICH weather") == [("s", 1)], "every word, in any order"
    assert await found(sessions, "sunny") == [("s", 2)]
    assert await found(sessions, "NAIVE") == [("s", 2)]
    assert await found(sessions, "zurich sunny") == [], "in one message"
    assert await found(sessions, "weath") == [("s", 1)], "the last word may be the beginning of one"
    assert await found(sessions, "weath zurich") == [], "the others are whole"
    assert await found(sessions, "  ") == []
    assert await found(sessions, "") == []
    [hit] = await sessions.search("zurich the")
    assert (hit.role, marked(hit)) == ("user", ["The", "Zürich"])


async def test_scripts_without_spaces_are_found_by_any_part(store: Store, sessions: Sessions) -> None:
    await write_messages(store, "zh", "我今天在北京大学学习汉字。", "好的")
    await write_messages(store, "ja", "東京タワーはどこですか")
    await write_messages(store, "ko", "서울의 날씨가 좋습니다")
    await write_messages(store, "th", "สวัสดีครับ")
    for words, expected in {
        "北京": "zh",
        "京大学": "zh",
        "学": "zh",
        "字": "zh",
        "タワー": "ja",
        "ﾀﾜｰ": "ja",
        "날씨": "ko",
        "สวัส": "th",
        "北京 汉字": "zh",
    }.items():
        assert {session for session, _ in await found(sessions, words)} == {expected}, words
    assert await found(sessions, "京北") == []
    assert await found(sessions, "大学习") == [], "the pairs are there, the row of characters is not"
    [hit] = await sessions.search("京大学")
    assert marked(hit) == ["京大学"]


async def test_hits_are_ranked_and_then_newest_first(store: Store, sessions: Sessions) -> None:
    await write_messages(store, "old", "green apples")
    await write_messages(store, "long", "green " + "".join(f"and {n} other words " for n in range(40)) + " apples")
    await write_messages(store, "apart", "apples are often green")
    await write_messages(store, "new", "green apples")
    await write_messages(store, "named", "hello")
    await sessions.rename("named", "Of apples that are green")
    ranked = [session for session, _ in await found(sessions, "green apples")]
    assert ranked == ["new", "old", "named", "apart", "long"]
    assert len(await found(sessions, "green", limit=2)) == 2


async def test_a_snippet_around_the_words_is_shown(store: Store, sessions: Sessions) -> None:
    await write_messages(store, "s", "first line\nsecond " + "x " * 500 + "needle\n" + "y " * 500)
    [hit] = await sessions.search("needle")
    assert marked(hit) == ["needle"]
    assert hit.text.startswith("…x x")
    assert hit.text.endswith("y…")
    assert "\n" not in hit.text
    assert len(hit.text) < 260
    [short] = await sessions.search("line second")
    assert (short.text[:17], marked(short)) == ("first line second", ["line", "second"])


async def test_titles_are_found_and_old_ones_are_not(store: Store, sessions: Sessions) -> None:
    await write_messages(store, "s", "hello")
    await sessions.rename("s", "Holidays in Norway")
    [hit] = await sessions.search("norw")
    assert (hit.session_id, hit.seq, hit.role, hit.text, marked(hit)) == (
        ("s", 0, "title", "Holidays in Norway", ["Norway"])
    )
    await sessions.rename("s", "Holidays in Sweden")
    assert await found(sessions, "norway") == []
    assert await found(sessions, "sweden") == [("s", 0)]
    await sessions.rename("s", None)
    assert await found(sessions, "sweden") == []


async def test_attack_6_a_search_finds_only_the_users_own_messages(store: Store, sessions: Sessions) -> None:
    await write_messages(store, "s", "the secret word", user="alice")
    await write_messages(store, "s", "the secret word", user="alice", app="another app")
    await write_messages(store, "mine", "the public word", user="bob")
    assert await found(sessions, "word", user="alice") == [("s", 1)]
    assert await found(sessions, "word", user="bob") == [("mine", 1)]
    assert await found(sessions, "secret", user="bob") == []
    assert await found(sessions, "word", user="\0") == []
    assert await found(sessions, "word", user="nobody") == []


async def test_the_index_is_brought_up_to_date_by_the_search_and_by_nothing_else(
    store: Store, sessions: Sessions
) -> None:
    writer = await write_messages(store, "s", "one")
    assert await rows(store, "SELECT COUNT(*) FROM search_messages") == [(0,)], "appending does not pay for it"
    assert await found(sessions, "one") == [("s", 1)]
    await writer.add(Message("assistant", "two"))
    assert await found(sessions, "two") == [("s", 2)]
    for number in range(BATCH * 2 + 3):
        await writer.add(Message("user", f"number n{number}"))
    await writer.add(Message("tool", "what a tool says"))
    await writer.add(Message("event"))
    assert await found(sessions, f"n{BATCH * 2 + 2}") == [("s", BATCH * 2 + 5)]
    assert await found(sessions, "tool says") == []
    assert await rows(store, "SELECT COUNT(*) FROM search_messages") == [(BATCH * 2 + 5,)]
    assert len(await found(sessions, "number", limit=1000)) == BATCH * 2 + 3


async def test_concurrent_searches_index_each_message_once(store: Store, sessions: Sessions) -> None:
    await write_messages(store, "s", *(f"word w{n}" for n in range(BATCH + 20)))
    results = await asyncio.gather(*(found(sessions, "word", limit=500) for _ in range(5)))
    assert {len(result) for result in results} == {BATCH + 20}


async def test_only_the_beginning_of_a_very_long_message_is_indexed(store: Store, sessions: Sessions) -> None:
    await write_messages(store, "s", "begin " + "filler " * (INDEXED_CHARACTERS // 7) + " the end of it", "x" * 100_000)
    assert await found(sessions, "begin") == [("s", 1)]
    assert await found(sessions, "end of it") == []
    assert await found(sessions, "x" * 1_000) == [("s", 2)]


async def test_a_rewound_message_is_not_found(store: Store, sessions: Sessions) -> None:
    await write_messages(store, "s", "apples", "pears", "plums")
    before = await sessions.fork("s", new_id="before", title="Other")
    assert await found(sessions, "pears") == [("s", 2), ("before", 2)]
    await sessions.rewind("s", before=2)
    assert await found(sessions, "pears") == [("before", 2)], "the fork was not rewound"
    assert await found(sessions, "apples") == [("s", 1), ("before", 1)]
    await sessions.rewind("before", before=1)
    assert await found(sessions, "apples") == [("s", 1)]
    assert before.last_seq == 3


async def test_a_shared_message_is_found_in_each_fork(store: Store, sessions: Sessions) -> None:
    await write_messages(store, "s", "apples", "pears")
    made = await sessions.fork("s", at=1, new_id="f", title="Other")
    await following(store, made).add(Message("user", "plums"))
    await sessions.fork("f", new_id="g", title="Third")
    assert sorted(await found(sessions, "apples")) == [("f", 1), ("g", 1), ("s", 1)]
    assert await found(sessions, "pears") == [("s", 2)]
    assert sorted(await found(sessions, "plums")) == [("f", 2), ("g", 2)]


async def test_a_deleted_session_is_not_found_and_leaves_no_words(store: Store, sessions: Sessions) -> None:
    await write_messages(store, "s", "apples", "pears")
    await write_messages(store, "late", "plums")
    await sessions.rename("s", "Fruit")
    await sessions.fork("s", at=1, new_id="f", title="Kept")
    await sessions.fork("late", new_id="g", title="Later")
    assert len(await found(sessions, "apples")) == 2
    assert len(await found(sessions, "fruit")) == 1
    await sessions.delete("s")
    await sessions.delete("late")
    assert await found(sessions, "apples") == [("f", 1)]
    assert await found(sessions, "plums") == [("g", 1)]
    assert await found(sessions, "pears") == await found(sessions, "fruit") == []
    await sessions.delete("f")
    await sessions.delete("g")
    assert await found(sessions, "apples") == []
    assert await rows(store, "SELECT COUNT(*) FROM search_messages") == [(0,)]
    assert await rows(store, "SELECT COUNT(*) FROM search_progress") == [(0,)]


async def test_a_shared_row_is_indexed_after_its_session_is_deleted(store: Store, sessions: Sessions) -> None:
    await write_messages(store, "s", "apples", "pears")
    await sessions.fork("s", at=1, new_id="f", title="Other")
    await sessions.delete("s")
    assert await found(sessions, "apples") == [("f", 1)]
    assert await found(sessions, "pears") == []


async def test_concurrent_searches_and_deletions_leave_no_words(store: Store, sessions: Sessions) -> None:
    for number in range(8):
        await write_messages(store, f"s{number}", *(f"word {n}" for n in range(30)))
    work = [sessions.delete(f"s{number}") for number in range(8)]
    await asyncio.gather(*(found(sessions, "word") for _ in range(4)), *work)
    assert await found(sessions, "word") == []
    assert await rows(store, "SELECT COUNT(*) FROM search_messages") == [(0,)]


SYNTAX = [
    '"',
    "'",
    "*",
    "a*",
    "NEAR(a b)",
    "a OR b",
    "a NOT b",
    "words:a",
    "(",
    ")",
    "^a",
    "a-b",
    "--",
    "&",
    "!",
    "|",
    "<->",
    ":*",
    "'a':*",
    "\\",
    "$1",
    "{",
    "}",
    "+",
    "%",
    "_",
    "\0",
    "\ud800",
    "';DROP TABLE messages",
    "@",
    "½",
]


@pytest.mark.parametrize("entered", SYNTAX)
async def test_attack_20_syntax_is_only_text(store: Store, sessions: Sessions, entered: str) -> None:
    await write_messages(store, "s", f"x {entered} y".replace("\0", " ").replace("\ud800", " "))
    hits = await sessions.search(f"x {entered} y")
    assert [(hit.session_id, hit.seq) for hit in hits] == [("s", 1)]
    await sessions.search(entered)


entered = st.lists(st.sampled_from([*SYNTAX, "apple", "é", "漢字", "漢", " ", "1"]) | st.text(max_size=8), max_size=6)


@given(entered, st.text(max_size=30))
@examples(60)
async def test_attack_20_any_query_has_a_result(
    store: Store, sessions: Sessions, entered: list[str], text: str
) -> None:
    name = SessionId("app", "user", "any")
    await store.delete_session(name)
    kept = "".join(" " if char == "\0" or "\ud800" <= char <= "\udfff" else char for char in text)
    await write_messages(store, "any", kept)
    for words in ("".join(entered), " ".join(entered), text, kept):
        for hit in await sessions.search(words):
            assert all(0 <= start < end <= len(hit.text) for start, end in hit.marks)
    if parse_terms(kept):
        assert await found(sessions, kept) == [("any", 1)], "a message is found by its own words"
