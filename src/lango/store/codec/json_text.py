"""Encode any value of an event as JSON text, and decode it to the same value.

JSON cannot express every value, and PostgreSQL cannot store every text, so:

- A text column (`content`, `author`, ...) has U+FFFD for NUL and for lone surrogates (`storable_text`). JSON text
  escapes both, so the exact text is stored in the JSON of another column.
- Bytes that are stored elsewhere (`StoredBytes`) are encoded as their hash and size.
- Other bytes and the floats NaN and Infinity are encoded exactly, as an object whose only key begins with `$lango:`.
- Tuples come back as lists, keys as strings; dates, enums, models and the like in pydantic's JSON form of them.
- Anything else (a function, an open file, a structure that contains itself or is nested too deep to be read back from
  anywhere) is refused with `Unstorable`.
"""

import base64
import json
import math
from collections.abc import Mapping
from typing import Any, cast

import orjson

from lango.errors import Unstorable
from lango.events import to_jsonable
from lango.json_values import convert, is_nested_deeper_than, refuse_constant
from lango.messages import StoredBytes

_TAG = "$lango:"
_BYTES = _TAG + "bytes"
_CONTENT = _TAG + "content"
_FLOAT = _TAG + "float"
_KEY = _TAG + "key:"
_MAX_DEPTH = 254  # as orjson counts
_LONGEST_INT_BITS = 14_000  # 4,300 digits, the most that Python converts


_encode = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode
_encode_ascii = json.JSONEncoder(allow_nan=False, separators=(",", ":")).encode
# refuse everything but plain JSON
_STRICT = orjson.OPT_PASSTHROUGH_SUBCLASS | orjson.OPT_PASSTHROUGH_DATETIME | orjson.OPT_PASSTHROUGH_DATACLASS


def dumps(value: Any) -> str:
    """Encode a value as JSON text that `loads` decodes to the same value. Raise `Unstorable` if there is none."""
    try:
        text = orjson.dumps(value, option=_STRICT).decode()
    except TypeError:
        return _dumps_with_tags(value)
    return _dumps_with_tags(value) if "null" in text or _TAG in text else text  # orjson writes NaN as null


def _dumps_with_tags(value: Any) -> str:
    try:
        text = dumps_untagged(value)
    except (TypeError, ValueError, RecursionError):
        return dumps_untagged(_add_tags(value, 0))
    if _TAG in text:
        return dumps_untagged(_add_tags(value, 0))
    if text.count("{") + text.count("[") > _MAX_DEPTH and is_nested_deeper_than(value, _MAX_DEPTH):
        raise _too_deep()
    return text


def _too_deep() -> Unstorable:
    return Unstorable(f"a value is nested more than {_MAX_DEPTH} levels deep, or contains itself; store a flatter one")


def loads(text: str) -> Any:
    """Decode the text of `dumps`."""
    return json.loads(text, object_hook=_remove_tags if _TAG in text else None)


def dumps_untagged(value: Any) -> str:
    """Encode a plain JSON value, formatted as by `dumps`; tags are ordinary objects."""
    text = _encode(value)
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:
            return _encode_ascii(value)
    return text


def loads_untagged(text: str) -> Any:
    """Decode JSON text, with tags as ordinary objects. Raise `ValueError` if it is not JSON."""
    return json.loads(text, parse_constant=refuse_constant)


def _add_tags(value: Any, depth: int) -> Any:
    """Encode values that JSON cannot express as objects with a tag."""
    if depth > _MAX_DEPTH:
        raise _too_deep()
    match value:
        case int() if value.bit_length() > _LONGEST_INT_BITS:
            raise Unstorable("a number has more than 4,000 digits; store it as text")
        case None | bool() | str() | int():
            return value
        case float():
            return value if math.isfinite(value) else {_FLOAT: repr(value)}
        case StoredBytes():
            return {_CONTENT: [value.hash, value.size]}
        case bytes() | bytearray():
            return {_BYTES: base64.b64encode(value).decode()}
        case Mapping():
            members = cast("Mapping[Any, Any]", value)
            return {_key(k): _add_tags(v, depth + 1) for k, v in members.items()}
        case list() | tuple():
            return [_add_tags(item, depth + 1) for item in cast("list[Any]", value)]
        case _:
            return _add_tags(to_jsonable(value), depth + 1)


def _key(key: Any) -> str:
    plain = key if isinstance(key, str) else to_jsonable(key)
    text = plain if isinstance(plain, str) else json.dumps(plain)
    # a key that looks like one of our tags
    return _KEY + text if text.startswith(_TAG) else text


def _remove_tags(members: dict[str, Any]) -> Any:
    if len(members) == 1:
        [(key, value)] = members.items()
        if key == _BYTES:
            return convert(value, bytes)  # base64, in a third of the time of the standard library
        if key == _CONTENT:
            hash_, size = convert(value, tuple[str, int])
            return StoredBytes(hash_, size)
        if key == _FLOAT:
            return float(value)
    return {key.removeprefix(_KEY): value for key, value in members.items()}
