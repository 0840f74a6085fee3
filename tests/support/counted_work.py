"""Work that is counted, not timed: the same on any machine, however busy it is."""

import cProfile
from collections.abc import Callable
from typing import Any


def counted_calls(function: Callable[..., Any], *args: Any, **kwargs: Any) -> int:
    """Return how many calls a function makes, of Python and of C functions, in this thread.

    The profiler counts in C: a counter in Python takes several times as long as the work.
    """
    profile = cProfile.Profile(subcalls=False)
    profile.runcall(function, *args, **kwargs)
    return sum(entry.callcount for entry in profile.getstats())


def check_growth(work: Callable[[int], int], size: int) -> None:
    """Raise unless twice the input makes at most 2.5 times the work."""
    once, twice = work(size), work(2 * size)
    assert once > 0, "nothing was counted"
    assert twice <= 2.5 * once, f"{once} for {size}, {twice} for {2 * size}"
