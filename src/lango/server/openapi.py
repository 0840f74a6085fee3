"""Complete the OpenAPI document that FastAPI makes: errors as the server sends them, streams, and examples.

Structs of the runtime are shown to clients and described as they are: no model repeats them.
"""

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any, cast

import msgspec
from msgspec import Struct
from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from lango.events import to_plain_values
from lango.json_values import to_client_json
from lango.sessions import as_datetime

Json = dict[str, Any]

_ERROR_BODY = "#/components/schemas/ErrorBody"
GUARD_ERRORS = {
    "400": "The request is invalid; the message says why.",
    "403": "The host or the origin is not allowed.",
    "503": "Temporarily unavailable; see Retry-After.",
}
BODY_ERRORS = {
    "408": "The body arrived too slowly.",
    "413": "The body, or a part of it, is too large.",
    "415": "The body has another Content-Type than the declared one.",
}
EVENT_STREAM: dict[str, Any] = {
    "schema": {
        "type": "object",
        "description": "One event of the stream.",
        "properties": {
            "id": {"type": "string"},
            "event": {"type": "string"},
            "data": {"type": "string", "contentMediaType": "application/json"},
        },
        "required": ["data"],
    }
}
"""The content of a response of server-sent events: its schema is that of each event."""
STREAM_EXAMPLE = """\
id: 1000001
event: accepted
data: {"type":"accepted","id":1000001,"turn":1,"waiting":false,"invocation_id":"e-5c2f"}

id: 1000004
event: text_delta
data: {"type":"text_delta","id":1000004,"text":"Hello! How can I help?","author":"lango","block":1}

id: 1000005
event: text_end
data: {"type":"text_end","id":1000005,"block":1,"author":"lango"}

id: 1000006
event: done
data: {"type":"done","id":1000006,"turn":1,"status":"done","usage":{"output_tokens":7},"finish_reason":"stop"}

"""
EXPORT_EXAMPLE = """\
{"kind":"header","format":"lango-session","version":1}
{"kind":"session","app":"lango","user":"user","id":"imported","title":"A greeting","created_at":1760000000.0,\
"updated_at":1760000001.5,"revision":2,"epoch":0}
{"kind":"message","seq":1,"role":"user","author":"user","content":"Hello!","tokens":5,"created_at":1760000000.5,\
"event_id":"first"}
{"kind":"message","seq":2,"role":"assistant","author":"lango","content":"Hello! How can I help?","tokens":9,\
"created_at":1760000001.5,"event_id":"second"}
{"kind":"end","lines":4}
"""
_COMPONENTS = "#/components/schemas/{name}"
described: list[type[Struct]] = []
"""The bodies of responses that are structs."""


def complete_openapi(schema: Json, error_bodies: Sequence[type[BaseModel]], components: Json) -> None:
    """Change a document in place so that it declares what the server answers.

    `error_bodies` are the bodies that `lango.server.schemas.error_responses` names; `components` are other schemas that
    routes refer to.
    """
    for operation in _operations(schema):
        responses: Json = operation["responses"]
        if "HTTPValidationError" in str(responses.get("422")):
            del responses["422"]  # the server answers 400
        # sent before a route runs, whatever the route
        for status, description in (GUARD_ERRORS | (BODY_ERRORS if "requestBody" in operation else {})).items():
            content = {"application/json": {"schema": {"$ref": _ERROR_BODY}}}
            responses.setdefault(status, {"description": description, "content": content})
        operation["responses"] = dict(sorted(responses.items()))
        for parameter in operation.get("parameters", ()):
            _without_null(parameter)
    _, made = models_json_schema(
        [(body, "serialization") for body in error_bodies], ref_template="#/components/schemas/{model}"
    )
    schemas: Json = schema["components"]["schemas"] | made["$defs"] | components
    for name in ("HTTPValidationError", "ValidationError"):
        schemas.pop(name, None)
    schema["components"]["schemas"] = dict(sorted(schemas.items()))


def _operations(schema: Json) -> Iterator[Json]:
    for path in schema["paths"].values():
        yield from path.values()


def _without_null(parameter: Json) -> None:
    """Declare an optional parameter by its type alone: leaving it out sends none."""
    schema: Json = parameter["schema"]
    choices = cast("list[Json]", schema.get("anyOf", []))
    kept = [choice for choice in choices if choice != {"type": "null"}]
    if len(kept) == 1 and len(choices) == 2:
        del schema["anyOf"]
        schema.update(kept[0])


def reference_to(schema: type[Struct], status: int = 200) -> dict[int | str, dict[str, Any]]:
    """Describe a response whose body is a struct."""
    described.append(schema)
    body = {"schema": {"$ref": _COMPONENTS.format(name=schema.__name__)}}
    return {status: {"description": "Successful Response", "content": {"application/json": body}}}


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
