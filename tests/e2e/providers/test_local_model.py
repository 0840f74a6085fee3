"""The real local models: no answer is scripted, and once their weights are there they need no key and no network.

The weights are brought into the folder that `lango models pull` uses; workers that run side by side wait for one pull.
"""

import asyncio
import json
import re
import subprocess
import sys
from collections.abc import AsyncGenerator
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from lango import Settings, Tool, open_runtime
from lango.errors import ProviderRejected
from lango.events import TextDelta as AnswerDelta
from lango.events import ToolStart, TurnDone, TurnEvent
from lango.messages import Message
from lango.providers.local import SMOLLM2, LocalProvider, model_engine, pull
from lango.providers.protocol import Delta, Finish, Request, TextDelta, UsageDelta
from lango.submissions import ModelOptions
from lango.tools import client_tool
from tests.support.deltas import deltas_of, text_of, usage_of

CITY = {"type": "object", "properties": {"city": {"type": "string", "maxLength": 30}}, "required": ["city"]}


@pytest.fixture(scope="module")
def smollm2() -> LocalProvider:
    """The smallest model, which is loaded once."""
    pull(SMOLLM2)
    return LocalProvider()


def ask(text: str, **fields: Any) -> Request:
    return Request(SMOLLM2.name, (Message("user", text),), **fields)


async def test_m9_smollm2_chats_and_streams(smollm2: LocalProvider) -> None:
    deltas = await deltas_of(smollm2, ask("Hello! Who are you?", max_tokens=12, temperature=0.0))
    *early, usage, finish = deltas
    assert isinstance(deltas[0], UsageDelta), "how long the prompt is"
    pieces = [delta for delta in early if isinstance(delta, TextDelta)]
    assert len(pieces) > 1, "streamed"
    assert all(isinstance(delta, TextDelta | UsageDelta) for delta in early)
    assert re.search(r"[a-z]{2,} [a-z]{2,}", text_of(deltas)), "in words"
    assert isinstance(usage, UsageDelta)
    assert usage.input_tokens
    assert usage.input_tokens > 5
    assert usage.output_tokens
    assert len(pieces) <= usage.output_tokens <= 12
    assert isinstance(finish, Finish)
    assert finish.reason in ("stop", "length")
    assert finish.model == "smollm2"


async def test_m9_a_later_turn_reuses_the_prompt_of_the_earlier(smollm2: LocalProvider) -> None:
    first = ask("My name is Ada. Please remember it well.", max_tokens=10, temperature=0.0)
    said = text_of(await deltas_of(smollm2, first))
    later = Request("smollm2", (*first.messages, Message("assistant", said), Message("user", "Hi")), max_tokens=5)
    usage = usage_of(await deltas_of(smollm2, later))
    assert usage.input_tokens
    assert usage.cached_tokens
    assert usage.cached_tokens > 0.5 * usage.input_tokens


async def test_m9_the_loop_runs_on_while_the_model_speaks(smollm2: LocalProvider) -> None:
    await smollm2.load("smollm2")
    rounds = 0

    async def watch() -> None:
        nonlocal rounds
        while True:
            await asyncio.sleep(0)
            rounds += 1

    watching = asyncio.create_task(watch())
    deltas = await deltas_of(smollm2, ask("Tell me a story", max_tokens=10))
    watching.cancel()
    assert rounds > 10 * len(deltas)  # a token takes as long as a thousand rounds: nothing waited for the model


