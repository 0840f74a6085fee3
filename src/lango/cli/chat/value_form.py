"""Ask for a value in the terminal, field by field, as its JSON schema describes it.

The schema of any pydantic model works: nested models, lists, alternatives, optional and nullable fields, choices,
dates, ranges and defaults. Each line is checked before the next field is asked.
"""

import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import date, datetime, time
from typing import Any, cast

from msgspec import UNSET, Struct
from msgspec.structs import replace

from lango.cli.terminal_text import choices_of, describe_schema, one_line
from lango.errors import ConfigError, InvalidArguments
from lango.tools.schema_checker import SchemaChecker

DECLINE = "/skip"
HOW_TO_FILL = f"one line per field; or all of it as JSON in the first line; {DECLINE} closes the request"
_MAX_DEPTH = 5  # deeper values are written as JSON
_MAX_STEPS = 20  # references and branches that lead to one schema
_MAX_ITEMS = 100
_WORDS = {"yes": True, "y": True, "true": True, "no": False, "n": False, "false": False}
_FORMATS: Mapping[str, Callable[[str], object]] = {
    "date": date.fromisoformat,
    "time": time.fromisoformat,
    "date-time": datetime.fromisoformat,
}

Schema = Mapping[str, Any]
AskLine = Callable[[str], Awaitable[str | None]]


class FormLeft(Exception):
    """The user left the form: with `DECLINE`, or with the end of the input, which is the empty text."""


class _Field(Struct, frozen=True):
    """A field of the form."""

    label: str
    schema: Schema
    needed: bool = True
    nullable: bool = False
    default: Any = UNSET
    """What an empty line takes."""
    depth: int = 0


