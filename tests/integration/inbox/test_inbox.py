"""The inbox: what waits for a person across the sessions of a user, of every kind, in pages, and nothing else."""

import time
from collections.abc import AsyncGenerator
from typing import Any

import pytest
from google.adk.agents import LlmAgent
from google.adk.events import RequestInput
from google.adk.tools import LongRunningFunctionTool
from google.adk.workflow import START, Workflow, node

from lango import open_runtime, tool
from lango.adk import AdkTool
from lango.errors import UsageError
from lango.messages import ToolCall
from lango.runtime.runtime import Runtime
from lango.runtime.sessions.session_watch import UserWatch
from lango.store import Store
from lango.store.engine.database import Operation, Row
from lango.store.waits import inbox
from lango.store.waits.inbox import read_inbox_places
from lango.testing import ScriptedProvider
from lango.waits import ApprovalWait, InputWait, LongRunningWait
from tests.agents.answers import opened, submit_approval, submit_input, submit_results
from tests.agents.parts import collect, settings_for
from tests.support.runtimes import store_of


@tool(level="dangerous")
def send(to: str) -> str:
    """Send a message."""
    return f"sent to {to}"


def order(item: str) -> None:
    """Order something; the result comes later."""


@node
async def size(node_input: Any) -> AsyncGenerator[Any, None]:
    yield RequestInput(message="Which size?", payload={"sizes": [1, 2]}, response_schema=int)


def shop(*replies: Any) -> tuple[LlmAgent, ScriptedProvider]:
    return LlmAgent(name="shop", tools=[AdkTool(send), LongRunningFunctionTool(order)]), ScriptedProvider(list(replies))


async def run(runtime: Runtime, session: str, text: str = "go", user: str = "user") -> None:
    await collect((await runtime.submit(session, text, user_id=user)).follow())


async def test_the_inbox_lists_approvals_and_results_with_what_is_asked(store_url: str) -> None:
    agent, provider = shop(ToolCall("c1", "send", {"to": "bob"}), ToolCall("c2", "order", {"item": "boat"}))
    before = time.time()
    async with open_runtime(settings_for(store_url), provider=provider, root_agent=agent) as runtime:
        await run(runtime, "letters", "write to bob")
        await run(runtime, "boats", "order a boat")
        newest, oldest = await runtime.inbox.list()
        assert (newest.title, oldest.title) == ("order a boat", "write to bob")
        ordered, asked = newest.wait, oldest.wait
        assert isinstance(ordered, LongRunningWait)
        assert (ordered.session_id, ordered.turn, ordered.call_id) == ("boats", 1, "c2")
        assert (ordered.tool, ordered.arguments, ordered.expires_at) == ("order", {"item": "boat"}, None)
        assert isinstance(asked, ApprovalWait)
        assert (asked.session_id, asked.turn, asked.call_id) == ("letters", 1, "c1")
        assert (asked.tool, asked.arguments) == ("send", {"to": "bob"})
        assert before - 1 <= asked.opened_at.timestamp() <= ordered.opened_at.timestamp() <= time.time() + 1
        assert asked.expires_at is not None
        assert (asked.expires_at - asked.opened_at).total_seconds() == pytest.approx(86_400, abs=60)


async def test_the_inbox_lists_inputs_with_their_schema(store_url: str) -> None:
    workflow = Workflow(name="shirts", edges=[(START, size)])
    async with open_runtime(settings_for(store_url), root_agent=workflow) as runtime:
        events = await collect((await runtime.submit("s", "a shirt")).follow())
        [asked] = opened(events, InputWait)
        [item] = await runtime.inbox.list()
        wait = item.wait
        assert isinstance(wait, InputWait)
        assert (wait.message, wait.schema, wait.payload) == ("Which size?", {"type": "integer"}, {"sizes": [1, 2]})
        assert (wait.id, wait.path, wait.turn) == (asked.id, asked.path, 1)
        await collect((await submit_input(runtime, "s", wait.id, 2)).follow())
        assert await runtime.inbox.list() == []


