"""Derive the JSON schema of arguments from a typed function, and convert JSON to its types."""

import functools
import inspect
import itertools
import re
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Annotated, Any, Self, cast, get_args, get_origin, get_type_hints

from msgspec import Struct
from pydantic import BaseModel, ConfigDict, Field, PydanticUserError, create_model
from pydantic.errors import PydanticSchemaGenerationError
from pydantic.fields import FieldInfo
from pydantic.json_schema import GenerateJsonSchema
from typing_extensions import override

from lango.errors import ConfigError

MAX_INLINED_VALUES = 10_000
_SECTION = re.compile(r"^(Args|Arguments|Parameters):\s*$")
_ARGUMENT = re.compile(r"^(\*{0,2}\w+)\s*(?:\([^)]*\))?:\s*(.*)$")


def read_signature(function: Callable[..., Any]) -> inspect.Signature | None:
    """Return the function's signature, or None for a builtin without one."""
    try:
        return inspect.signature(function)
    except (TypeError, ValueError):
        return None


def resolved_hints(function: Callable[..., Any]) -> dict[str, Any]:
    """Return the annotations of a function, with those written as text resolved if possible."""
    target: Any = function
    while isinstance(target, functools.partial):
        target = cast("Any", target.func)
    if not inspect.isroutine(target) and not inspect.isclass(target):
        target = type(target).__call__
    names: dict[str, Any] = getattr(inspect.unwrap(target), "__globals__", {})
    hints: dict[str, Any] = {}
    for name, annotation in getattr(target, "__annotations__", {}).items():
        try:  # separately: a name that is imported for type checkers only must not affect the others
            hints |= get_type_hints(SimpleNamespace(__annotations__={name: annotation}), names, include_extras=True)
        except (NameError, TypeError, AttributeError, SyntaxError):
            hints[name] = annotation
    return hints


class _Schema(GenerateJsonSchema):
    """Omits titles, which repeat the names, and defaults that are not JSON."""

    ignored_warning_kinds = {"skipped-choice", "non-serializable-default"}  # noqa: RUF012 - pydantic's interface

    @override
    def field_title_should_be_set(self, schema: Any) -> bool:
        return False


class TypedArguments(Struct, frozen=True):
    """The arguments of a function as a pydantic model. Its fields are numbered, because it forbids some names."""

    model: type[BaseModel]
    names: Mapping[str, str]
    """The field of the model for each argument."""

    @classmethod
    def of(
        cls,
        function: Callable[..., Any],
        name: str,
        descriptions: Mapping[str, str],
        *,
        skip: Callable[[Any], bool],
    ) -> Self:
        """Read a function's parameters, except those whose annotation `skip` accepts."""
        signature, hints = inspect.signature(function), resolved_hints(function)
        fields: dict[str, Any] = {}
        names: dict[str, str] = {}
        extra = "forbid"
        for parameter in signature.parameters.values():
            annotation = hints.get(parameter.name, Any)
            if skip(annotation):
                continue
            if parameter.kind is parameter.VAR_KEYWORD:
                extra = "allow"
            elif parameter.kind in (parameter.VAR_POSITIONAL, parameter.POSITIONAL_ONLY):
                raise ConfigError(f"tool {name}: {parameter.name} must be a parameter that can be passed by name")
            else:
                field = names[parameter.name] = f"argument_{len(names)}"
                fields[field] = _field(parameter, annotation, descriptions.get(parameter.name))
        try:
            config = ConfigDict(extra=cast("Any", extra), arbitrary_types_allowed=False)
            model: type[BaseModel] = create_model(name, __config__=config, **fields)
        except (PydanticSchemaGenerationError, PydanticUserError, NameError) as error:
            raise ConfigError(f"tool {name}: its annotations cannot be turned into a schema: {error}") from error
        return cls(model, names)

    def json_schema(self) -> dict[str, Any]:
        """Return the JSON schema, with nested models inlined unless they contain themselves."""
        try:
            schema = self.model.model_json_schema(schema_generator=_Schema)
        except PydanticUserError as error:  # unknown names, types without a JSON schema
            raise ConfigError(f"tool {self.model.__name__}: an annotation has no JSON schema: {error}") from error
        schema.pop("title", None)
        return inline_definitions(schema)

    def validate(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Return the arguments as their annotated types; raise pydantic's `ValidationError`."""
        values = self.model.model_validate(dict(arguments))
        given = {name: getattr(values, field) for name, field in self.names.items()}
        return given | (values.model_extra or {})


def _field(parameter: inspect.Parameter, annotation: Any, description: str | None) -> tuple[Any, Any]:
    default: Any = ... if parameter.default is parameter.empty else parameter.default
    metadata: list[Any] = list(get_args(annotation)[1:]) if get_origin(annotation) is Annotated else []
    if isinstance(default, FieldInfo):
        metadata.append(default)
        annotation, default = Annotated[annotation, default], default.get_default()
        if metadata[-1].is_required():
            default = ...
    written = [item for item in metadata if isinstance(item, str)]
    has_own = any(isinstance(item, FieldInfo) and item.description for item in metadata)
    if not has_own and (written or description):
        annotation = Annotated[annotation, Field(description=written[0] if written else description)]
    if default is ... and _has_default(metadata):
        return annotation, Field(alias=parameter.name)
    return annotation, Field(default, alias=parameter.name)


def _has_default(metadata: list[Any]) -> bool:
    return any(isinstance(item, FieldInfo) and not item.is_required() for item in metadata)


def inline_definitions(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Replace references by their `$defs`: Gemini rejects a `$ref` next to a description.

    A definition that contains itself stays a reference. Raises `ConfigError` above `MAX_INLINED_VALUES`: a few
    definitions that each use another one twice would fill the memory.
    """
    definitions: Mapping[str, Any] = schema.get("$defs", {})
    kept: set[str] = set()
    values = itertools.count(1)

    def put(node: Any, inside: tuple[str, ...]) -> Any:
        if next(values) > MAX_INLINED_VALUES:
            raise ConfigError("its schema is too large once its $refs are inlined")
        if isinstance(node, list):
            return [put(item, inside) for item in cast("list[Any]", node)]
        if not isinstance(node, dict):
            return node
        members = cast("dict[str, Any]", node)
        name = str(members.get("$ref", "")).removeprefix("#/$defs/")
        if name not in definitions:
            return {key: put(value, inside) for key, value in members.items() if key != "$defs"}
        if name in inside:
            kept.add(name)
            return members
        beside = {key: put(value, inside) for key, value in members.items() if key != "$ref"}
        return put(definitions[name], (*inside, name)) | beside

    whole: dict[str, Any] = put(dict(schema), ())
    if kept:  # their definitions may refer to any other
        whole["$defs"] = dict(definitions)
    return whole


def split_docstring(docstring: str) -> tuple[str, dict[str, str]]:
    """Split a docstring into its summary and the descriptions of the `Args:` section."""
    summary: list[str] = []
    arguments: dict[str, str] = {}
    inside, indent, current = False, 0, ""
    for line in docstring.splitlines():
        text, depth = line.strip(), len(line) - len(line.lstrip())
        if not inside and _SECTION.match(text):
            inside, indent, current = True, -1, ""
        elif inside and text and depth == 0:
            inside = False
            summary.append(line)
        elif not inside:
            summary.append(line)
        elif text:
            indent = depth if indent < 0 else indent
            found = _ARGUMENT.match(text) if depth == indent else None
            if found:
                current = found[1].lstrip("*")
                arguments[current] = found[2]
            elif current:
                arguments[current] = f"{arguments[current]} {text}".strip()
    return "\n".join(summary).strip(), arguments
