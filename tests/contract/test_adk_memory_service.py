"""The memory service does what ADK's memory services do, on both databases, for a user's own code.

The scenarios are those of ADK's own tests of its in-memory and SQLite services that go through the public interface.
Those of Vertex AI and RAG test the requests to these services, and do not apply.
"""

import asyncio
import unicodedata
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest
from google.adk.events import Event
from google.adk.memory.memory_entry import MemoryEntry
from google.adk.sessions import Session
from google.genai import types

from lango.adk import SqlMemoryService, SqlSessionService
from lango.errors import StoreUrlError, Unstorable
from tests.agents.parts import rows

APP, USER = "app", "ann"
WORDS = [
    Event(id="w1", author="user", timestamp=100.0, content=types.Content(parts=[types.Part(text="Lango is fine.")])),
    Event(id="w2", author="user", timestamp=101.0),
    Event(
        id="w3",
        author="helper",
        timestamp=102.0,
        content=types.Content(role="model", parts=[types.Part(text="Yes: the Durable Runtime (LANGO) is!")]),
    ),
]


@pytest.fixture
async def memory(store_url: str) -> AsyncIterator[SqlMemoryService]:
    async with SqlMemoryService(store_url) as service:
        yield service


def event(id_: str, text: str, at: float = 1.0) -> Event:
    return Event(id=id_, author="user", timestamp=at, content=types.Content(parts=[types.Part(text=text)]))


def session(id_: str, events: Sequence[Event], app: str = APP, user: str = USER) -> Session:
    return Session(id=id_, app_name=app, user_id=user, events=list(events))


async def found(memory: SqlMemoryService, query: str, app: str = APP, user: str = USER) -> list[str]:
    response = await memory.search_memory(app_name=app, user_id=user, query=query)
    return [_text(entry) for entry in response.memories]


def _text(entry: MemoryEntry) -> str:
    [part] = entry.content.parts or []
    return part.text or ""


async def test_a_session_is_found_by_any_word_of_its_events_without_regard_to_case(memory: SqlMemoryService) -> None:
    await memory.add_session_to_memory(session("one", WORDS))
    await memory.add_session_to_memory(session("two", [event("p", "I write in Python.")]))
    response = await memory.search_memory(app_name=APP, user_id=USER, query="python")
    [entry] = response.memories
    assert (_text(entry), entry.author, entry.id) == ("I write in Python.", "user", "p")
    assert entry.timestamp == "1970-01-01T00:00:01+00:00"
    assert await found(memory, "durable") == ["Yes: the Durable Runtime (LANGO) is!"]
    assert len(await found(memory, "What about Lango?")) == 2
    assert await found(memory, "absent") == []


@pytest.mark.parametrize("query", ["", "  \n\t ", "!!!", "the and or"])
async def test_a_question_without_a_word_that_counts_finds_nothing(memory: SqlMemoryService, query: str) -> None:
    await memory.add_session_to_memory(session("one", [event("e", "the cat and the dog or so")]))
    assert await found(memory, query) == []


async def test_any_of_several_words_is_enough(memory: SqlMemoryService) -> None:
    await memory.add_session_to_memory(session("one", [event("a", "Hello world"), event("b", "May I help?")]))
    assert sorted(await found(memory, "hello help")) == ["Hello world", "May I help?"]


async def test_a_session_without_events_is_no_error(memory: SqlMemoryService) -> None:
    await memory.add_session_to_memory(session("empty", []))
    assert await found(memory, "anything") == []


async def test_adding_a_session_again_adds_what_is_new(memory: SqlMemoryService) -> None:
    await memory.add_session_to_memory(session("one", WORDS))
    await memory.add_session_to_memory(session("one", [*WORDS, event("w4", "Lango grows.")]))
    assert len(await found(memory, "lango")) == 3


@pytest.mark.parametrize("session_id", ["one", None])
async def test_events_are_added_beside_those_that_are_there(memory: SqlMemoryService, session_id: str | None) -> None:
    await memory.add_session_to_memory(session("one", WORDS))
    await memory.add_events_to_memory(
        app_name=APP, user_id=USER, session_id=session_id, events=[event("new", "A new fact."), Event(author="user")]
    )
    assert await found(memory, "fact") == ["A new fact."]
    assert len(await found(memory, "lango")) == 2