async def test_a_reader_is_notified_of_a_request_that_another_process_opened_and_closed_between_two_polls(
    store_url: str,
) -> None:
    agent, provider = shop(ToolCall("c1", "send", {"to": "bob"}), "sent")
    async with open_runtime(settings_for(store_url), provider=provider, root_agent=agent) as runtime:
        watch = UserWatch(store_of(runtime), runtime.app_name, "user")  # as a process has it in which no turn runs
        await watch.poll_once()
        await run(runtime, "letters")
        assert len(await runtime.inbox.list()) == 1, "what a page shows that reads at this moment"
        await collect((await submit_approval(runtime, "letters", "c1")).follow())
        seen = watch.inbox_changes
        await watch.poll_once()
        assert watch.inbox_changes > seen
        seen = watch.inbox_changes
        await watch.poll_once()
        assert watch.inbox_changes == seen, "nothing has happened since"


async def test_what_is_answered_leaves_the_inbox_in_another_process(store_url: str) -> None:
    agent, provider = shop(ToolCall("c1", "send", {"to": "bob"}), ToolCall("c2", "order", {"item": "boat"}))
    async with open_runtime(settings_for(store_url), provider=provider, root_agent=agent) as runtime:
        await run(runtime, "letters")
        await run(runtime, "boats")
    agent, provider = shop("sent", "on its way", "here")
    async with open_runtime(settings_for(store_url), provider=provider, root_agent=agent) as other:
        assert [item.wait.session_id for item in await other.inbox.list()] == ["boats", "letters"]
        turn = await submit_approval(other, "letters", "c1", approved=True)
        assert [item.wait.session_id for item in await other.inbox.list()] == ["boats"], (
            "as soon as the answer is stored"
        )
        await collect(turn.follow())
        await collect((await submit_results(other, "boats", {"c2": {"at": "sea"}}, will_continue=True)).follow())
        assert [item.wait.session_id for item in await other.inbox.list()] == ["boats"], "more results follow"
        await collect((await submit_results(other, "boats", {"c2": {"at": "home"}})).follow())
        assert await other.inbox.list() == []


async def test_a_user_sees_the_own_inbox_alone(store_url: str) -> None:
    calls = [ToolCall(f"c{n}", "send", {"to": f"x{n}"}) for n in range(3)]
    agent, provider = shop(*calls)
    async with open_runtime(settings_for(store_url), provider=provider, root_agent=agent) as runtime:
        for user in ("ann", "bob", "cara"):
            await run(runtime, "same id", user=user)
        for n, user in enumerate(("ann", "bob", "cara")):
            [item] = await runtime.inbox.list(user_id=user)
            assert isinstance(item.wait, ApprovalWait)
            assert item.wait.arguments == {"to": f"x{n}"}
        assert await runtime.inbox.list(user_id="mallory") == []
        assert await runtime.inbox.list(user_id="no\0body") == []


async def test_expired_declined_and_overtaken_requests_are_left_out(store_url: str) -> None:
    calls = [ToolCall(f"c{n}", "send", {"to": "x"}) for n in range(3)]
    agent, provider = shop(*calls, "no", "other")
    async with open_runtime(settings_for(store_url), provider=provider, root_agent=agent) as runtime:
        for session in ("expired", "declined", "overtaken"):
            await run(runtime, session)
        assert len(await runtime.inbox.list()) == 3
        await collect((await submit_approval(runtime, "declined", "c1", approved=False)).follow())
        await run(runtime, "overtaken", "something else")
        assert [item.wait.session_id for item in await runtime.inbox.list()] == ["expired"]

        def expire() -> Operation[None]:
            yield "UPDATE waits SET expires_at = (SELECT now FROM database_clock)", ()

        await store_of(runtime).write(expire)
        assert await runtime.inbox.list() == [], "before the request is closed"


