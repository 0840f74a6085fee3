"""docs/reference/configuration.md: every setting, from the tables of `lango.config`."""

import json
import types
import typing
from collections.abc import Iterator
from typing import Any

from annotated_types import Ge, Gt, Le, MinLen
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from lango.config import Settings
from tests.reference.source import cell, docstring_of, fields_of, heading, to_page

_EXAMPLE = """\
[agent]
name = "lango"                      # letters, digits and _ only: ADK's rule
model = "openai/gpt-5-mini"         # provider/name; default: local/default
instruction = "You are a helpful assistant."

[providers.openai]
api_key_env = "OPENAI_API_KEY"      # the name of the variable, not the key

[store]
url = "sqlite:///lango.db"

[history]
max_message_token_budget = 32000    # 0: the default, 32,000
max_messages = 100                  # while memory is off
"""
_MORE = {
    "agent": "For `module`, see [Your own ADK agent](../howto/own-agent.md).",
    "agent.sub_agents.<name>": "See [Sub-agents](../howto/sub-agents.md).",
    "providers.<name>": "See [Providers and models](../howto/provider.md).",
    "store": "See [PostgreSQL](../howto/postgresql.md).",
    "memory": "See [Memory](../howto/memory.md).",
    "tools": "See [Tools](../howto/tool.md) and [Approvals](../howto/approval.md).",
    "mcp.<name>": "See [MCP servers](../howto/mcp.md).",
    "webhooks.<name>": "See [Webhooks](../howto/webhooks.md).",
    "triggers.<name>": "See [Triggers](../howto/triggers.md).",
    "server": "See [Server](../howto/serve.md).",
    "server.limits": "See [Security](../security.md#settings).",
    "server.oidc": "See [Authentication](../howto/serve.md#authentication).",
}
_KINDS: dict[Any, str] = {
    str: "text",
    int: "whole number",
    float: "number",
    bool: "`true` or `false`",
    Any: "anything",
}


def page() -> str:
    lines = heading(
        "Configuration",
        """Lango reads `lango.toml` in the current folder, or the file of `--config` or `LANGO_CONFIG`. `lango init`
        writes a first one. Each key is also an environment variable `LANGO_SECTION__KEY`, which has priority over
        the file.""",
    )
    lines += ["```toml", *_EXAMPLE.splitlines(), "```", ""]
    lines += [
        "An unknown key is an error that names the file, the line and the key.",
        "",
        "Environment variables hold lists and tables as JSON:",
        """`LANGO_TOOLS__ENABLED='["shell"]'`, and other values as text: `LANGO_SERVER__PORT=8080`.""",
        "",
    ]
    for path, table in tables("", Settings):
        if path:
            lines += _section(path, table)
    return to_page(lines)


def tables(path: str, annotation: Any) -> Iterator[tuple[str, type[BaseModel]]]:
    """Yield the tables below a field, each with its path."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield path, annotation
        for name, field in annotation.model_fields.items():
            yield from tables(f"{path}.{name}" if path else name, field.annotation)
    elif typing.get_origin(annotation) is dict:
        yield from tables(f"{path}.<name>", typing.get_args(annotation)[1])
    elif _is_union(annotation):
        for part in typing.get_args(annotation):
            yield from tables(path, part)


def variable(path: str, name: str) -> str:
    """Return the environment variable of a setting."""
    return f"LANGO_{path}.{name}".upper().replace(".", "__")


def _section(path: str, table: type[BaseModel]) -> list[str]:
    description = docstring_of(table).partition(": ")[2]
    lines = [f"## `[{path}]`", "", f"{description[:1].upper()}{description[1:]} {_MORE.get(path, '')}".rstrip(), ""]
    lines += ["| setting | type | default | environment | meaning |", "| --- | --- | --- | --- | --- |"]
    descriptions = {field.name: field.description for field in fields_of(table)}
    for name, field in table.model_fields.items():
        assert descriptions[name], f"{path}.{name} has no docstring below it in lango.config.sections"
        kind = _type(field.annotation, field.metadata)
        lines.append(
            f"| `{name}` | {kind} | {_default(field)} | `{variable(path, name)}` | {cell(descriptions[name])} |"
        )
    return [*lines, ""]


def _is_union(annotation: Any) -> bool:
    return isinstance(annotation, types.UnionType) or typing.get_origin(annotation) is typing.Union


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "required"
    default = field.get_default(call_default_factory=True)
    if isinstance(default, BaseModel):
        return "its defaults"
    return "none" if default is None else f"`{json.dumps(default)}`"


def _type(annotation: Any, limits: list[Any]) -> str:
    """Return a type in the words of the configuration file."""
    origin, inner = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is typing.Annotated:
        kind = _type(inner[0], [one for about in inner[1:] for one in getattr(about, "metadata", ())])
    elif origin is typing.Literal:
        kind = " or ".join(f"`{json.dumps(one)}`" for one in inner)
    elif origin is list:
        kind = "list of names" if typing.get_origin(inner[0]) is typing.Literal else f"list of {_type(inner[0], [])}"
    elif origin is dict or (isinstance(annotation, type) and issubclass(annotation, BaseModel)):
        kind = "table"
    elif _is_union(annotation):
        kind = " or ".join(_type(one, []) for one in inner if one is not type(None))
    else:
        kind = _KINDS[annotation]
    return kind + "".join(_limit(one) for one in limits)


def _limit(limit: Any) -> str:
    match limit:
        case Gt(gt=least):
            return f" above {least}"
        case Ge(ge=least):
            return f" from {least}"
        case Le(le=most):
            return f" to {most:,}"
        case MinLen():
            return ", not empty"
        case _:
            return ""  # a pattern: the description explains it
