"""Define what a grant covers, and match the arguments of calls against it.

A grant lets later calls of one tool run without asking, with any arguments, or only with those that fit a pattern. A
pattern names every argument of the call and says for each which values fit:

- `{"equals": value}`: exactly this value; 1, 1.0 and "1" differ,
- `{"glob": "src/*"}`: a text in which `*` stands for any characters of a line; `\\*` is a star, `\\\\` a backslash,
- `{"any": true}`: any value.

A call with an argument that the pattern does not name does not fit. A `*` never matches a text with `..` as a part of a
path, with control characters, or with more than 100,000 characters. Matching takes time in proportion to the length of
the arguments.
"""

import json
import re
from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from lango.errors import GrantRefused

MAX_ARGUMENTS = 50
MAX_GLOB_LENGTH = 500
MAX_PATTERN_LENGTH = 4_000
MAX_TEXT_LENGTH = 100_000
"""A longer text fits no glob: the check would hold up the event loop."""
MAX_EXPIRES_IN_S = 10 * 365 * 86_400.0

_PARENT_OR_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]|(?:^|[/\\])\.\.(?:[/\\]|$)")

PatternsJson = Mapping[str, Mapping[str, Any]]
"""The pattern of each argument, as JSON."""


class NewGrant(Struct, frozen=True, forbid_unknown_fields=True):
    """What a person grants in addition to the approval of one call: later calls of the same tool run without asking."""

    arguments: PatternsJson | None = None
    """The pattern of each argument; see `lango.waits.grants`. None allows any arguments."""
    expires_in_s: float | None = None
    """How long it holds, or None for the setting `tools.grant_expires_s`."""


class Equals(Struct, frozen=True):
    """Fits exactly one value."""

    text: str
    """The value as canonical JSON."""


class Glob(Struct, frozen=True):
    """Fits texts that consist of these pieces, with any characters in between."""

    pieces: tuple[str, ...]


class Anything(Struct, frozen=True):
    """Fits any value."""


Pattern = Equals | Glob | Anything


def parse_patterns(patterns: PatternsJson) -> dict[str, Pattern]:
    """Parse the patterns of a grant. Raise `GrantRefused` for those that are malformed, too long or too broad."""
    if len(patterns) > MAX_ARGUMENTS:
        raise GrantRefused(f"a grant names at most {MAX_ARGUMENTS} arguments, not {len(patterns)}")
    parsed = {name: _parse_pattern(name, pattern) for name, pattern in patterns.items()}
    if parsed and all(isinstance(pattern, Anything) for pattern in parsed.values()):
        raise GrantRefused("this pattern fits every call: leave `arguments` out to grant the tool itself")
    length = sum(len(name) + len(_canonical(name, dict(pattern))) for name, pattern in patterns.items())
    if length > MAX_PATTERN_LENGTH:
        raise GrantRefused(f"the pattern of a grant has at most {MAX_PATTERN_LENGTH} characters, not {length}")
    return parsed


def fits(patterns: Mapping[str, Pattern], arguments: Mapping[str, Any]) -> bool:
    """Whether the arguments of a call fit the patterns of a grant, which must name all of them."""
    if patterns.keys() != arguments.keys():
        return False
    return all(_value_fits(pattern, arguments[name]) for name, pattern in patterns.items())


def _parse_pattern(name: str, pattern: Mapping[str, Any]) -> Pattern:
    members = [*pattern.items()] if isinstance(pattern, Mapping) else []  # pyright: ignore[reportUnnecessaryIsInstance]
    match members:
        case [("equals", value)]:
            return Equals(_canonical(name, value))
        case [("glob", str(text))]:
            return _parse_glob(name, text)
        case [("any", True)]:
            return Anything()
        case _:
            raise GrantRefused(f'{name}: use {{"equals": ...}}, {{"glob": "..."}} or {{"any": true}}')


def _parse_glob(name: str, text: str) -> Glob:
    if len(text) > MAX_GLOB_LENGTH:
        raise GrantRefused(f"{name}: a glob has at most {MAX_GLOB_LENGTH} characters, not {len(text)}")
    pieces, piece = list[str](), ""
    characters = iter(text)
    for character in characters:
        if character == "*":
            pieces.append(piece)
            piece = ""
        elif character == "\\":
            escaped = next(characters, "")
            if escaped not in ("*", "\\"):
                raise GrantRefused(f"{name}: a backslash must be followed by a star or another backslash in {text!r}")
            piece += escaped
        else:
            piece += character
    pieces.append(piece)
    if not any(pieces):
        raise GrantRefused(f'{name}: {text!r} fits every text: use {{"any": true}} if you mean that')
    if len(pieces) > 1 and _PARENT_OR_CONTROL.search("*".join(pieces)):
        raise GrantRefused(f"{name}: a glob contains neither control characters nor `..` as a part of a path")
    return Glob((pieces[0], *(inner for inner in pieces[1:-1] if inner), *pieces[-1:]) if len(pieces) > 1 else (piece,))


def _value_fits(pattern: Pattern, value: Any) -> bool:
    match pattern:
        case Anything():
            return True
        case Equals(text=text):
            try:
                return _canonical("", value) == text
            except GrantRefused:
                return False
        case Glob(pieces=pieces):
            return isinstance(value, str) and len(value) <= MAX_TEXT_LENGTH and _text_fits(pieces, value)


def _text_fits(pieces: tuple[str, ...], text: str) -> bool:
    """Whether a text consists of the pieces, with any characters in between: each is searched once, left to right."""
    if len(pieces) == 1:
        return text == pieces[0]
    first, *inner, last = pieces
    at, end = len(first), len(text) - len(last)
    if at > end or not text.startswith(first) or not text.endswith(last) or _PARENT_OR_CONTROL.search(text):
        return False
    for piece in inner:
        found = text.find(piece, at, end)
        if found < 0:
            return False
        at = found + len(piece)
    return True


def _canonical(name: str, value: Any) -> str:
    try:
        return json.dumps(value, sort_keys=True, allow_nan=False, separators=(",", ":"))
    except (TypeError, ValueError, RecursionError) as error:
        raise GrantRefused(f"{name}: the value is not JSON") from error
