"""docs/reference/configuration.md: every setting, of the tables of `lango.config`."""

import json
import types
import typing
from collections.abc import Iterator
from typing import Any

from annotated_types import Ge, Gt, Le, MinLen
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from lango.config import Settings
from tests.reference.source import cell, fields_of, heading, words_of, written

_EXAMPLE = """\
[agent]
name = "lango"                      # letters, digits and _ only: ADK's rule
model = "openai/gpt-5-mini"         # provider/name; without one: local/default
instruction = "You are a helpful assistant."

[providers.openai]
api_key_env = "OPENAI_API_KEY"      # the variable that holds the key, never the key

[store]
url = "sqlite:///lango.db"

[history]
max_message_token_budget = 32000    # 0: the default, 32,000
max_messages = 100                  # while memory is off
"""
_MORE = {
    "agent": "[Your own agent](../howto/own-agent.md) is about `module`.",
    "agent.sub_agents.<name>": "See [sub-agents](../howto/sub-agents.md).",
    "providers.<name>": "See [a provider](../howto/provider.md).",
    "store": "See [PostgreSQL](../howto/postgresql.md).",
    "memory": "See [memory](../howto/memory.md).",
    "tools": "See [tools](../howto/tool.md) and [approval](../howto/approval.md).",
    "mcp.<name>": "See [MCP](../howto/mcp.md).",
    "server": "See [serve](../howto/serve.md), also for [keys and tokens](../howto/serve.md#authentication).",
    "server.oidc": "See [authentication](../howto/serve.md#authentication).",
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
        """`lango.toml` in the current folder, or the file that `--config` or `LANGO_CONFIG` names. `lango init` writes
        one to begin with. Each key is also an environment variable `LANGO_SECTION__KEY`, which wins over the file.""",
    )
    lines += ["```toml", *_EXAMPLE.splitlines(), "```", ""]
    lines += [
        "An unknown key is an error that names the file, the line and the key.",
        "",
        "Below is every setting. Lists and tables are written in the environment as JSON:",
        """`LANGO_TOOLS__ENABLED='["shell"]'`; the rest as it is: `LANGO_SERVER__PORT=8080`.""",
        "",
    ]
    for path, table in tables("", Settings):
        if path:
            lines += _section(path, table)
    return written(lines)


def tables(path: str, annotation: Any) -> Iterator[tuple[str, type[BaseModel]]]:
    """Find the tables below a field, each with its name."""
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
    says = words_of(table).partition(": ")[2]
    lines = [f"## `[{path}]`", "", f"{says[:1].upper()}{says[1:]} {_MORE.get(path, '')}".rstrip(), ""]
    lines += ["| setting | type | default | environment | what it says |", "| --- | --- | --- | --- | --- |"]
    told = {field.name: field.says for field in fields_of(table)}
    for name, field in table.model_fields.items():
        assert told[name], f"{path}.{name} has no words below it in lango.config.sections"
        kind = _type(field.annotation, field.metadata)
        lines.append(f"| `{name}` | {kind} | {_default(field)} | `{variable(path, name)}` | {cell(told[name])} |")
    return [*lines, ""]


def _is_union(annotation: Any) -> bool:
    return isinstance(annotation, types.UnionType) or typing.get_origin(annotation) is typing.Union


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "needed"
    default = field.get_default(call_default_factory=True)
    return "none" if default is None else f"`{json.dumps(default)}`"


def _type(annotation: Any, limits: list[Any]) -> str:
    """Say a type as somebody writes it who edits the file."""
    origin, inner = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is typing.Annotated:
        kind = _type(inner[0], [one for field in inner[1:] for one in field.metadata])
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
            return ""  # a pattern: the words say it
