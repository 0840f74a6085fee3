"""Qwen, the local model that calls tools: no answer of it is scripted here.

It runs in a process of its own, which gives its gigabytes back. How well it observes conversations is measured by the
benchmark of memory: the prompt alone takes it more than a minute.
"""

import asyncio
from multiprocessing.connection import Connection

import pytest

from lango.errors import ConfigError
from lango.messages import Message, ToolCall
from lango.providers.local import QWEN, LocalProvider, pull
from lango.providers.protocol import CallDelta, Delta, Finish, Request, ToolSpec
from tests.support.deltas import call_of, deltas_of, text_of, usage_of
from tests.support.store_workers import Worker

CITY = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
WEATHER = ToolSpec("get_weather", "Current weather of a city", CITY)
QUESTION = Message("user", "What is the weather in Cairo?")
WAIT_S = 1200.0


async def _call_a_tool() -> list[list[Delta]]:
    """Return the call, and the answer that uses its result."""
    provider = LocalProvider()
    called = await deltas_of(provider, Request(QWEN.name, (QUESTION,), tools=(WEATHER,)))
    call = call_of(called)
    result = ToolCall(call.id, call.name, output={"temp_c": 31})
    history = (QUESTION, Message("assistant", tool_calls=(call,)), Message("tool", tool_calls=(result,)))
    answered = await deltas_of(provider, Request(QWEN.name, history, tools=(WEATHER,), max_tokens=14))
    return [called, answered]


def _use_qwen(pipe: Connection) -> None:
    pipe.send(asyncio.run(_call_a_tool()))


@pytest.mark.long
def test_m9_qwen_calls_a_tool_and_uses_its_result() -> None:
    try:
        pull(QWEN)
    except ConfigError as error:
        pytest.skip(f"Qwen's weights cannot be downloaded here: {error}")
    worker = Worker(_use_qwen)
    try:
        called, answered = worker.recv(WAIT_S)
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
