"""One rule for text and values, the same for both databases.

Values are stored as JSON text. JSON cannot say everything that an event may hold, and PostgreSQL cannot store every
text, so:

- A column that people read (`content`, `author`, ...) shows U+FFFD for NUL and for lone surrogates (`readable`). JSON
  text escapes both, so whatever a column cannot show exactly is kept exactly in JSON beside it.
- Bytes and the floats NaN and Infinity are kept exactly, as an object whose one key begins with `$lango:`.
- Tuples come back as lists, keys as strings; dates, enums, models and the like in pydantic's JSON form of them.
- Anything else (a function, an open file, a structure that contains itself or is nested too deep to be read back from
  anywhere) is refused with `Unstorable`.
"""

import base64
import contextlib
import json
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, cast

import msgspec
import orjson
from pydantic_core import to_jsonable_python

from lango.errors import Unstorable
from lango.json_pieces import PIECE, decode, decode_strings
from lango.nesting import is_deeper_than

_TAG = "$lango:"
_BYTES = _TAG + "bytes"
_FLOAT = _TAG + "float"
_KEY = _TAG + "key:"
_UNSHOWABLE = re.compile("[\\0\ud800-\udfff]")  # NUL is out for PostgreSQL, lone surrogates for both
_DEEPEST = 254  # as orjson counts
_LONGEST_INT_BITS = 14_000  # Python reads and writes no longer ones than 4,300 digits


def _encoder(*, ascii_only: bool) -> Callable[[Any], str]:
    """Return a JSON encoder that is made once; the standard one is made anew for each value, at four times the cost."""
    encoder = json.JSONEncoder(ensure_ascii=ascii_only, allow_nan=False, separators=(",", ":"))
    make: Any = getattr(json.encoder, "c_make_encoder", None)
    if make is None:  # another Python than CPython
        return encoder.encode
    quote: Any = getattr(json.encoder, "encode_basestring_ascii" if ascii_only else "encode_basestring")

    def quoted(text: str) -> str:
        """Quote a long text in pieces, so that other threads run in between."""
        if len(text) <= PIECE:
            return quote(text)
        return f'"{"".join([quoted_piece(text[at : at + PIECE])[1:-1] for at in range(0, len(text), PIECE)])}"'

    def quoted_piece(text: str) -> str:
        if not ascii_only:
            with contextlib.suppress(orjson.JSONEncodeError):  # half a character
                return orjson.dumps(text).decode()  # spelt the same, at a fifth of the time
        return quote(text)

    pieces: Callable[[Any, int], Iterable[str]] = make(
        None, encoder.default, quoted, None, ":", ",", encoder.sort_keys, encoder.skipkeys, encoder.allow_nan
    )
    return lambda value: "".join(pieces(value, 0))


_encode = _encoder(ascii_only=False)
_encode_ascii = _encoder(ascii_only=True)


def readable(text: str) -> str:
    """Return the text as a column can show it; equal to `text` unless it holds NUL or a lone surrogate."""
    if text.isascii() and "\0" not in text:
        return text
    return _UNSHOWABLE.sub("\ufffd", text)


# what is not plain JSON is refused, not guessed at
_STRICT = orjson.OPT_PASSTHROUGH_SUBCLASS | orjson.OPT_PASSTHROUGH_DATETIME | orjson.OPT_PASSTHROUGH_DATACLASS


def dumps(value: Any) -> str:
    """Return JSON text that `loads` turns back into the same value. Raise `Unstorable` where there is none."""
    try:
        text = orjson.dumps(value, option=_STRICT).decode()
    except TypeError:
        return _careful_dumps(value)
    return _careful_dumps(value) if "null" in text or _TAG in text else text  # it may be NaN that is null


def _careful_dumps(value: Any) -> str:
    try:
        text = _encode(value)
    except (TypeError, ValueError, RecursionError):
        text = _encode(_tagged(value, 0))
    else:
        if _TAG in text:
            text = _encode(_tagged(value, 0))
        elif text.count("{") + text.count("[") > _DEEPEST and is_deeper_than(value, _DEEPEST):
            raise _too_deep()
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:
            return _encode_ascii(_tagged(value, 0))
    return text


def _too_deep() -> Unstorable:
    return Unstorable(f"a value is nested more than {_DEEPEST} levels deep, or contains itself; store a flatter one")


def loads(text: str) -> Any:
    """Return the value that `dumps` was given."""
    return decode_strings(text, object_hook=_untagged if _holds_tag(text) else None)


def _holds_tag(text: str) -> bool:
    """Search a long text in pieces, so that other threads run in between."""
    return any(_TAG in text[at : at + PIECE + len(_TAG)] for at in range(0, len(text), PIECE))


def plain_dumps(value: Any) -> str:
    """Return JSON text for what JSON can say, spelt as `dumps` does; tags are only objects here."""
    text = _encode(value)
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:
            return _encode_ascii(value)
    return text


def plain_loads(text: str) -> Any:
    """Return what JSON text says, tags as the objects that they are. Raise `ValueError` for what is not JSON."""
    return decode(text, parse_constant=_no_constant)


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def _tagged(value: Any, depth: int) -> Any:
    """Spell what JSON cannot say as objects with a tag."""
    if depth > _DEEPEST:
        raise _too_deep()
    match value:
        case int() if value.bit_length() > _LONGEST_INT_BITS:
            raise Unstorable("a number has more than 4,000 digits; store it as text")
        case None | bool() | str() | int():
            return value
        case float():
            return value if math.isfinite(value) else {_FLOAT: repr(value)}
        case bytes() | bytearray():
            return {_BYTES: base64.b64encode(value).decode()}
        case Mapping():
            members = cast("Mapping[Any, Any]", value)
            return {_key(k): _tagged(v, depth + 1) for k, v in members.items()}
        case list() | tuple():
            return [_tagged(item, depth + 1) for item in cast("list[Any]", value)]
        case _:
            return _tagged(_plain(value), depth + 1)


def _key(key: Any) -> str:
    plain = key if isinstance(key, str) else _plain(key)
    text = plain if isinstance(plain, str) else json.dumps(plain)
    # somebody's own key that looks like one of our tags
    return _KEY + text if text.startswith(_TAG) else text


def _plain(value: Any) -> Any:
    try:
        return to_jsonable_python(value)
    except Exception as error:
        raise Unstorable(
            f"a value of type {type(value).__name__} cannot be stored as JSON; store its data instead"
        ) from error


def _untagged(members: dict[str, Any]) -> Any:
    if len(members) == 1:
        [(key, value)] = members.items()
        if key == _BYTES:
            return msgspec.convert(value, bytes)  # base64, at a third of what the standard library takes
        if key == _FLOAT:
            return float(value)
    return {key.removeprefix(_KEY): value for key, value in members.items()}


def plain_json(value: Any) -> Any:
    """Return a value as any JSON client can read it: half a character becomes U+FFFD, bytes base64, NaN null."""
    if isinstance(value, str):
        return value if value.isascii() else value.encode("utf-8", "surrogatepass").decode("utf-8", "replace")
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, bytes | bytearray):
        return base64.b64encode(value).decode()
    if isinstance(value, Mapping):
        return {plain_json(str(name)): plain_json(one) for name, one in cast("Mapping[Any, Any]", value).items()}
    if isinstance(value, list | tuple):
        return [plain_json(one) for one in cast("Sequence[Any]", value)]
    return value
