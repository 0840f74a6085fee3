"""The trace of a session: its agents, model calls and tools, and the requests that were kept."""

import asyncio
import json
from collections.abc import AsyncGenerator, Sequence
from typing import Any

import pytest
from google.adk.agents import LlmAgent
from google.adk.tools.agent_tool import AgentTool

from lango import Settings, Tool, open_runtime
from lango.adk import ProviderLlm
from lango.config import StoreSettings, ToolSettings, TraceSettings
from lango.errors import MessageNotFound, ProviderUnavailable, SessionNotFound, TraceNotFound
from lango.messages import ToolCall
from lango.providers import Delta, Finish, Request, Retries, TextDelta, UsageDelta
from lango.providers.wrappers.resilience import ResilientProvider
from lango.runtime.runtime import Runtime
from lango.runtime.trace.session_trace import traced_event
from lango.runtime.trace.steps import Step
from lango.sessions import SessionId
from lango.store.engine.database import Operation
from lango.store.sessions import developer_log
from lango.testing import ScriptedProvider
from tests.agents.parts import rows
from tests.support.runtimes import store_of

_SCHEMA = {"type": "object", "properties": {"at": {"type": "string"}}, "required": ["at"]}


def _look(arguments: dict[str, Any]) -> dict[str, Any]:
    return {"seen": arguments["at"]}


LOOK = Tool("look", "Look at something.", _SCHEMA, _look)


def _settings(store_url: str, **trace: Any) -> Settings:
    return Settings(
        store=StoreSettings(url=store_url), tools=ToolSettings(approval="auto"), trace=TraceSettings(**trace)
    )


def _flat(steps: Sequence[Step]) -> list[Step]:
    return [found for step in steps for found in (step, *_flat(step.steps))]


def _count_requests() -> Operation[int]:
    [[count]] = yield "SELECT COUNT(*) FROM model_requests", ()
    return count


async def test_a_turn_is_a_tree_of_agents_model_calls_and_tools(store_url: str) -> None:
    calls = [ToolCall("c1", "look", {"at": "5"}), UsageDelta(100, 20, 30), Finish("tool_calls", model="gpt-4o-mini")]
    provider = ScriptedProvider([calls, ["Dark.", UsageDelta(150, 7)], "Yes."])
    async with open_runtime(_settings(store_url), tools=[LOOK], provider=provider) as runtime:
        await runtime.run("s", "what is there?")
        await runtime.run("s", "really?")
        first, second = (await runtime.sessions.trace("s")).turns
        [agent] = first.steps
        asked, answered = agent.steps
        [tool] = asked.steps
        assert (agent.kind, agent.name, agent.status) == ("agent", "lango", "done")
        assert (asked.kind, asked.model, asked.seq) == ("model_call", "gpt-4o-mini", 2)
        assert (asked.usage.input_tokens, asked.usage.output_tokens, asked.usage.cached_tokens) == (100, 20, 30)
        assert asked.usage.cost_usd
        assert (tool.kind, tool.name, tool.call_id, tool.seq, tool.result_seq) == ("tool", "look", "c1", 2, 3)
        assert answered.seq == 4
        assert not any(step.is_estimated or step.attempts for step in _flat(first.steps))
        times = [asked.started_at, tool.started_at, tool.ended_at, answered.started_at, answered.ended_at]
        assert times == sorted(times)
        assert first.started_at <= agent.started_at
        assert (second.turn, [step.seq for step in second.steps[0].steps]) == (2, [6])
        assert (await runtime.sessions.trace("s", turn=2)).turns == [second]
        page = await runtime.sessions.trace("s", limit=1)
        assert (page.turns, page.before) == ([second], 2)
        assert (await runtime.sessions.trace("s", before=2)).turns == [first]
        with pytest.raises(TraceNotFound, match="turn 3"):
            await runtime.sessions.trace("s", turn=3)
        with pytest.raises(SessionNotFound):
            await runtime.sessions.trace("none")
        name = SessionId(runtime.app_name, "user", "s")
        stored = await traced_event(store_of(runtime), name, 2)
        assert (stored["tool_calls"], stored["author"]) == (
            [{"id": "c1", "name": "look", "input": {"at": "5"}}],
            "lango",
        )
        assert stored["extra"]["usage_metadata"]["prompt_token_count"] == 100
        with pytest.raises(MessageNotFound):
            await traced_event(store_of(runtime), name, 7)
        assert await store_of(runtime).read(_count_requests) == 0, "requests are kept only with trace.requests"


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of ADK: it still has this tool
async def test_an_agent_that_is_a_tool_has_its_steps_below_the_call(store_url: str) -> None:
    inner = LlmAgent(name="inner", model="m/inner", description="Looks.", tools=[peek])
    root = LlmAgent(name="root", model="m/root", tools=[AgentTool(inner)])
    script = [
        ToolCall("outer", "inner", {"request": "look"}),
        [ToolCall("nested", "peek", {"at": "6"}), UsageDelta(5, 6)],
        "seen",
        "all done",
    ]
    settings = _settings(store_url, requests=True)
    async with open_runtime(settings, root_agent=root, provider=ScriptedProvider(script)) as runtime:
        await runtime.run("s", "go")
        [turn] = (await runtime.sessions.trace("s")).turns
        [agent] = turn.steps
        [outer] = agent.steps[0].steps
        [group] = outer.steps
        assert (outer.call_id, group.kind, group.name) == ("outer", "agent", "inner")
        assert [step.kind for step in group.steps] == ["model_call", "model_call"]
        [nested] = group.steps[0].steps
        assert (nested.name, nested.call_id, group.steps[0].usage.output_tokens) == ("peek", "nested", 6)
        models = [step for step in _flat(turn.steps) if step.kind == "model_call"]
        assert [len(step.attempts) for step in models] == [1, 1, 1, 1]


