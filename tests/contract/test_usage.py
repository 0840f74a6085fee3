"""The usage of a session: of its turns, and the window of the next request."""

import asyncio
import time
from collections.abc import AsyncGenerator, Iterable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from lango import Settings, Tool, open_runtime
from lango.config import HistorySettings, StoreSettings
from lango.errors import LangoError, ProviderRejected, SessionNotFound
from lango.history import count_tokens
from lango.messages import Message, ToolCall
from lango.providers.protocol import Finish, UsageDelta
from lango.runtime.runtime import Runtime
from lango.runtime.sessions.session_usage import SessionUsage, UsageByDay
from lango.sessions import SessionId
from lango.store.engine.database import Operation
from lango.store.sessions.sessions import create_session, find_session
from lango.store.sessions.window import read_message_page
from lango.testing import Entry, ScriptedProvider
from tests.agents.answers import approve
from tests.agents.memory_parts import Roles, remembering
from tests.support.runtimes import store_of


def _look(arguments: dict[str, Any]) -> dict[str, Any]:
    if arguments["at"] == "nothing":
        raise ValueError("there is nothing")
    return {"seen": "x" * int(arguments["at"])}


_SCHEMA = {"type": "object", "properties": {"at": {"type": "string"}}, "required": ["at"]}
LOOK = Tool("look", "Look at something.", _SCHEMA, _look)
WIPE = Tool("wipe", "Wipe something.", _SCHEMA, _look, level="dangerous")


class Talk:
    """A runtime whose model answers from a script."""

    def __init__(self, runtime: Runtime, provider: ScriptedProvider) -> None:
        self.runtime = runtime
        self.provider = provider

    async def say(self, *texts: str) -> None:
        for text in texts:
            await self.runtime.run("s", text)

    async def usage(self, **how: Any) -> SessionUsage:
        return await self.runtime.sessions.usage("s", **how)


@asynccontextmanager
async def talking(store_url: str, script: Iterable[Entry], **history: Any) -> AsyncGenerator[Talk]:
    provider = ScriptedProvider(script)
    settings = Settings(store=StoreSettings(url=store_url), history=HistorySettings(**history))
    async with open_runtime(settings, tools=[LOOK, WIPE], provider=provider) as runtime:
        yield Talk(runtime, provider)


async def test_a_turn_shows_the_usage_of_its_model_calls_and_tools(store_url: str) -> None:
    calls = [ToolCall("c1", "look", {"at": "5"}), ToolCall("c2", "look", {"at": "nothing"}), UsageDelta(100, 20, 30)]
    async with talking(store_url, [calls, ["It is dark.", UsageDelta(150, 7)], ["Yes.", UsageDelta(180, 2)]]) as talk:
        await talk.say("what is there?", "really?")
        usage = await talk.usage()
        first, second = usage.turns
        assert [(one.input_tokens, one.output_tokens, one.cached_tokens) for one in first.model_calls] == [
            (100, 20, 30),
            (150, 7, 0),
        ]
        assert all(one.agent == "lango" and one.duration_s >= 0 for one in first.model_calls)
        assert first.model_calls[0].started_at <= first.model_calls[1].started_at
        assert (first.usage.input_tokens, first.usage.output_tokens, first.usage.cached_tokens) == (250, 27, 30)
        assert first.usage.model_calls == 2
        assert [(tool.call_id, tool.name, tool.status) for tool in first.tools] == [
            ("c1", "look", "finished"),
            ("c2", "look", "failed"),
        ]
        assert all(tool.duration_s is not None and tool.duration_s >= 0 for tool in first.tools)
        assert (first.first_seq, first.last_seq) == (1, 4)
        assert (second.first_seq, second.last_seq) == (5, 6)
        assert first.status == second.status == "done"
        assert not second.tools
        assert first.ended_at
        assert first.started_at <= first.ended_at <= second.started_at
        session = await store_of(talk.runtime).read(find_session, SessionId(talk.runtime.app_name, "user", "s"))
        assert session
        assert first.tokens + second.tokens == session.total_tokens == usage.window.tokens
        assert (usage.all_turns, usage.total.input_tokens, usage.total.output_tokens) == (2, 430, 29)
        assert usage.total.model_calls == 3


