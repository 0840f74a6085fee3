"""Every statement means the same on both databases."""

import ast
import importlib
import pkgutil
import re
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import lango.store
from lango.store.engine.database import LockingRead, SingleStatement

_STATEMENT = re.compile(r"\s*(SELECT|INSERT|UPDATE|DELETE|WITH)\b")
_PARAMETER = re.compile(r"\$(\d+)")


def is_in_order(sql: str) -> bool:
    """Whether `$1`, `$2`, ... first appear in this order: SQLite numbers them by their first appearance."""
    first = list(dict.fromkeys(int(number) for number in _PARAMETER.findall(sql)))
    return first == list(range(1, len(first) + 1))


def sqlite_texts(value: object) -> Iterator[str]:
    """Yield the statements in a module's constant that SQLite runs."""
    match value:
        case SingleStatement():
            yield value.insert
        case LockingRead():
            yield value.without_lock
        case str():
            yield value
        case dict():
            for dialect, one in cast("dict[str, object]", value).items():
                if dialect != "postgres":
                    yield from sqlite_texts(one)
        case tuple() | list():
            for one in cast("list[object]", value):
                yield from sqlite_texts(one)
        case _:
            pass


def statements() -> dict[str, str]:
    """Find the statements of the store: those in constants, as they are run, and those within functions."""
    found: dict[str, str] = {}
    for info in pkgutil.walk_packages(lango.store.__path__, "lango.store."):
        if info.name.startswith("lango.store.engine.postgres"):
            continue
        module = importlib.import_module(info.name)
        for name, value in vars(module).items():
            for number, sql in enumerate(sqlite_texts(value)):
                if _STATEMENT.match(sql):
                    found[f"{info.name}.{name}[{number}]"] = sql
        for function in ast.walk(ast.parse(Path(module.__file__ or "").read_text("utf-8"))):
            if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
                for node in ast.walk(function):
                    if isinstance(node, ast.Constant) and isinstance(node.value, str) and _STATEMENT.match(node.value):
                        found[f"{info.name}:{node.lineno}"] = node.value
    return found


def test_parameters_first_appear_in_the_order_of_their_numbers() -> None:
    found = statements()
    assert "lango.store.waits.waits._ANSWER[0]" in found
    assert len(found) > 200
    assert {name: sql for name, sql in found.items() if not is_in_order(sql)} == {}
