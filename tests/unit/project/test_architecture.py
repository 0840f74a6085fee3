"""Rules of the architecture that the import linter cannot express."""

import ast
import re
from functools import cache
from pathlib import Path

import lango
from lango import errors

SOURCE = Path(lango.__file__).parent
MODULES = sorted(SOURCE.rglob("*.py"))
ADK = sorted((SOURCE / "adk").rglob("*.py"))


@cache
def parsed(module: Path) -> ast.Module:
    return ast.parse(module.read_text("utf-8"))


@cache
def imported(module: Path) -> set[str]:
    """Return every module of Google that a file imports, anywhere in it."""
    names: set[str] = set()
    if "google" not in module.read_text("utf-8"):
        return names  # without parsing it
    for node in ast.walk(parsed(module)):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return names


def test_only_the_adk_package_imports_adk() -> None:
    outside = [module for module in MODULES if SOURCE / "adk" not in module.parents]
    assert outside
    for module in outside:
        assert not {name for name in imported(module) if name.startswith("google.adk")}, module


def test_adk_is_used_by_its_public_names() -> None:
    for module in MODULES:
        private = {name for name in imported(module) if name.startswith("google.") and "._" in name}
        assert not private, f"{module} imports {private}"


def test_modules_can_be_read_in_one_sitting() -> None:
    counts = {module: len(module.read_text("utf-8").splitlines()) for module in MODULES}
    assert {module: count for module, count in counts.items() if count > 420} == {}


def test_one_context_variable_holds_the_turn_and_one_the_step() -> None:
    assert {module.stem for module in ADK if "ContextVar(" in module.read_text("utf-8")} == {"turn_run", "step"}


PARTS = {"turn", "limits", "record", "waits", "output"}
"""The names of variables that hold the run of a turn, or a part of it."""
MUTABLE = {"set", "list", "dict", "Counter", "defaultdict"}


MOST_FIELDS = 20
FIELD = re.compile(r"\bself\.\w+|^ +\w+:", re.MULTILINE)
"""What a module contains at least once for each field of its classes."""


def test_no_class_has_many_fields() -> None:
    counts: dict[str, int] = {}
    for module in MODULES:
        if len(set(FIELD.findall(module.read_text("utf-8")))) < MOST_FIELDS:
            continue  # without parsing it
        for node in ast.walk(parsed(module)):
            if isinstance(node, ast.ClassDef):
                declared = {ast.unparse(one.target) for one in node.body if isinstance(one, ast.AnnAssign)}
                counts[f"{module}: {node.name}"] = len(declared | _attributes_set_in(node))
    assert {name: count for name, count in counts.items() if count > MOST_FIELDS} == {}
    assert max(counts.values()) > MOST_FIELDS // 2, "fields are found"


def _attributes_set_in(node: ast.ClassDef) -> set[str]:
    """Return the attributes of `self` that the methods of a class set."""
    return {
        part.attr
        for statement in ast.walk(node)
        for target in _changed(statement)
        for part in ast.walk(target)
        if isinstance(part, ast.Attribute) and isinstance(part.value, ast.Name) and part.value.id == "self"
    }


def test_the_parts_of_a_turn_change_themselves_alone() -> None:
    for module in ADK:
        for node in ast.walk(parsed(module)):
            for target in _changed(node):
                assert not _is_part_of_turn(target), f"{module}: {ast.unparse(target)} is changed from outside"


def test_the_parts_of_a_turn_show_no_collections_that_others_could_change() -> None:
    seen = 0
    for module in (SOURCE / "adk" / "turn").glob("*.py"):
        for node in ast.walk(parsed(module)):
            for field in node.body if isinstance(node, ast.ClassDef) else []:
                name = ast.unparse(field.target) if isinstance(field, ast.AnnAssign) else "_"
                if isinstance(field, ast.AnnAssign) and not name.startswith("_"):
                    kinds = {kind.split("[")[0] for kind in ast.unparse(field.annotation).split(" | ")}
                    assert not kinds & MUTABLE, f"{module}: {name}"
                    seen += 1
    assert seen


def _changed(node: ast.AST) -> list[ast.expr]:
    """Return what a statement assigns or deletes."""
    match node:
        case ast.Assign() | ast.Delete():
            return node.targets
        case ast.AugAssign() | ast.AnnAssign():
            return [node.target]
        case _:
            return []


def _is_part_of_turn(target: ast.expr) -> bool:
    """Whether this is an attribute, or an item in one, of an object that a variable with such a name holds."""
    while isinstance(target, ast.Subscript):
        target = target.value
    outer = target.value if isinstance(target, ast.Attribute) else None
    while isinstance(outer, ast.Attribute):
        outer = outer.value
    return isinstance(outer, ast.Name) and outer.id in PARTS


def test_public_names_are_imported_on_first_use() -> None:
    for name in lango.__all__:
        assert getattr(lango, name), name
    assert lango.LangoError is errors.LangoError, "users catch `lango.LangoError`"