async def test_an_approved_tool_call_shows_who_approved_it(store_url: str) -> None:
    async with talking(store_url, [ToolCall("c1", "wipe", {"at": "5"}), "wiped"]) as talk:
        await talk.say("wipe it")
        [turn] = (await talk.usage()).turns
        assert (turn.status, [tool.status for tool in turn.tools]) == ("waiting", ["waiting"])
        async for _ in approve(talk.runtime, "s", "c1", approved=True):
            pass
        asked, approved = (await talk.usage()).turns
        assert asked.status == "done"
        assert [(tool.status, tool.approved_by) for tool in asked.tools] == [("not_run", "user")]
        assert [(tool.status, tool.approved_by) for tool in approved.tools] == [("finished", "user")]


async def test_a_failed_turn_shows_the_call_that_failed(store_url: str) -> None:
    async with talking(store_url, [RuntimeError("boom"), "fine"]) as talk:
        with pytest.raises(LangoError, match="boom"):
            await talk.say("hello")
        await talk.say("again")
        failed, done = (await talk.usage()).turns
        assert (failed.status, done.status) == ("failed", "done")
        [call] = failed.model_calls
        assert (call.input_tokens, call.output_tokens) == (0, 0)
        assert failed.first_seq == 1
        assert failed.last_seq is not None
        assert done.first_seq == failed.last_seq + 1


async def test_a_running_turn_shows_its_usage_so_far(store_url: str) -> None:
    held, go = asyncio.Event(), asyncio.Event()

    async def hold(_: object) -> str:
        held.set()
        await go.wait()
        return "now"

    async with talking(store_url, [hold]) as talk:
        running = asyncio.create_task(talk.say("wait for it"))
        await held.wait()
        [turn] = (await talk.usage()).turns
        assert (turn.status, turn.ended_at, turn.first_seq, turn.last_seq) == ("running", None, 1, 1)
        go.set()
        await running


async def test_totals_include_every_turn(store_url: str) -> None:
    gate = asyncio.Event()

    async def wait(_: dict[str, Any]) -> dict[str, Any]:
        await gate.wait()
        return {}

    script = [["a", UsageDelta(10, 1)], ["b", UsageDelta(20, 2)], ToolCall("c1", "wait", {}), ["c", UsageDelta(40, 4)]]
    provider = ScriptedProvider([*script, ["d", UsageDelta(80, 8)]])
    tool = Tool("wait", "Wait.", {"type": "object"}, wait)
    settings = Settings(store=StoreSettings(url=store_url))
    async with open_runtime(settings, tools=[tool], provider=provider) as runtime:

        async def total() -> tuple[int, int, int]:
            usage = await runtime.sessions.usage("s", limit=1)
            return usage.all_turns, usage.total.input_tokens, usage.total.output_tokens

        for text in ("one", "two"):
            await runtime.run("s", text)
        assert await total() == (2, 30, 3)
        running = await runtime.submit("s", "three")
        waiting = await runtime.submit("s", "four")
        assert await total() == (4, 30, 3)
        gate.set()
        await running.wait()
        await waiting.wait()
        assert await total() == (4, 150, 15)


async def test_turns_are_read_in_adjacent_pages(store_url: str) -> None:
    async with talking(store_url, [["ok", UsageDelta(10, 1)]] * 7) as talk:
        await talk.say(*(f"message {number}" * number for number in range(7)))
        whole = await talk.usage()
        assert whole.before is None
        pages: list[SessionUsage] = [await talk.usage(limit=3)]
        while pages[0].before is not None:
            pages.insert(0, await talk.usage(limit=3, before=pages[0].before))
        assert [len(page.turns) for page in pages] == [1, 3, 3]
        assert [turn for page in pages for turn in page.turns] == list(whole.turns)
        assert all(page.all_turns == 7 and page.total.input_tokens == 70 for page in pages)


