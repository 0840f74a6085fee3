"""Timeouts, retries and fallbacks, and what the reader sees of them. No test really waits."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

import pytest

from lango.errors import (
    LangoError,
    ProviderAuthError,
    ProviderProtocolError,
    ProviderRejected,
    ProviderTimeout,
    ProviderUnavailable,
)
from lango.messages import Media, Message, Signature, Thought, ToolCall
from lango.providers import (
    Delta,
    Fallback,
    Finish,
    Request,
    ResilientProvider,
    Retries,
    TextDelta,
    ThoughtDelta,
    Timeouts,
    UsageDelta,
)
from lango.testing import ScriptedProvider

REQUEST = Request("m1", (Message("user", "hi"),))
BUSY = ProviderUnavailable("busy", status=429)


class Time:
    """A clock that moves only during a sleep."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.slept: list[float] = []

    def __call__(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds


def resilient(provider: Any, time: Time, **settings: Any) -> ResilientProvider:
    return ResilientProvider(provider, sleep=time.sleep, clock=time, jitter=lambda: 1.0, **settings)


async def collect(provider: Any, request: Request = REQUEST) -> list[Delta]:
    return [delta async for delta in provider.stream(request)]


def text(deltas: list[Delta]) -> str:
    return "".join(delta.text for delta in deltas if isinstance(delta, TextDelta))


async def test_m9_an_answer_is_passed_on_unchanged() -> None:
    script = ScriptedProvider(["hello"])
    assert text(await collect(ResilientProvider(script))) == "hello"
    assert ResilientProvider(script).name == "scripted"


async def test_m9_retries_back_off_before_the_first_token() -> None:
    time, script = Time(), ScriptedProvider([BUSY, ProviderTimeout("slow"), ProviderProtocolError("cut"), "hello"])
    assert text(await collect(resilient(script, time))) == "hello"
    assert time.slept == [0.5, 1.0, 2.0]
    assert len(script.requests) == 4


async def test_m9_retries_end() -> None:
    time, script = Time(), ScriptedProvider([BUSY] * 9)
    with pytest.raises(ProviderUnavailable):
        await collect(resilient(script, time, retries=Retries(attempts=3)))
    assert len(script.requests) == 3


async def test_m9_retry_after_is_honoured() -> None:
    time, script = Time(), ScriptedProvider([ProviderUnavailable("busy", retry_after_s=17.0), "hello"])
    assert text(await collect(resilient(script, time))) == "hello"
    assert time.slept == [17.0]


async def test_m9_a_retry_after_beyond_the_cap_is_not_waited_for() -> None:
    time, script = (
        Time(),
        ScriptedProvider([ProviderUnavailable("come back tomorrow", retry_after_s=86_400.0), "hello"]),
    )
    with pytest.raises(ProviderUnavailable):
        await collect(resilient(script, time))
    assert time.slept == []


def test_m9_jitter_spreads_the_waits_and_the_cap_holds_them() -> None:
    retries = Retries(attempts=100)
    assert retries.delay_s(1, None, 0.0) == 0.25
    assert retries.delay_s(1, None, 1.0) == 0.5
    assert retries.delay_s(90, None, 1.0) == retries.cap_s
    assert retries.delay_s(100, None, 1.0) is None


@pytest.mark.parametrize("first", [TextDelta("half an "), ThoughtDelta("hm")])
async def test_m9_no_retry_after_the_first_visible_token(first: Delta) -> None:
    async def breaks(_: Request) -> AsyncGenerator[Delta, None]:
        yield first
        raise BUSY

    script = ScriptedProvider(["another answer"])
    time, provider = Time(), _Streams(breaks)
    stream = resilient(provider, time, fallbacks=[Fallback(script, "m2")]).stream(REQUEST)
    assert await anext(stream) == first
    with pytest.raises(ProviderUnavailable):
        await anext(stream)
    assert time.slept == []
    assert script.requests == []


async def test_m9_usage_alone_is_not_visible() -> None:
    async def breaks(_: Request) -> AsyncGenerator[Delta, None]:
        yield UsageDelta(input_tokens=3)
        raise BUSY

    seen = await collect(resilient(_Streams(breaks), Time(), fallbacks=[Fallback(ScriptedProvider(["ok"]), "m2")]))
    assert text(seen) == "ok"


@pytest.mark.parametrize("error", [ProviderAuthError("no"), ProviderRejected("no", status=400), RuntimeError("ours")])
async def test_m9_permanent_errors_are_not_retried(error: Exception) -> None:
    time, script, other = Time(), ScriptedProvider([error, "hello"]), ScriptedProvider(["hello"])
    with pytest.raises(type(error)):
        await collect(resilient(script, time, fallbacks=[Fallback(other, "m2")]))
    assert (time.slept, other.requests) == ([], [])


async def test_m9_the_fallback_answers_with_its_own_model() -> None:
    time, first, second = Time(), ScriptedProvider([BUSY] * 4), ScriptedProvider(["from the second"], name="other")
    assert text(await collect(resilient(first, time, fallbacks=[Fallback(second, "m2")]))) == "from the second"
    assert [request.model for request in first.requests] == ["m1"] * 4
    assert [request.model for request in second.requests] == ["m2"]


async def test_m9_when_every_fallback_fails_the_last_error_is_raised() -> None:
    script = ScriptedProvider([ProviderUnavailable("the last one")] * 4)
    with pytest.raises(ProviderUnavailable, match="the last one"):
        await collect(resilient(ScriptedProvider([BUSY] * 4), Time(), fallbacks=[Fallback(script, "m2")]))


async def test_m9_a_refused_signature_is_left_out() -> None:
    mark = Signature("anthropic", "m1", b"x")
    answer = Message("assistant", "hm", thoughts=(Thought("so", mark),), signature=mark)
    refused = ProviderRejected("messages.1: Invalid `signature` in `thinking` block", status=400)
    script = ScriptedProvider([refused, "hello"])
    request = Request("m1", (Message("user", "a"), answer, Message("user", "b")))
    assert text(await collect(resilient(script, Time()), request)) == "hello"
    assert script.requests[0].messages[1].signature == mark
    assert script.requests[1].messages[1].signature is None
    assert script.requests[1].messages[1].thoughts[0].signature is None


@pytest.mark.parametrize(
    "refused",
    [
        ProviderRejected("unknown variant `image_url`, expected `text`", status=400),
        ProviderRejected("No endpoints found that support image input", status=404),
        ProviderUnavailable("image input is not supported - hint: you may need to provide the mmproj", status=500),
    ],
)
async def test_m8_a_model_that_accepts_no_images_gets_notes(refused: Exception) -> None:
    script = ScriptedProvider([refused, "I cannot see it"])
    picture = Message("user", "What is this?", media=(Media("image/png", b"png", name="cat.png"),))
    drawn = (
        Message("assistant", tool_calls=(ToolCall("c1", "draw", {}),)),
        Message("tool", tool_calls=(ToolCall("c1", "draw", output={"ok": 1}),), media=(Media("image/png", b"png"),)),
    )
    request = Request("m1", (picture, *drawn))
    assert text(await collect(resilient(script, Time()), request)) == "I cannot see it"
    assert script.requests[0].messages == request.messages
    sent = script.requests[1].messages
    assert sent[0].content == "What is this?\n[cat.png: a file of type image/png that this model cannot read]"
    assert "cannot read" in (sent[2].tool_calls[0].output or {})["files"]
    assert not any(message.media for message in sent)


async def test_m8_images_are_kept_after_another_rejection() -> None:
    script = ScriptedProvider([ProviderRejected("temperature is too high", status=400)])
    picture = Message("user", "What is this?", media=(Media("image/png", b"png"),))
    with pytest.raises(ProviderRejected):
        await collect(resilient(script, Time()), Request("m1", (picture,)))
    assert len(script.requests) == 1


async def test_a_stream_without_a_finish_is_an_error_not_an_answer() -> None:
    script = ScriptedProvider([[TextDelta("half")]])
    with pytest.raises(ProviderProtocolError, match="without a finish"):
        await collect(resilient(script, Time()))


async def test_nothing_follows_the_finish() -> None:
    script = ScriptedProvider([[TextDelta("a"), Finish("stop"), TextDelta("b")]])
    assert await collect(resilient(script, Time())) == [TextDelta("a"), Finish("stop")]


class _Streams:
    """A provider of one stream, which records whether it was closed."""

    name = "streams"

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self.closed = 0

    async def stream(self, request: Request) -> AsyncGenerator[Delta, None]:
        try:
            async with aclosing(self._stream(request)) as deltas:
                async for delta in deltas:
                    yield delta
        finally:
            self.closed += 1


async def _stops(_: Request) -> AsyncGenerator[Delta, None]:
    yield TextDelta("and then ")
    await asyncio.Event().wait()


async def _never_begins(_: Request) -> AsyncGenerator[Delta, None]:
    await asyncio.Event().wait()
    yield Finish("stop")


async def _trickles(_: Request) -> AsyncGenerator[Delta, None]:
    while True:
        yield TextDelta(".")


async def test_a_provider_that_stops_is_given_up_between_chunks() -> None:
    provider = _Streams(_stops)
    with pytest.raises(ProviderTimeout, match="no data"):
        await collect(ResilientProvider(provider, timeouts=Timeouts(idle_s=0.01)))
    assert provider.closed == 1


async def test_a_provider_that_never_starts_is_retried() -> None:
    provider, script = _Streams(_never_begins), ScriptedProvider(["hello"])
    again = ResilientProvider(
        provider,
        timeouts=Timeouts(idle_s=0.5),  # those who answer must do so in time, too
        retries=Retries(attempts=2, base_s=0),
        fallbacks=[Fallback(script, "m2")],
    )
    assert text(await collect(again)) == "hello"
    assert provider.closed == 2


async def test_a_trickling_provider_is_given_up_after_the_total_time() -> None:
    time, provider = Time(), _Streams(_trickles)
    stream = resilient(provider, time, timeouts=Timeouts(total_s=60)).stream(REQUEST)
    for _ in range(60):
        await anext(stream)
        time.now += 1
    with pytest.raises(ProviderTimeout, match="not finished after 60 s"):
        await anext(stream)
    assert provider.closed == 1


async def test_waits_do_not_exceed_the_total_time() -> None:
    time, script = Time(), ScriptedProvider([ProviderUnavailable("busy", retry_after_s=40.0)] * 9)
    with pytest.raises(ProviderUnavailable):
        await collect(resilient(script, time, timeouts=Timeouts(total_s=60)))
    assert time.slept == [40.0]


async def test_closing_the_stream_closes_the_provider() -> None:
    provider = _Streams(_stops)
    stream = ResilientProvider(provider).stream(REQUEST)
    assert await anext(stream) == TextDelta("and then ")
    await stream.aclose()
    assert provider.closed == 1


async def test_cancelling_the_reader_closes_the_provider() -> None:
    provider = _Streams(_stops)
    task = asyncio.create_task(collect(ResilientProvider(provider)))
    for _ in range(5):
        await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert provider.closed == 1


async def test_closing_the_provider_closes_the_wrapped_ones() -> None:
    closed: list[str] = []

    class Closes(ScriptedProvider):
        async def aclose(self) -> None:
            closed.append(self.name)

    inner, other = Closes([], name="a"), Closes([], name="b")
    await ResilientProvider(inner, fallbacks=[Fallback(other, "m"), Fallback(ScriptedProvider([]), "m")]).aclose()
    assert closed == ["a", "b"]


def test_every_failure_of_a_provider_is_translated() -> None:
    assert issubclass(ProviderTimeout, LangoError)
