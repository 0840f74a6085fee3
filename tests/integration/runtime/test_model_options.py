"""What a request sets for the model calls of its turn: applied to them, stored with the turn, never to others."""

import itertools
from pathlib import Path
from typing import Any

import pytest
from google.adk.agents import LlmAgent
from google.adk.workflow import Workflow
from msgspec.structs import replace
from pydantic import BaseModel

from lango import open_runtime
from lango.errors import ModelOptionsRefused
from lango.events import TurnDone, TurnEvent
from lango.messages import ToolCall
from lango.providers import Request
from lango.runtime.runtime import Runtime
from lango.store.turns.turns import read_turn
from lango.submissions import ModelOptions
from lango.testing import Answer, ScriptedProvider
from lango.tools import Tool, client_tool
from tests.agents.answers import submit_approval, submit_results
from tests.agents.parts import collect, last_error, messages, settings_for, text_of
from tests.support.kill_points import copy_after_each_commit, until_idle
from tests.support.runtimes import store_of

SCHEMA: dict[str, Any] = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
PICK = client_tool("pick", "Let the user pick.", SCHEMA)
SHOW = client_tool("show", "Show it to the user.", SCHEMA)


def _note(text: str) -> str:
    return text


NOTE = Tool("note", "Note a text.", {"type": "object", "properties": {"text": {"type": "string"}}}, _note)
ALL = ModelOptions(
    response_schema=SCHEMA, temperature=0.25, top_p=0.5, max_tokens=77, stop=("END",), parallel_tool_calls=False
)


async def send(runtime: Runtime, options: ModelOptions | None, **more: Any) -> list[TurnEvent]:
    return await collect((await runtime.submit("s", "go", options=options, **more)).follow())


def seen(request: Request) -> dict[str, Any]:
    return {
        "schema": request.response_schema,
        "object": request.json_object,
        "choice": request.tool_choice,
        "tools": sorted(tool.name for tool in request.tools if tool.name != "read_result"),
        "sampling": (request.temperature, request.top_p, request.max_tokens, request.stop),
    }


NOTHING: dict[str, Any] = {
    "schema": None,
    "object": False,
    "choice": "auto",
    "tools": ["note"],
    "sampling": (None, None, None, ()),
}


async def test_options_hold_for_all_model_calls_of_their_turn_and_for_no_other(sqlite_url: str) -> None:
    provider = ScriptedProvider([ToolCall("c1", "note", {"text": "x"}), '{"city": "Rome"}', "plain"])
    async with open_runtime(settings_for(sqlite_url), tools=[NOTE], provider=provider) as runtime:
        assert text_of(await send(runtime, ALL)) == '{"city": "Rome"}'
        await send(runtime, None)
    wanted = {**NOTHING, "schema": SCHEMA, "sampling": (0.25, 0.5, 77, ("END",))}
    assert [seen(request) for request in provider.requests] == [wanted, wanted, NOTHING]


async def test_a_json_object_and_no_calls_can_be_asked_for(sqlite_url: str) -> None:
    provider = ScriptedProvider(["{}"])
    async with open_runtime(settings_for(sqlite_url), tools=[NOTE], provider=provider) as runtime:
        await send(runtime, ModelOptions(json_object=True, tool_choice="none"))
    assert seen(provider.requests[0]) == {**NOTHING, "object": True, "choice": "none"}


async def test_a_call_is_forced_once_and_the_schema_holds_after_it(sqlite_url: str) -> None:
    provider = ScriptedProvider([ToolCall("c1", "note", {"text": "x"}), '{"city": "Rome"}'])
    async with open_runtime(settings_for(sqlite_url), tools=[NOTE], provider=provider) as runtime:
        await send(runtime, ModelOptions(tool_choice="note", response_schema=SCHEMA))
    assert [seen(request) for request in provider.requests] == [
        {**NOTHING, "choice": "note"},
        {**NOTHING, "schema": SCHEMA},
    ]