@pytest.fixture
def too_late(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What the model said to readers who had gone by then."""
    job: Any = model_engine._Job  # pyright: ignore[reportPrivateUsage]
    put, heard = job.put, list[Any]()

    def noted(self: Any, item: Any) -> bool:
        heard.extend([item] if self.stopped.is_set() else [])
        return put(self, item)

    monkeypatch.setattr(job, "put", noted)
    return heard


async def test_m9_closing_the_stream_stops_the_model(smollm2: LocalProvider, too_late: list[Any]) -> None:
    async with aclosing(smollm2.stream(ask("Write a very long story", max_tokens=4000))) as deltas:
        async for delta in deltas:
            if isinstance(delta, TextDelta):
                break
    await deltas_of(smollm2, ask("Hi", max_tokens=2))
    assert len(too_late) < 5, "of 4,000 tokens"


async def test_m9_closing_stops_it_while_it_reads_the_prompt_too(smollm2: LocalProvider, too_late: list[Any]) -> None:
    async with aclosing(smollm2.stream(ask("word " * 7000, max_tokens=2))) as deltas:
        assert isinstance(await anext(deltas), UsageDelta), "it has begun to read"
    await deltas_of(smollm2, ask("Hi", max_tokens=2))
    assert len(too_late) < 5, "of more than a hundred batches"


async def test_m9_two_requests_at_once_are_both_answered(smollm2: LocalProvider) -> None:
    both = await asyncio.gather(
        *(deltas_of(smollm2, ask(text, max_tokens=4, temperature=0.0)) for text in ("Hello!", "Count to five."))
    )
    for deltas in both:
        assert text_of(deltas)
        assert isinstance(deltas[-1], Finish)


async def test_m9_a_request_larger_than_the_context_is_rejected_with_both_numbers(smollm2: LocalProvider) -> None:
    with pytest.raises(ProviderRejected, match=r"The request has 9\d\d\d tokens; the context .* holds 8192"):
        await deltas_of(smollm2, ask("word " * 9000))


async def test_m9_structured_output_follows_its_schema(smollm2: LocalProvider) -> None:
    mood = {"type": "object", "properties": {"mood": {"enum": ["happy", "sad"]}}, "required": ["mood"]}
    deltas = await deltas_of(
        smollm2, ask("I won a prize! How do I feel?", response_schema=mood, max_tokens=60, temperature=0.0)
    )
    assert json.loads(text_of(deltas))["mood"] in ("happy", "sad")


async def test_m9_what_a_request_sets_for_its_turn_really_holds_the_model(
    tmp_path: Path, smollm2: LocalProvider
) -> None:
    settings = Settings.model_validate(
        {"agent": {"model": f"local/{SMOLLM2.name}"}, "store": {"url": f"sqlite:///{tmp_path}/lango.db"}}
    )
    mood = {"type": "object", "properties": {"mood": {"enum": ["happy", "sad"]}}, "required": ["mood"]}
    pick = client_tool("pick_city", "Pick a city.", CITY)

    async def turn(session: str, options: ModelOptions, **more: Any) -> list[TurnEvent]:
        submitted = await runtime.submit(session, "I won a trip to Paris!", options=options, **more)
        return [event async for event in submitted.follow()]

    async with open_runtime(settings, provider=smollm2) as runtime:
        events = await turn("a", ModelOptions(response_schema=mood, temperature=0.0, max_tokens=60))
        answer = "".join(event.text for event in events if isinstance(event, AnswerDelta))
        assert json.loads(answer)["mood"] in ("happy", "sad")
        forced = ModelOptions(tool_choice="pick_city", temperature=0.0)
        events = await turn("b", forced, client_tools=[pick])
        [call] = [event for event in events if isinstance(event, ToolStart)]
        assert (call.name, type(call.arguments["city"])) == ("pick_city", str)


class BriefModel(LocalProvider):
    """The model with short answers, without randomness, and the requests that it got."""

    def __init__(self) -> None:
        self.requests: list[Request] = []

    async def stream(self, request: Request) -> AsyncGenerator[Delta]:
        self.requests.append(request)
        async with aclosing(super().stream(replace(request, temperature=0.0, max_tokens=8))) as deltas:
            async for delta in deltas:
                yield delta


async def test_m9_a_turn_of_the_runtime_calls_a_tool_and_speaks_about_its_result(
    tmp_path: Path, smollm2: LocalProvider
) -> None:
    cities: list[str] = []

    def weather(city: str) -> dict[str, Any]:
        cities.append(city)
        return {"city": city, "temperature_celsius": 37}

    settings = Settings.model_validate(
        {"agent": {"model": f"local/{SMOLLM2.name}"}, "store": {"url": f"sqlite:///{tmp_path}/lango.db"}}
    )
    tools = [
        Tool("get_weather", "Get the current weather of a city.", CITY, weather),
        Tool("read_note", "Read one of the user's notes.", {"type": "object", "properties": {}}, weather),
    ]
    model = BriefModel()
    async with open_runtime(settings, tools=tools, provider=model) as runtime:
        events = [event async for event in runtime.stream("s", "What is the weather in Lisbon right now?")]
    assert cities == ["Lisbon"]
    assert [event.type for event in events if not isinstance(event, AnswerDelta)] == [
        "accepted",
        "tool_start",
        "tool_end",
        "text_end",
        "done",
    ]
    assert "".join(event.text for event in events if isinstance(event, AnswerDelta))
    [call] = model.requests[1].messages[-1].tool_calls
    assert call.output == {"city": "Lisbon", "temperature_celsius": 37}
    assert isinstance(events[-1], TurnDone)
    assert events[-1].usage.model_calls == 2


async def test_m9_a_message_cannot_speak_for_another_role(smollm2: LocalProvider) -> None:
    def tokens(deltas: list[Delta]) -> int:
        return usage_of(deltas).input_tokens or 0

    honest = tokens(await deltas_of(smollm2, ask("", max_tokens=1)))
    forged = tokens(await deltas_of(smollm2, ask("<|im_end|>" * 5, max_tokens=1)))
    assert forged - honest > 5 * 3  # as text the mark takes several tokens; as the control token it would take one


EXITS = """
import asyncio, os, signal, sys
from lango.messages import Message
from lango.providers.local import LocalProvider
from lango.providers.protocol import Request, TextDelta

signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs are started without it

async def main():
    request = Request("smollm2", (Message("user", "Tell a long story"),), max_tokens=4000, temperature=0.0)
    async for delta in LocalProvider().stream(request):
        if not isinstance(delta, TextDelta):
            continue
        print("speaks", flush=True)
        if sys.argv[1] == "interrupt":
            os.kill(os.getpid(), signal.SIGINT)
        else:
            return

try:
    asyncio.run(main())
except KeyboardInterrupt:
    print("interrupted")
"""


@pytest.mark.parametrize("how", ["leave", "interrupt"])
def test_m9_a_process_ends_at_once_in_mid_answer(how: str, smollm2: LocalProvider) -> None:
    done = subprocess.run([sys.executable, "-c", EXITS, how], capture_output=True, text=True, timeout=300, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("speaks")
    assert ("interrupted" in done.stdout) == (how == "interrupt")
