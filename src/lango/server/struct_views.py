"""Show the structs of the runtime to clients, and describe them in the OpenAPI document: no model repeats them."""

from datetime import datetime
from typing import Any, cast

import msgspec
from msgspec import Struct

from lango.events import to_plain_values
from lango.json_values import to_client_json
from lango.sessions import as_datetime

_COMPONENTS = "#/components/schemas/{name}"
described: list[type[Struct]] = []
"""The bodies of responses that are structs."""


def reference_to(schema: type[Struct]) -> dict[int | str, dict[str, Any]]:
    """Describe a response whose body is a struct."""
    described.append(schema)
    body = {"schema": {"$ref": _COMPONENTS.format(name=schema.__name__)}}
    return {200: {"description": "Successful Response", "content": {"application/json": body}}}


def struct_components() -> dict[str, Any]:
    """Return the schemas of all structs that `reference_to` named, by their names."""
    _, found = msgspec.json.schema_components(described, ref_template=_COMPONENTS)
    for schema in found.values():
        for name, field in schema.get("properties", {}).items():
            choices: list[Any] = field.get("anyOf", [field])
            for one in choices if _is_time(name) else ():
                if one.get("type") == "number":
                    one |= {"type": "string", "format": "date-time"}
    return found


def shown(value: Any) -> Any:
    """Return a struct, or a list of them, as clients read it: plain JSON, with times in ISO 8601."""
    if isinstance(value, Struct):
        fields = msgspec.structs.asdict(value)
        return {name: _shown_time(item) if _is_time(name, item) else shown(item) for name, item in fields.items()}
    if isinstance(value, list | tuple):
        return [shown(item) for item in cast("list[Any]", value)]
    return to_client_json(to_plain_values(value))


def _is_time(name: str, value: object = 0.0) -> bool:
    """Whether a field is a time; `at` may also be the number of a message."""
    return isinstance(value, float | datetime) and (name == "at" or name.endswith("_at"))


def _shown_time(at: float | datetime) -> str:
    return (at if isinstance(at, datetime) else as_datetime(at)).isoformat().replace("+00:00", "Z")
