"""The scripted provider that users' own tests import."""

import asyncio

import pytest

from lango.errors import ProviderUnavailable
from lango.messages import Message, Signature, ToolCall
from lango.providers import CallDelta, Delta, Finish, Request, TextDelta, UsageDelta
from lango.testing import Answer, ScriptedProvider, ScriptEnded

REQUEST = Request("m", (Message("user", "hi"),))


async def collect(provider: ScriptedProvider, request: Request = REQUEST) -> list[Delta]:
    return [delta async for delta in provider.stream(request)]


async def test_one_entry_per_model_call_in_order() -> None:
    provider = ScriptedProvider(["hello", ToolCall("c1", "exec", {"cmd": "ls"}), RuntimeError("boom")])
    first = await collect(provider)
    assert [delta for delta in first if isinstance(delta, TextDelta)] == [
        *(TextDelta("he"), TextDelta("ll"), TextDelta("o"))
    ]
    assert first[-1] == Finish("stop")
    second = await collect(provider)
    assert second[0] == CallDelta(0, "c1", "exec")
    assert "".join(delta.arguments for delta in second if isinstance(delta, CallDelta)) == '{"cmd": "ls"}'
    assert second[-1] == Finish("tool_calls")
    with pytest.raises(RuntimeError, match="boom"):
        await collect(provider)


async def test_requests_are_kept() -> None:
    provider = ScriptedProvider(["a", "b"])
    other = Request("m2", ())
    await collect(provider)
    await collect(provider, other)
    assert provider.requests == [REQUEST, other]


async def test_a_list_is_one_answer_with_parallel_calls() -> None:
    mark = Signature("scripted", "m", b"s")
    calls = [ToolCall("c1", "a", {}), ToolCall("c2", "b", {}, signature=mark)]
    deltas = await collect(ScriptedProvider([["I look.", *calls]]))
    assert {delta.index for delta in deltas if isinstance(delta, CallDelta)} == {0, 1}
    assert [delta.id for delta in deltas if isinstance(delta, CallDelta) and delta.id] == ["c1", "c2"]
    assert mark in [delta.signature for delta in deltas if isinstance(delta, CallDelta)]


async def test_deltas_are_streamed_as_they_are() -> None:
    broken = [TextDelta("half"), UsageDelta(1, 2)]
    whole = (TextDelta("x"), Finish("length", "max"))
    provider = ScriptedProvider([broken, whole, TextDelta("alone")])
    assert await collect(provider) == broken
    assert await collect(provider) == list(whole)
    assert await collect(provider) == [TextDelta("alone"), Finish("stop")]


async def test_mixed_deltas_keep_their_finish() -> None:
    deltas = await collect(ScriptedProvider([["cut", CallDelta(2, "c", "f"), ToolCall("d", "g"), Finish("length")]]))
    assert deltas[-1] == Finish("length")
    assert [delta.index for delta in deltas if isinstance(delta, CallDelta) and delta.id] == [2, 3]


async def test_a_function_answers_the_request() -> None:
    async def later(request: Request) -> Answer:
        await asyncio.sleep(0)
        return ProviderUnavailable(request.model)

    provider = ScriptedProvider([lambda request: request.messages[0].content, later])
    assert (await collect(provider))[0] == TextDelta("h")
    with pytest.raises(ProviderUnavailable, match="m"):
        await collect(provider)


async def test_a_finished_script_raises() -> None:
    provider = ScriptedProvider(["only one"], name="mine")
    await collect(provider)
    with pytest.raises(ScriptEnded, match="'mine' has 1 entries, and the model was called 2 times"):
        await collect(provider)


async def test_chunks_can_be_slowed_down(monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float] = []

    async def sleep(seconds: float) -> None:
        waits.append(seconds)

    monkeypatch.setattr(asyncio, "sleep", sleep)
    await collect(ScriptedProvider(["abc"], chunk_delay_s=5.0))
    assert waits == [5.0] * 4


def test_the_provider_has_a_name() -> None:
    assert ScriptedProvider([]).name == "scripted"
