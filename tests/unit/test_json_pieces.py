"""Long JSON text is decoded in pieces, and the values are those of the standard decoder."""

import json
from collections.abc import Iterator
from json import decoder
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lango import json_pieces
from lango.json_pieces import PIECE, decode, decode_strings
from lango.store.jsontext import plain_dumps

scanstring: Any = vars(decoder)["scanstring"]
TRICKY = ["\\", '"', "\n", "\0", "ä", "漢", "😀", "\ud83d", "\ude00", "\\u", "_", "$lango:"]
TEXTS = st.lists(st.sampled_from(TRICKY) | st.characters(codec=None), max_size=60).map("".join)
VALUES: Any = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=10,
)
CONTROLS = "".join(map(chr, range(256))) + "\u2028\u2029\ufeff\uffff"
RAW = [*'{}[]",:\\ud83e0 \n', "\\u", "\\ud83d", "\\ude00", "\\\\", '\\"', "1e5", "NaN", "-Infinity", "null", "9" * 30]


@pytest.fixture(scope="module", autouse=True)
def every_text_is_long() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(json_pieces, "LONG_TEXT", 0)
        patched.setattr(json_pieces, "PIECE", 16)
        yield


def spelt(value: Any) -> str:
    """Tell apart what compares equal, as 1 and 1.0 do, or unequal, as NaN."""
    return repr(value)


def outcome(function: Any, text: str) -> str:
    try:
        return spelt(function(text))
    except ValueError as error:
        return type(error).__name__


@given(VALUES, st.booleans(), st.sampled_from([None, 1]))
def test_a_value_is_decoded_as_the_standard_decoder_does(value: Any, ascii_only: bool, indent: int | None) -> None:
    text = json.dumps(value, ensure_ascii=ascii_only, indent=indent)
    assert spelt(decode(text)) == spelt(decode_strings(text)) == spelt(json.loads(text))


@given(st.lists(st.sampled_from(RAW), max_size=40).map("".join), st.booleans())
def test_any_text_is_decoded_or_refused_as_the_standard_decoder_does(text: str, quoted: bool) -> None:
    text = f'{{"a":"{text}","a":"{text}"}}' if quoted else text
    assert outcome(decode, text) == outcome(json.loads, text)


@given(VALUES)
def test_hooks_see_what_the_standard_decoder_shows_them(value: Any) -> None:
    def hook(members: dict[str, Any]) -> Any:
        return list(members.items())

    text = json.dumps(value)
    assert spelt(decode(text, object_hook=hook)) == spelt(json.loads(text, object_hook=hook))
    constants: Any = {"parse_constant": lambda name: f"constant {name}"}  # pyright: ignore
    assert spelt(decode(text, **constants)) == spelt(json.loads(text, **constants))


@pytest.mark.parametrize("shift", range(40))
def test_no_escape_is_cut_wherever_a_piece_ends(shift: int) -> None:
    for repeated in ("\\ud83d\\ude00", "\\ud83d", "\\\\", '\\"', "\\u00e4", "\\n", "\\ud83d\\ud83d\\ude00"):
        text = f'["{"x" * shift}{repeated * 30}"]'
        assert spelt(decode(text)) == spelt(json.loads(text))


@pytest.mark.parametrize("word", ["a", "a\n", "ä", '"', "\\"], ids=ascii)
@pytest.mark.parametrize("is_key", [True, False])
def test_no_call_of_c_reads_more_than_a_piece(word: str, is_key: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Other threads wait as long as one such call takes."""
    lengths: list[int] = []

    def scan(text: str, start: int, strict: bool) -> tuple[str, int]:
        read, end = scanstring(text, start, strict)
        lengths.append(end - start)
        return read, end

    monkeypatch.setattr(json_pieces, "_scan", scan)
    monkeypatch.setattr(json_pieces, "PIECE", PIECE)
    text = json.dumps({word * 1_000_000: 1} if is_key else {"a": word * 1_000_000})
    assert decode(text) == json.loads(text)
    assert sum(lengths) >= 1_000_000
    assert max(lengths) <= PIECE + 1


@pytest.mark.parametrize("text", ["a", CONTROLS, "ä", "😀", "\ud83d"], ids=ascii)
def test_a_long_text_is_spelt_as_a_short_one(text: str) -> None:
    long = text * (3 * PIECE // len(text) + 1)
    spelling = json.dumps({"a": long, long: 1}, ensure_ascii=text == "\ud83d", separators=(",", ":"))
    assert plain_dumps({"a": long, long: 1}) == spelling
