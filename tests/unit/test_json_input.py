"""Attack 16: untrusted JSON is read in bounded time, with the same result as any other parser."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lango.json_values import MAX_VALUES, TooManyValues, ValueCounter, is_larger_than, read_json
from tests.support.counted_work import counted_calls

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**60), 2**60) | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=30,
)


def values_of(value: Any) -> int:
    """Count as the counter does: an object or a list is one, and so is each member after the first."""
    if isinstance(value, dict):
        return 1 + max(0, len(value) - 1) + sum(map(values_of, value.values()))  # pyright: ignore
    if isinstance(value, list):
        return 1 + max(0, len(value) - 1) + sum(map(values_of, value))  # pyright: ignore
    return 0


def fits(pieces: list[bytes], most: int) -> bool:
    counter = ValueCounter(most)
    try:
        for piece in pieces:
            counter.feed(piece)
    except TooManyValues:
        return False
    return True


@given(VALUES, st.booleans(), st.integers(1, 7))
def test_values_are_counted_in_any_pieces_and_never_in_strings(value: Any, ascii_only: bool, size: int) -> None:
    data = json.dumps(value, ensure_ascii=ascii_only).encode("utf-8", "surrogatepass")
    count = values_of(value)
    pieces = [data[at : at + size] for at in range(0, len(data), size)]
    assert fits(pieces, count)
    assert not count or not fits(pieces, count - 1)


@given(VALUES)
def test_a_text_is_read_as_it_was_written(value: Any) -> None:
    assert read_json(json.dumps(value)) == value


@pytest.mark.parametrize(
    "text", ["[" + "[]," * MAX_VALUES + "1]", "[" + "1," * MAX_VALUES + "1]", "1" * 1_001, "[" * 200_000]
)
def test_attack_16_json_that_takes_too_long_to_read_is_refused(text: str) -> None:
    with pytest.raises((ValueError, RecursionError)):
        read_json(text)


@pytest.mark.parametrize("text", ["NaN", '{"a": Infinity}', "", "{", "[1,]", "'a'"])
def test_invalid_json_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        read_json(text)


def test_a_lone_surrogate_is_kept() -> None:
    assert read_json(r'"\ud83d\ude00 \ud83d and \ude00"') == "\U0001f600 \ud83d and \ude00"


@pytest.mark.parametrize(
    ("value", "size"),
    [
        ("a" * 90, 100),
        ({"a": "b" * 1_000}, 1_100),
        ({"b" * 1_000: 1}, 1_100),
        ([[1, 2], [3]], 150),
        (None, 10),
        (7, 10),
    ],
)
def test_whether_a_value_is_large_is_known_from_its_characters_and_values(value: Any, size: int) -> None:
    assert not is_larger_than(value, size)
    assert is_larger_than(value, size // 3)
    assert is_larger_than([value] * 100, 10 * size)


def test_attack_16_no_more_of_a_value_is_looked_at_than_is_asked_for() -> None:
    def steps(count: int) -> int:
        return counted_calls(is_larger_than, [{"a": [1, 2]} for _ in range(count)], 10_000)

    assert steps(100_000) <= steps(1_000) < 10_000
    deep: Any = 1
    for _ in range(100_000):
        deep = [deep]
    assert is_larger_than(deep, 10_000)
