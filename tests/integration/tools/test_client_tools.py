"""Client tools: the call is stored and pauses the turn; its result continues the turn in any process."""

import asyncio
import json
from typing import Any

import pytest
from google.adk.agents import (
    LlmAgent,
    ParallelAgent,  # pyright: ignore[reportDeprecated]
)
from google.adk.agents.readonly_context import ReadonlyContext
from google.adk.tools import BaseTool
from google.adk.tools.agent_tool import AgentTool
from google.adk.tools.base_toolset import BaseToolset

from lango import open_runtime
from lango.adk import AdkTool
from lango.adk.run.tool_limits import MAX_SAME_CALLS
from lango.errors import ClientToolRefused, WaitNotOpen
from lango.events import ToolStart, TurnDone, TurnEvent
from lango.messages import ToolCall
from lango.runtime.runtime import Runtime
from lango.sessions import NO_RESULT_TEXT
from lango.submissions import SubmittedMessage, TurnRequest
from lango.testing import ScriptedProvider
from lango.tools import Tool, client_tool
from lango.waits import ClientResultWait
from tests.agents.answers import approve, submit_results, waiting_for
from tests.agents.parts import (
    Gate,
    broken_for,
    check_order,
    collect,
    kinds,
    last_error,
    messages,
    results_in,
    rows,
    settings_for,
    stored,
    text_of,
)
from tests.support.runtimes import store_of

PICK = client_tool(
    "pick_color",
    "Let the user pick a color.",
    {"type": "object", "properties": {"among": {"type": "array", "items": {"type": "string"}}}},
)


def pick(call_id: str = "c1") -> ToolCall:
    return ToolCall(call_id, "pick_color", {"among": ["red", "blue"]})


def note(call_id: str = "n1") -> ToolCall:
    return ToolCall(call_id, "note", {"text": "this"})


def noting(**fields: Any) -> Tool:
    def noted(text: str) -> dict[str, str]:
        return {"noted": text}

    schema = {"type": "object", "properties": {"text": {"type": "string"}}}
    return Tool("note", "Note something.", schema, noted, **fields)


async def send(runtime: Runtime, text: str = "pick one", **more: Any) -> list[TurnEvent]:
    more = {"client_tools": [PICK]} | more
    events = await collect((await runtime.submit("s", text, **more)).follow())
    check_order(events)
    return events


async def give(runtime: Runtime, **results: dict[str, Any]) -> list[TurnEvent]:
    events = await collect((await submit_results(runtime, "s", results, client_tools=[PICK])).follow())
    check_order(events)
    return events


def status(events: list[TurnEvent]) -> str:
    return waiting_for(events)


async def results_stored(runtime: Runtime) -> dict[str, Any]:
    found = [call for one in await messages(runtime) if one.role == "tool" for call in one.tool_calls]
    assert len({call.id for call in found}) == len(found), "one result each"
    return {call.id: call.output for call in found}


async def test_a_call_waits_for_the_client_and_its_result_continues_in_another_process(store_url: str) -> None:
    provider = ScriptedProvider([["One moment. ", pick()]])
    async with open_runtime(settings_for(store_url), provider=provider) as runtime:
        events = await send(runtime)
        assert kinds(events) == ["accepted", "text_delta", "text_end", "tool_start", "wait_opened", "done"], (
            "it ends without a result"
        )
        [start] = [one for one in events if isinstance(one, ToolStart)]
        assert (start.call_id, start.name, start.arguments) == ("c1", "pick_color", {"among": ["red", "blue"]})
        assert status(events) == "client_result"
        assert [tool.name for tool in provider.requests[0].tools] == ["pick_color"]
        assert provider.requests[0].tools[0].parameters["properties"]["among"]["type"] == "array"
    later = ScriptedProvider(["red it is", "and now?"])
    async with open_runtime(settings_for(store_url), provider=later) as runtime:
        events = await give(runtime, c1={"color": "red"})
        assert (text_of(events), status(events)) == ("red it is", "done")
        assert results_in(later.requests[0]) == {"c1": {"color": "red"}}
        await send(runtime, "go on", client_tools=[])
        assert not later.requests[1].tools, "they were the other run's"
        assert await results_stored(runtime) == {"c1": {"color": "red"}}
    assert not [broken for request in later.requests for broken in broken_for(request)]


async def test_a_message_instead_of_a_result_closes_the_call_as_not_run(sqlite_url: str) -> None:
    provider = ScriptedProvider([[pick("c1"), pick("c2")], "never mind", "hello again"])
    async with open_runtime(settings_for(sqlite_url), provider=provider) as runtime:
        await send(runtime)
        assert status(await send(runtime, "forget it")) == "done"
        unanswered = {"error": NO_RESULT_TEXT, "outcome": "unknown"}
        assert results_in(provider.requests[1]) == {"c1": unanswered, "c2": unanswered}
        with pytest.raises(WaitNotOpen, match="c1"):
            await give(runtime, c1={"color": "red"})
        await send(runtime, "hello")
        assert await results_stored(runtime) == {"c1": unanswered, "c2": unanswered}
        assert not await rows(store_of(runtime), "SELECT call_id FROM open_calls")
    assert not [broken for request in provider.requests for broken in broken_for(request)]


