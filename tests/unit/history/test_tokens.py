"""Token counts: a real tokenizer that never raises, reads a bounded part of any text, and costs microseconds."""

import asyncio
import threading
from collections.abc import Iterator
from types import MappingProxyType, SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from splintr import Tokenizer

from lango.history import TokenCounter, count_tokens, load_tokenizer, tokens
from lango.history.tokens import (
    CALL_TOKENS,
    IMAGE_TOKENS,
    MAX_COUNTED_CHARACTERS,
    MEDIA_TOKENS,
    MESSAGE_TOKENS,
    Calibration,
    compact_json,
)
from lango.messages import MAX_TEXT_CHARACTERS, Media, Message, Thought, ToolCall


def test_h1_counts_o200k_tokens_not_characters() -> None:
    assert count_tokens("Hello, world!") == 4
    assert count_tokens("") == 0
    assert count_tokens("这是一个测试") > 2  # characters / 4 would be 1


def test_special_tokens_in_a_text_are_ordinary_text() -> None:
    # counted as special tokens, a long text would pass as a short one
    assert count_tokens("<|endoftext|>" * 100) >= 500


@given(st.text(alphabet=st.characters(codec=None, exclude_categories=())))
def test_any_text_counts_without_raising(text: str) -> None:
    assert 0 <= count_tokens(text) <= len(text) * 4 + 4


@pytest.mark.parametrize("text", ["a\ud800b", "\udc00\ud83d", "a\0b", "<|\ud800|>"])
def test_lone_surrogates_and_nul_count(text: str) -> None:
    assert count_tokens(text) > 0
    assert count_tokens(Message("tool", tool_calls=(ToolCall("c", "t", output={"x": text}),))) > 0


def test_a_message_costs_all_its_parts() -> None:
    bare = count_tokens(Message("user", "hello"))
    assert bare == MESSAGE_TOKENS + 1
    assert count_tokens(Message("assistant", "hello", thoughts=(Thought("hello"),))) == bare + 1
    call = ToolCall("c1", "exec", {"cmd": "ls"})
    expected = MESSAGE_TOKENS + CALL_TOKENS + count_tokens("exec") + count_tokens('{"cmd":"ls"}')
    assert count_tokens(Message("assistant", tool_calls=(call,))) == expected


def test_a_tool_messages_text_repeats_its_outputs_and_is_counted_once() -> None:
    output = {"result": "word " * 100}
    result = (ToolCall("c1", "exec", output=output),)
    assert count_tokens(Message("tool", compact_json(output), result)) == count_tokens(Message("tool", "", result))
    assert count_tokens(Message("tool", "word " * 100)) > 90  # a legacy tool message has only its text


def test_several_messages_cost_their_sum() -> None:
    def some() -> Iterator[Message]:
        yield Message("user", "one")
        yield Message("assistant", "two")

    assert count_tokens(some()) == count_tokens(list(some())) == 2 * (MESSAGE_TOKENS + 1)


@pytest.mark.parametrize(
    ("media", "tokens"),
    [
        (Media("image/png", b"x" * 5_000_000), IMAGE_TOKENS),
        (Media("image/png", uri="https://example.com/a.png"), IMAGE_TOKENS),
        (Media("application/pdf", uri="gs://bucket/a.pdf"), MEDIA_TOKENS),
        (Media("application/pdf", b"x" * 400_000), 10_000),
        (Media("audio/mp3", b"x" * 500_000), 1_000),
        (Media("video/mp4", b"x"), MEDIA_TOKENS),
        (Media("text/plain", b"hello \xff", name="a.txt"), count_tokens("[a.txt]\nhello \ufffd")),
        (Media("application/json", b'{"a": 1}', name="a.json"), count_tokens('[a.json]\n{"a": 1}')),
    ],
)
def test_media_cost_an_estimate(media: Media, tokens: int) -> None:
    assert count_tokens(Message("user", media=(media,))) == MESSAGE_TOKENS + tokens


