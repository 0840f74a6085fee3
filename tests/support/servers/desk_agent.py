"""A desk that transfers to an agent with tools, or to two agents that speak at once and one that sums up."""

# pyright: reportDeprecated=false

import asyncio
import warnings
from collections.abc import AsyncGenerator
from typing import Any, Literal

from google.adk.agents import LlmAgent, ParallelAgent, SequentialAgent
from google.adk.tools import ToolContext
from google.genai import types

from lango import tool
from lango.adk import AdkTool, ProviderLlm
from lango.messages import ToolCall
from lango.providers import Request
from lango.providers.protocol import Delta, Finish, TextDelta
from lango.testing import ScriptedProvider

warnings.filterwarnings("ignore", ".*deprecated in favor of Workflow", DeprecationWarning)

held = {"ben": asyncio.Event()}
"""Speakers that hold back their last words until their event is set: a test sees what others say until then."""


class _Speaker:
    """A model that says its words one by one."""

    name = "speaker"

    def __init__(self, name: str, text: str) -> None:
        self._name = name
        self._words = text.split(" ")

    async def stream(self, request: Request) -> AsyncGenerator[Delta, None]:
        for number, word in enumerate(self._words):
            if number == len(self._words) - 1 and self._name in held:
                await held[self._name].wait()
            await asyncio.sleep(0)
            yield TextDelta(f" {word}" if number else word)
        yield Finish("stop")


def _speaker(name: str, text: str) -> LlmAgent:
    return LlmAgent(name=name, model=ProviderLlm(provider=_Speaker(name, text), model="words"))


def _choose(request: Request) -> ToolCall | str:
    """Transfer to the agent that the user's last words name."""
    [last] = [message.content for message in request.messages if message.role == "user"][-1:]
    if "one of the valid agent names" in last:
        return "There is no such agent."
    names = ("weather", "review", "nobody")
    name = next((name for name in names if name in last), "")
    return ToolCall("t", "transfer_to_agent", {"agent_name": name}) if name else "How can I help?"


def _report(request: Request) -> ToolCall | str:
    if request.messages[-1].role == "tool" and request.messages[-1].tool_calls[0].name == "forecast":
        return "It will be sunny in Bern."
    return ToolCall("f", "forecast", {"city": "Bern"})


def forecast(city: str, days: int = 1, unit: Literal["C", "F"] = "C") -> dict[str, Any]:
    """Forecast the weather of a city."""
    if city == "Atlantis":
        raise LookupError(f"{city} is under water")
    return {"city": city, "days": days, "unit": unit, "weather": "sunny"}


async def remember(city: str, tool_context: ToolContext) -> str:
    """Remember a city as the newest one."""
    before = tool_context.state.get("city", "none")
    tool_context.state["city"] = city
    await tool_context.save_artifact("city.txt", types.Part.from_text(text=city))
    return f"remembered {city}, after {before}"


booked: list[str] = []


@tool(level="write")
def book(city: str) -> str:
    """Book a trip to a city."""
    booked.append(city)
    return f"booked {city}"


weather = LlmAgent(
    name="weather",
    description="Knows the weather.",
    instruction="Say what the weather will be.",
    model=ProviderLlm(provider=ScriptedProvider([_report] * 1000), model="scripted"),
    tools=[forecast, remember, AdkTool(book)],
)
both = ParallelAgent(
    name="both", sub_agents=[_speaker("anna", "I am Anna and agree."), _speaker("ben", "I am Ben and do not.")]
)
review = SequentialAgent(name="review", sub_agents=[both, _speaker("critic", "Both have a point.")])
root_agent = LlmAgent(
    name="desk",
    description="Finds the right colleague for you.",
    instruction="Transfer the user to the right colleague.",
    model=ProviderLlm(provider=ScriptedProvider([_choose] * 1000), model="scripted"),
    sub_agents=[weather, review],
)
