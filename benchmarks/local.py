"""The local models: speed, memory, and how often they call the right tool. `python -m benchmarks.local [model ...]`.

Each model runs in a process of its own, to measure its memory. "engine alone" is the same request without Lango's code
around it. Both sets of requests were used to choose the wording of the prompts: expect somewhat less on tools of your
own. `--quick` leaves out the large model.
"""

import asyncio
import json
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.table import print_line, quick
from lango.messages import Message
from lango.providers.local import QWEN, SMOLLM2, LocalProvider, pull
from lango.providers.local.known_models import local_model, model_file
from lango.providers.local.model_engine import engine_for, threads
from lango.providers.local.wire_format import encode
from lango.providers.protocol import CallDelta, Request, TextDelta, ToolSpec, UsageDelta

STORY = "Tell me a story about a lighthouse."
ANSWER_TOKENS = 64


def tool(name: str, description: str, **properties: str) -> ToolSpec:
    fields = {key: {"type": kind} for key, kind in properties.items()}
    return ToolSpec(name, description, {"type": "object", "properties": fields, "required": list(fields)})


KNOWN = (
    tool("get_weather", "Current weather of a city", city="string"),
    tool("add", "Add two numbers", a="number", b="number"),
    tool("read_file", "Read a text file", path="string"),
    tool("get_time", "Current time in a timezone", timezone="string"),
)
KNOWN_CASES = (
    ("What is the weather in Paris?", "get_weather"),
    ("Is it raining in Tokyo right now?", "get_weather"),
    ("Please add 17 and 25 with your tool.", "add"),
    ("What is 1234.5 + 99?", "add"),
    ("Show me the contents of notes.txt", "read_file"),
    ("Read /etc/hostname and tell me what it says", "read_file"),
    ("What time is it in Europe/Berlin?", "get_time"),
    ("Current time in UTC?", "get_time"),
    ("How warm is it in Cairo?", "get_weather"),
    ("Open the file config/app.toml", "read_file"),
    ("Sum 8 and 9", "add"),
    ("Tell me the time in Asia/Tokyo", "get_time"),
    ("Do I need an umbrella in London today?", "get_weather"),
    ("What does README.md say?", "read_file"),
    ("Hello!", ""),
    ("Who are you?", ""),
    ("Write a haiku about rain", ""),
    ("What is the capital of France?", ""),
    ("Explain what a list is in Python in one sentence", ""),
    ("Thank you, bye", ""),
)
UNSEEN = (
    tool("send_email", "Send an email to somebody", to="string", text="string"),
    tool(
        "convert_currency", "Convert money from one currency to another", amount="number", source="string", to="string"
    ),
    tool("list_files", "List the files in a folder", folder="string"),
    tool("set_alarm", "Set an alarm clock", at="string"),
)
UNSEEN_CASES = (
    ("Send an email to bob@example.com: I am late.", "send_email"),
    ("Write bob@example.com that lunch is at noon", "send_email"),
    ("Please email anna@example.com and say hello", "send_email"),
    ("How much is 50 euros in dollars?", "convert_currency"),
    ("Convert 20 USD to JPY", "convert_currency"),
    ("What are 100 pounds in euros?", "convert_currency"),
    ("Which files are in /tmp?", "list_files"),
    ("List the folder src", "list_files"),
    ("What is in my Downloads folder?", "list_files"),
    ("Wake me at 7:30", "set_alarm"),
    ("Set an alarm for 6 am", "set_alarm"),
    ("Set an alarm clock at noon", "set_alarm"),
    ("Show me all files in docs", "list_files"),
    ("Change 5 dollars to Swiss francs, which currency rate applies?", "convert_currency"),
    ("Good evening!", ""),
    ("What can you do?", ""),
    ("Name three colours", ""),
    ("What is a currency?", ""),
    ("Why is the sky blue?", ""),
    ("Nice, thanks", ""),
)


@dataclass
class Figures:
    model: str
    load_s: float
    first_token_s: float
    first_token_again_s: float
    tokens_per_s: float
    engine_alone_tokens_per_s: float
    rss_mb: float
    right_of_20: int
    needless_calls: int
    unseen_right_of_20: int
    unseen_needless_calls: int
    s_per_tool_request: float


async def timed(provider: LocalProvider, request: Request) -> tuple[float, float]:
    """Return the time to the first token, and the tokens per second after it."""
    started = first = time.perf_counter()
    tokens = 0
    async for delta in provider.stream(request):
        if isinstance(delta, TextDelta) and not tokens:
            first = time.perf_counter()
            tokens = 1
        if isinstance(delta, UsageDelta):
            tokens = delta.output_tokens or 0
    return first - started, (tokens - 1) / (time.perf_counter() - first)


async def engine_alone(request: Request) -> float:
    """Return the tokens per second that the engine itself reports for the same request."""
    model, path = model_file(request.model)
    timings: dict[str, Any] = {}
    async for chunk in engine_for(model, path).chat(encode(request, model)):
        timings = chunk.get("timings", timings)
    return timings["predicted_per_second"]


async def score(provider: LocalProvider, model: str, tools: tuple[ToolSpec, ...], cases: Any) -> tuple[int, int]:
    """Return the number of correct cases, and of unnecessary calls."""
    right = needless = 0
    for text, wanted in cases:
        request = Request(model, (Message("user", text),), tools=tools, max_tokens=48)
        calls = [delta async for delta in provider.stream(request) if isinstance(delta, CallDelta)]
        name = calls[0].name if calls else ""
        right += name == wanted
        needless += bool(name) and not wanted
    return right, needless


def rss_mb() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096 / 1e6


async def measure(model: str) -> Figures:
    provider = LocalProvider()
    started = time.perf_counter()
    await provider.load(model)
    load_s = time.perf_counter() - started
    story = Request(model, (Message("user", STORY),), max_tokens=ANSWER_TOKENS)
    first, _ = await timed(provider, story)
    again, speed = await timed(provider, story)
    alone = await engine_alone(story)
    started = time.perf_counter()
    known = await score(provider, model, KNOWN, KNOWN_CASES)
    unseen = await score(provider, model, UNSEEN, UNSEEN_CASES)
    per_request = (time.perf_counter() - started) / (len(KNOWN_CASES) + len(UNSEEN_CASES))
    return Figures(model, load_s, first, again, speed, alone, rss_mb(), *known, *unseen, per_request)


def show(figures: list[dict[str, Any]]) -> None:
    print_line(f"{threads()} thread(s), answers of {ANSWER_TOKENS} tokens")
    for key in figures[0]:
        values = (f"{one[key]:.2f}" if isinstance(one[key], float) else str(one[key]) for one in figures)
        print_line(f"{key.replace('_', ' '):28}" + "".join(f"{value:>22}" for value in values))


def main() -> None:
    """Measure the models of the command line, or both."""
    figures: list[dict[str, Any]] = []
    for name in _wanted():
        if (model := local_model(name)).weights:
            pull(model)
        command = [sys.executable, "-m", "benchmarks.local", "--child", name]
        figures.append(json.loads(subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout))
    show(figures)


def _wanted() -> list[str]:
    # under `python -m benchmarks` the arguments name benchmarks, not models
    known = {SMOLLM2.name, QWEN.name}
    chosen = [name for name in sys.argv[1:] if name in known or name.endswith(".gguf")]
    return chosen or ([SMOLLM2.name] if quick() else [SMOLLM2.name, QWEN.name])


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        print(json.dumps(asdict(asyncio.run(measure(sys.argv[2])))))
    else:
        main()
