"""Ask a server for responses by LangChain and the OpenAI Agents SDK, as their users would; print JSON.

It runs in an environment of its own, with the packages that `tests.support.clients.packages` names.
"""

import asyncio
import importlib
import json
import sys
from typing import Any

from pydantic import BaseModel

PICTURE = "data:image/png;base64,iVBORw0KGgo="


class City(BaseModel):
    """A city."""

    name: str
    inhabitants: int


def said(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"


def langchain(url: str) -> dict[str, Any]:
    messages: Any = importlib.import_module("langchain_core.messages")
    make_tool: Any = importlib.import_module("langchain_core.tools").tool
    chat_openai: Any = importlib.import_module("langchain_openai").ChatOpenAI

    def pick(text: str) -> str:
        """Let the user pick."""
        return f"red {text}"

    pick_tool = make_tool(pick)

    def model(**more: Any) -> Any:
        about = {"model": "obedient", "api_key": "none", "use_responses_api": True, "max_retries": 0}
        return chat_openai(base_url=f"{url}/v1", **(about | more))

    def error_of(call: Any) -> str:
        try:
            return f"nothing: {call()}"
        except Exception as error:  # noqa: BLE001 - whatever the client raises
            return said(error)

    with_tool = model().bind_tools([pick_tool])
    history: list[Any] = [messages.HumanMessage("call pick")]
    called = with_tool.invoke(history)
    history += [
        called,
        messages.ToolMessage(pick_tool.invoke(called.tool_calls[0]["args"]), tool_call_id=called.tool_calls[0]["id"]),
    ]
    continued: list[Any] = [messages.HumanMessage("one")]
    continued += [model(use_previous_response_id=True).invoke(continued), messages.HumanMessage("recite")]
    seen = messages.HumanMessage(
        [{"type": "text", "text": "see"}, {"type": "image_url", "image_url": {"url": PICTURE}}]
    )
    return {
        "chat": model().invoke("Rome").text,
        "usage": model().invoke("Rome").usage_metadata["total_tokens"],
        "stream": "".join(chunk.text for chunk in model().stream("words 3 0.01")),
        "tools": with_tool.invoke(history).text,
        "forced": model().bind_tools([City], tool_choice="City").invoke("Rome").tool_calls[0]["args"],
        "structured": model().with_structured_output(City).invoke("Rome").model_dump(),
        "function_calling": model().with_structured_output(City, method="function_calling").invoke("Rome").model_dump(),
        "continued": json.loads(model(use_previous_response_id=True).invoke(continued).text),
        "pictures": model().invoke([seen]).text,
        "own_tools": [block["type"] for block in model().invoke("note").content],
        "error": error_of(lambda: model().invoke("fail")),
        "stream_error": error_of(lambda: list(model().stream("fail"))),
        "refused": error_of(lambda: model(model_kwargs={"prompt": {"id": "p"}}).invoke("Rome")),
    }


async def agents(url: str) -> dict[str, Any]:
    sdk: Any = importlib.import_module("agents")
    openai: Any = importlib.import_module("openai")
    sdk.set_tracing_disabled(True)
    asked: list[str] = []

    def draw(text: str) -> str:
        """Draw it."""
        return f"house of {text}"

    def approve(request: Any) -> Any:
        asked.append(request.data.name)
        return {"approve": True}

    draw_tool = sdk.function_tool(draw)
    client = openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0)
    model = sdk.OpenAIResponsesModel("obedient", openai_client=client)
    own_tools = sdk.HostedMCPTool(
        tool_config={"type": "mcp", "server_label": "obedient", "require_approval": "always"},
        on_approval_request=approve,
    )
    agent = sdk.Agent(name="a", instructions="Be kind.", model=model, tools=[draw_tool])
    called = await sdk.Runner.run(agent, "call draw")
    continued = await sdk.Runner.run(agent, "recite", previous_response_id=called.last_response_id)
    streamed = sdk.Runner.run_streamed(agent, "call draw")
    events = [event.type async for event in streamed.stream_events()]
    session = sdk.SQLiteSession("s")
    await sdk.Runner.run(agent, "call draw", session=session)
    recited = await sdk.Runner.run(agent, "recite", session=session)
    forced = sdk.Agent(name="f", model=model, tools=[draw_tool], model_settings=sdk.ModelSettings(tool_choice="draw"))
    picture = [{"type": "input_text", "text": "see"}, {"type": "input_image", "image_url": PICTURE, "detail": "auto"}]
    try:
        error = f"nothing: {await sdk.Runner.run(agent, 'fail')}"
    except Exception as failed:  # noqa: BLE001 - whatever the client raises
        error = said(failed)
    return {
        "chat": (await sdk.Runner.run(agent, "Rome")).final_output,
        "instructions": (await sdk.Runner.run(agent, "system")).final_output,
        "tools": called.final_output,
        "stream": streamed.final_output,
        "stream_events": sorted(set(events)),
        "forced": (await sdk.Runner.run(forced, "Rome")).final_output,
        "structured": (
            await sdk.Runner.run(sdk.Agent(name="c", model=model, output_type=City), "Rome")
        ).final_output.model_dump(),
        "continued": [role for role, _ in json.loads(continued.final_output)],
        "session": [role for role, _ in json.loads(recited.final_output)],
        "pictures": (await sdk.Runner.run(agent, [{"role": "user", "content": picture}])).final_output,
        "own_tools": (await sdk.Runner.run(agent, "note")).final_output,
        "approval": (await sdk.Runner.run(sdk.Agent(name="o", model=model, tools=[own_tools]), "ask")).final_output,
        "asked": asked,
        "error": error,
    }


if __name__ == "__main__":
    given = json.loads(sys.argv[1])
    print(json.dumps({"langchain": langchain(given["url"]), "agents": asyncio.run(agents(given["url"]))}))