@pytest.mark.parametrize(
    "bounds",
    [
        {"max_message_token_budget": 400},
        {"max_messages": 5},
        {"max_turns": 3},
        {"max_message_token_budget": 10_000},
    ],
    ids=str,
)
async def test_the_window_is_what_the_next_request_keeps(store_url: str, bounds: dict[str, int]) -> None:
    script: list[Entry] = []
    for number in range(8):
        script += [ToolCall(f"c{number}", "look", {"at": str(number * 30)}), f"answer {number} " * (number % 3 * 5 + 1)]
    async with talking(store_url, [*script, "the end"], **bounds) as talk:
        await talk.say(*(f"question {number} " * (number % 4 * 4 + 1) for number in range(8)))
        usage = await talk.usage()
        await talk.say("?")
        sent = talk.provider.requests[-1].messages[:-1]
        assert usage.window.messages == len(sent)
        assert usage.window.left_out_messages == 8 * 4 - len(sent)
        kept = await store_of(talk.runtime).read(read_message_page, await _record(talk), before=33, limit=len(sent))
        assert [_said(one.message) for one in kept if one.message] == [_said(one) for one in sent]
        assert usage.window.first_seq == kept[0].seq
        assert usage.window.tokens == sum(one.tokens for one in kept)
        assert usage.window.tokens <= usage.rules.room_tokens
        assert usage.window.tokens + usage.window.left_out_tokens == sum(turn.tokens for turn in usage.turns)
        assert bool(usage.window.left_out_messages) == (bounds != {"max_message_token_budget": 10_000})
        [name] = bounds if usage.window.left_out_messages else [None]
        assert usage.window.limit == ("budget" if name == "max_message_token_budget" else name)
        assert (f"`history.{name}`" if name else "") in usage.window.reason
        assert bool(name) == bool(usage.window.reason)


def _said(message: Message) -> tuple[str, str, list[str]]:
    return message.role, message.content if message.role != "tool" else "", [call.id for call in message.tool_calls]


async def test_with_memory_the_window_begins_after_the_observed_messages(store_url: str) -> None:
    roles = Roles(agent=lambda _: "yes, and a few words more, so that it is soon enough to be observed")
    async with open_runtime(remembering(store_url), provider=roles.provider) as runtime:
        for number in range(8):
            await runtime.run("s", f"message {number} with some words in it, to be remembered in a note")
        await runtime.memory.settle()
        usage = await runtime.sessions.usage("s")
        await runtime.run("s", "?")
        assert usage.window.observed_seq > 0
        assert usage.window.left_out_messages > 0
        assert usage.window.limit is None, "what is not sent is quoted as notes"
        sent = roles.agent[-1].messages
        assert usage.window.messages == len(sent) - 2  # without the quoted memory and the new message
        assert usage.window.memory_tokens == count_tokens(sent[0])
        assert usage.window.tokens + usage.window.left_out_tokens == sum(turn.tokens for turn in usage.turns)


async def _record(talk: Talk) -> Any:
    return await store_of(talk.runtime).read(find_session, SessionId(talk.runtime.app_name, "user", "s"))


async def test_a_giant_result_counts_as_it_is_sent(store_url: str) -> None:
    script: list[Entry] = [ToolCall("c1", "look", {"at": "60000"}), "big"]
    async with talking(store_url, script, max_message_token_budget=1_000) as talk:
        await talk.say("look")
        window = (await talk.usage()).window
        assert 0 < window.tokens <= 1_000
        assert window.left_out_tokens > 4_500
        assert window.left_out_messages == 0, "it is clipped, and nothing is cut"


