"""The agent of the servers under test: it does what the user's message says, in a language of a few words.

- `words N S`: N words, one every S seconds
- `much N`: N times 100,000 characters
- `hold FILE`: a first word, then silence until the file is there
- `note`: a call of a safe tool; `ask`: a call of a tool that needs approval
- `call NAMES`: a call of each of these tools at once, `again NAMES` with ids that came before, `first NAMES` after a
  word; a result `{"until": FILE}` fails as long as the file is not there
- `call guarded`: a call of a tool that ADK asks about
- `call count`: a call of a tool that changes the session's state
- `call pay`: a call of a tool that asks for confirmation by its own code, with a hint and a payload
- `call order`: a call of a long-running tool that returns nothing, `call ticket` of one that returns a first report
- `see`, or a file alone: the name, type and digest of each file that the model is sent
- `recite`: all that the model was sent, as JSON: of each message its role and its text, its calls or its results
- `system`: the system prompt; `think`: a thought, then a text
- `fail once FILE TEXT`: a few words and a failure, and once the file is there the text
- `fail`: the provider is not there
- anything else comes back as it is

A model that is held to a schema answers with values that fit it, whatever the message says, and texts are the message;
one that must call a tool calls it with such arguments; after `options`, it answers with what it was held to.
"""

import asyncio
import hashlib
import json
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from google.adk.agents import LlmAgent
from google.adk.tools import FunctionTool, LongRunningFunctionTool, ToolContext

from lango.adk import AdkTool, ProviderLlm
from lango.errors import ProviderRejected, ProviderUnavailable
from lango.messages import Message, ToolCall
from lango.providers import Request
from lango.providers.protocol import Delta, Finish, TextDelta, ThoughtDelta, UsageDelta
from lango.testing import deltas_of
from lango.tools import Tool


def file_summary(name: str, mime_type: str, data: bytes) -> str:
    """Return the name, type and hash of a file that the model was sent."""
    return f"{name} {mime_type} {hashlib.sha256(data).hexdigest()[:12]}"


def _as_json(message: Message) -> Any:
    results = {call.id: dict(call.output) for call in message.tool_calls if call.output is not None}
    calls = {call.id: [call.name, dict(call.input or {})] for call in message.tool_calls if call.output is None}
    files = [hashlib.sha256(one.data or b"").hexdigest()[:12] for one in message.media]
    return results or [message.content, *([calls] if calls else []), *files]


def fitting(schema: Mapping[str, Any], text: str, root: Mapping[str, Any] | None = None) -> Any:
    """Return a value that fits a schema; its texts are the given one, its numbers 7, its lists have one item."""
    root = root or schema
    if reference := schema.get("$ref"):
        return fitting(root["$defs"][reference.rpartition("/")[2]], text, root)
    if choices := schema.get("anyOf") or schema.get("allOf"):
        return fitting(choices[0], text, root)
    if "const" in schema or "enum" in schema:
        return schema["const"] if "const" in schema else schema["enum"][0]
    kinds: str | list[str] = schema.get("type", "object")
    match kinds if isinstance(kinds, str) else kinds[0]:
        case "object":
            return {name: fitting(inner, text, root) for name, inner in schema.get("properties", {}).items()}
        case "array":
            return [fitting(schema.get("items", {"type": "string"}), text, root)]
        case "integer" | "number":
            return 7
        case "boolean":
            return True
        case _:
            return text


def _held_to(request: Request, text: str) -> Sequence[str | ToolCall]:
    """Return the answer of a model that must call a tool, or answer in JSON; nothing: it is free."""
    if text == "options":
        names = ("temperature", "top_p", "max_tokens", "stop", "tool_choice", "json_object", "response_schema")
        held = {name: getattr(request, name) for name in names}
        return [json.dumps(held | {"tools": [tool.name for tool in request.tools]})]
    if text == "system":
        return [request.system]
    if text.startswith("first "):
        return []
    if request.tool_choice not in ("auto", "none"):
        tool = next(tool for tool in request.tools if request.tool_choice in ("required", tool.name))
        return [ToolCall(f"f{len(request.messages)}", tool.name, fitting(tool.parameters, text))]
    if request.response_schema is not None:
        return [json.dumps(fitting(request.response_schema, text))]
    return [json.dumps({"text": text})] if request.json_object else []


