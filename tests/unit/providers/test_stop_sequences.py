"""Stop sequences where the vendor's API has none: the same, however the stream was cut into chunks."""

from collections.abc import AsyncGenerator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lango.messages import Message
from lango.providers import CallDelta, Delta, Finish, Request, TextDelta, UsageDelta
from lango.providers.openai import stop_at_sequences
from lango.testing import ScriptedProvider

REQUEST = Request("m", (Message("user", "hi"),))


async def stopped(deltas: list[Delta], *stops: str) -> list[Delta]:
    stream = ScriptedProvider([deltas]).stream(REQUEST)
    return [delta async for delta in stop_at_sequences(stream, stops)]


@given(st.text("ab<E", max_size=30), st.lists(st.sampled_from(["<E", "<E<E", "aab", "b<"]), min_size=1), st.data())
async def test_any_way_of_cutting_the_text_gives_the_same(text: str, stops: list[str], data: st.DataObject) -> None:
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=6)))
    pieces = [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    deltas = await stopped([*(TextDelta(piece) for piece in pieces), UsageDelta(1, 2), Finish("stop")], *stops)
    end = min((at for stop in stops if (at := text.find(stop)) >= 0), default=None)
    assert "".join(delta.text for delta in deltas if isinstance(delta, TextDelta)) == text[:end]
    named = {stop for stop in stops if end is not None and text.startswith(stop, end)}
    ends = [Finish("stop", "stop_sequence", stop_sequence=stop) for stop in named]
    assert deltas[-1] in (ends or [Finish("stop")])


async def test_held_back_text_precedes_a_call() -> None:
    call = CallDelta(0, "c", "f", "{}")
    assert await stopped([TextDelta("see <"), call, Finish("tool_calls")], "<END>") == [
        *(TextDelta("see "), TextDelta("<"), call, Finish("tool_calls"))
    ]


async def test_the_stream_is_closed_at_the_stop() -> None:
    closed: list[bool] = []

    async def stream() -> AsyncGenerator[Delta, None]:
        try:
            yield TextDelta("one END two")
            pytest.fail("read on after the stop")
        finally:
            closed.append(True)

    assert [delta async for delta in stop_at_sequences(stream(), ["END"])] == [
        TextDelta("one "),
        Finish("stop", "stop_sequence", stop_sequence="END"),
    ]
    assert closed == [True]