async def test_a_turn_that_goes_on_after_a_pause_has_the_options_of_the_one_that_paused(sqlite_url: str) -> None:
    wipe = Tool("note", "Wipe it.", NOTE.parameters, _note, level="dangerous")
    provider = ScriptedProvider(
        [ToolCall("c1", "note", {"text": "x"}), ToolCall("c2", "pick", {"city": "a"}), '{"city": "Rome"}', "plain"]
    )
    given = replace(ALL, tool_choice="note", instruction="Be brief.", client_request={"id": "theirs"})
    settings = settings_for(sqlite_url)
    async with open_runtime(settings, tools=[wipe], provider=provider) as runtime:
        await send(runtime, given)
    async with open_runtime(settings, tools=[wipe], provider=provider) as runtime:  # another process takes the answers
        approved = await submit_approval(runtime, "s", "c1", approved=True, client_tools=[PICK])
        await collect(approved.follow())
        assert text_of(await collect((await submit_results(runtime, "s", {"c2": {}})).follow())) == '{"city": "Rome"}'
        record = await store_of(runtime).read(read_turn, approved.turn.session_key, approved.turn.turn)
        assert record
        assert record.request.options.client_request is None
        await send(runtime, None)
    wanted = {**NOTHING, "sampling": (0.25, 0.5, 77, ("END",)), "schema": SCHEMA}
    assert [seen(request) | {"tools": ["note"]} for request in provider.requests] == [
        {**wanted, "choice": "note", "schema": None},
        wanted,
        wanted,
        NOTHING,
    ]
    assert [request.system.endswith("Be brief.") for request in provider.requests] == [True, True, True, False]


async def test_a_turn_that_goes_on_after_a_pause_offers_the_client_tools_of_the_one_that_paused(
    sqlite_url: str,
) -> None:
    wipe = Tool("note", "Wipe it.", NOTE.parameters, _note, level="dangerous")
    show = Tool("show", "Show it.", SCHEMA, _note)
    provider = ScriptedProvider(
        [ToolCall("c1", "note", {"text": "x"}), ToolCall("c2", "pick", {"city": "a"}), "seen", "plain"]
    )
    settings = settings_for(sqlite_url)
    async with open_runtime(settings, tools=[wipe], provider=provider) as runtime:
        await send(runtime, None, client_tools=[PICK, SHOW])
    async with open_runtime(settings, tools=[wipe, show], provider=provider) as runtime:  # the name is taken since
        await collect((await submit_approval(runtime, "s", "c1", approved=True)).follow())
        await collect((await submit_results(runtime, "s", {"c2": {}})).follow())
        await send(runtime, None)
    offered = [seen(request)["tools"] for request in provider.requests]
    assert offered == [["note", "pick", "show"]] * 3 + [["note", "show"]]
    assert [tool.description for tool in provider.requests[1].tools if tool.name == "show"] == ["Show it."]


async def test_an_answer_that_brings_no_client_tools_offers_none(sqlite_url: str) -> None:
    provider = ScriptedProvider([ToolCall("c1", "pick", {"city": "a"}), "picked"])
    async with open_runtime(settings_for(sqlite_url), tools=[NOTE], provider=provider) as runtime:
        await send(runtime, None, client_tools=[PICK])
        await collect((await submit_results(runtime, "s", {"c1": {}}, client_tools=[])).follow())
    assert [seen(request)["tools"] for request in provider.requests] == [["note", "pick"], ["note"]]


async def test_a_required_call_is_one_of_the_clients_tools_if_there_are_any(sqlite_url: str) -> None:
    picked = ToolCall("c1", "pick", {"city": "Rome"})
    provider = ScriptedProvider([picked, "thanks", ToolCall("n1", "note", {"text": "x"}), "noted"])
    required = ModelOptions(tool_choice="required")
    async with open_runtime(settings_for(sqlite_url), tools=[NOTE], provider=provider) as runtime:
        await send(runtime, required, client_tools=[PICK, SHOW])
        given = await submit_results(
            runtime, "s", {"c1": {}}, client_tools=[PICK, SHOW], options=ModelOptions(stop=("X",))
        )
        await collect(given.follow())
        await send(runtime, required)
    forced, after_results, any_tool, _ = map(seen, provider.requests)
    assert (forced["choice"], forced["tools"]) == ("required", ["pick", "show"])
    assert (after_results["choice"], after_results["sampling"][3]) == ("auto", ("X",))
    assert (any_tool["choice"], any_tool["tools"]) == ("required", ["note"])


