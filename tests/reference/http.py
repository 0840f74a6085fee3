"""docs/reference/http.md: the routes, from the app's OpenAPI."""

import importlib
import json
import pkgutil
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, get_args

import msgspec
from fastapi.routing import APIRoute
from msgspec import Struct
from pydantic import BaseModel

import lango.server
from lango import waits
from lango.config import Settings
from lango.server.api.turns import websocket
from lango.server.app import create_app
from lango.server.compat.adk import adk_routes
from lango.server.openapi import BODY_ERRORS, GUARD_ERRORS, described
from lango.server.schemas import COMMON_ERRORS
from tests.reference.source import cell, docstring_of, fields_of, first_paragraph, heading, to_page

_SECTIONS = {
    "operating": "Operating",
    "sessions": "Sessions and messages",
    "memory": "Memory",
    "triggers": "Triggers",
    "webhooks": "Webhooks",
    "openai": "OpenAI's chat completions",
    "responses": "OpenAI's responses",
    "conversations": "OpenAI's conversations",
    "embeddings": "OpenAI's embeddings",
    "files": "OpenAI's files",
    "anthropic": "Anthropic's messages",
    "agui": "AG-UI",
    "a2a": "A2A",
}
_HOWTOS = {
    "webhooks": "See [Webhooks](../howto/webhooks.md): what is sent, and how it is verified.",
    "triggers": "See [Triggers](../howto/triggers.md): who may call them, and what becomes of an event.",
    "openai": "See [OpenAI clients](../howto/openai-client.md): what the model reads, which parameters hold.",
    "responses": "See [OpenAI's responses](../howto/openai-responses.md), also over a WebSocket at `/v1/responses`.",
    "conversations": "See [Conversations](../howto/openai-responses.md#conversations): what is an item.",
    "embeddings": "See [Embeddings](../howto/openai-client.md#embeddings): which models there are.",
    "files": "See [Uploads](../howto/openai-client.md#uploads): who has them, and how messages refer to them.",
    "anthropic": "See [Anthropic clients](../howto/anthropic-client.md): what the model reads, which parameters hold.",
    "agui": "See [AG-UI](../howto/serve.md#other-protocols): state, files, client tools, edits.",
    "a2a": "See [A2A](../howto/a2a.md): tasks, contexts, waits, and the REST routes below `/a2a/{agent}/v1`.",
}
_ADK_HOWTO = "../howto/adk-web.md#adks-rest-api-on-langos-own-server"
_KINDS = {"string": "text", "integer": "number", "number": "number", "boolean": "true or false", "object": "object"}

Json = Mapping[str, Any]


def page() -> str:
    app = create_app(Settings())
    described = app.openapi()
    lines = heading(
        "HTTP",
        first_paragraph(str(described["info"]["description"])),
        """`GET /openapi.json` of a running server returns the same for programs. If the server needs keys or tokens,
        send `Authorization: Bearer <key>` with each request. Bodies are JSON, with `Content-Type: application/json`.
        Every error is `{"error": {"type": ..., "message": ...}}`; [errors](errors.md) lists the types.""",
    )
    common = {str(status): str(answer["description"]) for status, answer in COMMON_ERRORS.items()}
    common |= GUARD_ERRORS | BODY_ERRORS
    lines += ["All routes may also respond with:", "", "| status | |", "| --- | --- |"]
    lines += [*(f"| {status} | {cell(description)} |" for status, description in sorted(common.items())), ""]
    groups: dict[str, list[tuple[str, str, Json]]] = {}
    for path, methods in described["paths"].items():
        for method, one in methods.items():
            groups.setdefault((one.get("tags") or ["operating"])[0], []).append((path, method.upper(), one))
    order = list(_SECTIONS)
    for tag in sorted(groups, key=lambda tag: (order.index(tag) if tag in order else len(order), tag)):
        lines += [f"## {_SECTIONS.get(tag, tag)}", ""]
        if tag in _HOWTOS:
            lines += [_HOWTOS[tag], ""]
        for path, method, one in sorted(groups[tag], key=lambda route: (route[0], route[1])):
            lines += _route(path, method, one, described, common)
    lines += ["## WebSocket", "", *docstring_of(websocket).splitlines(), ""]
    lines += ["## ADK's own REST", "", f"See [what differs]({_ADK_HOWTO}) from ADK's own server.", "", *_adk()]
    lines += ["## Schemas", ""]
    for name, schema in sorted(described["components"]["schemas"].items(), key=lambda one: _short(one[0]).lower()):
        lines += _schema(name, schema)
    return to_page(lines)


def _route(path: str, method: str, one: Json, described: Json, common: Mapping[str, str]) -> list[str]:
    lines = [f"### `{method} {path}`", "", first_paragraph(str(one.get("description", ""))), ""]
    if one.get("parameters"):
        lines += ["| parameter | in | type | default |", "| --- | --- | --- | --- |"]
        for each in one["parameters"]:
            default = "required" if each.get("required") else f"`{json.dumps(each['schema'].get('default'))}`"
            lines.append(f"| `{each['name']}` | {each['in']} | {_type(each['schema'])} | {default} |")
        lines.append("")
    lines += _body(one, described)
    lines += ["| status | response |", "| --- | --- |"]
    lines += [
        f"| {status} | {_answer(answer)} |"
        for status, answer in sorted(one["responses"].items())
        if common.get(status) != answer["description"]
    ]
    return [*lines, ""]


