"""The state of a session at any message, and what each event changed."""

from typing import Any

import pytest
from google.adk.agents import LlmAgent
from google.adk.tools import ToolContext
from hypothesis import given
from hypothesis import strategies as st

from lango import Settings, open_runtime
from lango.config import StoreSettings, ToolSettings
from lango.errors import MessageNotFound, StaleSession
from lango.messages import ToolCall
from lango.runtime.sessions.session_state import apply_changes, change_state, session_state
from lango.sessions import SessionId
from lango.store.sessions.state import StateEvent
from lango.testing import ScriptedProvider
from tests.agents.parts import Gate, collect, settings_for, text_of
from tests.support.examples import examples
from tests.support.runtimes import store_of


def note(city: str, tool_context: ToolContext) -> str:
    """Note a city."""
    tool_context.state["city"] = city
    tool_context.state["user:home"] = city
    tool_context.state["app:seen"] = True
    return "noted"


async def test_the_state_at_a_message_follows_from_what_events_changed(store_url: str) -> None:
    chosen = Settings(store=StoreSettings(url=store_url), tools=ToolSettings(approval="auto"))
    agent = LlmAgent(name="root", model="m/root", tools=[note])
    script = [ToolCall("a", "note", {"city": "Bern"}), "ok", ToolCall("b", "note", {"city": "Graz"}), "ok"]
    async with open_runtime(chosen, root_agent=agent, provider=ScriptedProvider(script)) as runtime:
        await runtime.sessions.create("s", state={"first": 1})
        await runtime.run("s", "one")
        await runtime.run("s", "two")
        name = SessionId(runtime.app_name, "user", "s")
        await change_state(store_of(runtime), name, {"city": "Rome", "extra": [1]}, ())
        now = await session_state(store_of(runtime), name)
        assert (now.session, now.user, now.app) == (
            {"first": 1, "city": "Rome", "extra": [1]},
            {"home": "Graz"},
            {"seen": True},
        )
        assert (await session_state(store_of(runtime), name, 2)).session == {"first": 1}
        third = await session_state(store_of(runtime), name, 3)
        assert (third.session, third.user) == ({"first": 1, "city": "Bern"}, {"home": "Bern"})
        assert (await session_state(store_of(runtime), name, 7)).session["city"] == "Graz"
        places = [(change.seq, change.is_message, change.author) for change in now.changes]
        assert places == [(0, False, ""), (3, True, "root"), (7, True, "root"), (8, False, "user")]
        [city] = [value for value in now.changes[2].values if value.name == "city"]
        assert (city.scope, city.before, city.after) == ("session", "Bern", "Graz")
        fork = await runtime.sessions.fork("s", at=4, new_id="f")
        assert (await session_state(store_of(runtime), fork.name)).session == {"first": 1, "city": "Bern"}
        with pytest.raises(MessageNotFound, match="its newest is 8"):
            await session_state(store_of(runtime), name, 9)
        turn = await runtime.submit("s", "three")
        with pytest.raises(StaleSession):
            await change_state(store_of(runtime), name, {"city": "Oslo"}, ())
        await runtime.cancel("s")
        async for _ in turn.follow():
            pass


_NAMES = st.sampled_from(["a", "b", "user:a", "app:a", "app:b"])


@examples(60)
@given(st.lists(st.dictionaries(_NAMES, st.integers() | st.none(), max_size=3), max_size=8))
def test_each_change_leads_from_one_state_to_the_next(deltas: list[dict[str, Any]]) -> None:
    events = [StateEvent(seq, True, 0.0, "", delta) for seq, delta in enumerate(deltas)]
    last, changes = apply_changes(events)
    state: dict[tuple[str, str], Any] = {}
    for change in changes:
        for value in change.values:
            assert state.get((value.scope, value.name)) == value.before
            state[value.scope, value.name] = value.after
    assert {(scope, name): value for scope, own in last.items() for name, value in own.items()} == state
    for number in range(len(events)):
        assert apply_changes(events[:number])[1] == changes[:number]


async def test_the_state_is_not_changed_under_a_running_turn_behind_which_a_message_was_withdrawn(
    store_url: str,
) -> None:
    gate = Gate()
    provider = ScriptedProvider([ToolCall("c1", gate.tool.name, {}), "done"])
    async with open_runtime(settings_for(store_url), provider=provider, tools=[gate.tool]) as runtime:
        turn = await runtime.submit("s", "one")
        await gate.wait()
        queued = await runtime.submit("s", "two")
        assert await runtime.withdraw("s", queued.turn.turn)
        name = SessionId(runtime.app_name, "user", "s")
        with pytest.raises(StaleSession, match="runs: wait until it ends"):
            await change_state(store_of(runtime), name, {"city": "Oslo"}, ())
        gate.may_end.set()
        assert text_of(await collect(turn.follow())) == "done"
        await change_state(store_of(runtime), name, {"city": "Oslo"}, ())
