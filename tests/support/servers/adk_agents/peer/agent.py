"""An agent of ADK's own classes: the user's message names the tool that its model calls.

`words A B C` streams the words; `call NAME` calls a tool; `fail` raises; anything else comes back.
"""

from collections.abc import AsyncGenerator
from typing import Any

from google.adk.agents import LlmAgent
from google.adk.models import BaseLlm
from google.adk.models.llm_request import LlmRequest
from google.adk.models.llm_response import LlmResponse
from google.adk.tools import FunctionTool, LongRunningFunctionTool
from google.adk.tools.tool_context import ToolContext
from google.genai import types


class Scripted(BaseLlm):
    """A model that does what the last message says."""

    async def generate_content_async(
        self, llm_request: LlmRequest, stream: bool = False
    ) -> AsyncGenerator[LlmResponse, None]:
        last = (llm_request.contents[-1].parts or [types.Part(text="")])[-1]
        usage = types.GenerateContentResponseUsageMetadata(prompt_token_count=10, candidates_token_count=5)
        if last.function_response:
            parts = [types.Part(text=f"the tool said {last.function_response.response}")]
        else:
            kind, _, rest = (last.text or "").partition(" ")
            if kind == "fail":
                raise RuntimeError("the model is broken")
            if kind == "call":
                call = types.FunctionCall(id=f"c-{len(llm_request.contents)}", name=rest, args={"city": "Bern"})
                parts = [types.Part(function_call=call)]
            else:
                parts = [types.Part(text=rest or kind)]
                for word in rest.split() if stream else ():
                    yield LlmResponse(partial=True, content=types.Content(role="model", parts=[types.Part(text=word)]))
        yield LlmResponse(content=types.Content(role="model", parts=parts), usage_metadata=usage)


def count(city: str, tool_context: ToolContext) -> dict[str, Any]:
    """Count something in a city."""
    tool_context.state["counted"] = city
    tool_context.state["user:cities"] = [city]
    tool_context.state["temp:now"] = 1
    return {"city": city, "count": 42}


async def draw(city: str, tool_context: ToolContext) -> dict[str, Any]:
    """Draw a city."""
    part = types.Part.from_bytes(data=city.encode(), mime_type="image/png")
    return {"version": await tool_context.save_artifact("city.png", part)}


def wipe(city: str) -> dict[str, Any]:
    """Wipe a city."""
    return {"wiped": city}


def order(city: str) -> None:
    """Order something for a city; the result comes later."""


root_agent = LlmAgent(
    name="peer",
    description="Does what it is told.",
    instruction="Do it.",
    model=Scripted(model="scripted"),
    tools=[count, draw, FunctionTool(wipe, require_confirmation=True), LongRunningFunctionTool(order)],
    sub_agents=[LlmAgent(name="helper", description="Helps.", model=Scripted(model="scripted"), tools=[count])],
)
