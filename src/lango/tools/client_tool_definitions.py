"""Define tools that the client runs, and reject schemas that no model accepts."""

import re
from collections.abc import Mapping, Sequence
from typing import Any, cast

from lango.errors import ClientToolRefused, ConfigError
from lango.threads import run_in_thread
from lango.tools.function_schema import inline_definitions
from lango.tools.schema_checker import measure_schema
from lango.tools.tool import Tool

MAX_CLIENT_TOOLS = 100
"""Some providers accept at most 128 tools, including those of the agent."""
MAX_CHARACTERS = 200_000
"""Characters of all schemas of one client; `schema_checker` limits each of them."""
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}")
# no provider accepts these at the top level of a tool's schema
_NOT_AT_THE_TOP = ("oneOf", "anyOf", "allOf", "enum", "not", "$ref")


async def _run_by_client(arguments: dict[str, Any], /) -> None:
    raise NotImplementedError("the client runs this tool")


def client_tool(name: str, description: str, parameters: Any = None) -> Tool:
    """Return a tool that the client runs. Raises `ClientToolRefused` if models would reject it."""
    if not _NAME.fullmatch(name):
        raise ClientToolRefused(
            f"{name[:80]!r} is not a valid tool name: use a letter, then at most 63 letters, digits, _ and -"
        )
    if not isinstance(parameters or {}, Mapping):
        raise ClientToolRefused(f"tool {name}: its parameters must be a JSON schema of an object")
    schema = dict(cast("Mapping[str, Any]", parameters or {}))
    at_the_top = [keyword for keyword in _NOT_AT_THE_TOP if keyword in schema]
    if at_the_top:
        raise ClientToolRefused(
            f"tool {name}: {at_the_top[0]} is not allowed at the top level of its schema; use properties"
        )
    _check_schema_size(name, schema)
    try:
        Tool(name, description, schema, _run_by_client)  # checks it with its own `$schema`
        sent = inline_definitions({key: keyword for key, keyword in schema.items() if key != "$schema"})
        return Tool(name, description, sent, _run_by_client)
    except ConfigError as error:
        text = str(error)
        raise ClientToolRefused(text if text.startswith("tool ") else f"tool {name}: {text}") from error
    except RecursionError as error:
        raise ClientToolRefused(f"tool {name}: its schema is nested too deeply") from error


def _check_schema_size(name: str, schema: Mapping[str, Any]) -> int:
    try:
        return measure_schema(schema)
    except ConfigError as error:
        raise ClientToolRefused(f"tool {name[:80]}: its schema cannot be used: {error}") from error


async def read_client_tools(definitions: Sequence[tuple[str, str, Any]]) -> list[Tool]:
    """Make the tools of a request from names, descriptions and parameters, off the event loop.

    Raises `ClientToolRefused` if one is not usable, or if all together are too large.
    """
    return await run_in_thread(_make_tools, definitions) if definitions else []


def _check_count(tools: Sequence[Any]) -> None:
    if len(tools) > MAX_CLIENT_TOOLS:
        raise ClientToolRefused(f"a client may send at most {MAX_CLIENT_TOOLS} tools, not {len(tools)}")


def _make_tools(definitions: Sequence[tuple[str, str, Any]]) -> list[Tool]:
    _check_count(definitions)
    total = 0
    for name, _, parameters in definitions:
        if isinstance(parameters, Mapping):
            total += _check_schema_size(name, cast("Mapping[str, Any]", parameters))
        if total > MAX_CHARACTERS:
            raise ClientToolRefused(f"the schemas of a client's tools have more than {MAX_CHARACTERS} characters")
    return [client_tool(*definition) for definition in definitions]


def tools_by_name(tools: Sequence[Tool]) -> dict[str, Tool]:
    """Return tools by name. Raises `ClientToolRefused` if two have the same name, or if there are too many."""
    _check_count(tools)
    named = {tool.name: tool for tool in tools}
    if len(named) < len(tools):
        names = [tool.name for tool in tools]
        twice = sorted({name for name in names if names.count(name) > 1})
        raise ClientToolRefused(f"two tools are named {', '.join(twice)}: names must differ")
    return named
