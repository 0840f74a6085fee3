"""Complete the OpenAPI document that FastAPI makes: errors as the server sends them, streams, and examples."""

from collections.abc import Iterator, Sequence
from typing import Any, cast

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

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
