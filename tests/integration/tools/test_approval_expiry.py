"""An approval request that is not answered in time is denied: once, by any process, and recorded as that."""

import asyncio
import time
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from lango import open_runtime
from lango.errors import WaitNotOpen
from lango.events import ToolEnd, TurnDone
from lango.messages import ToolCall
from lango.runtime.runtime import Runtime
from lango.runtime.waits import Inbox
from lango.sessions import SessionId
from lango.store import Store
from lango.store.sessions.sessions import find_session
from lango.store.sessions.window import read_message_page
from lango.store.tool_calls.tool_journal import read_journal_entries
from lango.store.waits.waits import expire, read_waits
from lango.testing import ScriptedProvider
from lango.waits import ApprovalWait
from tests.agents.answers import approve, submit_approval
from tests.agents.parts import (
    TIMEOUT_S,
    Gate,
    approvals,
    broken_for,
    collect,
    messages,
    results_in,
    rows,
    settings_for,
    stored,
    text_of,
)
from tests.integration.tools.test_approvals import Sent, send
from tests.support.runtimes import expire_waits, store_of

NOT_IN_TIME = "not run: the approval request expired without an answer, which counts as declined"
WENT_ON = "not run: the conversation continued without an answer to the approval request, which counts as declined"


async def closed(runtime: Runtime, call_id: str = "c1") -> dict[str, Any]:
    """Wait until the newest result of a call is final."""
    async with asyncio.timeout(TIMEOUT_S):
        while True:
            outputs = [
                call.output
                for one in await messages(runtime)
                for call in one.tool_calls
                if call.id == call_id and call.output
            ]
            if outputs and "error" in outputs[-1]:
                return dict(outputs[-1])
            await asyncio.sleep(0.02)


async def journal(runtime: Runtime) -> list[tuple[Any, ...]]:
    return await rows(
        store_of(runtime), "SELECT call_id, approved, approved_by, status FROM tool_journal ORDER BY call_id, epoch"
    )


async def test_an_approval_request_has_its_expiry(sqlite_url: str) -> None:
    provider = ScriptedProvider([send("bob")])
    settings = settings_for(sqlite_url, tools={"approval_expires_s": 600})
    async with open_runtime(settings, provider=provider, tools=[Sent().tool]) as runtime:
        before = datetime.now(UTC)
        [question] = approvals(await collect(runtime.stream("s", "send it")))
        assert question.expires_at
        asked_at = question.expires_at - timedelta(seconds=600)  # by the clock of the database
        assert before - timedelta(seconds=5) <= asked_at <= datetime.now(UTC) + timedelta(seconds=5)
        session = await store_of(runtime).read(find_session, SessionId(runtime.app_name, "user", "s"))
        assert session
        [waiting] = await store_of(runtime).read(read_waits, session.key, session.name)
        assert isinstance(waiting, ApprovalWait)
        assert (waiting.call_id, waiting.tool, waiting.arguments) == ("c1", "send", {"to": "bob"})
        assert waiting.expires_at == question.expires_at


@pytest.mark.parametrize("limit", [{}, {"approval_expires_s": 0}])
async def test_requests_expire_after_a_day_by_default_and_never_with_zero(
    sqlite_url: str, limit: dict[str, Any]
) -> None:
    provider = ScriptedProvider([send("bob")])
    async with open_runtime(settings_for(sqlite_url, tools=limit), provider=provider, tools=[Sent().tool]) as runtime:
        [question] = approvals(await collect(runtime.stream("s", "send it")))
        if limit:
            assert question.expires_at is None
        else:
            assert question.expires_at
            assert question.expires_at - datetime.now(UTC) > timedelta(hours=23)