async def test_results_that_come_with_a_message_are_its_calls_own(sqlite_url: str) -> None:
    provider = ScriptedProvider([[pick("c1"), pick("c2")], "good"])
    async with open_runtime(settings_for(sqlite_url), provider=provider) as runtime:
        await send(runtime)
        given = {"c1": {"color": "red"}, "of an older call": {"color": "green"}}
        message = SubmittedMessage("and more", results=given, request=TurnRequest(client_tools=[PICK]))
        assert status(await collect((await runtime.accept("s", message)).follow())) == "done"
        shown = results_in(provider.requests[1])
        assert shown["c1"] == {"color": "red"}
        assert shown["c2"]["error"] == NO_RESULT_TEXT
        assert shown.keys() == {"c1", "c2"}
        assert [one.role for one in await messages(runtime)] == ["user", "assistant", "tool", "user", "assistant"]
    assert not broken_for(provider.requests[1])


async def test_a_call_that_does_not_fit_its_schema_never_reaches_the_client(sqlite_url: str) -> None:
    wrong = ToolCall("w1", "pick_color", {"among": "red"})
    provider = ScriptedProvider([wrong, [wrong, pick("c1")], "red it is"])
    async with open_runtime(settings_for(sqlite_url), provider=provider) as runtime:
        events = await send(runtime)
        assert status(events) == "client_result"
        assert len(provider.requests) == 2, "the model reads the error and corrects the call"
        assert "among" in results_in(provider.requests[1])["w1"]["error"]
        [waiting] = await runtime.waits("s")
        assert isinstance(waiting, ClientResultWait)
        assert waiting.call_id == "c1"
        assert text_of(await give(runtime, c1={"color": "red"})) == "red it is"
        outputs = await results_stored(runtime)
        assert outputs.pop("c1") == {"color": "red"}
        assert len(outputs) == 2
        assert all("among" in one["error"] for one in outputs.values())
        assert not await rows(store_of(runtime), "SELECT call_id FROM open_calls")
    assert not [broken for request in provider.requests for broken in broken_for(request)]


async def test_a_model_that_repeats_a_wrong_call_is_stopped(sqlite_url: str) -> None:
    provider = ScriptedProvider([ToolCall(f"w{at}", "pick_color", {"among": 1}) for at in range(MAX_SAME_CALLS + 3)])
    async with open_runtime(settings_for(sqlite_url), provider=provider) as runtime:
        assert last_error(await send(runtime)).error == "TurnLimit"
        assert len(provider.requests) == MAX_SAME_CALLS
        assert not await rows(store_of(runtime), "SELECT call_id FROM open_calls")


async def test_parallel_calls_go_on_when_all_have_their_results(sqlite_url: str) -> None:
    provider = ScriptedProvider([[pick("c1"), note(), pick("c2")], "both"])
    async with open_runtime(settings_for(sqlite_url), provider=provider, tools=[noting()]) as runtime:
        events = await send(runtime)
        assert sorted(kinds(events)) == ["accepted", "done", "tool_end", *["tool_start"] * 3, *["wait_opened"] * 2]
        assert status(events) == "client_result"
        events = await give(runtime, c2={"color": "blue"})
        assert (kinds(events), status(events)) == (["accepted", "wait_closed", "done"], "client_result")
        assert len(provider.requests) == 1, "the model is called only with all results"
        assert text_of(await give(runtime, c1={"color": "red"}, c2={"color": "another"})) == "both"
        shown = {"c1": {"color": "red"}, "c2": {"color": "blue"}, "n1": {"noted": "this"}}
        assert results_in(provider.requests[1]) == shown
        assert await results_stored(runtime) == shown
    assert not broken_for(provider.requests[1])


@pytest.mark.parametrize("approval_first", [True, False])
async def test_an_approval_beside_a_clients_call_waits_for_both(sqlite_url: str, approval_first: bool) -> None:
    provider = ScriptedProvider([[note(), pick()], "both"])
    tools = [noting(level="dangerous")]
    async with open_runtime(settings_for(sqlite_url), provider=provider, tools=tools) as runtime:
        events = await send(runtime)
        assert isinstance(events[-1], TurnDone)
        assert {wait.kind for wait in events[-1].waits} == {"approval", "client_result"}
        if approval_first:
            events = await collect(approve(runtime, "s", "n1", approved=True))
            assert status(events) == "client_result"
            assert len(provider.requests) == 1
            events = await give(runtime, c1={"color": "red"})
        else:
            events = await give(runtime, c1={"color": "red"})
            assert status(events) == "approval"
            assert len(provider.requests) == 1
            events = await collect(approve(runtime, "s", "n1", approved=True))
        assert (text_of(events), status(events)) == ("both", "done")
        assert results_in(provider.requests[1]) == {"c1": {"color": "red"}, "n1": {"noted": "this"}}
    assert not broken_for(provider.requests[1])


