"""docs/reference/errors.md: every error, with its exit code and its status."""

import ast
from collections.abc import Iterator
from pathlib import Path

import lango.server
from lango import errors
from lango.cli.main import exit_code
from lango.server.errors import to_api_error
from tests.reference.source import cell, first_paragraph, heading, words_of, written


def page() -> str:
    tree = words_of(errors).split("```")[1].strip()
    lines = heading(
        "Errors",
        """Everything that Lango raises on purpose is a `LangoError` of `lango.errors`. Its message says what happened
        and, where somebody can mend it, how.""",
    )
    lines += ["```text", *tree.splitlines(), "```", ""]
    lines += [
        "- **Exit code**: what `lango` exits with, after one sentence on stderr. Besides: 3 where a tool waits for an",
        "  approval in `lango run`, 130 after Ctrl-C.",
        '- **Status**: what the server answers with, as `{"error": {"type": ..., "message": ...}}`. A turn that fails',
        "  after its message was accepted is told in its stream, as an [`error` event](events.md#turnerror) of this",
        "  name. 503 comes with `Retry-After`.",
        "",
        "| error | is a | what happened | exit code | status |",
        "| --- | --- | --- | --- | --- |",
    ]
    for kind in _kinds(errors.LangoError):
        bases = ", ".join(f"`{base.__name__}`" for base in kind.__bases__)
        one = kind("...")
        says = cell(first_paragraph(words_of(kind)))
        lines.append(f"| `{kind.__name__}` | {bases} | {says} | {exit_code(one)} | {to_api_error(one).status} |")
    lines += [
        "",
        "## What the server refuses by itself",
        "",
        "These have a name and a message in the same form, and no class in `lango.errors`.",
        "",
        "| status | `type` | message |",
        "| --- | --- | --- |",
    ]
    lines += [f"| {status} | `{name}` | {cell(says)} |" for status, name, says in sorted(set(_refusals()))]
    return written(lines)


def _kinds(kind: type[errors.LangoError]) -> list[type[errors.LangoError]]:
    """A class and all below it, in the order of the tree."""
    found = [kind]
    for below in kind.__subclasses__():
        if below.__module__ == errors.__name__:
            found += [one for one in _kinds(below) if one not in found]
    return list(dict.fromkeys(found))


def _refusals() -> Iterator[tuple[int, str, str]]:
    """Find each refusal in the server's source whose words are written there."""
    [folder] = lango.server.__path__
    for path in sorted(Path(folder).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            match node:
                case ast.Call(
                    func=ast.Name(id="ApiError"),
                    args=[ast.Constant(value=int(status)), ast.Constant(value=str(name)), says, *_],
                ) if text := _text(says):
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