async def test_rewound_forked_imported_and_deleted_sessions(store_url: str) -> None:
    calls = [ToolCall("c0", "send", {"to": "x"}), ToolCall("c1", "order", {"item": "boat"}), "now another"]
    agent, provider = shop(*calls)
    async with open_runtime(settings_for(store_url), provider=provider, root_agent=agent) as runtime:
        await run(runtime, "s", "write")
        await run(runtime, "t", "order")
        fork = await runtime.sessions.fork("s", new_id="fork")
        found = await runtime.inbox.list()
        assert [(item.wait.session_id, item.title, item.wait.turn) for item in found] == [
            ("fork", fork.display_title, None),
            ("t", "order", 1),
            ("s", "write", 1),
        ]
        lines = [line async for line in runtime.sessions.export_lines("s")]
        await runtime.sessions.import_lines([line.encode() for line in lines], session_id="import")
        assert len(await runtime.inbox.list()) == 3, "a request in an imported session cannot be answered"
        await runtime.sessions.rewind("s", before=1)
        await runtime.sessions.rewind("t", before=1)
        assert [item.wait.session_id for item in await runtime.inbox.list()] == ["fork"]
        assert len(await store_of(runtime).read(read_inbox_places, runtime.app_name, "user", 50)) == 1
        await runtime.sessions.delete("fork")
        assert await runtime.inbox.list() == []


async def test_pages_hold_every_item_once_whatever_is_between(store_url: str) -> None:
    count = 7
    replies = [
        ToolCall(f"c{n}", ("send", "order")[n % 2], {"to": "x"} if n % 2 == 0 else {"item": "x"}) for n in range(count)
    ]
    agent, provider = shop(*replies, "hello")
    async with open_runtime(settings_for(store_url), provider=provider, root_agent=agent) as runtime:
        for n in range(count):
            await run(runtime, f"s{n}")
        await runtime.sessions.rewind("s3", before=1)
        seen: list[str] = []
        page = await runtime.inbox.list(limit=2)
        while page:
            seen += [item.wait.session_id for item in page]
            page = await runtime.inbox.list(limit=2, after=page[-1].place)
        assert seen == ["s6", "s5", "s4", "s2", "s1", "s0"]


async def test_an_item_is_found_by_its_short_id(sqlite_url: str) -> None:
    agent, provider = shop(ToolCall("c0", "send", {"to": "x"}), ToolCall("c1", "send", {"to": "y"}))
    async with open_runtime(settings_for(sqlite_url), provider=provider, root_agent=agent) as runtime:
        await run(runtime, "one")
        await run(runtime, "two")
        two, one = await runtime.inbox.list()
        assert (await runtime.inbox.find(one.id)).wait.session_id == "one"
        assert (await runtime.inbox.find(two.id[:6])).wait.session_id == "two"
        for unknown in ("", "zzz"):
            with pytest.raises(UsageError, match="nothing waits"):
                await runtime.inbox.find(unknown)


async def test_the_queries_of_the_inbox_use_small_indexes(sqlite_url: str) -> None:
    """They look at no message of a session, and at no session in which nothing waits."""

    def plan(statement: str) -> Operation[list[Row]]:
        return (yield f"EXPLAIN QUERY PLAN {statement}", ("app", "user", 1.0, 1, "", 50))

    async with Store(sqlite_url) as store:
        for statement in (vars(inbox)["_ITEMS"], vars(inbox)["_PLACES"]):
            lines = [str(row[-1]) for row in await store.read(plan, statement)]
            assert any("waits_inbox" in line for line in lines), lines
            small = ("database_clock", "CONSTANT ROW")
            assert [line for line in lines if line.startswith("SCAN") and not line.endswith(small)] == [], lines
            assert not any("SORT" in line or "B-TREE" in line for line in lines), lines
