"""Validate arguments against an untrusted JSON schema in bounded time and memory.

A hostile schema can burn CPU by its size, by references that multiply, by recursion that branches, or by a regular
expression that backtracks. So a schema is measured before it is compiled, and rejected above a limit. Before arguments
are checked, the maximum number of steps is computed from the schema and from the size and depth of the arguments;
arguments that could take more than `MAX_STEPS` are rejected unchecked.

The check itself is compiled code (jsonschema-rs). Regular expressions run in linear time, except for those with
look-arounds or back-references, which are stopped after `_MAX_BACKTRACKS` steps. References are never fetched.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from graphlib import CycleError, TopologicalSorter
from itertools import islice
from typing import Any, NamedTuple, cast
from urllib.parse import unquote

from lango.errors import ConfigError, InvalidArguments

MAX_SCHEMA_CHARACTERS = 50_000
"""Characters of the schema's keys and texts, and one for each other value."""
MAX_SCHEMA_DEPTH = 40
MAX_SCHEMA_VALUES = 5_000
"""Objects, lists, texts and numbers of the schema, including each member of an enum."""
MAX_BRANCHES = 200
"""Members of one anyOf, oneOf or allOf."""
MAX_REFERENCES = 500
MAX_DEPTH = 64
"""Nesting of objects and lists in arguments."""
MAX_STEPS = 1_000_000
"""Steps of one check: subschemas times values and characters of the arguments."""
_MAX_STEPS_TO_EXPLAIN = 20_000  # listing the problems costs far more than a yes or no
_MAX_CHARACTERS_TO_QUOTE = 2_000
_MAX_BACKTRACKS = 10_000
_MAX_PATTERN_BYTES = 1_000_000
_CHARACTERS_PER_STEP = 20
_MAX_PROBLEMS = 20
_MAX_SHOWN = 300

_BRANCHES = ("allOf", "anyOf", "oneOf")
_SAME_VALUE = (*_BRANCHES, "not", "if", "then", "else", "dependentSchemas", "dependencies")
_BELOW = (
    *("properties", "patternProperties", "additionalProperties", "unevaluatedProperties", "propertyNames"),
    *("items", "prefixItems", "additionalItems", "unevaluatedItems", "contains"),
)
_REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")
_MAPS = frozenset({"properties", "patternProperties", "dependentSchemas", "dependencies"})
_DRAFT = re.compile(r"https?://json-schema\.org/(draft-0[467]|draft/20(19-09|20-12))/schema#?")


class SchemaChecker:
    """A compiled schema within the limits."""

    def __init__(self, schema: Mapping[str, Any]) -> None:
        """Raise `ConfigError` for a schema that is wrong or exceeds a limit."""
        self._schema = dict(schema)
        if not _DRAFT.fullmatch(str(self._schema.get("$schema", ""))):
            self._schema.pop("$schema", None)  # an unknown dialect is read as the newest draft
        measure_schema(self._schema)
        self._steps = _Steps(self._schema)
        if self._steps.at_depth(1) > MAX_STEPS:
            raise ConfigError(f"its references multiply to more than {MAX_STEPS} steps for one argument")
        self._quick = self._compiled(mask=None)

    def check(self, arguments: Mapping[str, Any]) -> list[str]:
        """Return the problems of the arguments. Raises `InvalidArguments` if they are too large to be checked."""
        size = measure_arguments(arguments)
        steps = self._steps.at_depth(size.depth) * size.steps
        if steps > MAX_STEPS:
            raise InvalidArguments(
                f"they are too large to be checked against the schema ({steps} steps, {MAX_STEPS} are allowed): "
                "send fewer or shorter values"
            )
        if self._quick.is_valid(arguments):
            return []
        if steps > _MAX_STEPS_TO_EXPLAIN:
            return ["they do not match the schema, and are too large for a list of the problems"]
        checker = self._quick if size.characters <= _MAX_CHARACTERS_TO_QUOTE else self._masked
        found: Iterable[Any] = islice(checker.iter_errors(arguments), _MAX_PROBLEMS)
        in_order = sorted(found, key=lambda problem: [str(part) for part in problem.instance_path])
        return [describe_problem(problem.instance_path, str(problem.message)) for problem in in_order]

    @cached_property
    def _masked(self) -> Any:
        """The same checker without values in its messages, which would each copy a long value."""
        return self._compiled(mask="the value")

    def _compiled(self, *, mask: str | None) -> Any:
        import jsonschema_rs  # typed functions do not need it

        patterns = jsonschema_rs.FancyRegexOptions(
            backtrack_limit=_MAX_BACKTRACKS, size_limit=_MAX_PATTERN_BYTES, dfa_size_limit=_MAX_PATTERN_BYTES
        )
        try:
            return jsonschema_rs.validator_for(
                self._schema, retriever=_never_fetched, pattern_options=patterns, mask=mask, validate_formats=False
            )
        except (ValueError, jsonschema_rs.ValidationError, jsonschema_rs.ReferencingError) as error:
            location: Iterable[Any] = getattr(error, "instance_path", ())
            raise ConfigError(describe_problem(location, str(getattr(error, "message", error)))) from error


