"""O1 and O3 through the runtime: sessions are observed after a turn, notes are quoted, the window starts after them."""

import asyncio
from typing import Any

import pytest

from lango import open_runtime
from lango.events import TurnDone
from lango.history import count_tokens
from lango.memory.notes.note_format import OBSERVE_PROMPT
from lango.messages import Attachment, ToolCall
from lango.providers import Request
from lango.tools import tool
from tests.agents.memory_parts import Roles, halved, numbers_in, quoted, remembering, session_of, shown_to, spoken
from tests.agents.parts import TIMEOUT_S, broken_for, collect

LONG = "a long story about a journey " * 14  # with its answer, just more than the threshold of 90 tokens


async def test_o1_messages_above_the_threshold_are_observed_after_the_turn(store_url: str) -> None:
    roles = Roles(observer=lambda _: "- [high] (1-2) The user told a long story.")
    async with open_runtime(remembering(store_url), provider=roles.provider) as runtime:
        assert await runtime.run("s", "hello") == "yes"
        await runtime.memory.settle()
        assert roles.observer == [], "below the threshold"
        await runtime.run("s", LONG)
        await runtime.memory.settle()
        [request] = roles.observer
        assert numbers_in(shown_to(request)) == [1, 2, 3, 4]
        recalled = await runtime.memory.show("s")
        [batch] = recalled.batches
        [note] = batch.observations
        assert (note.text, note.priority, note.first_seq, note.last_seq) == (
            "The user told a long story.",
            "high",
            3,
            3,
        ), "of the messages that it may be about, the one with its words"
        assert note.day.startswith("20")
        assert (batch.first_seq, batch.last_seq, recalled.observed_seq) == (1, 4, 4)
        assert batch.model.startswith("scripted/")
        assert batch.input_tokens > 60
        assert batch.output_tokens > 5
        assert (await session_of(runtime)).last_seq == 4, "nothing of the messages is changed"


async def test_o3_the_window_starts_after_the_observed_messages_and_keeps_recent_turns(store_url: str) -> None:
    roles = Roles(observer=lambda _: "- [high] (1-2) The story is about a blue door.")
    async with open_runtime(remembering(store_url), provider=roles.provider) as runtime:
        await runtime.run("s", LONG)
        await runtime.run("s", "second")
        await runtime.memory.settle()
        await runtime.run("s", LONG + "third")
        await runtime.memory.settle()
        assert len(roles.observer) == 2
        await runtime.run("s", "fourth")
        first, sent = roles.agent[0], roles.agent[-1]
        assert spoken(sent) == [LONG + "third", "yes", "fourth"], "the floor is one turn; the rest is observed"
        assert "The story is about a blue door." in quoted(sent)
        assert sent.messages[0].author == "context", "before all messages"
        await runtime.run("s", "fifth")
        again = roles.agent[-1]
        assert again.messages[: len(sent.messages)] == sent.messages, "a stable prefix"
        assert again.system == sent.system == first.system, "memory adds nothing to the system prompt"
    assert all(broken_for(request) == [] for request in roles.agent)


async def test_o1_calls_with_arguments_and_results_are_shown_to_the_observer(sqlite_url: str) -> None:
    @tool(effect="none")
    def book(flight: str, seats: int) -> str:
        """Book."""
        return f"booked {seats} seats on {flight} " + "word " * 60

    answers = iter([ToolCall("c1", "book", {"flight": "LX 42", "seats": 3}), "done"])
    roles = Roles(agent=lambda _: next(answers))
    async with open_runtime(remembering(sqlite_url), provider=roles.provider, tools=[book]) as runtime:
        await runtime.run("s", "book it")
        await runtime.memory.settle()
    text = shown_to(roles.observer[0])
    assert 'calls book with {"flight":"LX 42","seats":3}' in text
    assert "booked 3 seats on LX 42" in text
    assert numbers_in(text) == [1, 2, 3, 4]


async def test_o1_one_huge_message_is_observed_in_pieces_and_whole(sqlite_url: str) -> None:
    words = " ".join(f"word{number}" for number in range(2_000))
    roles = Roles(observer=lambda request: "- [low] (1) saw some words")
    async with open_runtime(remembering(sqlite_url, observe_at_tokens=500), provider=roles.provider) as runtime:
        await runtime.run("s", words)
        await runtime.memory.settle()
        recalled = await runtime.memory.show("s")
    seen = "".join(shown_to(request) for request in roles.observer)
    assert len(roles.observer) > 5
    assert all(count_tokens(shown_to(request)) < 800 for request in roles.observer)
    assert "word0 " in seen
    assert "word1999" in seen
    assert sum(f"word{number}" in seen for number in range(2_000)) > 1_980, "but for words cut in two"
    assert recalled.observed_seq == 1, "the short answer waits for more"
    assert recalled.batches[0].input_tokens > 4_000, "the pieces' costs are added up"


async def test_o1_a_piece_without_notes_does_not_stop_the_rest(sqlite_url: str) -> None:
    huge = "the code of the safe is 4711. " + "lorem ipsum " * 2_000
    roles = Roles(observer=lambda request: "- [high] (1) The code is 4711." if "4711" in shown_to(request) else "")
    async with open_runtime(remembering(sqlite_url), provider=roles.provider) as runtime:
        await runtime.run("s", huge)
        await runtime.memory.settle()
        recalled = await runtime.memory.show("s")
    assert len(roles.observer) > 3, "shown in pieces, what gave nothing twice"
    assert [note.text for batch in recalled.batches for note in batch.observations] == ["The code is 4711."]
    assert recalled.observed_seq == 1