class ValueForm:
    """A form for the values of one schema."""

    def __init__(self, schema: Schema, ask: AskLine, write: Callable[[str], None]) -> None:
        """`ask` asks for a line and returns None at the end of the input; `write` shows a line."""
        self._root, self._ask_line, self._write = schema, ask, write
        self._is_first = True

    async def fill(self, before: Any = UNSET) -> Any:
        """Ask for the value; an empty line takes what it was `before`. Raise `FormLeft`."""
        try:
            return await self._fill(self._field("", self._root, before=before))
        except _WholeGiven as given:
            return given.value

    def _field(self, label: str, given: Schema, *, needed: bool = True, depth: int = 0, before: Any = UNSET) -> _Field:
        schema, nullable = plain_schema(given, self._root)
        own = schema.get("title") if not schema.get("properties") else None  # a model's is the name of its class
        title, description = given.get("title") or own or label, given.get("description") or schema.get("description")
        shown = one_line(str(title if depth else label))
        shown = f"{shown}, {one_line(str(description))}" if shown and description else shown
        default = before if before is not UNSET else schema.get("default", UNSET)
        return _Field(shown, schema, needed, nullable, default, depth)

    async def _fill(self, field: _Field) -> Any:
        """Ask for the value of a field; return `UNSET` if it is left out."""
        schema = field.schema
        if "const" in schema:
            return schema["const"]
        if field.depth < _MAX_DEPTH and not choices_of(schema):
            if _alternatives(schema):
                return await self._fill_alternative(field)
            if schema.get("type") == "object" and schema.get("properties"):
                return await self._fill_group(field, self._fill_object)
            if _is_list(schema):
                return await self._fill_group(field, self._fill_list)
        return await self._fill_line(field)

    async def _fill_group(self, field: _Field, fill: Callable[[_Field], Awaitable[Any]]) -> Any:
        """Ask for an object or a list, which may be left out if it is optional."""
        if field.needed and not field.nullable:
            return await fill(field)
        kept = field.default
        without = "Enter or n: leave it out" if kept is UNSET else f"Enter: {_shown(kept)}; n: none"
        line = (await self._line(f"{field.label}: fill it in? (y; {without}):")).lower()
        if _WORDS.get(line):
            return await fill(field)
        if not line and kept is not UNSET:
            return kept
        return None if field.nullable else UNSET

    async def _fill_object(self, field: _Field) -> Any:
        if field.label:
            self._write(f"{field.label}:")
        before = members_of(field.default)
        values: dict[str, Any] = {}
        required: Sequence[str] = field.schema.get("required") or ()
        members: Mapping[str, Schema] = field.schema["properties"]
        for name, schema in members.items():
            inner = self._field(
                name, schema, needed=name in required, depth=field.depth + 1, before=before.get(name, UNSET)
            )
            if (value := await self._fill(inner)) is not UNSET:
                values[name] = value
        return values

    async def _fill_list(self, field: _Field) -> Any:
        items: list[Any] = []
        default: Any = field.default
        before: Sequence[Any] = cast("Sequence[Any]", default) if isinstance(default, list | tuple) else ()
        least, most = field.schema.get("minItems", 0), min(field.schema.get("maxItems", _MAX_ITEMS), _MAX_ITEMS)
        what, schema = field.label or "the list", field.schema["items"]
        while len(items) < most:
            number, known = len(items) + 1, before[len(items)] if len(items) < len(before) else UNSET
            item = self._field(f"{what}, item {number}", schema, depth=field.depth + 1, before=known)
            item = replace(item, label=f"{what}, item {number}")
            if number > least:
                plain = item.schema.get("properties") or _alternatives(item.schema) or _is_list(item.schema)
                if plain and not _WORDS.get((await self._line(f"{item.label}: add it? (y; Enter: no more):")).lower()):
                    break
                value = await self._fill(item if plain else replace(item, needed=False))
                if value is UNSET:
                    break
            else:
                value = await self._fill(item)
            items.append(value)
        return items

    async def _fill_alternative(self, field: _Field) -> Any:
        kinds = [plain_schema(one, self._root)[0] for one in _alternatives(field.schema)]
        names = [str(one.get("title") or describe_schema(one) or one.get("type") or "JSON") for one in kinds]
        listed = ", ".join(f"{number}: {one_line(name)}" for number, name in enumerate(names, 1))
        optional = not field.needed or field.nullable
        without = (
            ""
            if not optional and field.default is UNSET
            else "; Enter: " + ("none" if field.default is UNSET else _shown(field.default))
        )
        while True:
            line = await self._line(f"{field.label or 'your answer'}, which kind? ({listed}{without}):")
            if not line and without:
                return (None if field.nullable else UNSET) if field.default is UNSET else field.default
            if line.isdecimal() and 1 <= int(line) <= len(kinds):
                chosen = replace(
                    field,
                    schema=kinds[int(line) - 1],
                    default=UNSET,
                    needed=True,
                    nullable=False,
                    depth=field.depth + 1,
                )
                return await self._fill(chosen)
            self._write(f"give a number from 1 to {len(kinds)}")

    async def _fill_line(self, field: _Field) -> Any:
        """Ask for a value of one line, until it fits."""
        while True:
            line = await self._line(_prompt(field))
            if not line and field.default is not UNSET:
                return field.default
            if not line and not (field.needed and not field.nullable):
                return None if field.nullable and field.needed else UNSET
            if field.nullable and line == "null":
                return None
            value = _read_line(field, line)
            problem = "a value is missing" if not line and field.schema.get("type") != "string" else ""
            if not (problem := problem or self._problem(field.schema, value)):
                return value
            self._write(problem)

    async def _line(self, prompt: str) -> str:
        line = await self._ask_line(prompt)
        if line is None or line == DECLINE:
            raise FormLeft(line or "")
        is_first, self._is_first = self._is_first, False
        if is_first and line[:1] in ("{", "[") and isinstance(whole := _json_or_text(line), dict | list):
            raise _WholeGiven(whole)
        return line

    def _problem(self, schema: Schema, value: Any) -> str:
        """Say why a value does not fit, or return ""."""
        check = _FORMATS.get(str(schema.get("format")))
        if check is not None and isinstance(value, str):
            try:
                check(value)
            except ValueError:
                return f"{one_line(value, 60)} is not {describe_schema(schema)}"
        definitions = {name: self._root[name] for name in ("$defs", "definitions") if name in self._root}
        try:
            found = SchemaChecker({"properties": {"value": schema}, **definitions}).check({"value": value})
        except (ConfigError, InvalidArguments):
            return ""  # the whole answer is checked in the end
        return one_line(found[0].removeprefix("value: "), 200) if found else ""


class _WholeGiven(Exception):
    """The first line had the whole value as JSON."""

    def __init__(self, value: Any) -> None:
        super().__init__()
        self.value = value


def has_fields(schema: Schema | None) -> bool:
    """Whether a value is asked for in more than one line."""
    plain = plain_schema(schema or {}, schema or {})[0]
    if choices_of(plain):
        return False
    return bool(plain.get("properties") or _alternatives(plain)) or _is_list(plain)


def members_of(value: object) -> Mapping[str, Any]:
    """Return the members of an object, none of another value."""
    return cast("Mapping[str, Any]", value) if isinstance(value, Mapping) else {}