def measure_schema(schema: Mapping[str, Any]) -> int:
    """Return the characters of a schema. Raises `ConfigError` that names the limit which it exceeds.

    Call it before any other code reads the schema.
    """
    characters = values = references = 0
    for depth, level in enumerate(_levels(schema), 1):
        values += len(level)
        characters += sum(map(_characters, level))
        for members in map(_members, level):
            references += sum(name in members for name in _REFERENCES)
            if too_wide := [name for name in _BRANCHES if _length(members.get(name)) > MAX_BRANCHES]:
                raise ConfigError(f"one {too_wide[0]} has more than {MAX_BRANCHES} branches")
        if depth > MAX_SCHEMA_DEPTH:
            raise ConfigError(f"it is nested more than {MAX_SCHEMA_DEPTH} levels deep")
        if values > MAX_SCHEMA_VALUES:
            raise ConfigError(f"it has more than {MAX_SCHEMA_VALUES} values")
        if characters > MAX_SCHEMA_CHARACTERS:
            raise ConfigError(f"it has more than {MAX_SCHEMA_CHARACTERS} characters")
    if references > MAX_REFERENCES:
        raise ConfigError(f"it has more than {MAX_REFERENCES} references")
    return characters


def has_patterns(schema: Mapping[str, Any]) -> bool:
    """Whether a measured schema contains a regular expression."""
    return any(
        isinstance(members.get("pattern"), str) or "patternProperties" in members
        for level in _levels(schema)
        for members in map(_members, level)
    )


def _levels(value: Any) -> Iterator[list[Any]]:
    """Yield the values of a JSON value by their depth: the value itself, its members, their members, ..."""
    level: list[Any] = [value]
    while level:
        yield level
        level = [member for node in level for member in _members(node).values()]


def _characters(value: Any) -> int:
    if isinstance(value, dict):
        return 1 + sum(len(str(key)) for key in cast("dict[Any, Any]", value))
    return len(value) if isinstance(value, str) else 1