async def test_results_of_the_same_request_are_taken_once(store_url: str) -> None:
    provider = ScriptedProvider([pick(), "thanks"])
    async with open_runtime(settings_for(store_url), provider=provider) as runtime:
        await send(runtime)
        given = {"c1": {"color": "red"}}
        two = [submit_results(runtime, "s", given, idempotency_key="same") for _ in range(2)]
        turns = await asyncio.gather(*two)
        assert turns[0].turn.turn == turns[1].turn.turn
        assert [text_of(await collect(turn.follow())) for turn in turns] == ["thanks", "thanks"]
        again = await submit_results(runtime, "s", given, idempotency_key="same")
        assert again.turn.turn == turns[0].turn.turn, "also after the turn has ended"
        assert text_of(await collect(again.follow())) == "thanks"
        with pytest.raises(WaitNotOpen):
            await give(runtime, c1={"color": "blue"})
        with pytest.raises(WaitNotOpen):
            await submit_results(runtime, "s", given, user_id="another user")
        assert await results_stored(runtime) == given
    assert len(provider.requests) == 2


async def test_a_result_that_waits_behind_a_message_is_refused_when_its_turn_comes(sqlite_url: str) -> None:
    gate = Gate()
    provider = ScriptedProvider([[pick("c1"), ToolCall("w1", "wait_here", {})], "a", "b"])
    async with open_runtime(settings_for(sqlite_url), provider=provider, tools=[gate.tool]) as runtime:
        first = await runtime.submit("s", "pick one", client_tools=[PICK])
        await gate.wait()
        second = await runtime.submit("s", "and then?")
        third = await submit_results(runtime, "s", {"c1": {"color": "red"}})
        gate.may_end.set()
        assert status(await collect(first.follow())) == "client_result"
        assert status(await collect(second.follow())) == "done"
        assert last_error(await collect(third.follow())).error == "WaitNotOpen"
        assert (await results_stored(runtime))["c1"]["error"] == NO_RESULT_TEXT
        assert status(await send(runtime, "still there?")) == "done"


async def test_large_and_odd_results_are_stored_like_those_of_other_tools(store_url: str) -> None:
    provider = ScriptedProvider(
        [[pick("c1"), pick("c2")], ToolCall("r1", "read_result", {"call_id": "c1", "offset": 99_990}), "read"]
    )
    async with open_runtime(settings_for(store_url), provider=provider, tools=[noting()]) as runtime:
        await send(runtime)
        odd = {"nul": "a\0b", "half": "\ud800", "number": float("nan")}
        await give(runtime, c1={"text": "x" * 99_990 + "the end"}, c2=odd)
        shown = results_in(provider.requests[1])
        assert len(json.dumps(shown["c1"])) < 50_000
        assert 'call_id "c1"' in shown["c1"]["text"]
        assert "NaN" in shown["c2"]["result"]
        assert results_in(provider.requests[2])["r1"]["text"] == "the end"


async def test_a_sub_agent_calls_the_client_and_continues(sqlite_url: str) -> None:
    provider = ScriptedProvider([ToolCall("t1", "transfer_to_agent", {"agent_name": "painter"}), pick(), "painted red"])
    root = LlmAgent(name="root", model="any", sub_agents=[LlmAgent(name="painter", model="any", description="Paints.")])
    async with open_runtime(settings_for(sqlite_url), provider=provider, root_agent=root) as runtime:
        assert status(await send(runtime)) == "client_result"
        assert text_of(await give(runtime, c1={"color": "red"})) == "painted red"
        assert [one.message.author for one in await stored(runtime) if one.message][-1] == "painter"
    assert not [broken for request in provider.requests for broken in broken_for(request)]


async def test_a_transfer_beside_a_client_call_waits_for_its_result(sqlite_url: str) -> None:
    provider = ScriptedProvider([[pick(), ToolCall("t1", "transfer_to_agent", {"agent_name": "painter"})], "later"])
    root = LlmAgent(name="root", model="any", sub_agents=[LlmAgent(name="painter", model="any", description="Paints.")])
    async with open_runtime(settings_for(sqlite_url), provider=provider, root_agent=root) as runtime:
        assert status(await send(runtime)) == "client_result"
        assert text_of(await give(runtime, c1={"color": "red"})) == "later"
        shown = results_in(provider.requests[1])
        assert shown["c1"] == {"color": "red"}
        assert "transfer after" in shown["t1"]["error"]


