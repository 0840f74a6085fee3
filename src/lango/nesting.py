"""How deep a value is nested: what is too deep can be written by one who stands high, and not be read by one below."""

from collections.abc import Iterable, Iterator
from typing import Any, cast


def is_deeper_than(value: Any, levels: int) -> bool:
    """Say whether a value of JSON has more than so many objects and lists inside each other."""
    level = list(_containers([value]))
    for _ in range(levels):
        if not level:
            return False
        level = [inner for one in level for inner in _containers(one)]
    return bool(level)


def _containers(items: Iterable[Any]) -> Iterator[Iterable[Any]]:
    for item in items:
        if isinstance(item, dict):
            yield cast("dict[Any, Any]", item).values()
        elif isinstance(item, list | tuple):
            yield cast("list[Any]", item)
