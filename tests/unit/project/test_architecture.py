"""Rules of the architecture that the import linter cannot express."""

import ast
from pathlib import Path

import lango
from lango import errors

SOURCE = Path(lango.__file__).parent
MODULES = sorted(SOURCE.rglob("*.py"))


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


def test_public_names_are_imported_on_first_use() -> None:
    for name in lango.__all__:
        assert getattr(lango, name), name
    assert lango.LangoError is errors.LangoError, "users catch `lango.LangoError`"