async def test_only_the_first_of_parallel_calls_counts_if_the_request_says_so(sqlite_url: str) -> None:
    provider = ScriptedProvider([[ToolCall("c1", "pick", {"city": "a"}), ToolCall("c2", "pick", {"city": "b"})]])
    async with open_runtime(settings_for(sqlite_url), provider=provider) as runtime:
        done = (await send(runtime, ModelOptions(parallel_tool_calls=False), client_tools=[PICK]))[-1]
        assert isinstance(done, TurnDone)
        assert done.waits[0].kind == "client_result"
        assert [call.id for message in await messages(runtime) for call in message.tool_calls] == ["c1"]


async def test_options_reach_the_agent_that_a_transfer_leads_to(sqlite_url: str) -> None:
    transfer = ToolCall("t1", "transfer_to_agent", {"agent_name": "helper"})
    provider = ScriptedProvider([transfer, '{"city": "Rome"}'])
    helper = LlmAgent(name="helper", description="Helps.", model="scripted/m")
    root = LlmAgent(name="root", model="scripted/m", sub_agents=[helper])
    async with open_runtime(settings_for(sqlite_url), provider=provider, root_agent=root) as runtime:
        await send(runtime, ModelOptions(response_schema=SCHEMA))
    assert [request.response_schema for request in provider.requests] == [SCHEMA, SCHEMA]


class City(BaseModel):
    city: str


@pytest.mark.parametrize("options", [ModelOptions(json_object=True), ModelOptions(tool_choice="required")])
async def test_a_workflow_refuses_what_only_one_agent_can_do_and_takes_the_rest(
    sqlite_url: str, options: ModelOptions
) -> None:
    provider = ScriptedProvider(["one", "two"])
    first, second = (LlmAgent(name=name, model="scripted/m") for name in ("first", "second"))
    flow = Workflow(name="flow", edges=[("START", first, second)])
    async with open_runtime(settings_for(sqlite_url), provider=provider, root_agent=flow) as runtime:
        with pytest.raises(ModelOptionsRefused, match="the agent flow is a workflow"):
            await send(runtime, options)
        assert not await runtime.sessions.list()
        await send(runtime, ModelOptions(max_tokens=9))
    assert [request.max_tokens for request in provider.requests] == [9, 9]


async def test_a_second_schema_and_an_unknown_tool_are_refused(sqlite_url: str) -> None:
    root = LlmAgent(name="root", model="scripted/m", output_schema=City)
    async with open_runtime(settings_for(sqlite_url), provider=ScriptedProvider([]), root_agent=root) as runtime:
        with pytest.raises(ModelOptionsRefused, match="the agent root has an output schema of its own"):
            await send(runtime, ModelOptions(response_schema=SCHEMA))
        error = last_error(await send(runtime, ModelOptions(tool_choice="dig"), client_tools=[PICK]))
        assert (error.error, "it has: none" in error.message) == ("ModelOptionsRefused", True)


async def test_another_process_goes_on_with_the_same_options(tmp_path: Path) -> None:
    """A kill after each commit of a turn: whatever is left to do is done with the options of the request."""

    def answer(request: Request) -> Answer:
        called = any(message.role == "tool" for message in request.messages)
        return '{"city": "Rome"}' if called else ToolCall("c1", "note", {"text": "x"})

    def model() -> ScriptedProvider:
        return ScriptedProvider(itertools.repeat(answer))

    options = ModelOptions(tool_choice="note", response_schema=SCHEMA, temperature=0.25, stop=("END",))
    provider = model()
    async with open_runtime(settings_for(f"sqlite:///{tmp_path}/first.db"), tools=[NOTE], provider=provider) as first:

        async def run() -> None:
            await send(first, options)

        copies = await copy_after_each_commit(first, tmp_path, run)
    whole = [seen(request) for request in provider.requests]
    assert [(call["choice"], call["schema"]) for call in whole] == [("note", None), ("auto", SCHEMA)]
    left: list[int] = []
    for copy in copies:
        provider = model()
        async with open_runtime(settings_for(f"sqlite:///{copy}"), tools=[NOTE], provider=provider) as later:
            await until_idle(later)
        calls = [seen(request) for request in provider.requests]
        assert calls == whole[len(whole) - len(calls) :], copy.name
        left.append(len(calls))
    assert {0, 1, 2} <= {*left}, "killed before the first model call, between the two, and after both"
