"""Work that is counted, not timed: the same on any machine, however busy it is."""

import sys
from collections.abc import Callable
from typing import Any


def counted_calls(function: Callable[..., Any], *args: Any, **kwargs: Any) -> int:
    """Return how many calls a function makes, of Python and of C functions, in this thread."""
    count = 0

    def note(frame: object, event: str, called: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        function(*args, **kwargs)
    finally:
        sys.setprofile(before)
    return count


def check_growth(work: Callable[[int], int], size: int) -> None:
    """Raise unless twice the input makes at most 2.5 times the work."""
    once, twice = work(size), work(2 * size)
    assert once > 0, "nothing was counted"
    assert twice <= 2.5 * once, f"{once} for {size}, {twice} for {2 * size}"
