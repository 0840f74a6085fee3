"""Qwen, the local model that calls tools and observes conversations: no answer of it is scripted here.

It runs in a process of its own, which gives its gigabytes back, and is loaded once.
"""

import asyncio
from collections.abc import AsyncGenerator
from datetime import UTC, datetime
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from lango import Settings, open_runtime
from lango.errors import ConfigError
from lango.memory import transcript
from lango.memory.note_format import OBSERVE_PROMPT
from lango.messages import Message, ToolCall
from lango.providers.local import QWEN, LocalProvider, pull
from lango.providers.protocol import CallDelta, Delta, Finish, Request, ToolSpec
from lango.testing import ScriptedProvider
from tests.agents.memory_parts import quoted, spoken
from tests.support.deltas import call_of, deltas_of, text_of, usage_of
from tests.support.store_workers import Worker

CITY = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
WEATHER = ToolSpec("get_weather", "Current weather of a city", CITY)
QUESTION = Message("user", "What is the weather in Cairo?")
STORY = "My name is Ann, I live in Lisbon with my dog Rex, and I work as a carpenter."
WAIT_S = 1200.0


class ObservedAgent(ScriptedProvider):
    """A scripted agent whose conversation the real model observes."""

    async def stream(self, request: Request) -> AsyncGenerator[Delta]:
        if request.model != QWEN.name:
            async for delta in super().stream(request):
                yield delta
            return
        async for delta in LocalProvider().stream(
            replace(request, temperature=0.0, max_tokens=request.max_tokens or 40)
        ):
            yield delta


async def _call_a_tool() -> list[list[Delta]]:
    """Return the call, the answer that uses its result, and the answer to a greeting."""
    provider = LocalProvider()
    called = await deltas_of(provider, Request(QWEN.name, (QUESTION,), tools=(WEATHER,)))
    call = call_of(called)
    result = ToolCall(call.id, call.name, output={"temp_c": 31, "sky": "clear"})
    history = (QUESTION, Message("assistant", tool_calls=(call,)), Message("tool", tool_calls=(result,)))
    answered = await deltas_of(provider, Request(QWEN.name, history, tools=(WEATHER,), max_tokens=40))
    greeting = Request(QWEN.name, (Message("user", "Hello!"),), tools=(WEATHER,), max_tokens=4)
    return [called, answered, await deltas_of(provider, greeting)]


async def _observe(folder: str) -> dict[str, Any]:
    """Return the notes on a conversation, and what the agent was sent before and after."""
    settings = Settings.model_validate(
        {
            "agent": {"model": "openai/scripted"},
            "store": {"url": f"sqlite:///{folder}/lango.db"},
            "memory": {
                "enabled": True,
                "model": f"local/{QWEN.name}",  # a model of 135 million parameters cannot take notes
                "observe_at_tokens": 10,
                "keep_turns": 0,
                "close_wait_s": 0,
            },
        }
    )
    agent = ObservedAgent(["Nice to meet you.", "Ann."])
    async with open_runtime(settings, provider=agent) as runtime:
        await runtime.run("s", STORY)
        await runtime.memory.settle()
        batches = (await runtime.memory.show("s")).batches
        await runtime.run("s", "What is my name?")
    asked = agent.requests
    return {"batches": batches, "before": spoken(asked[0]), "after": spoken(asked[-1]), "quoted": quoted(asked[-1])}


def _use_qwen(pipe: Connection, folder: str) -> None:
    def one_day(_: float) -> datetime:
        return datetime(2026, 11, 15, 9, 30, tzinfo=UTC)

    async def both() -> None:
        pipe.send(await _call_a_tool())
        pipe.send(await _observe(folder))

    # at temperature 0, the same text has the same answer
    pytest.MonkeyPatch().setattr(transcript, "as_datetime", one_day)
    asyncio.run(both())


@pytest.mark.long
def test_m9_qwen_calls_a_tool_uses_its_result_and_observes_a_conversation(tmp_path: Path) -> None:
    try:
        pull(QWEN)
    except ConfigError as error:
        pytest.skip(f"Qwen's weights cannot be downloaded here: {error}")
    worker = Worker(_use_qwen, str(tmp_path))
    try:
        called, answered, greeted = worker.recv(WAIT_S)
        seen = worker.recv(WAIT_S)
    finally:
        worker.kill()
    call = call_of(called)
    assert (call.name, call.input) == ("get_weather", {"city": "Cairo"})
    assert isinstance(called[-1], Finish)
    assert called[-1].reason == "tool_calls"
    assert "31" in text_of(answered)
    assert not [delta for delta in answered if isinstance(delta, CallDelta)]
    cached = usage_of(answered).cached_tokens
    assert cached
    assert cached > 100, "the tools and the question were not read again"
    assert text_of(greeted)

    notes = [note for batch in seen["batches"] for note in batch.observations]
    text = " ".join(note.text for note in notes).lower()
    assert any(word in text for word in ("ann", "lisbon", "rex", "carpenter")), text
    assert not any(len(note.text) > 20 and note.text in OBSERVE_PROMPT for note in notes), "not its instructions"
    for batch in seen["batches"]:
        assert batch.model.endswith(f"/{QWEN.name}")
        assert batch.input_tokens > 100
        assert batch.output_tokens > 0
        assert all(batch.first_seq <= note.first_seq <= note.last_seq <= batch.last_seq for note in batch.observations)
    assert STORY in seen["before"]
    assert STORY not in seen["after"], "what was observed is not sent again"
    assert all(note.text in seen["quoted"] for note in notes), "its notes are"
