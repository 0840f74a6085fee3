"""The agent of the terminals under test: it does what the user's message says, in a language of a few words.

- `hold FILE`: a first word, then silence until the file is there
- `look FILE`: a first word, and when the file is there a call of a safe tool, as time for another message
- `markdown`: a heading, a table, a list and code, in small pieces
- `long N`: a list of N lines
- `evil`: an answer, and a call of a tool, full of what a terminal would obey
- `note TEXT`: a call of a safe tool; `wipe TEXT`: of one that needs approval; `broken`: of one that fails
- `pay TEXT`: a call of a tool that asks for confirmation by its own code
- `write PATH LINES`: a call of the tool that writes a file; a slash ends a line
- `late FILE`: a first word, and when the file is there a call of the one that needs approval
- `think`: a thought, then an answer
- `fail once FILE TEXT`: a few words and a failure, and once the file is there the text
- `fail`: the provider is not there
- anything else comes back as it is, and with it the files that came along
"""

import asyncio
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

from google.adk.agents import LlmAgent
from google.adk.tools import ToolContext

from lango.adk import AdkTool, ProviderLlm
from lango.errors import ProviderRejected, ProviderUnavailable
from lango.messages import ToolCall
from lango.providers import Request
from lango.providers.protocol import Delta, Finish, TextDelta, ThoughtDelta, UsageDelta
from lango.testing import deltas_of
from lango.tools import Tool
from lango.tools.builtin.files import file_tools
from lango.tools.builtin.workspace import Workspace

MARKDOWN = """\
# Prices

The **best** of them:

| fruit | price |
|-------|------:|
| apple | 1.50 |
| 日本梨 | 12.00 |

1. first
2. second

```python
def total(prices):
    return sum(prices)
```

The end.
"""
EVIL = (
    "red \x1b[31mred\x1b]52;c;aGVsbG8=\x07 title \x1b]0;owned\x07 back\b\b\r over \x9b2J "
    "turned \u202etxt.exe &#27;[2J &#x9b;1A evil\n"
)


class CommandProvider:
    name = "obedient"

    async def stream(self, request: Request) -> AsyncGenerator[Delta, None]:
        last = request.messages[-1]
        if last.role == "tool":
            yield TextDelta(f"the tool said {dict(last.tool_calls[0].output or {})}")
        else:
            calls = False
            async for delta in self._run_command(last.content.split(maxsplit=1)):
                calls = calls or isinstance(delta, Finish)
                yield delta
            for one in last.media:
                yield TextDelta(f" {one.name}: {(one.data or b'').decode()}")
            if calls:
                return
        yield UsageDelta(1000, 500)
        yield Finish("stop")

    async def _run_command(self, words: list[str]) -> AsyncGenerator[Delta, None]:
        match words:
            case ["hold", file]:
                yield TextDelta("begun ")
                while not Path(file).exists():
                    await asyncio.sleep(0.01)
                yield TextDelta("ended")
            case [("late" | "look") as word, file]:
                yield TextDelta("begun ")
                while not Path(file).exists():
                    await asyncio.sleep(0.01)
                for delta in deltas_of(
                    [
                        ToolCall("call_late", "wipe" if word == "late" else "note", {"text": "disk4"}),
                        UsageDelta(1000, 500),
                    ]
                ):
                    yield delta
            case ["fail", once] if once.startswith("once "):
                _, file, text = once.split(maxsplit=2)
                if not Path(file).exists():
                    yield ThoughtDelta("a thought that is withdrawn")
                    yield TextDelta("half of it is said\n\nand the other half\n\nis")
                    await asyncio.sleep(0.2)  # the first blocks are drawn meanwhile
                    Path(file).touch()
                    raise ProviderUnavailable("the provider is gone", provider="obedient")
                yield TextDelta(text)
            case ["fail"]:
                raise ProviderRejected("the provider does not want to", provider="obedient", status=400)
            case _:
                for delta in _said(words):
                    await asyncio.sleep(0.002)
                    yield delta


def _said(words: list[str]) -> list[Delta]:
    match words:
        case ["markdown"]:
            return [TextDelta(MARKDOWN[at : at + 5]) for at in range(0, len(MARKDOWN), 5)]
        case ["long", count]:
            return [TextDelta(f"- item {number}\n") for number in range(int(count))]
        case ["evil"]:
            return [TextDelta(EVIL), *deltas_of([ToolCall("call_evil", "note", {"text": EVIL}), UsageDelta(1000, 500)])]
        case [("note" | "wipe" | "broken" | "pay") as name, text]:
            return deltas_of([ToolCall(f"call_{text}", name, {"text": text}), UsageDelta(1000, 500)])
        case ["write", rest]:
            path, text = rest.split(maxsplit=1)
            arguments = {"path": path, "content": text.replace("/", "\n")}
            return deltas_of([ToolCall(f"call_{path}", "write_file", arguments), UsageDelta(1000, 500)])
        case ["think"]:
            return [ThoughtDelta("first I count the apples"), TextDelta("seven")]
        case _:
            return [TextDelta(" ".join(words))]


def _noted(arguments: dict[str, Any]) -> dict[str, Any]:
    return {"noted": arguments["text"], "lines": "one\ntwo\nthree"}


def _broken(arguments: dict[str, Any]) -> dict[str, Any]:
    raise ValueError(f"cannot do {arguments['text']}")


def pay(text: str, tool_context: ToolContext) -> dict[str, Any]:
    """Pay, when a person agreed."""
    if tool_context.tool_confirmation is None:
        tool_context.request_confirmation(hint="This costs 30 euros.", payload={"limit": 30})
        tool_context.actions.skip_summarization = True
        return {"status": "waiting"}
    return {"payload": tool_context.tool_confirmation.payload}


_SCHEMA = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
_TOOLS = [
    Tool("note", "Note something.", _SCHEMA, _noted),
    Tool("wipe", "Wipe something.", _SCHEMA, _noted, level="dangerous"),
    Tool("broken", "Fails.", _SCHEMA, _broken),
    *(tool for tool in file_tools(Workspace(Path.cwd())) if tool.name == "write_file"),
]

root_agent = LlmAgent(
    name="obedient",
    model=ProviderLlm(provider=CommandProvider(), model="gpt-5-mini"),  # a model whose price is known
    tools=[*(AdkTool(tool) for tool in _TOOLS), pay],
)
