"""Read JSON from untrusted input in bounded time and depth, and convert values to JSON and to typed ones.

The time to parse JSON depends on its values, not on its length: ten megabytes of text take 20 ms, of empty lists a
second, and a number of 4,000 digits takes as long as a thousand others. So the values are counted first, which only
splits bytes, and long numbers are refused.
"""

import base64
import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from threading import Lock
from typing import Any, NoReturn, TypeVar, cast, overload

import msgspec

MAX_VALUES = 100_000
"""Objects, lists, members and items of a JSON text."""
_PIECE = 100_000
_MAX_DIGITS = 1_000


class TooManyValues(ValueError):
    """The JSON has too many values, or numbers that are too long."""


class ValueCounter:
    """Counts the values of a JSON text that comes in pieces. Commas and brackets inside strings do not count."""

    def __init__(self, max_values: int = MAX_VALUES) -> None:
        self._max_values = max_values
        self.count = 0
        self._in_string = False
        self._rest = b""

    def feed(self, piece: bytes) -> None:
        """Count the values of the next piece. Raise `TooManyValues` if there are too many."""
        for start in range(0, len(piece), _PIECE):
            self._feed(piece[start : start + _PIECE])

    def _feed(self, piece: bytes) -> None:
        piece = self._rest + piece
        escapes = len(piece) - len(piece.rstrip(b"\\"))
        self._rest = b"\\" if escapes % 2 else b""
        if escapes % 2:
            piece = piece[:-1]
        if b"\\" in piece:
            piece = piece.replace(b"\\\\", b"").replace(b'\\"', b"")
        parts = piece.split(b'"')
        outside = b"".join(parts[self._in_string :: 2])
        self._in_string ^= len(parts) % 2 == 0
        self.count += outside.count(b",") + outside.count(b"[") + outside.count(b"{")
        if self.count > self._max_values:
            raise TooManyValues(f"the JSON has more than {self._max_values} values")


def read_json(text: str | bytes, max_values: int = MAX_VALUES) -> Any:
    """Parse JSON. Raise `ValueError` if it is invalid, and `TooManyValues` if it would take too long."""
    data = text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text
    ValueCounter(max_values).feed(data)
    return read_counted(data)


def read_counted(data: bytes) -> Any:
    """Parse JSON whose values were counted before. Raise `ValueError` if it is invalid."""
    return json.loads(data, parse_int=_parse_short_int, parse_constant=refuse_constant)


def refuse_constant(constant: str) -> NoReturn:
    """Raise `ValueError` for NaN and Infinity, which Python's parser accepts."""
    raise ValueError(f"{constant} is not JSON")


def _parse_short_int(digits: str) -> int:
    if len(digits) > _MAX_DIGITS:
        raise TooManyValues(f"a number has more than {_MAX_DIGITS} digits")
    return int(digits)


def is_larger_than(value: Any, size: int) -> bool:
    """Whether a JSON value has more than `size` characters, or a tenth as many values, in at most `size` steps."""
    pending = [value]
    while pending:
        item = pending.pop()
        size -= len(item) + 10 if isinstance(item, str | bytes) else 10
        if isinstance(item, dict | list | tuple):
            size -= 10 * len(cast("list[Any]", item))
        if size < 0:
            return True
        if isinstance(item, dict):
            members = cast("dict[Any, Any]", item)
            pending += members
            pending += members.values()
        elif isinstance(item, list | tuple):
            pending += cast("list[Any]", item)
    return False


def as_object(value: Any) -> dict[str, Any]:
    """Return a JSON value if it is an object, and an empty object otherwise."""
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def is_nested_deeper_than(value: Any, levels: int) -> bool:
    """Whether objects and lists of a JSON value are nested deeper than `levels`."""
    level = list(_containers([value]))
    for _ in range(levels):
        if not level:
            return False
        level = [inner for container in level for inner in _containers(container)]
    return bool(level)


def _containers(items: Iterable[Any]) -> Iterator[Iterable[Any]]:
    for item in items:
        if isinstance(item, dict):
            yield cast("dict[Any, Any]", item).values()
        elif isinstance(item, list | tuple):
            yield cast("list[Any]", item)


_UNPRINTABLE = re.compile("[\\0\ud800-\udfff]")  # PostgreSQL refuses NUL, both refuse lone surrogates


def storable_text(text: str) -> str:
    """Replace NUL and lone surrogates, which no text column can store."""
    if text.isascii() and "\0" not in text:
        return text
    # in pieces: one call of a compiled function blocks every other thread
    return "".join(_UNPRINTABLE.sub("\ufffd", text[at : at + _PIECE]) for at in range(0, len(text), _PIECE))


def to_client_json(value: Any) -> Any:
    """Convert a value to plain JSON: lone surrogates become U+FFFD, bytes base64, NaN null."""
    if isinstance(value, str):
        return value if value.isascii() else value.encode("utf-8", "surrogatepass").decode("utf-8", "replace")
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, bytes | bytearray):
        return base64.b64encode(value).decode()
    if isinstance(value, Mapping):
        return {
            to_client_json(str(name)): to_client_json(item) for name, item in cast("Mapping[Any, Any]", value).items()
        }
    if isinstance(value, list | tuple):
        return [to_client_json(item) for item in cast("Sequence[Any]", value)]
    return value


T = TypeVar("T")

_prepared: set[Any] = set()
_preparing = Lock()


@overload
def convert(value: Any, kind: type[T], *, from_attributes: bool = False) -> T: ...
@overload
def convert(value: Any, kind: Any, *, from_attributes: bool = False) -> Any: ...
def convert(value: Any, kind: Any, *, from_attributes: bool = False) -> Any:
    """Return a plain value, or an object by its attributes, as one of a type.

    Raise msgspec's `ValidationError` if it does not fit the type.

    msgspec prepares a type when it is first used, and shares the preparation with other threads before it is complete:
    two threads that convert to the same new type at once crash the process (msgspec 0.22). So a type is prepared by one
    thread while the others wait.
    """
    if kind not in _prepared:
        with _preparing:
            msgspec.json.Decoder(kind)
            _prepared.add(kind)
    return msgspec.convert(value, kind, from_attributes=from_attributes)  # noqa: TID251 - the only call