async def test_o1_notes_that_pass_a_threshold_are_condensed(store_url: str) -> None:
    roles = Roles(reflector=halved)
    settings = remembering(store_url, reflect_at_tokens=300)
    async with open_runtime(settings, provider=roles.provider) as runtime:
        for number in range(6):
            await runtime.run("s", f"{number} {LONG}")
            await runtime.memory.settle()
        assert roles.reflector, "the notes passed 300 tokens"
        recalled = await runtime.memory.show("s")
        top = recalled.batches[0]
        assert top.generation >= 1
        assert top.first_seq == 1
        assert top.sources
        every = {batch.batch: batch for batch in await runtime.memory.history("s")}
        for batch in every.values():
            for source in batch.sources:
                assert top.first_seq <= every[source].first_seq <= every[source].last_seq <= batch.last_seq
                assert every[source].generation < batch.generation
                assert every[source].standing == "condensed"
                assert every[source].observations, "what was condensed stays to be looked at"
        assert recalled.tokens < 300 + 200
        await runtime.run("s", "and now?")
    assert f"0 {LONG[:20]}" in quoted(roles.agent[-1]), "the oldest note is the first, and was kept"


async def test_o1_neither_the_answer_nor_the_next_turn_waits_for_the_observer(sqlite_url: str) -> None:
    may_end = asyncio.Event()
    began = asyncio.Event()

    async def slow(request: Request) -> str:
        if request.system.startswith(OBSERVE_PROMPT):
            began.set()
            await may_end.wait()
            return "- [high] (1-2) noted late"
        return "yes"

    roles = Roles(agent=slow, observer=slow)
    async with open_runtime(remembering(sqlite_url), provider=roles.provider) as runtime:
        events = await collect(runtime.stream("s", LONG))
        assert isinstance(events[-1], TurnDone)
        async with asyncio.timeout(TIMEOUT_S):
            await began.wait()
        assert await runtime.run("s", "next") == "yes", "while the observer is at work"
        may_end.set()
        await runtime.memory.settle()
        assert (await runtime.memory.show("s")).observed_seq >= 2


async def test_o1_an_observer_that_fails_does_not_fail_the_turn_and_is_tried_later(
    sqlite_url: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers: list[Any] = [RuntimeError("the observer's model is down"), "- [high] (1-4) noted"]
    roles = Roles(observer=lambda _: answers.pop(0))
    monkeypatch.setattr("lango.memory.observer.FIRST_PAUSE_S", 0.0)
    async with open_runtime(remembering(sqlite_url), provider=roles.provider) as runtime:
        assert await runtime.run("s", LONG) == "yes"
        await runtime.memory.settle()
        assert (await runtime.memory.show("s")).batches == ()
        assert await runtime.run("s", "again") == "yes"
        assert LONG in spoken(roles.agent[-1]), "what is not observed is still sent"
        await runtime.memory.settle()
        assert (await runtime.memory.show("s")).observed_seq == 4
    warnings = [record.message for record in caplog.records if record.name == "lango.memory"]
    assert len(warnings) == 1
    assert "the observer's model is down" in warnings[0]


async def test_o1_a_failing_observer_pauses(sqlite_url: str) -> None:
    roles = Roles(observer=lambda _: RuntimeError("down"))
    async with open_runtime(remembering(sqlite_url), provider=roles.provider) as runtime:
        for _ in range(4):
            await runtime.run("s", LONG)
            await runtime.memory.settle()
    assert len(roles.observer) == 1


async def test_h2_with_memory_off_nothing_is_observed_and_100_messages_are_sent(sqlite_url: str) -> None:
    roles = Roles()
    settings = remembering(sqlite_url, enabled=False)
    async with open_runtime(settings, provider=roles.provider) as runtime:
        for number in range(60):
            await runtime.run("s", f"message {number}")
        await runtime.memory.settle()
        assert roles.observer == []
        assert len(roles.agent[-1].messages) <= 100
        assert (await runtime.memory.show("s")).batches == ()


async def test_o3_with_memory_on_more_than_100_messages_are_sent(sqlite_url: str) -> None:
    roles = Roles()
    settings = remembering(sqlite_url, observe_at_tokens=20_000)
    async with open_runtime(settings, provider=roles.provider) as runtime:
        for number in range(60):
            await runtime.run("s", f"message {number}")
    assert len(roles.agent[-1].messages) == 119


async def test_o1_attached_files_are_shown_to_the_observer(sqlite_url: str) -> None:
    files = [
        Attachment("plan.txt", "text/plain", b"The bridge opens on 3 May.\n" * 12),
        Attachment("photo.png", "image/png", b"\x89PNG"),
    ]
    roles = Roles()
    async with open_runtime(remembering(sqlite_url, observe_at_tokens=500), provider=roles.provider) as runtime:
        await runtime.run("s", "here is the plan", attachments=files)
        await runtime.memory.settle()
    text = shown_to(roles.observer[0])
    assert "a file is attached: plan.txt (text/plain): The bridge opens on 3 May." in text
    assert "a file is attached: photo.png (image/png)" in text


async def test_o3_notes_and_messages_fit_the_budget_together(sqlite_url: str) -> None:
    roles = Roles(reflector=lambda _: RuntimeError("no reflector, so the notes grow and grow"))
    settings = remembering(sqlite_url, history={"max_message_token_budget": 600}, reflect_at_tokens=10_000)
    async with open_runtime(settings, provider=roles.provider) as runtime:
        for number in range(12):
            await runtime.run("s", f"{number} {LONG}")
            await runtime.memory.settle()
        assert (await runtime.memory.show("s")).tokens > 600
    assert all(count_tokens(request.messages) <= 600 for request in roles.agent)
    assert all(broken_for(request) == [] for request in roles.agent)
    assert "notes omitted]" in quoted(roles.agent[-1])
    assert spoken(roles.agent[-1])[-1] == f"11 {LONG}"
