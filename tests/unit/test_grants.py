"""Patterns of grants: parsed or refused, and matched in time that grows with the length of the arguments."""

import fnmatch
import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lango.errors import GrantRefused
from lango.waits.grants import MAX_GLOB_LENGTH, MAX_TEXT_LENGTH, fits, parse_patterns
from tests.support.counted_work import check_growth, counted_calls
from tests.support.json_strategies import json_values

LETTERS = st.text("ab.", max_size=8)
GLOBS = st.text("ab.*", min_size=1, max_size=10).filter(lambda text: text.strip("*") != "" and ".." not in text)


def matches(pattern: dict[str, Any], value: Any) -> bool:
    return fits(parse_patterns({"x": pattern}), {"x": value})


@given(GLOBS, LETTERS)
def test_a_glob_matches_as_fnmatch_does(glob: str, text: str) -> None:
    assert matches({"glob": glob}, text) == (fnmatch.fnmatchcase(text, glob) and ("*" not in glob or text != ".."))


@given(
    st.lists(LETTERS, min_size=2, max_size=5).filter(any), st.lists(st.text("xyz", max_size=5), min_size=4, max_size=4)
)
def test_a_text_made_from_a_glob_fits_it(pieces: list[str], between: list[str]) -> None:
    text = pieces[0] + "".join(gap + piece for gap, piece in zip(between, pieces[1:], strict=False))
    if ".." not in "*".join(pieces) and ".." not in text:
        assert matches({"glob": "*".join(pieces)}, text)


@given(st.text(max_size=30))
def test_an_escaped_text_fits_itself_alone(text: str) -> None:
    glob = text.replace("\\", "\\\\").replace("*", "\\*")
    if not glob:
        return
    assert matches({"glob": glob}, text)
    assert not matches({"glob": glob}, text + "a")


@given(json_values, json_values)
def test_a_value_fits_itself_and_nothing_else(value: Any, other: Any) -> None:
    try:
        texts = [json.dumps(one, sort_keys=True, allow_nan=False) for one in (value, other)]
        patterns = parse_patterns({"x": {"equals": value}})
    except (ValueError, GrantRefused):
        return
    assert fits(patterns, {"x": value})
    assert fits(patterns, {"x": other}) == (texts[0] == texts[1])


@pytest.mark.parametrize("other", [1.0, "1", True, [1], {"a": 1}, None])
def test_values_that_look_alike_differ(other: Any) -> None:
    assert matches({"equals": 1}, 1)
    assert not matches({"equals": 1}, other)


@given(st.text(max_size=200))
def test_any_text_is_a_glob_or_refused(text: str) -> None:
    with suppress(GrantRefused):
        parse_patterns({"x": {"glob": text}})


@pytest.mark.parametrize(
    "text", ["src/../../etc/passwd", "src/a/..", "src/a\nrm -rf", "src/\x00", "src\\..\\x", "src/\u2028"]
)
def test_a_star_reaches_neither_parent_folders_nor_another_line(text: str) -> None:
    assert not matches({"glob": "src*"}, text)


@pytest.mark.parametrize("text", ["src/a..b", "src/...", "src/.hidden", "src/a/b/c"])
def test_a_star_reaches_other_names_with_dots(text: str) -> None:
    assert matches({"glob": "src*"}, text)


@pytest.mark.parametrize("arguments", [{}, {"x": "a", "y": 1}, {"y": "a"}], ids=["none", "one more", "another"])
def test_every_argument_must_be_named(arguments: dict[str, Any]) -> None:
    assert not fits(parse_patterns({"x": {"glob": "a*"}}), arguments)


def test_other_values_than_texts_fit_no_glob() -> None:
    for value in (1, None, ["a"], {"a": 1}, True):
        assert not matches({"glob": "a*"}, value)


def test_any_fits_every_value() -> None:
    patterns = parse_patterns({"x": {"equals": 1}, "y": {"any": True}})
    for value in (1, None, ["a"], "a\nb", "../.."):
        assert fits(patterns, {"x": 1, "y": value})


def test_each_piece_of_the_worst_glob_is_searched_once() -> None:
    """Backtracking over all stars would take longer than the universe is old."""
    text = "a" * (MAX_TEXT_LENGTH - 1)

    def searches(length: int) -> int:
        glob = "a*" * (length // 2 - 1) + "b"
        patterns = parse_patterns({"x": {"glob": glob}, "y": {"glob": "*" + "a" * (length - 3) + "b*"}})
        assert not fits(patterns, {"x": text + "b", "y": text})
        return counted_calls(fits, patterns, {"x": text + "b", "y": text})

    check_growth(searches, MAX_GLOB_LENGTH // 2)
    assert searches(MAX_GLOB_LENGTH) < 2 * MAX_GLOB_LENGTH


def test_a_text_that_is_too_long_to_check_fits_no_glob() -> None:
    assert matches({"glob": "a*"}, "a" * MAX_TEXT_LENGTH)
    assert not matches({"glob": "a*"}, "a" * (MAX_TEXT_LENGTH + 1))
