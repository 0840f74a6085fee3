"""`AdkTool` under ADK's real Runner: T1, T2, T3 as users of ADK's Runner get them."""

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest
from google.adk.agents import LlmAgent
from google.adk.agents.run_config import RunConfig
from google.adk.events import Event
from google.adk.flows.llm_flows.functions import REQUEST_CONFIRMATION_FUNCTION_CALL_NAME
from google.adk.runners import Runner
from google.adk.sessions import InMemorySessionService
from google.genai import types
from pydantic import BaseModel

from lango.adk import AdkTool, ProviderLlm, SqlSessionService
from lango.messages import ToolCall
from lango.testing import ScriptedProvider
from lango.tools import Tool, ToolContext, tool


class Place(BaseModel):
    city: str
    country: str = "DE"


@tool
async def weather(place: Place, context: ToolContext) -> dict[str, Any]:
    """Return the weather."""
    return {"city": place.city, "country": place.country, "asked_by": context.user_id, "state": context.state["unit"]}


class Chat:
    """One session with one agent, in ADK's own Runner."""

    def __init__(self, provider: ScriptedProvider, *tools: Any, service: Any = None) -> None:
        self.service = service or InMemorySessionService()
        agent = LlmAgent(name="root", model=ProviderLlm(provider, "m"), tools=list(tools))
        self.runner = Runner(app_name="app", agent=agent, session_service=self.service)
        self.session_id = ""

    async def send(self, *parts: types.Part) -> list[Event]:
        if not self.session_id:
            created = await self.service.create_session(app_name="app", user_id="alice", state={"unit": "C"})
            self.session_id = created.id
        events = self.runner.run_async(
            user_id="alice",
            session_id=self.session_id,
            new_message=types.Content(role="user", parts=list(parts)),
            run_config=RunConfig(),
        )
        return [event async for event in events]

    async def ask(self, text: str) -> list[Event]:
        return await self.send(types.Part(text=text))


def results(provider: ScriptedProvider) -> dict[str, Mapping[str, Any]]:
    """Return the results in the last request to the model, by call id."""
    last = provider.requests[-1].messages[-1]
    return {call.id: call.output for call in last.tool_calls if call.output is not None}


@pytest.mark.parametrize("stored", [False, True])
async def test_t1_a_call_reaches_the_handler_and_its_result_the_model(stored: bool, sqlite_url: str) -> None:
    provider = ScriptedProvider([ToolCall("c1", "weather", {"place": {"city": "Bonn"}}), "Sunny."])
    service = SqlSessionService(sqlite_url) if stored else None
    chat = Chat(provider, AdkTool(weather), service=service)
    events = await chat.ask("How is it in Bonn?")
    assert events[-1].is_final_response()
    [spec] = provider.requests[0].tools
    assert (spec.name, spec.description, dict(spec.parameters)) == ("weather", "Return the weather.", weather.schema)
    assert results(provider) == {"c1": {"city": "Bonn", "country": "DE", "asked_by": "alice", "state": "C"}}
    if service:
        await service.close()


async def test_t1_a_tool_by_json_schema() -> None:
    schema = {"type": "object", "properties": {"cmd": {"type": "string"}}, "required": ["cmd"]}
    provider = ScriptedProvider([ToolCall("c1", "exec", {"cmd": "ls"}), "done"])
    await Chat(provider, AdkTool(Tool("exec", "Run.", schema, lambda cmd: f"ran {cmd}"))).ask("go")  # pyright: ignore
    assert results(provider) == {"c1": {"result": "ran ls"}}


async def test_t2_the_turn_continues_after_any_handler() -> None:
    async def hangs() -> None:
        await asyncio.Event().wait()

    def fails() -> None:
        raise ValueError("no such city")

    tools = [
        AdkTool(Tool("hangs", "", {}, hangs, timeout_s=0.05)),
        AdkTool(Tool("fails", "", {}, fails)),
        AdkTool(Tool("bytes", "", {}, lambda: b"\0\xff")),
        AdkTool(Tool("huge", "", {}, lambda: "x" * 5_000_000)),
        AdkTool(Tool("odd", "", {}, lambda: "a\0b\ud800")),
        AdkTool(weather),
    ]
    calls = [ToolCall(f"c{n}", one.name, {}) for n, one in enumerate(tools)]
    provider = ScriptedProvider([calls, "I know what went wrong."])
    events = await Chat(provider, *tools).ask("go")
    assert events[-1].is_final_response()
    outputs = results(provider)
    assert "timed out after 0.05 s" in outputs["c0"]["error"]
    assert outputs["c1"] == {"error": "ValueError: no such city"}
    assert "is bytes" in outputs["c2"]["error"]
    assert "were left out" in outputs["c3"]["result"]
    assert outputs["c4"] == {"result": "a\ufffdb\ufffd"}
    assert "place: Field required" in outputs["c5"]["error"]


@pytest.mark.parametrize("yes", [True, False])
async def test_t3_a_dangerous_tool_requests_confirmation_through_adk(yes: bool) -> None:
    ran: list[str] = []

    @tool(level="dangerous")
    def delete(path: str) -> str:
        """Delete."""
        ran.append(path)
        return "deleted"

    provider = ScriptedProvider([ToolCall("c1", "delete", {"path": "a"}), "All done."])
    chat = Chat(provider, AdkTool(delete))
    events = await chat.ask("delete a")
    assert ran == []
    [request] = [
        call
        for event in events
        for call in event.get_function_calls()
        if call.name == REQUEST_CONFIRMATION_FUNCTION_CALL_NAME
    ]
    assert request.args is not None
    assert request.args["originalFunctionCall"]["args"] == {"path": "a"}
    answer = types.FunctionResponse(id=request.id, name=request.name, response={"confirmed": yes})
    await chat.send(types.Part(function_response=answer))
    assert ran == (["a"] if yes else [])


async def test_a8_a_cancel_reaches_the_handler() -> None:
    started, stopped = asyncio.Event(), asyncio.Event()

    async def works() -> None:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()

    chat = Chat(
        ScriptedProvider([ToolCall("c1", "works", {}), "never"]),
        AdkTool(Tool("works", "", {}, works)),
    )
    turn = asyncio.ensure_future(chat.ask("go"))
    await started.wait()
    turn.cancel()
    with pytest.raises(asyncio.CancelledError):
        await turn
    assert stopped.is_set()