async def test_a_missing_session_has_no_usage(store_url: str) -> None:
    async with talking(store_url, []) as talk:
        name = SessionId(talk.runtime.app_name, "user", "s")
        with pytest.raises(SessionNotFound):
            await talk.usage()
        await store_of(talk.runtime).write(create_session, name, None, time.time())
        empty = await talk.usage()
        assert (list(empty.turns), empty.window.first_seq, empty.window.messages, empty.all_turns) == ([], None, 0, 0)
        assert empty.total.cost_usd is None


async def test_rewound_messages_leave_the_window_and_their_cost_still_counts(store_url: str) -> None:
    async with talking(store_url, [["ok", UsageDelta(10, 1)]] * 4) as talk:
        await talk.say("one", "two", "three")
        await talk.runtime.sessions.rewind("s", before=3)
        await talk.say("four")
        usage = await talk.usage()
        assert [turn.is_rewound for turn in usage.turns] == [False, True, True, False]
        assert usage.total.input_tokens == 40
        assert (usage.window.messages, usage.window.left_out_messages, usage.window.left_out_tokens) == (4, 0, 0)
        assert usage.window.tokens == usage.turns[0].tokens + usage.turns[3].tokens


async def test_a_fork_has_shared_messages_in_its_window_and_only_its_own_cost(store_url: str) -> None:
    async with talking(store_url, [["ok", UsageDelta(10, 1)]] * 4) as talk:
        await talk.say("one", "two", "three")
        await talk.runtime.sessions.fork("s", at=4, new_id="t")
        await talk.runtime.run("t", "another three")
        whole, fork = await talk.usage(), await talk.runtime.sessions.usage("t")
        assert [(turn.first_seq, turn.last_seq, turn.usage.input_tokens) for turn in fork.turns] == [(5, 6, 10)]
        assert (fork.window.messages, fork.window.left_out_messages) == (6, 0)
        assert fork.window.tokens == sum(turn.tokens for turn in (*whole.turns[:2], *fork.turns))


async def test_the_turns_of_all_sessions_are_summed_by_day_and_model(store_url: str) -> None:
    script: list[Entry] = [
        ["a", UsageDelta(100, 10, 40), Finish("stop", model="m\x00\ud800")],
        ["b", UsageDelta(50, 5), Finish("stop", model="gpt-4o-mini")],
        ["c", UsageDelta(7, 3), Finish("stop", model="gpt-4o-mini")],
        ProviderRejected("no", provider="x", status=400),
    ]
    settings = Settings(store=StoreSettings(url=store_url))
    async with open_runtime(settings, provider=ScriptedProvider(script)) as runtime:
        for user in ("ann", "bob", "bob"):
            await runtime.run("s", "hello", user_id=user)
        with pytest.raises(ProviderRejected):
            await runtime.run("s", "fail", user_id="ann")
        store = store_of(runtime)
        await store.write(_set_created_at, 86_400.0 * 3 - 0.4)
        everyone = await runtime.sessions.usage_by_day(0.0, user_id=None)
        assert [(one.day, one.turns, one.failed) for one in everyone.turns] == [("1970-01-03", 4, 1)]
        calls = {one.model: (one.calls, one.input_tokens, one.output_tokens) for one in everyone.models}
        assert calls["gpt-4o-mini"] == (2, 57, 8)
        assert (1, 100, 10) in calls.values(), "a name that PostgreSQL cannot hold does not stop the sum"
        [mini] = [one for one in everyone.models if one.model == "gpt-4o-mini"]
        assert mini.cost_usd
        assert 0 < mini.slowest_s <= mini.duration_s
        anns = await runtime.sessions.usage_by_day(0.0, user_id="ann")
        assert [(one.turns, one.failed) for one in anns.turns] == [(2, 1)]
        assert "gpt-4o-mini" not in {one.model for one in anns.models}
        assert await runtime.sessions.usage_by_day(time.time() + 60, user_id=None) == UsageByDay([], [])


def _set_created_at(at: float) -> Operation[None]:
    yield "UPDATE turns SET created_at = $1", (at,)
