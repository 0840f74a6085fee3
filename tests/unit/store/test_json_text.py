"""JSON text of any value."""

import math
from collections import OrderedDict
from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal
from enum import IntEnum, StrEnum
from typing import Any, NamedTuple
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lango.errors import Unstorable
from lango.json_values import storable_text
from lango.store.codec.json_text import dumps, loads
from tests.support.json_strategies import text

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | text | st.binary(max_size=9),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(text | st.sampled_from(["$lango:bytes", "$lango:key:x", "$lango:float"]), inner, max_size=4)
    ),
)


@given(values)
def test_loads_inverts_dumps(value: Any) -> None:
    stored = dumps(value)
    assert "\0" not in stored.encode().decode()
    assert loads(stored) == value


def test_nan_is_decoded_as_nan() -> None:
    assert math.isnan(loads(dumps({"x": float("nan")}))["x"])


def test_printable_text_is_unchanged() -> None:
    assert storable_text("plain, é漢😀") == "plain, é漢😀"
    assert storable_text("a\0b\ud800c\udfff") == "a\ufffdb\ufffdc\ufffd"
    assert len(storable_text("\0\ud800")) == 2, "offsets into the text stay true"


def test_rich_values_take_their_json_form() -> None:
    at = datetime(2026, 1, 2, tzinfo=UTC)
    assert loads(dumps({"at": at, "pair": (1, 2), 3: {4}})) == {"at": "2026-01-02T00:00:00Z", "pair": [1, 2], "3": [4]}
    assert loads(dumps({at: 1})) == {"2026-01-02T00:00:00Z": 1}


class Colour(StrEnum):
    RED = "red"


class Size(IntEnum):
    LARGE = 3


class Point(NamedTuple):
    x: float
    y: float


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (Colour.RED, '"red"'),
        (Size.LARGE, "3"),
        (Point(1.0, 2.5), "[1.0,2.5]"),
        (OrderedDict({"b": 1, "a": 2}), '{"b":1,"a":2}'),
        (UUID(int=7), '"00000000-0000-0000-0000-000000000007"'),
        (Decimal("1.50"), '"1.50"'),
        (2**70, "1180591620717411303424"),
        ({1: None, False: "é"}, '{"1":null,"false":"é"}'),
        ([None, math.inf], '[null,{"$lango:float":"inf"}]'),
        ([b"null"], '[{"$lango:bytes":"bnVsbA=="}]'),
    ],
)
def test_equal_values_have_equal_texts(value: Any, expected: str) -> None:
    """The fast encoder must write the same text as the exact one."""
    assert dumps(value) == expected


@pytest.mark.parametrize("value", [print, {"f": print}, object(), {object(): 1}])
def test_values_without_json_form_are_refused(value: Any) -> None:
    with pytest.raises(Unstorable):
        dumps(value)


def test_a_structure_that_contains_itself_is_refused() -> None:
    loop: list[Any] = []
    loop.append(loop)
    with pytest.raises(Unstorable, match="contains itself"):
        dumps(loop)


def _in_list(value: Any) -> Any:
    return [value]


def _in_object(value: Any) -> Any:
    return {"[": value}


@pytest.mark.parametrize("wrap", [_in_list, _in_object])
def test_too_deeply_nested_values_are_refused(wrap: Callable[[Any], Any]) -> None:
    value: Any = 1
    for _ in range(254):
        value = wrap(value)
    assert dumps([1] * 300 + [[]] * 300), "many are not deep"
    dumps(value)
    for further in (1, 300, 400):  # all could be encoded here; the last could not be decoded a few calls deeper
        for _ in range(further):
            value = wrap(value)
        with pytest.raises(Unstorable, match="254 levels deep"):
            dumps(value)


def test_too_long_numbers_are_refused() -> None:
    assert loads(dumps(10**4000)) == 10**4000
    with pytest.raises(Unstorable, match="digits"):
        dumps({"n": 10**5000})
