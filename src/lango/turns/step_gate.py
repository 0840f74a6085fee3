"""Let the steps of a turn pass, or hold them back while the process stops.

A step is a model call or a tool. A turn whose next steps are all held back has nothing half done, and can be handed
over to another process.
"""

import asyncio
from collections.abc import Callable


class StepGate:
    """Counts the steps of a turn that are under way, and holds back new ones once it is closed."""

    def __init__(self) -> None:
        self._under_way = 0
        self._held_back = 0
        self._on_idle: Callable[[], None] | None = None

    async def enter(self) -> None:
        """Begin a step; once the gate is closed, wait here until the turn is stopped."""
        if self._on_idle is not None:
            self._held_back += 1
            self._check_idle()
            await asyncio.get_running_loop().create_future()
        self._under_way += 1

    def leave(self) -> None:
        """End a step, whose outcome is stored."""
        self._under_way = max(0, self._under_way - 1)
        self._check_idle()

    def close(self, on_idle: Callable[[], None]) -> None:
        """Hold back further steps, and call `on_idle` when none is under way and one is held back."""
        self._on_idle = on_idle

    def _check_idle(self) -> None:
        if self._on_idle is not None and self._held_back and not self._under_way:
            self._on_idle()
