"""Decode long JSON text so that other threads run in between.

The standard decoder is one call of C, which keeps every other thread of the process waiting: 19 MB take 30 to 400 ms.
Here each long string is read in pieces, and Python, which lets other threads run, does the rest. The values are those
of `json.loads`: the pieces are read by the same functions.
"""

import json
from collections.abc import Callable
from json import decoder, scanner
from types import FunctionType
from typing import Any

from lango.json_input import TooManyValues, ValueCounter

LONG_TEXT = 1_000_000
"""In characters: a longer text is decoded in pieces."""
PIECE = 100_000
_MANY_VALUES = 20_000
_UNICODE_ESCAPE = 6  # characters, as in \u00e4
_HIGH_SURROGATES = ("d8", "d9", "da", "db")

Hook = Callable[[dict[str, Any]], Any]
Constant = Callable[[str], Any]


def decode(text: str, *, object_hook: Hook | None = None, parse_constant: Constant | None = None) -> Any:
    """Return what `json.loads` returns, and let other threads run meanwhile. For threads, not for an event loop."""
    if len(text) <= LONG_TEXT:
        return json.loads(text, object_hook=object_hook, parse_constant=parse_constant)
    return _Decoder(object_hook=object_hook, parse_constant=parse_constant).decode(text)


def decode_strings(text: str, *, object_hook: Hook | None = None) -> Any:
    """Decode as `decode` does where a text is long because of its strings; leave many values to C.

    Python takes several times as long for a value, which matters where an event loop decodes.
    """
    if len(text) > LONG_TEXT:
        try:
            ValueCounter(_MANY_VALUES).feed(text.encode("utf-8", "surrogatepass"))
        except TooManyValues:
            return json.loads(text, object_hook=object_hook)
    return decode(text, object_hook=object_hook)


_scan: Callable[[str, int, bool], tuple[str, int]] = vars(decoder)["scanstring"]


def _string(text: str, start: int, strict: bool = True) -> tuple[str, int]:
    """Read the string whose first character is at `start`; return it and the place after its closing quote."""
    pieces: list[str] = []
    while (end := _end_of_piece(text, start)) is not None:
        pieces.append(_scan(f'{text[start:end]}"', 0, strict)[0])
        start = end
    last, end = _scan(text, start, strict)
    return "".join([*pieces, last]) if pieces else last, end


def _end_of_piece(text: str, start: int) -> int | None:
    """Return where the next piece of a string ends, between two escapes; None: the string itself ends before that."""
    piece = text[start : start + PIECE]
    if "\\" in piece:
        piece = piece.replace("\\\\", "__").replace('\\"', "__")  # each backslash that is left begins an escape
    if len(piece) < PIECE or '"' in piece:
        return None
    cut = piece.rfind("\\", PIECE - _UNICODE_ESCAPE)
    cut = PIECE if cut < 0 else cut
    before = piece[cut - _UNICODE_ESCAPE : cut].lower()
    if before.startswith("\\u") and before[2:4] in _HIGH_SURROGATES:  # the next escape may be its other half
        cut -= _UNICODE_ESCAPE
    return start + cut


# the standard reader of objects, with our reader of strings for their keys
_READS_OBJECTS: Any = vars(decoder)["JSONObject"]
_object = FunctionType(
    _READS_OBJECTS.__code__, vars(decoder) | {"scanstring": _string}, argdefs=_READS_OBJECTS.__defaults__
)


class _Decoder(json.JSONDecoder):
    """The standard decoder as it is written in Python, with our reader of strings."""

    def __init__(self, *, object_hook: Hook | None, parse_constant: Constant | None) -> None:
        super().__init__(object_hook=object_hook, parse_constant=parse_constant)
        own: Any = self
        own.parse_string, own.parse_object = _string, _object
        own.scan_once = vars(scanner)["py_make_scanner"](self)