class CommandProvider:
    name = "obedient"

    async def stream(self, request: Request) -> AsyncGenerator[Delta, None]:
        answer = _held_to(request, request.messages[-1].content)
        if not answer:
            async for delta in self._obey(request):
                yield delta
        for delta in deltas_of([*answer, UsageDelta(10, 5)]) if answer else ():
            yield delta

    async def _obey(self, request: Request) -> AsyncGenerator[Delta, None]:
        last = request.messages[-1]
        if last.role == "tool":
            results = [call.output or {} for call in last.tool_calls]
            if any(one.get("until") and not Path(one["until"]).exists() for one in results):
                raise ProviderRejected("the provider does not want to", provider="obedient", status=400)
            yield TextDelta(" and ".join(f"the tool said {dict(one)}" for one in results))
        elif last.content.startswith(("call ", "again ", "first ")):
            step = 0 if last.content.startswith("again ") else len(request.messages)
            if last.content.startswith("first "):
                yield TextDelta("wait ")
            calls = [
                ToolCall(f"c{step}-{at}", name, {"text": name}) for at, name in enumerate(last.content.split()[1:])
            ]
            for delta in deltas_of([*calls, UsageDelta(10, 5)]):
                yield delta
            return
        elif last.content.startswith("recite"):
            yield TextDelta(json.dumps([[one.role, _as_json(one)] for one in request.messages]))
        elif last.content.startswith("see") or not last.content:
            media = [one for message in request.messages for one in message.media]
            yield TextDelta(
                f"seen: {', '.join(file_summary(one.name or '', one.mime_type, one.data or b'') for one in media)}"
            )
        else:
            async for delta in self._run_command(last.content.split()):
                yield delta
            if last.content in ("note", "ask"):
                return
        yield UsageDelta(10, 5)
        yield Finish("stop")

    async def _run_command(self, words: list[str]) -> AsyncGenerator[Delta, None]:
        match words:
            case ["words", count, delay]:
                for number in range(int(count)):
                    await asyncio.sleep(float(delay))
                    yield TextDelta(f"w{number} ")
            case ["much", count]:
                for _ in range(int(count)):
                    await asyncio.sleep(0.001)
                    yield TextDelta("x" * 100_000)
            case ["hold", file]:
                yield TextDelta("begun ")
                while not Path(file).exists():
                    await asyncio.sleep(0.01)
                yield TextDelta("ended")
            case ["note"] | ["ask"] | ["think"] | ["fail", *_]:
                for delta in _deltas(words):
                    yield delta
            case _:
                yield TextDelta(" ".join(words))


def _deltas(words: list[str]) -> Iterator[Delta]:
    match words:
        case ["fail", "once", file, *text] if Path(file).exists():
            yield TextDelta(" ".join(text))
        case ["fail", "once", file, *_]:
            yield ThoughtDelta("too early")
            yield TextDelta("half of ")
            yield TextDelta("it")
            Path(file).touch()
            raise ProviderUnavailable("the provider is gone", provider="obedient")
        case ["think"]:
            yield ThoughtDelta("hm, ")
            yield ThoughtDelta("well")
            yield TextDelta("thought")
            yield UsageDelta(thought_tokens=3, cache_write_tokens=2)
        case ["fail"]:
            raise ProviderRejected("the provider does not want to", provider="obedient", status=400)
        case _:
            name = {"note": "note", "ask": "wipe"}[words[0]]
            yield from deltas_of([ToolCall("call_1", name, {"text": "this"}), UsageDelta(10, 5)])


def _noted(arguments: dict[str, Any]) -> dict[str, Any]:
    return {"noted": arguments["text"]}


async def _linger(arguments: dict[str, Any]) -> None:
    await asyncio.Event().wait()


def order(text: str) -> None:
    """Order something; the result comes later."""


def count(text: str, tool_context: ToolContext) -> dict[str, int]:
    """Count in the session's state how often it is called, and leave notes in the other scopes."""
    tool_context.state["count"] = tool_context.state.get("count", 0) + 1
    tool_context.state["list"] = [*tool_context.state.get("list", []), {"a/b~": tool_context.state["count"]}]
    tool_context.state["app:seen"] = tool_context.state["user:seen"] = tool_context.state["temp:seen"] = text
    return {"count": tool_context.state["count"]}


def pay(text: str, tool_context: ToolContext) -> dict[str, Any]:
    """Pay, when a person agreed."""
    if tool_context.tool_confirmation is None:
        tool_context.request_confirmation(hint="This costs \x1b[31m30 euros.", payload={"limit": 30})
        return {"status": "waiting"}
    return {"confirmed": tool_context.tool_confirmation.confirmed, "payload": tool_context.tool_confirmation.payload}


def guarded(text: str) -> dict[str, str]:
    """Note something; ADK asks before it runs."""
    return {"noted": text}


def ticket(text: str) -> dict[str, str]:
    """Open a ticket; results come later."""
    return {"status": "pending"}


_SCHEMA = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
_note = Tool("note", "Note something.", _SCHEMA, _noted)
_stay = Tool("linger", "Never end.", _SCHEMA, _linger)
_wipe = Tool("wipe", "Wipe something.", _SCHEMA, _noted, level="dangerous")

root_agent = LlmAgent(
    name="obedient",
    model=ProviderLlm(provider=CommandProvider(), model="obedient"),
    tools=[
        AdkTool(_note),
        AdkTool(_wipe),
        AdkTool(_stay),
        LongRunningFunctionTool(order),
        LongRunningFunctionTool(ticket),
        FunctionTool(guarded, require_confirmation=True),
        count,
        pay,
    ],
)