async def test_an_unanswered_approval_request_is_denied_at_its_expiry(sqlite_url: str) -> None:
    sent = Sent()
    provider = ScriptedProvider([send("bob"), "it was not sent"])
    async with open_runtime(settings_for(sqlite_url), provider=provider, tools=[sent.tool]) as runtime:
        await collect(runtime.stream("s", "send it"))
        await expire_waits(runtime)
        assert await closed(runtime) == {"error": NOT_IN_TIME, "outcome": "not run"}
        assert await rows(store_of(runtime), "SELECT COUNT(*) FROM waits WHERE closed IS NULL") == [(0,)]
        assert await journal(runtime) == [("c1", 0, "policy", "intended")]
        with pytest.raises(WaitNotOpen, match="has no wait"):
            await submit_approval(runtime, "s", "c1", approved=True)
        assert await runtime.run("s", "and?") == "it was not sent"
        assert await journal(runtime) == [("c1", 0, "policy", "intended")], "it is recorded once"
    assert sent.to == []
    assert results_in(provider.requests[1])["c1"]["error"] == NOT_IN_TIME
    assert broken_for(provider.requests[1]) == []


async def test_an_approval_request_expires_while_no_process_runs(store_url: str) -> None:
    settings = settings_for(store_url)
    sent = Sent()
    async with open_runtime(settings, provider=ScriptedProvider([send("bob")]), tools=[sent.tool]) as runtime:
        await collect(runtime.stream("s", "send it"))
    async with open_runtime(settings, provider=ScriptedProvider([]), tools=[sent.tool]) as other:
        await expire_waits(other)
    provider = ScriptedProvider(["not sent, then"])
    async with open_runtime(settings, provider=provider, tools=[sent.tool]) as runtime:
        assert (await closed(runtime))["error"] == NOT_IN_TIME
        assert await runtime.run("s", "and?") == "not sent, then"
    assert sent.to == []
    assert broken_for(provider.requests[0]) == []


async def test_a_late_answer_is_rejected_and_the_call_closed(sqlite_url: str) -> None:
    """The answer itself expires the request; it does not wait for the periodic task."""
    sent = Sent()
    provider = ScriptedProvider([send("bob"), "no"])
    async with open_runtime(settings_for(sqlite_url), provider=provider, tools=[sent.tool]) as runtime:
        await collect(runtime.stream("s", "send it"))
        await expire_waits(runtime, notify=False)
        with pytest.raises(WaitNotOpen, match="has no wait"):
            await collect(approve(runtime, "s", "c1", approved=True))
        assert (await closed(runtime))["error"] == NOT_IN_TIME
        assert await rows(store_of(runtime), "SELECT COUNT(*) FROM turns") == [(1,)], "no turn was begun for it"
    assert sent.to == []


async def test_replicas_close_a_question_once(store_url: str) -> None:
    settings = settings_for(store_url)
    sent = Sent()
    provider = ScriptedProvider([send("bob")])
    async with (
        open_runtime(settings, provider=provider, tools=[sent.tool]) as one,
        open_runtime(settings, provider=provider, tools=[sent.tool]) as other,
    ):
        await collect(one.stream("s", "send it"))
        await asyncio.gather(expire_waits(one), expire_waits(other))
        await closed(one)
        inside: list[Any] = [vars(runtime)["_due_waits"] for runtime in (one, other)]
        await asyncio.gather(*(one.run_due() for one in inside * 3))
        outputs = [
            call for message in await messages(other) for call in message.tool_calls if call.id == "c1" and call.output
        ]
        assert [list(call.output or {}) for call in outputs] == [["status"], ["error", "outcome"]]


async def test_a_message_denies_the_open_approval_request(sqlite_url: str) -> None:
    sent = Sent()
    provider = ScriptedProvider([send("bob"), "something else, then"])
    async with open_runtime(settings_for(sqlite_url), provider=provider, tools=[sent.tool]) as runtime:
        await collect(runtime.stream("s", "send it"))
        assert await runtime.run("s", "no, do something else") == "something else, then"
        assert await rows(store_of(runtime), "SELECT COUNT(*) FROM waits WHERE closed IS NULL") == [(0,)]
        assert await journal(runtime) == [("c1", 0, "policy", "intended")]
        assert (await closed(runtime)) == {"error": WENT_ON, "outcome": "not run"}
    assert results_in(provider.requests[1])["c1"]["error"] == WENT_ON
    assert broken_for(provider.requests[1]) == []
    assert [one.role for one in await _roles(sqlite_url)][-1] == "assistant"


