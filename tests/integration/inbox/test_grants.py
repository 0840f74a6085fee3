"""Grants: "always" for a tool in a session, by tool or by arguments; listed, revocable, expiring, in the journal."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from google.adk.agents import LlmAgent
from google.adk.tools import FunctionTool, ToolContext
from google.adk.tools.agent_tool import AgentTool

from lango import Tool, open_runtime
from lango.adk import AdkTool
from lango.errors import GrantNotFound, GrantRefused, SessionNotFound, WaitNotOpen
from lango.events import TurnEvent
from lango.messages import ToolCall
from lango.runtime.runtime import Runtime
from lango.store import Store, Turn
from lango.store.engine.database import Operation
from lango.store.tool_calls import grants
from lango.store.tool_calls.grants import Grant, record_intent_by_grant, revoke_grant
from lango.testing import ScriptedProvider
from lango.waits import NewGrant
from tests.agents.answers import submit_approval
from tests.agents.parts import approvals, collect, kinds, rows, settings_for, text_of
from tests.support.runtimes import store_of

TO_TEAM: dict[str, Any] = {"to": {"glob": "*@team.example"}}
RAN = ["accepted", "tool_start", "tool_end", "text_delta", "text_end", "done"]
ASKED = ["accepted", "wait_opened", "done"]


class Sent:
    """A tool that needs approval, and the record of its runs."""

    def __init__(self) -> None:
        self.to: list[str] = []
        parameters = {"type": "object", "properties": {"to": {"type": "string"}, "copies": {"type": "integer"}}}
        self.tool = Tool("send", "Send a message.", parameters, self._send, level="dangerous")

    def _send(self, to: str, copies: int = 1) -> str:
        self.to.append(to)
        return f"sent {copies} to {to}"


def send(to: str, call_id: str, **more: Any) -> ToolCall:
    return ToolCall(call_id, "send", {"to": to, **more})


@asynccontextmanager
async def opened(url: str, *replies: Any, sent: Sent, **policy: Any) -> AsyncGenerator[Runtime]:
    provider = ScriptedProvider(list(replies))
    async with open_runtime(settings_for(url, tools=policy), provider=provider, tools=[sent.tool]) as runtime:
        yield runtime


async def ask(runtime: Runtime, session: str = "s") -> list[str]:
    """Send a message; return the kinds of its events."""
    return kinds(await collect(runtime.stream(session, "go")))


def ask_nobody(events: list[str]) -> bool:
    """Whether a turn ended without a request."""
    return "wait_opened" not in events and events[-1] == "done"


async def approve(runtime: Runtime, call_id: str = "c1", grant: NewGrant | None = None) -> list[TurnEvent]:
    return await collect((await submit_approval(runtime, "s", call_id, approved=True, grant=grant)).follow())


async def grant_once(runtime: Runtime, new: NewGrant | None = None) -> Grant:
    """Send a message whose call c1 asks, and approve it with a grant."""
    assert await ask(runtime) == ASKED
    await approve(runtime, grant=new or NewGrant())
    return (await runtime.grants.list("s"))[0]


async def end_now(store: Store) -> None:
    """Let the grants be as old as they may become."""

    def operation() -> Operation[None]:
        yield "UPDATE approval_grants SET expires_at = (SELECT now FROM database_clock)", ()

    await store.write(operation)


async def test_a_grant_for_a_tool_lets_later_calls_run_and_the_journal_names_it(store_url: str) -> None:
    sent = Sent()
    replies = [send("bob", "c1"), "sent", send("eve", "c2"), "sent again"]
    async with opened(store_url, *replies, sent=sent) as runtime:
        [request] = approvals(await collect(runtime.stream("s", "send it")))
        assert text_of(await approve(runtime, request.call_id, NewGrant())) == "sent"
        assert await ask(runtime) == RAN
        assert sent.to == ["bob", "eve"]
        [grant] = await runtime.grants.list("s")
        assert (grant.id, grant.tool, grant.arguments, grant.granted_by) == (1, "send", None, "user")
        assert grant.active
        assert grant.expires_at is not None
        assert 0 < grant.expires_at - grant.granted_at <= 86_400, "the setting's time, where the answer says none"
        sql = "SELECT call_id, approved, approved_by, grant_id FROM tool_journal ORDER BY epoch"
        assert await rows(store_of(runtime), sql) == [
            ("c1", 1, "user", None),
            ("c1", 1, "user", None),
            ("c2", 1, "user", 1),
        ]


async def test_a_grant_by_arguments_covers_what_fits_and_asks_for_the_rest(store_url: str) -> None:
    sent = Sent()
    calls = [send("a@team.example", "c1"), "1", send("b@team.example", "c2"), "2", send("c@elsewhere", "c3"), "3"]
    calls += [send("d@team.example", "c4", copies=2), "4"]
    async with opened(store_url, *calls, sent=sent) as runtime:
        grant = await grant_once(runtime, NewGrant(TO_TEAM, expires_in_s=60))
        assert grant.arguments == TO_TEAM
        assert grant.expires_at == pytest.approx(grant.granted_at + 60)
        assert await ask(runtime) == RAN
        assert await ask(runtime) == ASKED
        await approve(runtime, "c3")
        assert await ask(runtime) == ASKED, "an argument that the pattern does not name"
        assert sent.to == ["a@team.example", "b@team.example", "c@elsewhere"]


REFUSED: dict[str, tuple[NewGrant, str]] = {
    "no pattern": (NewGrant({"to": {"starts": "a"}}), "use "),
    "two patterns": (NewGrant({"to": {"glob": "a*", "any": True}}), "use "),
    "a pattern that is no object": (NewGrant({"to": "a*"}), "use "),  # pyright: ignore[reportArgumentType]
    "an open escape": (NewGrant({"to": {"glob": "bob\\"}}), "backslash"),
    "a star alone": (NewGrant({"to": {"glob": "**"}}), "any"),
    "any of everything": (NewGrant({"to": {"any": True}}), "leave `arguments` out"),
    "too long": (NewGrant({"to": {"glob": "b" * 501}}), "500 characters"),
    "too many arguments": (NewGrant({f"a{n}": {"any": True} for n in range(51)}), "50 arguments"),
    "too large a value": (NewGrant({"to": {"equals": "b" * 5_000}}), "4000 characters"),
    "another call": (NewGrant({"to": {"equals": "eve"}}), "does not match the approved call"),
    "an argument missing": (NewGrant({}), "does not match the approved call"),
    "a parent folder": (NewGrant({"to": {"glob": "b*/../b"}}), "part of a path"),
    "no time": (NewGrant(expires_in_s=0), "expire"),
    "no number": (NewGrant(expires_in_s=float("nan")), "expire"),
}


@pytest.mark.parametrize("case", REFUSED)
async def test_a_grant_that_is_malformed_too_broad_or_unfit_is_refused_and_nothing_is_stored(
    sqlite_url: str, case: str
) -> None:
    new, why = REFUSED[case]
    sent = Sent()
    async with opened(sqlite_url, send("bob", "c1"), "sent", sent=sent, grant_expires_s=0) as runtime:
        await ask(runtime)
        with pytest.raises(GrantRefused, match=why):
            await approve(runtime, grant=new)
        assert await runtime.grants.list("s") == []
        assert sent.to == []
        await approve(runtime)
        assert sent.to == ["bob"], "the request is still open"


async def test_a_session_has_a_bounded_number_of_grants(store_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    most = 3
    monkeypatch.setattr(grants, "MAX_ACTIVE_GRANTS", most)
    sent = Sent()
    replies = [reply for n in range(most + 2) for reply in (send(f"x{n}", f"c{n}"), "sent")]
    async with opened(store_url, *replies, sent=sent) as runtime:
        for n in range(most):
            [request] = approvals(await collect(runtime.stream("s", "go")))
            await approve(runtime, request.call_id, NewGrant({"to": {"equals": f"x{n}"}}))
        [request] = approvals(await collect(runtime.stream("s", "go")))
        with pytest.raises(GrantRefused, match="revoke one first"):
            await approve(runtime, request.call_id, NewGrant())
        await runtime.grants.revoke("s", 2)
        await approve(runtime, request.call_id, NewGrant())
        assert await ask(runtime) == RAN


async def test_a_revoked_grant_asks_again_and_stays_in_the_record(store_url: str) -> None:
    sent = Sent()
    async with opened(store_url, send("bob", "c1"), "sent", send("eve", "c2"), sent=sent) as runtime:
        await grant_once(runtime)
        with pytest.raises(SessionNotFound):
            await runtime.grants.revoke("s", 1, user_id="mallory")
        with pytest.raises(SessionNotFound):
            await runtime.grants.list("s", user_id="mallory")
        await runtime.grants.revoke("s", 1)
        for grant_id in (1, 2):
            with pytest.raises(GrantNotFound):
                await runtime.grants.revoke("s", grant_id)
        [grant] = await runtime.grants.list("s")
        assert not grant.active
        assert grant.revoked_by == "user"
        assert await ask(runtime) == ASKED
        assert sent.to == ["bob"]


async def test_an_expired_grant_asks_again(store_url: str) -> None:
    sent = Sent()
    async with opened(store_url, send("bob", "c1"), "sent", send("eve", "c2"), sent=sent) as runtime:
        await grant_once(runtime)
        await end_now(store_of(runtime))
        [grant] = await runtime.grants.list("s")
        assert not grant.active
        with pytest.raises(GrantNotFound):
            await runtime.grants.revoke("s", 1)
        assert await ask(runtime) == ASKED


async def test_the_setting_limits_how_long_a_grant_holds(sqlite_url: str) -> None:
    sent = Sent()
    async with opened(sqlite_url, send("bob", "c1"), "sent", sent=sent, grant_expires_s=10) as runtime:
        grant = await grant_once(runtime, NewGrant(expires_in_s=1e6))
        assert grant.expires_at == pytest.approx(grant.granted_at + 10)


async def test_without_a_limit_a_grant_holds_until_it_is_revoked(sqlite_url: str) -> None:
    sent = Sent()
    async with opened(sqlite_url, send("bob", "c1"), "sent", sent=sent, grant_expires_s=0) as runtime:
        assert (await grant_once(runtime)).expires_at is None


@pytest.mark.parametrize("policy", [{"deny": ["send"]}, {"approval": "deny"}])
async def test_a_grant_never_covers_what_the_configuration_forbids(store_url: str, policy: dict[str, Any]) -> None:
    sent = Sent()
    async with opened(store_url, send("bob", "c1"), "sent", sent=sent) as runtime:
        await grant_once(runtime)
    async with opened(store_url, send("eve", "c2"), "it is forbidden", sent=sent, **policy) as runtime:
        assert ask_nobody(await ask(runtime))
        assert sent.to == ["bob"]
        sql = "SELECT approved, approved_by, grant_id FROM tool_journal WHERE call_id = 'c2'"
        assert await rows(store_of(runtime), sql) == [(0, "policy", None)]


async def test_a_revocation_and_a_decision_at_once_come_one_after_the_other(store_url: str) -> None:
    sent, calls = Sent(), 12
    replies = [reply for n in range(calls) for reply in (send("bob", f"c{n}"), "sent")]
    async with opened(store_url, *replies, sent=sent) as runtime, Store(store_url) as other:
        for n in range(calls):
            await ask(runtime)
            await approve(runtime, f"c{n}", NewGrant({"to": {"equals": "bob"}}))
            [session] = await runtime.sessions.list()
            [grant] = [one for one in await runtime.grants.list("s") if one.active]
            turn = await _running_turn(runtime, session.key)
            decided, revoked = await asyncio.gather(
                store_of(runtime).write(
                    record_intent_by_grant, turn, f"x{n}", "send", "once", "hash", 0.0, {"to": "bob"}
                ),
                other.write(revoke_grant, session.key, grant.id, "user"),
            )
            assert revoked
            again = await store_of(runtime).write(
                record_intent_by_grant, turn, f"x{n}", "send", "once", "hash", 0.0, {"to": "bob"}
            )
            assert again is None, "from the revocation on, every call asks"
            sql = f"SELECT approved, grant_id FROM tool_journal WHERE call_id = 'x{n}'"
            assert await rows(store_of(runtime), sql) == [(None, None)], f"the decision {decided} was taken back"


async def _running_turn(runtime: Runtime, key: int) -> Turn:
    [[epoch]] = await rows(store_of(runtime), f"SELECT epoch FROM sessions WHERE session_key = {key}")
    return Turn(key, 1, epoch, first_epoch=epoch)


async def test_forks_and_imports_have_no_grants(store_url: str) -> None:
    sent = Sent()
    replies = [send("bob", "c1"), "sent", send("eve", "c2"), send("eve", "c3")]
    async with opened(store_url, *replies, sent=sent) as runtime:
        await grant_once(runtime)
        await runtime.sessions.fork("s", new_id="fork")
        lines = [line async for line in runtime.sessions.export_lines("s")]
        await runtime.sessions.import_lines([line.encode() for line in lines], session_id="import")
        for session in ("fork", "import"):
            assert await runtime.grants.list(session) == []
            assert await ask(runtime, session) == ASKED
        assert "approval_grants" not in "".join(lines)


async def test_grants_are_deleted_with_their_session(store_url: str) -> None:
    sent = Sent()
    async with opened(store_url, send("bob", "c1"), "sent", sent=sent) as runtime:
        await grant_once(runtime)
        await runtime.sessions.delete("s")
        assert await rows(store_of(runtime), "SELECT * FROM approval_grants") == []


async def test_a_rewind_of_the_request_revokes_its_grant(store_url: str) -> None:
    sent = Sent()
    async with opened(store_url, "hello", send("bob", "c1"), "sent", send("eve", "c2"), sent=sent) as runtime:
        await runtime.run("s", "hi")
        await grant_once(runtime)
        await runtime.sessions.rewind("s", before=3)
        [grant] = await runtime.grants.list("s")
        assert (grant.active, grant.revoked_by) == (False, "rewind")
        assert await ask(runtime) == ASKED


async def test_a_grant_does_not_answer_a_request_that_is_open(store_url: str) -> None:
    sent = Sent()
    replies = [[send("bob", "c1"), send("eve", "c2")], "both sent"]
    async with opened(store_url, *replies, sent=sent) as runtime:
        await collect(runtime.stream("s", "send both"))
        await approve(runtime, "c1", NewGrant())
        assert sent.to == ["bob"]
        assert text_of(await approve(runtime, "c2")) == "both sent"
        assert sent.to == ["bob", "eve"]


async def test_two_processes_that_answer_at_once_make_one_grant(store_url: str) -> None:
    sent = Sent()
    async with (
        opened(store_url, send("bob", "c1"), "sent", sent=sent) as one,
        opened(store_url, "sent", sent=sent) as other,
    ):
        await ask(one)
        answers = await asyncio.gather(
            *(submit_approval(runtime, "s", "c1", approved=True, grant=NewGrant()) for runtime in (one, other)),
            return_exceptions=True,
        )
        assert sum(isinstance(answer, WaitNotOpen) for answer in answers) == 1
        for answer in answers:
            if not isinstance(answer, BaseException):
                await collect(answer.follow())
        assert len(await one.grants.list("s")) == 1
        assert sent.to == ["bob"]


async def test_a_grant_covers_a_tool_that_adk_confirms(store_url: str) -> None:
    paid: list[int] = []

    def pay(amount: int) -> dict[str, int]:
        """Pay."""
        paid.append(amount)
        return {"paid": amount}

    replies = [ToolCall("c1", "pay", {"amount": 5}), "paid", ToolCall("c2", "pay", {"amount": 5}), "paid"]
    replies += [ToolCall("c3", "pay", {"amount": 6})]
    agent = LlmAgent(name="payer", tools=[FunctionTool(pay, require_confirmation=True)])
    async with open_runtime(settings_for(store_url), provider=ScriptedProvider(replies), root_agent=agent) as runtime:
        assert "wait_opened" in await ask(runtime)
        await approve(runtime, grant=NewGrant({"amount": {"equals": 5}}))
        assert await ask(runtime) == RAN
        assert paid == [5, 5]
        assert [
            row for row in await rows(store_of(runtime), "SELECT call_id, grant_id FROM tool_journal") if row[1]
        ] == [("c2", 1)]
        assert "wait_opened" in await ask(runtime)
        assert paid == [5, 5]


async def test_a_tool_that_asks_with_its_own_code_asks_every_time(sqlite_url: str) -> None:
    booked: list[str] = []

    def book(room: str, tool_context: ToolContext) -> dict[str, str]:
        """Book a room."""
        if tool_context.tool_confirmation is None:
            tool_context.request_confirmation(hint="For how many days?", payload={"days": 0})
            tool_context.actions.skip_summarization = True
            return {"status": "asked"}
        booked.append(room)
        return {"booked": room}

    replies = [ToolCall("c1", "book", {"room": "a"}), "booked", ToolCall("c2", "book", {"room": "b"}), "asked"]
    agent = LlmAgent(name="clerk", tools=[book])
    provider = ScriptedProvider(replies)
    async with open_runtime(settings_for(sqlite_url), provider=provider, root_agent=agent) as runtime:
        await collect(runtime.stream("s", "go"))
        await approve(runtime, grant=NewGrant())
        assert approvals(await collect(runtime.stream("s", "again")))
        assert booked == ["a"]


@pytest.mark.filterwarnings("ignore:The `plugins` argument is deprecated")  # ADK's own use of it
async def test_a_grant_does_not_reach_into_an_agent_that_is_called_as_a_tool(sqlite_url: str) -> None:
    sent = Sent()
    inner = LlmAgent(name="inner", description="Sends.", tools=[AdkTool(sent.tool)])
    agent = LlmAgent(name="outer", tools=[AgentTool(inner), AdkTool(sent.tool)])
    replies = [send("bob", "c1"), "sent", ToolCall("c2", "inner", {"request": "send"}), send("eve", "c3")]
    provider = ScriptedProvider([*replies, "it cannot ask", "not sent"])
    async with open_runtime(settings_for(sqlite_url), provider=provider, root_agent=agent) as runtime:
        await grant_once(runtime)
        await ask(runtime)
        assert sent.to == ["bob"]
    assert "cannot request" in str(provider.requests[-2].messages)
