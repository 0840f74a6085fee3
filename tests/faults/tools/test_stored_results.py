"""Odd results of tools are stored, and both databases read them back unchanged."""

from typing import Any

from google.adk.agents import LlmAgent
from google.adk.agents.run_config import RunConfig
from google.adk.runners import Runner
from google.genai import types

from lango.adk import AdkTool, ProviderLlm, SqlSessionService
from lango.messages import ToolCall
from lango.testing import ScriptedProvider
from lango.tools import Tool

ODD: dict[str, Any] = {
    "bytes": b"\0\xff",
    "nan": float("nan"),
    "nul": "a\0b",
    "surrogate": {"\ud800": "\udfff"},
    "huge": "é\0" * 1_000_000,
    "thing": object(),
}


async def test_odd_results_are_emitted_stored_and_read_back_the_same(service: SqlSessionService) -> None:
    def giving(value: Any) -> Any:
        return lambda: value

    tools = [AdkTool(Tool(name, "", {}, giving(value))) for name, value in ODD.items()]
    provider = ScriptedProvider([[ToolCall(f"c-{name}", name, {}) for name in ODD], "done"])
    agent = LlmAgent(name="root", model=ProviderLlm(provider, "m"), tools=list(tools))
    session = await service.create_session(app_name="app", user_id="u")
    runner = Runner(app_name="app", agent=agent, session_service=service)
    message = types.Content(role="user", parts=[types.Part(text="go")])
    run = runner.run_async(user_id="u", session_id=session.id, new_message=message, run_config=RunConfig())
    live = [event async for event in run]
    stored = await service.get_session(app_name="app", user_id="u", session_id=session.id)
    assert stored is not None

    def results(events: Any) -> dict[str, Any]:
        return {one.id: one.response for event in events for one in event.get_function_responses()}

    assert results(stored.events) == results(live)
    outputs = results(live)
    assert {name for name in ODD if "error" in outputs[f"c-{name}"]} == {"bytes", "nan", "thing"}
    assert outputs["c-nul"] == {"result": "a\ufffdb"}
    assert outputs["c-surrogate"] == {"\ufffd": "\ufffd"}
    assert "of 2000000 were left out" in outputs["c-huge"]["result"]
    assert "\0" not in str(outputs)