async def test_an_event_of_a_known_id_is_not_added_twice(memory: SqlMemoryService) -> None:
    await memory.add_session_to_memory(session("one", WORDS))
    await memory.add_events_to_memory(app_name=APP, user_id=USER, session_id="one", events=[event("w1", "Lango!")])
    assert sorted(await found(memory, "lango")) == ["Lango is fine.", "Yes: the Durable Runtime (LANGO) is!"]


async def test_users_and_apps_are_apart(memory: SqlMemoryService) -> None:
    await memory.add_session_to_memory(session("one", WORDS))
    await memory.add_session_to_memory(session("s", [event("s", "a secret")], user="bob"))
    await memory.add_session_to_memory(session("t", [event("t", "another secret")], app="app/x"))
    assert await found(memory, "secret") == []
    assert await found(memory, "secret", user="bob") == ["a secret"]
    assert await found(memory, "secret", user="x/ann") == []
    assert await found(memory, "secret", app="app/x") == ["another secret"]


def nfd(text: str) -> str:
    return unicodedata.normalize("NFD", text)


@pytest.mark.parametrize(
    ("text", "query", "count"),
    [
        ("私の名前は太郎です", "太郎", 1),
        ("私の名前は太郎です", "天気", 0),
        ("我喜欢机器学习", "机器学习", 1),
        ("我喜欢机器学习", "天气预报", 0),
        ("我喜欢机器学习", "你还记得我喜欢什么吗", 1),
        ("猫がいる", "猫", 1),
        ("제 이름은 민수입니다", "민수입니다", 1),
        ("Меня зовут Алексей", "алексей", 1),
        ("太郎 works at ABC Corp", "太郎", 1),
        ("太郎 works at ABC Corp", "ABC", 1),
        ("私はPythonでLangoを使っています", "Python", 1),
        ("私はPythonでLangoを使っています", "lango", 1),
        ("私はPythonでLangoを使っています", "使って", 1),
        ("私はPythonでLangoを使っています", "Java", 0),
        ("私はPythonでLangoを使っています", "thon", 0),
        ("I write in Python.", "thon", 0),
        ("I write in Python.", "Pyth", 0),
        (nfd("私はCaféにいます"), "Café", 1),
        (nfd("Meet at the Café"), "café", 1),
        ("Meet at the Café", nfd("Café"), 1),
        (nfd("プログラミングを学ぶ"), "プログラミング", 1),
        (nfd("제 이름은 민수입니다"), "민수입니다", 1),
    ],
)
async def test_every_script_is_found(memory: SqlMemoryService, text: str, query: str, count: int) -> None:
    await memory.add_session_to_memory(session("one", [event("e", text)]))
    assert await found(memory, query) == [text] * count


async def test_the_most_words_rank_first_and_equals_keep_their_order(memory: SqlMemoryService) -> None:
    texts = ["The build is green.", "Green.", "The build state is green."]
    await memory.add_session_to_memory(session("one", [event(f"e{at}", text) for at, text in enumerate(texts)]))
    assert await found(memory, "build state green") == [texts[2], texts[0], texts[1]]
    many = [event(f"m{at:02d}", f"memo {at} on work") for at in range(20)]
    await memory.add_session_to_memory(session("two", [*many, event("best", "the urgent memo on work")]))
    assert await found(memory, "urgent work memo") == [
        "the urgent memo on work",
        *(f"memo {at} on work" for at in range(9)),
    ]


async def test_of_equals_the_newest_come_first(memory: SqlMemoryService) -> None:
    await memory.add_session_to_memory(session("one", [event("a", "old memo", 5.0), event("b", "new memo", 9.0)]))
    assert await found(memory, "memo") == ["new memo", "old memo"]


async def test_searches_and_writes_at_once_do_not_disturb_each_other(memory: SqlMemoryService) -> None:
    async def write(number: int) -> None:
        for at in range(10):
            one = event(f"e{number}-{at}", f"fact about {number}-{at}")
            await memory.add_session_to_memory(session(f"s{number}-{at}", [one]))

    async def read() -> None:
        for _ in range(10):
            await found(memory, "fact")

    await asyncio.gather(*(write(number) for number in range(4)), read(), read())
    all_found = [await found(memory, f"{number}-{at}") for number in range(4) for at in range(10)]
    assert all(all_found)


