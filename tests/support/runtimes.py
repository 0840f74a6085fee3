"""Look behind a runtime: at the store that it runs on, for tests that read rows, and at its turns."""

from typing import Any

from lango.runtime.execution.turn_supervisor import TurnSupervisor
from lango.runtime.runtime import Runtime
from lango.store import Store


def store_of(runtime: Runtime) -> Store:
    """Return the store that a runtime runs on."""
    return vars(runtime)["_store"]


def supervisor_of(runtime: Runtime) -> TurnSupervisor:
    """Return what runs the turns of a runtime."""
    return vars(runtime)["_supervisor"]


async def expire_waits(runtime: Runtime, *, notify: bool = True) -> None:
    """Let the time of every open wait be over, by the database's clock; let this process know of it at once."""

    def operation() -> Any:
        yield "UPDATE waits SET expires_at = 1.0 WHERE closed IS NULL AND expires_at IS NOT NULL", ()

    await store_of(runtime).write(operation)
    if notify:
        store_of(runtime).notify_due()