def test_values_that_are_not_json_are_counted_too() -> None:
    cycle: dict[str, Any] = {}
    cycle["self"] = cycle
    keyed: dict[Any, Any] = {("a", 1): 2}
    for odd in ({"when": object()}, {"deep": MappingProxyType({"a": 1})}, cycle, keyed, {"n": float("nan")}):
        assert count_tokens(Message("tool", tool_calls=(ToolCall("c", "t", output=odd),))) > CALL_TOKENS
    assert compact_json(MappingProxyType({"a": "é"})) == '{"a":"é"}'


def test_values_that_cannot_be_written_at_all_count_as_nothing() -> None:
    deep: dict[str, Any] = {}
    for _ in range(200_000):  # deeper than any Python recurses: 3.11 gives up after 1,000 levels, 3.13 after 10,000
        deep = {"a": deep}
    bare = count_tokens(Message("assistant", tool_calls=(ToolCall("c", "f", {}),)))
    assert count_tokens(Message("assistant", tool_calls=(ToolCall("c", "f", deep),))) == bare
    assert count_tokens(Message("assistant", tool_calls=(ToolCall("c", "f", {"n": 10**5000}),))) == bare


@pytest.mark.parametrize("unit", ["a", " ", "7", "\n", "A", "é", "😀", " a", "QUJD", "\0"])
def test_the_tokenizer_reads_a_bounded_part_of_a_text(unit: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is linear in the length of a text, whatever the text: `benchmarks.tokens` measures it."""
    read: list[int] = []

    def counted(text: str) -> int:
        read.append(len(text))
        return real(text)

    real = tokens._counted_tokens  # pyright: ignore[reportPrivateUsage]
    monkeypatch.setattr(tokens, "_counted_tokens", counted)
    for size in (10_000, 100_000, 200_000, 1_000_000):
        read.clear()
        count = count_tokens(unit * (size // len(unit)))
        assert 0 < sum(read) <= min(size, MAX_COUNTED_CHARACTERS)
        assert count >= size // len(unit) // 128, "a token has a bounded length"


async def test_the_tokenizer_is_loaded_once_and_not_by_the_thread_of_the_event_loop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    loading: list[int] = []
    real = Tokenizer.from_pretrained

    def load(name: str) -> Any:
        loading.append(threading.get_ident())
        return real(name)

    monkeypatch.setattr("splintr.Tokenizer", SimpleNamespace(from_pretrained=load))
    monkeypatch.setattr(tokens, "_loaded", None)
    await asyncio.gather(*(load_tokenizer() for _ in range(3)))
    await load_tokenizer()
    assert count_tokens("hello, world") == 3
    assert len(loading) == 1
    assert threading.get_ident() not in loading


def test_calibration_follows_the_reports_within_bounds() -> None:
    counter = TokenCounter()
    assert counter.factor("m") == 1.0
    counter.learn("m", 1_000, 1_250)
    assert counter.factor("m") == 1.25
    assert counter.factor("other") == 1.0
    assert counter.budget(1_000, "m") == 800
    for _ in range(50):
        counter.learn("m", 1_000, 1_000_000)
    assert counter.factor("m") == pytest.approx(2.0, abs=0.01)


def test_a_report_of_few_tokens_changes_nothing() -> None:
    learned = Calibration().learn(1_000, 900)
    assert learned.learn(10, 400) == learned  # mostly the vendor's own overhead
    assert learned.learn(1_000, 0) == learned


@given(st.lists(st.tuples(st.integers(0, 10**7), st.integers(-10, 10**7))))
def test_a_factor_never_leaves_its_bounds(reports: list[tuple[int, int]]) -> None:
    calibration = Calibration()
    for counted, reported in reports:
        calibration = calibration.learn(counted, reported)
        assert 0.5 <= calibration.factor <= 2.0


def test_a_long_text_file_costs_the_part_that_a_model_is_sent() -> None:
    media = Media("text/csv", b"1,2,3\n" * 1_000_000, name="long.csv")
    text = media.text
    assert text
    assert text.startswith("[long.csv]\n1,2,3\n")
    assert text.endswith("1,2,3\n")
    assert "5940000 of 6000000 characters left out" in text
    assert len(text) < MAX_TEXT_CHARACTERS + 100
    assert count_tokens(Message("user", media=(media,))) == MESSAGE_TOKENS + count_tokens(text)
