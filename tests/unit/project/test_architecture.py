"""Rules of the architecture that the import linter cannot express."""

import ast
from pathlib import Path

import lango
from lango import errors

SOURCE = Path(lango.__file__).parent
MODULES = sorted(SOURCE.rglob("*.py"))
ADK = sorted((SOURCE / "adk").rglob("*.py"))


def imported(module: Path) -> set[str]:
    """Return every module that a file imports, anywhere in it."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(module.read_text("utf-8"))):
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
    assert {module: count for module in MODULES if (count := len(module.read_text("utf-8").splitlines())) > 420} == {}


def test_one_context_variable_holds_the_turn_and_one_the_step() -> None:
    assert {module.stem for module in ADK if "ContextVar(" in module.read_text("utf-8")} == {"turn_run", "step"}


def test_the_parts_of_a_turn_are_small_and_change_themselves_alone() -> None:
    for module in ADK:
        for node in ast.walk(ast.parse(module.read_text("utf-8"))):
            if isinstance(node, ast.ClassDef):
                fields = [statement for statement in node.body if isinstance(statement, ast.AnnAssign)]
                assert len(fields) <= 20, f"{module}: {node.name}"
            targets = node.targets if isinstance(node, ast.Assign) else []
            targets += [node.target] if isinstance(node, ast.AugAssign | ast.AnnAssign) else []
            for target in targets:
                assert not _is_part_of_turn(target), f"{module}: {ast.unparse(target)} is assigned from outside"


def _is_part_of_turn(target: ast.expr) -> bool:
    """Whether this is an attribute of an object that a variable `turn` holds."""
    outer = target.value if isinstance(target, ast.Attribute) else None
    while isinstance(outer, ast.Attribute):
        outer = outer.value
    return isinstance(outer, ast.Name) and outer.id == "turn"


def test_public_names_are_imported_on_first_use() -> None:
    for name in lango.__all__:
        assert getattr(lango, name), name
    assert lango.LangoError is errors.LangoError, "users catch `lango.LangoError`"