async def _roles(url: str) -> list[Any]:
    async with open_runtime(settings_for(url), provider=ScriptedProvider([])) as runtime:
        return await messages(runtime)


async def test_an_answer_in_time_counts_though_its_turn_is_queued(sqlite_url: str) -> None:
    """The answer to the second request is queued behind the first call, which takes longer than the expiry."""
    gate = Gate("slow", level="dangerous")
    sent = Sent()
    provider = ScriptedProvider([[ToolCall("c1", "slow", {}), send("bob", "c2")], "both done"])
    async with open_runtime(settings_for(sqlite_url), provider=provider, tools=[gate.tool, sent.tool]) as runtime:
        await collect(runtime.stream("s", "do both"))
        first = await submit_approval(runtime, "s", "c1", approved=True)
        await gate.wait()
        second = await submit_approval(runtime, "s", "c2", approved=True)
        await expire_waits(runtime)
        store_of(runtime).notify_due()
        gate.may_end.set()
        await collect(first.follow())
        events = await collect(second.follow())
        assert text_of(events) == "both done"
        assert sent.to == ["bob"]
    assert broken_for(provider.requests[1]) == []


async def test_expiry_does_not_write_beside_a_running_turn(store_url: str) -> None:
    gate = Gate("slow", level="dangerous")
    sent = Sent()
    provider = ScriptedProvider([[ToolCall("c1", "slow", {}), send("bob", "c2")], "one done"])
    async with open_runtime(settings_for(store_url), provider=provider, tools=[gate.tool, sent.tool]) as runtime:
        await collect(runtime.stream("s", "do both"))
        first = await submit_approval(runtime, "s", "c1", approved=True)
        await gate.wait()
        await expire_waits(runtime)
        session = await store_of(runtime).read(find_session, SessionId(runtime.app_name, "user", "s"))
        assert session
        assert not await store_of(runtime).write(expire, session.key, time.time())
        with pytest.raises(WaitNotOpen):
            await submit_approval(runtime, "s", "c2", approved=True)
        gate.may_end.set()
        events = await collect(first.follow())
        assert isinstance(events[-1], TurnDone), events
        assert await store_of(runtime).write(expire, session.key, time.time())
        assert (await closed(runtime, "c2"))["error"] == NOT_IN_TIME
        assert await runtime.run("s", "well?") == "one done"
    assert sent.to == []
    assert broken_for(provider.requests[1]) == []


async def test_a_request_that_is_due_while_its_turn_still_ends_is_closed_soon(sqlite_url: str) -> None:
    async with open_runtime(
        settings_for(sqlite_url), provider=ScriptedProvider([send("bob")]), tools=[Sent().tool]
    ) as runtime:
        await collect(runtime.stream("s", "send it"))
        name = SessionId(runtime.app_name, "user", "s")
    async with Store(sqlite_url) as store:

        def ending() -> Any:
            yield "UPDATE turns SET status = 'running'", ()
            yield "UPDATE waits SET expires_at = 1.0", ()

        def ended() -> Any:
            yield "UPDATE turns SET status = 'done'", ()

        await store.write(ending)
        inbox = Inbox(store, name.app_name)
        with store.watch_due() as wait:
            await inbox.expire("s")
            assert await rows(store, "SELECT COUNT(*) FROM waits WHERE closed IS NULL") == [(1,)]
            assert await wait(TIMEOUT_S), "it is tried again soon"
        await store.write(ended)
        await inbox.expire("s")
        assert await rows(store, "SELECT COUNT(*) FROM waits WHERE closed IS NULL") == [(0,)]


