"""A model that nobody here scripted, through the whole runtime: it calls a tool and uses the result."""

from pathlib import Path
from typing import Any

import pytest

from lango import Settings, Tool, open_runtime
from lango.events import TextDelta, ToolEnd, ToolStart, TurnDone
from lango.providers.local import QWEN, pull

asked_for: list[str] = []


def weather(city: str) -> dict[str, Any]:
    asked_for.append(city)
    return {"city": city, "temperature_celsius": 37, "sky": "clear"}


WEATHER = Tool(
    "get_weather",
    "Get the current weather of a city.",
    {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    weather,
)


@pytest.mark.long
async def test_m9_the_embedded_model_calls_a_tool_and_uses_its_result(tmp_path: Path) -> None:
    pull(QWEN)
    settings = Settings.model_validate(
        {"agent": {"model": f"local/{QWEN.name}"}, "store": {"url": f"sqlite:///{tmp_path}/lango.db"}}
    )
    async with open_runtime(settings, tools=[WEATHER]) as runtime:
        events = [event async for event in runtime.stream("s", "What is the weather in Lisbon right now?")]
    [start] = [event for event in events if isinstance(event, ToolStart)]
    [end] = [event for event in events if isinstance(event, ToolEnd)]
    assert start.name == "get_weather"
    assert "Lisbon" in asked_for[0]
    assert end.ok
    answer = "".join(event.text for event in events if isinstance(event, TextDelta))
    assert "37" in answer, "the answer uses what the tool returned"
    assert isinstance(events[-1], TurnDone)
    assert events[-1].usage.model_calls == 2