def plain_schema(schema: Schema, root: Schema) -> tuple[Schema, bool]:
    """Return a schema without references, and whether null fits as well. What stands beside a reference holds."""
    found, nullable = dict(schema), False
    for _ in range(_MAX_STEPS):
        kinds: Any = found.get("type")
        branches: Any = _alternatives(found) or (
            [{"type": kind} for kind in cast("list[str]", kinds)] if isinstance(kinds, list) else None
        )
        others = [branch for branch in branches or () if branch.get("type") != "null"]
        nullable = nullable or len(others) < len(branches or ())
        everything: Any = found.get("allOf") or ()
        if isinstance(reference := found.get("$ref"), str):
            found = {**_look_up(reference, root), **_without(found, "$ref")}
        elif len(everything) == 1:
            found = {**everything[0], **_without(found, "allOf")}
        elif len(others) == 1:
            found = {**others[0], **_without(found, "anyOf", "oneOf", "type")}
        elif branches:
            return {**_without(found, "oneOf", "type"), "anyOf": others}, nullable
        else:
            return _with_plain_items(found, root), nullable
    return {}, nullable


def _with_plain_items(schema: dict[str, Any], root: Schema) -> Schema:
    """Return the schema of a list with choices that are not behind a reference."""
    items: Any = schema.get("items")
    if isinstance(items, Mapping) and "$ref" in items:
        named = _look_up(str(cast("Schema", items)["$ref"]), root)
        return {**schema, "items": named} if choices_of(named) else schema
    return schema


def schema_of(value: Any) -> Schema:
    """Return a schema for values like this one."""
    match value:
        case bool():
            return {"type": "boolean"}
        case int() | float():
            return {"type": "number"}
        case str():
            return {"type": "string"}
        case list():
            items = cast("list[Any]", value)
            return {"type": "array", "items": schema_of(items[0]) if items else {}}
        case dict():
            members = cast("dict[str, Any]", value)
            described = {name: schema_of(member) for name, member in members.items()}
            return {"type": "object", "properties": described, "required": list(members)}
        case _:
            return {}


def _alternatives(schema: Schema) -> list[Schema]:
    return list(schema.get("anyOf") or schema.get("oneOf") or ())


def _is_list(schema: Schema) -> bool:
    items: Any = schema.get("items")
    is_list = schema.get("type") == "array" and isinstance(items, Mapping) and not schema.get("prefixItems")
    return is_list and not choices_of(cast("Schema", items))


def _without(schema: dict[str, Any], *names: str) -> dict[str, Any]:
    return {name: value for name, value in schema.items() if name not in names}


def _look_up(reference: str, root: Schema) -> dict[str, Any]:
    found: Any = root
    for name in reference.removeprefix("#").strip("/").split("/"):
        found = members_of(found).get(name.replace("~1", "/").replace("~0", "~"))
    return dict(members_of(found))


def _prompt(field: _Field) -> str:
    if field.default is not UNSET:
        without_line = f"Enter: {_shown(field.default)}"
    else:
        without_line = "optional" if not field.needed else "Enter: none" if field.nullable else ""
    null = "null: none" if field.nullable and field.default not in (UNSET, None) else ""
    note = "; ".join(part for part in (describe_schema(field.schema), without_line, null) if part)
    return f"{field.label or 'your answer'}{f' ({note})' if note else ''}:"


def _shown(value: Any) -> str:
    return one_line(json.dumps(value, ensure_ascii=False, default=str), 60)


def _read_line(field: _Field, line: str) -> Any:
    """Return what a line stands for."""
    schema = field.schema
    items: Any = schema.get("items") or {}
    if schema.get("type") == "array" and isinstance(items, Mapping) and (several := choices_of(cast("Schema", items))):
        return [_choice(several, item.strip()) for item in line.split(",") if item.strip()]
    if choices := choices_of(schema):
        return _choice(choices, line)
    match schema.get("type"):
        case "boolean":
            return _WORDS.get(line.lower(), line)
        case "string":
            return line
        case _:
            return _json_or_text(line)


def _json_or_text(line: str) -> Any:
    try:
        return json.loads(line)
    except ValueError:
        return line


def _choice(choices: Sequence[tuple[Any, str]], line: str) -> Any:
    """Return the value of a choice, which may be given by its name."""
    names = [line, line.lower()]
    return next((value for value, name in choices if name in names or str(value) == line), line)