@pytest.mark.filterwarnings("ignore:The `plugins` argument is deprecated")  # ADK's own use of it
@pytest.mark.filterwarnings("ignore:ParallelAgent")
async def test_parallel_agents_and_agent_tools_get_no_client_tools(sqlite_url: str) -> None:
    call = ToolCall("a1", "helper", {"request": "help"})
    provider = ScriptedProvider([call, "helped", "done"])
    helper = LlmAgent(name="helper", model="any", description="Helps.")
    root = LlmAgent(name="root", model="any", tools=[AgentTool(helper)])
    async with open_runtime(settings_for(sqlite_url), provider=provider, root_agent=root) as runtime:
        assert status(await send(runtime)) == "done"
    assert [[tool.name for tool in one.tools] for one in provider.requests] == [
        ["helper", "pick_color"],
        [],
        ["helper", "pick_color"],
    ]
    provider = ScriptedProvider(["one", "two"])
    sides = [LlmAgent(name=name, model="any") for name in ("left", "right")]
    both = ParallelAgent(name="both", sub_agents=[*sides])  # pyright: ignore[reportDeprecated]
    async with open_runtime(settings_for(sqlite_url), provider=provider, root_agent=both) as runtime:
        assert status(await send(runtime)) == "done"
    assert [one.tools for one in provider.requests] == [(), ()]


class Tools(BaseToolset):
    """Tools whose names are unknown until they are listed."""

    async def get_tools(self, readonly_context: ReadonlyContext | None = None) -> list[BaseTool]:
        return [AdkTool(Tool("pick_color", "Mine.", None, dict))]


async def test_a_name_of_a_toolset_is_refused_when_the_model_would_be_called(sqlite_url: str) -> None:
    provider = ScriptedProvider(["never"])
    root = LlmAgent(name="root", model="any", tools=[Tools()])
    async with open_runtime(settings_for(sqlite_url), provider=provider, root_agent=root) as runtime:
        error = last_error(await collect((await runtime.submit("s", "pick", client_tools=[PICK])).follow()))
        assert error.error == "ClientToolRefused"
        assert "pick_color" in error.message
    assert not provider.requests


@pytest.mark.parametrize(
    ("name", "parameters", "message"),
    [
        ("note", None, "already has a tool named note"),
        ("transfer_to_agent", None, "already has a tool named transfer_to_agent"),
        ("no name", None, "not a valid tool name"),
        ("a" * 65, None, "not a valid tool name"),
        ("odd", {"type": "array"}, "of an object"),
        ("odd", {"type": "object", "properties": 7}, "cannot be used as a JSON schema"),
        ("odd", {"anyOf": [{"type": "object"}]}, "anyOf"),
        ("odd", ["not", "an", "object"], "of an object"),
        (
            "odd",
            {
                "properties": {"a": {"$ref": "#/$defs/d0"}},
                "$defs": {f"d{at}": {"anyOf": [{"$ref": f"#/$defs/d{at + 1}"}] * 2} for at in range(40)} | {"d40": {}},
            },
            "references multiply",
        ),
    ],
)
async def test_an_unusable_client_tool_is_rejected_before_anything_is_stored(
    sqlite_url: str, name: str, parameters: Any, message: str
) -> None:
    provider = ScriptedProvider(["never"])
    async with open_runtime(settings_for(sqlite_url), provider=provider, tools=[noting()]) as runtime:
        with pytest.raises(ClientToolRefused, match=message):
            await send(runtime, client_tools=[client_tool(name, "A tool.", parameters)])
        with pytest.raises(ClientToolRefused, match="two tools"):
            await send(runtime, client_tools=[PICK, PICK])
        assert not await rows(store_of(runtime), "SELECT id FROM sessions")
    assert not provider.requests


async def test_definitions_are_put_in_place_and_recursion_stays(sqlite_url: str) -> None:
    node: dict[str, Any] = {"type": "object", "properties": {"next": {"$ref": "#/$defs/node"}}}
    tool = client_tool(
        "draw",
        "Draw.",
        {
            "$schema": "http://json-schema.org/draft-07/schema#",
            "properties": {"at": {"$ref": "#/$defs/point"}, "list": {"$ref": "#/$defs/node"}},
            "$defs": {"point": {"type": "object", "properties": {"x": {"type": "number"}}}, "node": node},
        },
    )
    provider = ScriptedProvider(["no"])
    async with open_runtime(settings_for(sqlite_url), provider=provider) as runtime:
        await send(runtime, client_tools=[tool])
    sent = provider.requests[0].tools[0].parameters
    assert sent["properties"]["at"] == {"type": "object", "properties": {"x": {"type": "number"}}}
    assert "$schema" not in sent
    assert sent["$defs"]["node"] == node
