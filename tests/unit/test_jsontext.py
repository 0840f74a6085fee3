"""The one rule for text and values."""

import math
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lango.errors import Unstorable
from lango.store.jsontext import dumps, loads, readable
from tests.strategies import text

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | text | st.binary(max_size=9),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(text | st.sampled_from(["$lango:bytes", "$lango:key:x", "$lango:float"]), inner, max_size=4)
    ),
)


@given(values)
def test_what_is_dumped_is_loaded_again(value: Any) -> None:
    stored = dumps(value)
    assert "\0" not in stored.encode().decode()
    assert loads(stored) == value


def test_not_a_number_stays_one() -> None:
    assert math.isnan(loads(dumps({"x": float("nan")}))["x"])


def test_text_that_any_column_can_show_is_left_alone() -> None:
    assert readable("plain, é漢😀") == "plain, é漢😀"
    assert readable("a\0b\ud800c\udfff") == "a\ufffdb\ufffdc\ufffd"
    assert len(readable("\0\ud800")) == 2, "offsets into the text stay true"


def test_rich_values_take_their_json_form() -> None:
    at = datetime(2026, 1, 2, tzinfo=UTC)
    assert loads(dumps({"at": at, "pair": (1, 2), 3: {4}})) == {"at": "2026-01-02T00:00:00Z", "pair": [1, 2], "3": [4]}
    assert loads(dumps({at: 1})) == {"2026-01-02T00:00:00Z": 1}


@pytest.mark.parametrize("value", [print, {"f": print}, object(), {object(): 1}])
def test_what_has_no_json_form_is_refused(value: Any) -> None:
    with pytest.raises(Unstorable):
        dumps(value)


def test_a_structure_that_contains_itself_is_refused() -> None:
    loop: list[Any] = []
    loop.append(loop)
    with pytest.raises(Unstorable, match="contains itself"):
        dumps(loop)
