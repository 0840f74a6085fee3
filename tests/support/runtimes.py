"""Look behind a runtime: at the store that it runs on, for tests that read rows, and at its turns."""

from lango.runtime.execution.turn_supervisor import TurnSupervisor
from lango.runtime.runtime import Runtime
from lango.store import Store


def store_of(runtime: Runtime) -> Store:
    """Return the store that a runtime runs on."""
    return vars(runtime)["_store"]


def supervisor_of(runtime: Runtime) -> TurnSupervisor:
    """Return what runs the turns of a runtime."""
    return vars(runtime)["_supervisor"]