async def test_the_journal_records_who_answered_and_how_long_it_took(sqlite_url: str) -> None:
    sent = Sent()
    provider = ScriptedProvider([send("ann", "c1"), "sent", send("bob", "c2"), "not sent"])
    async with open_runtime(settings_for(sqlite_url), provider=provider, tools=[sent.tool]) as runtime:
        await collect(runtime.stream("s", "send", user_id="alice"))
        events = await collect(approve(runtime, "s", "c1", approved=True, user_id="alice"))
        [end] = [event for event in events if isinstance(event, ToolEnd)]
        assert end.duration_s is not None
        assert end.duration_s >= 0
        await collect(runtime.stream("s", "send", user_id="alice"))
        events = await collect(approve(runtime, "s", "c2", approved=False, user_id="alice"))
        [end] = [event for event in events if isinstance(event, ToolEnd)]
        assert end.duration_s is None, "it did not run"
        assert await journal(runtime) == [
            ("c1", 1, "alice", "intended"),
            ("c1", 1, "alice", "finished"),
            ("c2", 0, "alice", "intended"),
            ("c2", 0, "alice", "intended"),
        ]
        session = await store_of(runtime).read(find_session, SessionId(runtime.app_name, "alice", "s"))
        assert session
        messages = await store_of(runtime).read(read_message_page, session)
        found = await store_of(runtime).read(read_journal_entries, session.key, messages)
        assert {(call_id, one.duration_s is None) for (_, call_id), one in found.items()} == {
            ("c1", False),
            ("c2", True),
        }
    assert sent.to == ["ann"]


@pytest.mark.parametrize(
    ("tools", "approved"), [({"approval": "auto"}, 1), ({"allow": ["send"]}, 1), ({"deny": ["send"]}, 0)]
)
async def test_decisions_of_the_settings_are_recorded_as_policy(
    sqlite_url: str, tools: dict[str, Any], approved: int
) -> None:
    provider = ScriptedProvider([[send("bob"), ToolCall("c2", "look", {})], "done"])
    look = Gate("look", effect="none")
    look.may_end.set()
    settings = settings_for(sqlite_url, tools=tools)
    async with open_runtime(settings, provider=provider, tools=[Sent().tool, look.tool]) as runtime:
        await runtime.run("s", "send")
        assert [row[:3] for row in await journal(runtime)] == [("c1", approved, "policy"), ("c2", None, None)]


async def test_a_fork_at_an_approval_request_asks_again(sqlite_url: str) -> None:
    """Regardless of answers in the session that was forked."""
    sent = Sent()
    provider = ScriptedProvider([send("bob"), "sent", "sent once more"])
    async with open_runtime(settings_for(sqlite_url), provider=provider, tools=[sent.tool]) as runtime:
        await collect(runtime.stream("s", "send it"))
        await runtime.sessions.fork("s", new_id="before", user_id="user")
        await collect(approve(runtime, "s", "c1", approved=True))
        [waits] = [one.seq for one in await stored(runtime) if one.message and "not run yet" in one.message.content]
        await runtime.sessions.fork("s", at=waits, new_id="after", user_id="user")
        for name in ("before", "after"):
            record = await store_of(runtime).read(find_session, SessionId(runtime.app_name, "user", name))
            assert record
            [question] = await store_of(runtime).read(read_waits, record.key, record.name)
            assert isinstance(question, ApprovalWait)
            assert (question.call_id, question.arguments) == ("c1", {"to": "bob"})
        events = await collect(approve(runtime, "after", "c1", approved=True))
        assert text_of(events) == "sent once more"
        assert sent.to == ["bob", "bob"]
        assert await store_of(runtime).write(expire, record.key, time.time())
    assert [broken_for(request) for request in provider.requests] == [[]] * 3


async def test_a_rewound_approval_request_is_closed(sqlite_url: str) -> None:
    sent = Sent()
    provider = ScriptedProvider(["hello", send("bob"), "good"])
    async with open_runtime(settings_for(sqlite_url), provider=provider, tools=[sent.tool]) as runtime:
        await runtime.run("s", "hello")
        await collect(runtime.stream("s", "send it"))
        await runtime.sessions.rewind("s", before=3, user_id="user")
        record = await store_of(runtime).read(find_session, SessionId(runtime.app_name, "user", "s"))
        assert record
        assert await store_of(runtime).read(read_waits, record.key, record.name) == []
        with pytest.raises(WaitNotOpen):
            await submit_approval(runtime, "s", "c1", approved=True)
        assert await runtime.run("s", "how are you?") == "good"
        assert await rows(store_of(runtime), "SELECT COUNT(*) FROM waits WHERE closed IS NULL") == [(0,)]
    assert results_in(provider.requests[2]) == {}
    assert broken_for(provider.requests[2]) == []
