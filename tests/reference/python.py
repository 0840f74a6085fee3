"""docs/reference/python.md: the public names and their signatures."""

import ast
import inspect
from types import ModuleType
from typing import Any

import lango
import lango.adk
import lango.history
import lango.messages
import lango.runtime
import lango.testing
from tests.reference.source import (
    cell,
    docstring_of,
    fields_of,
    first_paragraph,
    heading,
    init_of,
    methods_of,
    node_of,
    signature_of,
    to_page,
)

_MODULES = (lango, lango.runtime, lango.adk, lango.messages, lango.history, lango.testing)
_ELSEWHERE = {"Settings": "[Configuration](configuration.md) lists every setting."}


def page() -> str:
    lines = heading(
        "Python",
        "The public names. [Events](events.md) and [errors](errors.md) have their own pages.",
    )
    for module in _MODULES:
        lines += [f"## `{module.__name__}`", "", first_paragraph(docstring_of(module)), ""]
        for name in _public(module):
            lines += _described(name, getattr(module, name))
    return to_page(lines)


def _public(module: ModuleType) -> list[str]:
    if module is lango.runtime:
        return ["Sessions"]  # `lango` exports what else users need of it
    named: list[str] | None = getattr(module, "__all__", None)
    if named is not None:
        return sorted((name for name in named if not name.startswith("__")), key=str.lower)
    things: dict[str, Any] = vars(module)
    here = [name for name, one in things.items() if getattr(one, "__module__", "") == module.__name__]
    return sorted((name for name in here if not name.startswith("_")), key=str.lower)


def _described(name: str, thing: Any) -> list[str]:
    lines = [f"### `{name}`", ""]
    if inspect.isclass(thing):
        return lines + _class(name, thing)
    if inspect.isfunction(thing):
        node = node_of(thing)
        assert isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        return [*lines, "```text", signature_of(node), "```", "", first_paragraph(docstring_of(thing)), ""]
    return [*lines, f"`{thing!r}`" if isinstance(thing, int | str) else "A type.", ""]


def _class(name: str, thing: type) -> list[str]:
    lines = [first_paragraph(docstring_of(thing)), ""]
    if name in _ELSEWHERE:
        return [*lines, _ELSEWHERE[name], ""]
    made = init_of(thing)
    if made and name != "Runtime":  # open_runtime creates it
        lines += ["```text", made, "```", ""]
    fields = [] if made else fields_of(thing)
    if fields:
        lines += ["| field | type | default | |", "| --- | --- | --- | --- |"]
        for field in fields:
            default = f"`{cell(field.default)}`" if field.default else ""
            lines.append(f"| `{field.name}` | `{cell(field.type)}` | {default} | {cell(field.description)} |")
        lines.append("")
    for method in methods_of(thing):
        lines += ["```text", method.signature, "```", "", method.description, ""]
    return lines