class _Steps:
    """The maximum number of subschemas that a value of a given depth is checked against.

    A subschema is checked once for each path that leads to it. Paths through `properties`, `items` and the like go one
    level down in the value, so the recursion of a schema ends with the depth of the value.
    """

    def __init__(self, schema: Mapping[str, Any]) -> None:
        """Raise `ConfigError` for a reference to nothing, to another document, or to itself."""
        self._schema = schema
        self._weights: dict[int, int] = {}
        self._same: dict[int, list[int]] = {}
        self._below: dict[int, list[int]] = {}
        self._read()
        try:
            self._order = list(TopologicalSorter(self._same).static_order())
        except CycleError as error:
            raise ConfigError("it contains a circular reference") from error
        self._levels = [self._level({})]
        self._is_whole = False  # deeper values take no more steps

    def at_depth(self, depth: int) -> int:
        """Return the steps for a value of that depth."""
        while len(self._levels) <= depth and not self._is_whole:
            level = self._level(self._levels[-1])
            self._is_whole = level == self._levels[-1]
            self._levels.append(level)
        return self._levels[min(depth, len(self._levels) - 1)][id(self._schema)]

    def _level(self, above: Mapping[int, int]) -> dict[int, int]:
        """Return the steps of each subschema for values that are one level deeper than those of `above`."""
        steps: dict[int, int] = {}
        for node in self._order:
            total = self._weights[node] + sum(steps[subschema] for subschema in self._same[node])
            total += sum(above[subschema] for subschema in self._below[node]) if above else 0
            steps[node] = min(total, MAX_STEPS + 1)
        return steps

    def _read(self) -> None:
        """Follow every subschema and every reference, each once."""
        ahead: list[Any] = [self._schema]
        while ahead:
            node = ahead.pop()
            key = id(node)
            if key in self._weights:
                continue
            members: Mapping[str, Any] = cast("Mapping[str, Any]", node) if isinstance(node, Mapping) else {}
            same = [subschema for name in _SAME_VALUE for subschema in _subschemas(name, members)]
            same += [self._target(members[name]) for name in _REFERENCES if name in members]
            below = [subschema for name in _BELOW for subschema in _subschemas(name, members)]
            patterns = cast("Mapping[str, Any]", members.get("patternProperties") or {})
            pattern_characters = sum(map(len, [str(members.get("pattern", "")), *patterns]))
            self._weights[key] = 1 + pattern_characters // 10 + _length(members.get("enum"))
            self._same[key], self._below[key] = list(map(id, same)), list(map(id, below))
            ahead += same + below

    def _target(self, reference: Any) -> Any:
        """Return the part of this schema that a reference names."""
        if not isinstance(reference, str) or not (reference == "#" or reference.startswith("#/")):
            raise ConfigError(f"{str(reference)[:80]!r}: only references inside the schema (#/...) are followed")
        node: Any = self._schema
        for part in reference[2:].split("/") if reference != "#" else ():
            name = unquote(part).replace("~1", "/").replace("~0", "~")
            items = _members(node)
            if name not in items:
                raise ConfigError(f"the reference {reference[:80]!r} does not resolve")
            node = items[name]
        return node


def _members(value: Any) -> Mapping[str, Any]:
    if isinstance(value, list | tuple):
        return {str(at): item for at, item in enumerate(cast("list[Any]", value))}
    return cast("Mapping[str, Any]", value) if isinstance(value, Mapping) else {}


def _length(value: Any) -> int:
    return len(cast("list[Any]", value)) if isinstance(value, list) else 0


def _subschemas(name: str, members: Mapping[str, Any]) -> Iterator[Any]:
    value = members.get(name)
    if isinstance(value, list):
        yield from cast("list[Any]", value)
    elif isinstance(value, Mapping):
        inner = cast("Mapping[str, Any]", value)
        if name in _MAPS:
            yield from inner.values()
        else:
            yield inner


class Size(NamedTuple):
    """The size of a JSON value."""

    depth: int
    characters: int
    steps: int
    """Its values, and some of its characters."""


def measure_arguments(value: Any) -> Size:
    """Measure a JSON value. Raises `InvalidArguments` if it is nested too deeply."""
    depth = values = characters = 0
    for depth, level in enumerate(_levels(value)):
        if depth > MAX_DEPTH:
            raise InvalidArguments(f"they are nested more than {MAX_DEPTH} levels deep")
        values += len(level)
        characters += sum(map(_characters, level))
    return Size(depth, characters, values + characters // _CHARACTERS_PER_STEP)


def _never_fetched(uri: str) -> Any:
    raise ValueError(f"{uri} is not fetched")


def describe_problem(location: Iterable[Any], message: str) -> str:
    """Return a problem with the path of the wrong value, shortened."""
    path = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in location).lstrip(".")
    return f"{path[:_MAX_SHOWN]}: {message[:_MAX_SHOWN]}" if path else message[:_MAX_SHOWN]