def peek(at: str) -> str:
    """Look at something."""
    return at


class _Flaky:
    """Fails once, then answers."""

    name = "flaky"

    def __init__(self) -> None:
        self.requests = 0

    async def stream(self, request: Request) -> AsyncGenerator[Delta, None]:
        self.requests += 1
        if self.requests == 1:
            raise ProviderUnavailable("flaky: come back later, sk-abcdefghijklmnopqrst", provider="flaky", status=503)
        yield TextDelta("hello")
        yield Finish("stop")


async def test_failed_attempts_are_shown_without_the_setting(store_url: str) -> None:
    provider = ResilientProvider(_Flaky(), retries=Retries(base_s=0.0))
    async with open_runtime(_settings(store_url), provider=provider) as runtime:
        await runtime.run("s", "hi")
        [turn] = (await runtime.sessions.trace("s")).turns
    [call] = turn.steps[0].steps
    [failed] = call.attempts
    assert (call.status, failed.provider, failed.request_id) == ("done", "flaky", None)
    assert failed.error == "ProviderUnavailable: flaky: come back later, [secret]"


async def test_requests_are_kept_within_bounds_and_deleted_with_their_session(
    store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LANGO_TEST_API_KEY", "very-secret-value")
    settings = _settings(store_url, requests=True, max_request_bytes=2_000, max_session_bytes=9_000)
    provider = ScriptedProvider(["one", RuntimeError("boom"), *(["x" * 5_000] for _ in range(4))])
    async with open_runtime(settings, provider=provider) as runtime:
        await runtime.run("s", "the key is very-secret-value")
        [turn] = (await runtime.sessions.trace("s")).turns
        [attempt] = turn.steps[0].steps[0].attempts
        first_id = attempt.request_id or ""
        kept = await runtime.sessions.traced_request("s", first_id)
        assert "very-secret-value" not in kept.request
        assert json.loads(kept.request)["messages"][-1]["content"] == "the key is [secret]"
        bodies = kept.bodies()
        assert "".join(delta.get("text", "") for delta in bodies["response"]) == bodies["answer"]["text"] == "one"
        with pytest.raises(TraceNotFound):
            await runtime.sessions.traced_request("s", first_id, user_id="another")
        with pytest.raises(Exception, match="boom"):
            await runtime.run("s", "fail")
        [failed] = (await runtime.sessions.trace("s", turn=2)).turns
        [[failed_attempt]] = [step.attempts for step in _flat(failed.steps) if step.kind == "model_call"]
        assert (failed_attempt.error, failed.error) == ("RuntimeError: boom", "AgentFailed: RuntimeError: boom")
        for _ in range(4):
            await runtime.run("s", "y" * 5_000)
        trace = await runtime.sessions.trace("s")
        sizes = [attempt.size for turn in trace.turns for step in _flat(turn.steps) for attempt in step.attempts]
        assert sum(sizes) <= 9_000
        assert all(size <= 4_000 for size in sizes)
        with pytest.raises(TraceNotFound):
            await runtime.sessions.traced_request("s", first_id)  # the oldest is deleted first
        assert await store_of(runtime).read(_count_requests)
        await runtime.sessions.delete("s")
        assert await store_of(runtime).read(_count_requests) == 0


async def test_the_requests_of_a_users_own_model_are_kept_within_the_bound_of_all_sessions(store_url: str) -> None:
    def retrying(script: ScriptedProvider) -> ResilientProvider:
        return ResilientProvider(script, retries=Retries(base_s=0.0))

    script = ["one", "two", ProviderUnavailable("away", provider="x"), "three", *(["x" * 3_000] for _ in range(6))]
    own = LlmAgent(name="own", model=ProviderLlm(retrying(ScriptedProvider(script)), "mine"))
    async with open_runtime(_settings(store_url, requests=True), root_agent=own) as runtime:
        for session in ("a", "b", "c"):
            await runtime.run(session, "hello")
        traces = [(await runtime.sessions.trace(session)).turns[0] for session in ("a", "b", "c")]
        attempts = [[one for step in _flat(turn.steps) for one in step.attempts] for turn in traces]
        ids = [found[-1].request_id or "" for found in attempts]
        assert (await runtime.sessions.traced_request("a", ids[0])).bodies()["answer"]["text"] == "one"
        assert (await runtime.sessions.traced_request("c", ids[2])).bodies()["answer"]["text"] == "three"
        assert attempts[2][0].error == "ProviderUnavailable: away"
        sizes = [found[-1].size for found in attempts]
    bounded = _settings(store_url, requests=True, max_total_bytes=sizes[1] + sizes[2])
    async with open_runtime(bounded, root_agent=own) as runtime:
        await runtime.run("d", "hello")
        kept = [session for session in ("a", "b", "c", "d") if await _has_requests(runtime, session)]
        assert "a" not in kept, "the oldest are deleted first, of whatever session"
        for _ in range(4):
            await runtime.run("d", "more")
        [[total]] = await rows(store_of(runtime), "SELECT SUM(size) FROM model_requests")
        assert (total or 0) <= sizes[1] + sizes[2]


async def _has_requests(runtime: Runtime, session: str) -> bool:
    turns = (await runtime.sessions.trace(session)).turns
    return any(one.request_id for turn in turns for step in _flat(turn.steps) for one in step.attempts)


async def test_failures_outlive_their_process_within_bounds_and_end_with_their_session(
    store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fall() -> str:
        """Fail."""
        raise ValueError("no such drawer, very-secret-value")

    monkeypatch.setenv("LANGO_TEST_API_KEY", "very-secret-value")
    monkeypatch.setattr(developer_log, "MAX_FAILURES_OF_SESSION", 2)
    monkeypatch.setattr(developer_log, "MAX_FAILURES", 3)
    calls = [[ToolCall(f"c{at}", "fall", {})] if at % 2 else "a pity" for at in range(1, 11)]
    own = LlmAgent(name="own", model="m/x", tools=[fall])
    async with open_runtime(_settings(store_url), root_agent=own, provider=ScriptedProvider(calls)) as runtime:
        for _ in range(3):
            await runtime.run("a", "go")
        found = await runtime.sessions.failures("a")
        assert [(one.turn, one.function) for one in found] == [(2, "fall"), (3, "fall")]
        for _ in range(2):
            await runtime.run("b", "go")
        await runtime.sessions.fork("b", new_id="c")
    async with open_runtime(_settings(store_url), root_agent=own, provider=ScriptedProvider([])) as restarted:
        [last] = await restarted.sessions.failures("a")
        assert last.step == "c5"
        assert last.file.endswith("test_trace.py")
        assert "very-secret-value" not in repr(last)
        assert "[secret]" in last.traceback
        assert len(await restarted.sessions.failures("b")) == 2
        assert await restarted.sessions.failures("c") == []
        with pytest.raises(SessionNotFound):
            await restarted.sessions.failures("a", user_id="another")
        await restarted.sessions.delete("b")
        assert len(await rows(store_of(restarted), "SELECT id FROM failures")) == 1


async def test_a_running_turn_shows_its_steps_so_far(store_url: str) -> None:
    held, go = asyncio.Event(), asyncio.Event()

    async def wait(arguments: dict[str, Any]) -> dict[str, Any]:
        held.set()
        await go.wait()
        return {}

    tool = Tool("wait", "Wait.", {"type": "object"}, wait)
    async with open_runtime(
        _settings(store_url), tools=[tool], provider=ScriptedProvider([ToolCall("c1", "wait", {}), "done"])
    ) as runtime:
        turn = await runtime.submit("s", "wait")
        await held.wait()
        [running] = (await runtime.sessions.trace("s")).turns
        [agent] = running.steps
        [call] = agent.steps
        [under_way] = call.steps
        assert (running.status, running.duration_s, agent.status, agent.duration_s) == (
            "running",
            None,
            "running",
            None,
        )
        assert (call.status, under_way.name, under_way.status, under_way.duration_s) == (
            "done",
            "wait",
            "running",
            None,
        )
        go.set()
        async for _ in turn.follow():
            pass
        [ended] = (await runtime.sessions.trace("s")).turns
        assert [step.status for step in _flat(ended.steps)] == ["done"] * 4
