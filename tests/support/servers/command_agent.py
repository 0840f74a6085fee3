"""The agent of the servers under test: it does what the user's message says, in a language of a few words.

- `words N S`: N words, one every S seconds
- `much N`: N times 100,000 characters
- `hold FILE`: a first word, then silence until the file is there
- `note`: a call of a safe tool; `ask`: a call of a tool that needs approval
- `call NAMES`: a call of each of these tools at once, `again NAMES` with ids that came before, `first NAMES` after a
  word; a result `{"until": FILE}` fails as long as the file is not there
- `see`, or a file alone: the name, type and digest of each file that the model is sent
- `recite`: all that the model was sent, as JSON: of each message its role and its text, its calls or its results
- `fail once FILE TEXT`: a few words and a failure, and once the file is there the text
- `fail`: the provider is not there
- anything else comes back as it is
"""

import asyncio
import hashlib
import json
from collections.abc import AsyncGenerator, Iterator
from pathlib import Path
from typing import Any

from google.adk.agents import LlmAgent

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


class CommandProvider:
    name = "obedient"

    async def stream(self, request: Request) -> AsyncGenerator[Delta, None]:
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
            case ["note"] | ["ask"] | ["fail", *_]:
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
        case ["fail"]:
            raise ProviderRejected("the provider does not want to", provider="obedient", status=400)
        case _:
            name = {"note": "note", "ask": "wipe"}[words[0]]
            yield from deltas_of([ToolCall("call_1", name, {"text": "this"}), UsageDelta(10, 5)])


def _noted(arguments: dict[str, Any]) -> dict[str, Any]:
    return {"noted": arguments["text"]}


async def _linger(arguments: dict[str, Any]) -> None:
    await asyncio.Event().wait()


_SCHEMA = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
_note = Tool("note", "Note something.", _SCHEMA, _noted)
_stay = Tool("linger", "Never end.", _SCHEMA, _linger)
_wipe = Tool("wipe", "Wipe something.", _SCHEMA, _noted, level="dangerous")

root_agent = LlmAgent(
    name="obedient",
    model=ProviderLlm(provider=CommandProvider(), model="obedient"),
    tools=[AdkTool(_note), AdkTool(_wipe), AdkTool(_stay)],
)
