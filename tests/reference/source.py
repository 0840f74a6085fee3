"""Read signatures, fields and docstrings from the source, so that the result is the same on every Python."""

import ast
import inspect
import itertools
import textwrap
from dataclasses import dataclass
from typing import Any

NOTE = "<!-- Generated from the code by `make reference`: edit the code. -->"


@dataclass(frozen=True)
class Field:
    name: str
    type: str
    default: str
    description: str


@dataclass(frozen=True)
class Function:
    name: str
    signature: str
    description: str


def heading(title: str, *paragraphs: str) -> list[str]:
    return [f"# {title}", "", NOTE, "", *(line for paragraph in paragraphs for line in (wrapped(paragraph), ""))]


def wrapped(text: str) -> str:
    return textwrap.fill(" ".join(text.split()), 118, break_long_words=False, break_on_hyphens=False)


def to_page(lines: list[str]) -> str:
    return "\n".join(lines).rstrip() + "\n"


def cell(text: str) -> str:
    """Return a text for the cell of a table."""
    return " ".join(text.replace("|", "\\|").split())


def node_of(thing: Any) -> ast.AST:
    """Return the definition of a class or function."""
    return ast.parse(textwrap.dedent(inspect.getsource(thing))).body[0]


def docstring_of(thing: Any) -> str:
    """Return the docstring, without its indentation."""
    return inspect.getdoc(thing) or ""


def first_paragraph(docstring: str) -> str:
    return " ".join(docstring.split("\n\n")[0].split())


def fields_of(thing: type) -> list[Field]:
    """Return the public annotated fields of a class and its bases, with the docstring below each."""
    node = node_of(thing)
    assert isinstance(node, ast.ClassDef)
    found = [one for base in thing.__bases__ if base.__module__.startswith("lango.") for one in fields_of(base)]
    for at, one in enumerate(node.body):
        if not isinstance(one, ast.AnnAssign) or not isinstance(one.target, ast.Name):
            continue
        type_ = ast.unparse(one.annotation)
        if one.target.id.startswith("_") or type_.startswith("ClassVar"):
            continue
        below = node.body[at + 1] if at + 1 < len(node.body) else None
        description = below.value.value if isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant) else ""
        found.append(Field(one.target.id, type_, _default(one.value), str(description)))
    return found


def _default(value: ast.expr | None) -> str:
    if value is None:
        return ""
    if isinstance(value, ast.Call) and ast.unparse(value.func) == "field":
        made = {key.arg: key.value for key in value.keywords}
        factory = made.get("default_factory")
        return ast.unparse(made["default"]) if "default" in made else f"{ast.unparse(factory)}()" if factory else ""
    return ast.unparse(value)


def signature_of(node: ast.FunctionDef | ast.AsyncFunctionDef, name: str = "", *, bound: bool = False) -> str:
    """Return the call of a function, on several lines if it is long."""
    pieces = _pieces(node.args)[1 if bound else 0 :]
    returns = f" -> {_annotation(node.returns)}" if node.returns else ""
    start = f"{_call_prefix(node)}{name or node.name}"
    line = f"{start}({', '.join(pieces)}){returns}"
    if len(line) <= 110:
        return line
    inside = "".join(f"    {one},\n" for one in pieces)
    return f"{start}(\n{inside}){returns}"


def _call_prefix(node: ast.FunctionDef | ast.AsyncFunctionDef) -> str:
    """Return the keywords before the call."""
    if "asynccontextmanager" in [ast.unparse(mark) for mark in node.decorator_list]:
        return "async with "
    if isinstance(node, ast.AsyncFunctionDef):
        return "async for ... in " if "AsyncGenerator" in _annotation(node.returns) else "await "
    return ""


def _annotation(node: ast.expr | None) -> str:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):  # a quoted annotation
        return node.value
    return ast.unparse(node) if node else ""


def _pieces(arguments: ast.arguments) -> list[str]:
    plain = [*arguments.posonlyargs, *arguments.args]
    defaults: list[ast.expr | None] = [*[None] * (len(plain) - len(arguments.defaults)), *arguments.defaults]
    pieces = [_piece(one, default) for one, default in zip(plain, defaults, strict=True)]
    if arguments.posonlyargs:
        pieces.insert(len(arguments.posonlyargs), "/")
    if arguments.vararg:
        pieces.append(f"*{_piece(arguments.vararg, None)}")
    elif arguments.kwonlyargs:
        pieces.append("*")
    pieces += [_piece(one, default) for one, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)]
    return pieces + ([f"**{_piece(arguments.kwarg, None)}"] if arguments.kwarg else [])


def _piece(argument: ast.arg, default: ast.expr | None) -> str:
    typed = f": {_annotation(argument.annotation)}" if argument.annotation else ""
    given = "" if default is None else f" = {ast.unparse(default)}" if typed else f"={ast.unparse(default)}"
    return f"{argument.arg}{typed}{given}"


def methods_of(thing: type) -> list[Function]:
    """Return the public methods and properties of a class, with those of its bases in Lango."""
    bases: tuple[type, ...] = thing.__mro__
    own: list[type] = [
        base for base in bases if base.__module__.startswith("lango") and not issubclass(base, Exception)
    ]
    found = {method.name: method for base in reversed(own) for method in _own_methods(base)}
    return list(found.values())


def _own_methods(thing: type) -> list[Function]:
    node = node_of(thing)
    assert isinstance(node, ast.ClassDef)
    found: list[Function] = []
    for one in node.body:
        if isinstance(one, ast.FunctionDef) and one.name == "__init__":
            found += _attributes_of(one)
        if not isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef) or one.name.startswith("_"):
            continue
        marks = [ast.unparse(mark) for mark in one.decorator_list]
        if any(mark.endswith((".setter", "validator", "overload")) for mark in marks):
            continue
        description = first_paragraph(ast.get_docstring(one) or "")
        if "property" in marks or "cached_property" in marks:
            kind = f": {ast.unparse(one.returns)}" if one.returns else ""
            found.append(Function(one.name, f"{one.name}{kind}", description))
        else:
            found.append(Function(one.name, signature_of(one, bound="staticmethod" not in marks), description))
    return found


def _attributes_of(made: ast.FunctionDef) -> list[Function]:
    """Return the public attributes that a constructor makes and describes, such as `runtime.inbox`."""
    found: list[Function] = []
    for assigned, described in itertools.pairwise(made.body):
        match assigned, described:
            case (
                ast.Assign([ast.Attribute(ast.Name("self"), name)], ast.Call(ast.Name(kind))),
                ast.Expr(ast.Constant(str(description))),
            ) if not name.startswith("_"):
                found.append(Function(name, f"{name}: {kind}", first_paragraph(description)))
            case _:
                pass
    return found


def init_of(thing: type) -> str | None:
    """Return the constructor call of a class with its own `__init__`."""
    node = node_of(thing)
    assert isinstance(node, ast.ClassDef)
    for one in node.body:
        if isinstance(one, ast.FunctionDef) and one.name == "__init__":
            one.returns = None
            return signature_of(one, thing.__name__, bound=True)
    return None