def _body(one: Json, described: Json) -> list[str]:
    content: Json = one.get("requestBody", {}).get("content", {})
    lines: list[str] = []
    for kind, body in content.items():
        named = _type(body.get("schema", {}))
        lines += [f"Body: {named}" + ("" if kind == "application/json" else f" (`{kind}`)"), ""]
        reference = body.get("schema", {}).get("$ref", "").rpartition("/")[2]
        for example in described["components"]["schemas"].get(reference, {}).get("examples", [])[:1]:
            lines += ["```json", json.dumps(example), "```", ""]
    return lines


def _answer(answer: Json) -> str:
    shown = [
        (_type(body["schema"]) if kind == "application/json" else f"`{kind}`")
        for kind, body in answer.get("content", {}).items()
        if body.get("schema") and "Error" not in str(body["schema"])
    ]
    description = "" if answer["description"] == "Successful Response" else cell(answer["description"])
    return ": ".join(part for part in (", ".join(shown), description) if part)


def _type(schema: Json) -> str:
    if "$ref" in schema:
        name = _short(schema["$ref"].rpartition("/")[2])
        return f"[{name}](#{name.lower()})"
    if "anyOf" in schema:
        return " or ".join(dict.fromkeys(_type(one) for one in schema["anyOf"]))
    if "enum" in schema or "const" in schema:
        return " or ".join(f"`{json.dumps(one)}`" for one in schema.get("enum", [schema.get("const")]))
    kind = schema.get("type", "")
    if kind == "array":
        return f"list of {_type(schema.get('items') or schema.get('prefixItems', [{}])[0])}"
    if schema.get("format") == "date-time":
        return "time"
    return _KINDS.get(kind, "null" if kind == "null" else "anything")


def _schema(name: str, schema: Json) -> list[str]:
    descriptions = {field.name: field.description for field in fields_of_all(_model(name))}
    lines = [f"### {_short(name)}", "", first_paragraph(str(schema.get("description", ""))), ""]
    if not schema.get("properties"):
        return [*lines, _type(schema), ""] if "anyOf" in schema else lines
    lines += ["| field | type | default | |", "| --- | --- | --- | --- |"]
    for field, one in schema["properties"].items():
        needed = field in schema.get("required", ())
        default = "" if needed else f"`{cell(json.dumps(one.get('default')))}`"
        lines.append(f"| `{field}` | {_type(one)} | {default} | {cell(descriptions.get(field, ''))} |")
    return [*lines, ""]


def _models() -> Iterator[type]:
    for found in sorted(pkgutil.walk_packages(lango.server.__path__, "lango.server."), key=lambda one: one.name):
        module = importlib.import_module(found.name)
        for one in vars(module).values():
            if isinstance(one, type) and issubclass(one, BaseModel) and one.__module__ == module.__name__:
                yield one
    yield from _structs([*described, *get_args(waits.Answer)])


def _structs(kinds: Iterable[type]) -> Iterator[type[Struct]]:
    """Yield the structs that routes refer to, and those in their fields."""
    pending: list[Any] = list(msgspec.inspect.multi_type_info(kinds))
    seen = set[int]()
    while pending:
        found = pending.pop()
        if id(found) in seen:
            continue
        seen.add(id(found))
        if isinstance(found, msgspec.inspect.StructType):
            yield found.cls
            pending += [field.type for field in found.fields]
        pending += getattr(found, "types", ())
        pending += [getattr(found, name) for name in ("item_type", "value_type") if hasattr(found, name)]


def _model(name: str) -> type | None:
    *module, short = name.split("__")
    home = ".".join(module)
    return next((one for one in _models() if one.__name__ == short and home in ("", one.__module__)), None)


def fields_of_all(model: type | None) -> Iterator[Any]:
    """Yield the fields of a model and of its base classes."""
    for one in reversed(model.__mro__ if model else ()):
        if issubclass(one, BaseModel | Struct) and one.__module__.startswith("lango."):
            yield from fields_of(one)


def _short(name: str) -> str:
    """Return the name of a schema, with the name of its module if another module has the same."""
    *module, short = name.split("__")
    prefix = module[-1].removesuffix("_routes").capitalize() if len(module) > 2 and module[-1] != "schemas" else ""
    return f"{prefix}{short}"


def _adk() -> list[str]:
    lines = ["| route | |", "| --- | --- |"]
    for route in adk_routes.router.routes:
        if isinstance(route, APIRoute):
            description = cell(first_paragraph(docstring_of(route.endpoint)))
            lines += [f"| `{method} {route.path}` | {description} |" for method in sorted(route.methods or ())]
    return [*lines, ""]