async def test_neither_the_callers_events_nor_the_found_memories_are_those_that_are_stored(
    memory: SqlMemoryService,
) -> None:
    mine: Any = event("e", "I drink jasmine tea.")
    await memory.add_session_to_memory(session("one", [mine]))
    mine.author, mine.content.parts[0].text = "changed", "I drink coffee."
    response = await memory.search_memory(app_name=APP, user_id=USER, query="jasmine")
    response.memories[0].content.parts = []
    [again] = (await memory.search_memory(app_name=APP, user_id=USER, query="jasmine")).memories
    assert (again.author, _text(again)) == ("user", "I drink jasmine tea.")


async def test_a_deleted_memory_does_not_come_back(memory: SqlMemoryService) -> None:
    await memory.add_session_to_memory(session("one", WORDS))
    await memory.delete_memory(app_name=APP, user_id=USER, memory_id="w1")
    await memory.delete_memory(app_name=APP, user_id=USER, memory_id=None)
    await memory.delete_memory(app_name=APP, user_id=USER, memory_id="unknown")
    await memory.add_session_to_memory(session("one", WORDS))
    assert await found(memory, "lango") == ["Yes: the Durable Runtime (LANGO) is!"]


async def test_memories_are_added_directly_with_their_metadata(memory: SqlMemoryService) -> None:
    content = types.Content(parts=[types.Part(text="likes rowing"), types.Part(inline_data=_picture())])
    entry = MemoryEntry(content=content, author="ann", timestamp="2026-03-01T10:00:00+00:00", custom_metadata={"k": 1})
    for _ in range(2):  # the same memory is not there twice
        await memory.add_memory(app_name=APP, user_id=USER, memories=[entry], custom_metadata={"ttl": 3})
    [kept] = (await memory.search_memory(app_name=APP, user_id=USER, query="rowing")).memories
    assert kept.id
    assert kept.model_copy(update={"id": None}) == entry.model_copy(update={"custom_metadata": {"ttl": 3, "k": 1}})


def _picture() -> types.Blob:
    return types.Blob(data=b"\0\xff", mime_type="image/png")


async def test_odd_texts_are_stored_and_odd_ids_are_refused(memory: SqlMemoryService) -> None:
    await memory.add_session_to_memory(session("\ud800", [event("\0", "NUL \0 and half a character \ud800 here")]))
    assert await found(memory, "half character") == ["NUL \0 and half a character \ud800 here"]
    with pytest.raises(Unstorable, match="user_id"):
        await memory.add_session_to_memory(session("one", WORDS, user="\0"))
    assert await found(memory, "lango", user="\0") == []


async def test_memories_outlive_the_service_and_a_large_session_is_added_whole(store_url: str) -> None:
    async with SqlMemoryService(store_url) as memory:
        events = [event(f"e{at}", f"number{at} of many") for at in range(120)]
        await memory.add_session_to_memory(session("large", events))
    async with SqlMemoryService(store_url) as memory:
        assert [await found(memory, f"number{at}") for at in (0, 60, 119)] == [
            [f"number{at} of many"] for at in (0, 60, 119)
        ]


def test_a_url_of_another_kind_is_refused() -> None:
    with pytest.raises(StoreUrlError):
        SqlMemoryService("mysql://nowhere")


async def test_stored_sessions_are_memory_without_being_added_and_forgotten_with_their_session(store_url: str) -> None:
    async with SqlSessionService(store_url) as sessions:
        memory = SqlMemoryService("", store=sessions.store, stored_sessions=True)
        made = await sessions.create_session(app_name=APP, user_id=USER, session_id="one")
        for one in WORDS:
            await sessions.append_event(made, one.model_copy(deep=True))
        assert len(await found(memory, "lango")) == 2
        await memory.add_session_to_memory(made)
        await memory.add_events_to_memory(
            app_name=APP, user_id=USER, session_id="one", events=[WORDS[0], event("more", "Lango, too.")]
        )
        assert await rows(sessions.store, "SELECT memory_id FROM memory_entries") == [("more",)]
        await memory.delete_memory(app_name=APP, user_id=USER, memory_id="w3")
        assert sorted(await found(memory, "lango")) == ["Lango is fine.", "Lango, too."]
        await sessions.append_event(made, event("long", "x " * 3_000 + "needle " + "y " * 3_000))
        [excerpt] = await found(memory, "needle")
        assert excerpt.startswith("…x x")
        assert "needle" in excerpt
        assert len(excerpt) == 2_002
        await sessions.delete_session(app_name=APP, user_id=USER, session_id="one")
        assert await found(memory, "lango") == []
        assert await rows(sessions.store, "SELECT word FROM memory_words") == []
