"""docs/reference/errors.md: every error, with its exit code and its HTTP status."""

import ast
from collections.abc import Iterator
from pathlib import Path

import lango.server
from lango import errors
from lango.cli.main import exit_code
from lango.server.errors import to_api_error
from tests.reference.source import cell, docstring_of, first_paragraph, heading, to_page


def page() -> str:
    lines = heading(
        "Errors",
        """Every error that Lango raises on purpose is a `LangoError` of `lango.errors`. Its message describes what
        happened and, if you can fix it, how.""",
    )
    lines += ["```text", *_tree(errors.LangoError), "```", ""]
    lines += [
        "- **Exit code** of `lango`, after one sentence on stderr. Also: 3 if a tool waits for an approval in",
        "  `lango run`, 130 after Ctrl-C.",
        '- **Status** of the HTTP response, with the body `{"error": {"type": ..., "message": ...}}`. A turn that',
        "  fails after its message was accepted ends its stream with a [`turn_error` event](events.md#turnerror) of",
        "  this name. A response with 503 has `Retry-After`.",
        "",
        "| error | is a | what happened | exit code | status |",
        "| --- | --- | --- | --- | --- |",
    ]
    for kind in _kinds(errors.LangoError):
        bases = ", ".join(f"`{base.__name__}`" for base in kind.__bases__)
        error = kind("...")
        description = cell(first_paragraph(docstring_of(kind)))
        lines.append(
            f"| `{kind.__name__}` | {bases} | {description} | {exit_code(error)} | {to_api_error(error).status} |"
        )
    lines += [
        "",
        "## Errors of the server",
        "",
        "These have the same form, and no class in `lango.errors`.",
        "",
        "| status | `type` | message |",
        "| --- | --- | --- |",
    ]
    lines += [f"| {status} | `{name}` | {cell(message)} |" for status, name, message in sorted(set(_refusals()))]
    return to_page(lines)


def _tree(kind: type[errors.LangoError]) -> list[str]:
    """Draw a class, and its subclasses below it."""
    below = [one for one in kind.__subclasses__() if one.__module__ == errors.__name__ and one.__base__ is kind]
    lines = [kind.__name__]
    for one in below:
        first, *others = _tree(one)
        branch, gap = ("└── ", "    ") if one is below[-1] else ("├── ", "│   ")
        lines += [f"{branch}{first}", *(f"{gap}{line}" for line in others)]
    return lines


def _kinds(kind: type[errors.LangoError]) -> list[type[errors.LangoError]]:
    """Return a class and its subclasses, in the order of the tree."""
    found = [kind]
    for below in kind.__subclasses__():
        if below.__module__ == errors.__name__:
            found += [one for one in _kinds(below) if one not in found]
    return list(dict.fromkeys(found))


def _refusals() -> Iterator[tuple[int, str, str]]:
    """Yield the status, type and message of each `ApiError` with a literal message in the server's source."""
    [folder] = lango.server.__path__
    for path in sorted(Path(folder).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            match node:
                case ast.Call(
                    func=ast.Name(id="ApiError"),
                    args=[ast.Constant(value=int(status)), ast.Constant(value=str(name)), message, *_],
                ) if text := _text(message):
                    yield status, name, text
                case _:
                    pass


def _text(node: ast.expr) -> str:
    match node:
        case ast.Constant(value=str(text)):
            return text
        case ast.JoinedStr():
            return "".join(_text(one) if isinstance(one, ast.Constant) else "..." for one in node.values)
        case _:
            return ""
