"""Run turns durably: the public API."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lango.runtime.opening import open_runtime
    from lango.runtime.runtime import Runtime
    from lango.runtime.sessions.sessions import Sessions
    from lango.submissions import ModelOptions
    from lango.turns.running_turn import RunningTurn

__all__ = [
    "ModelOptions",
    "RunningTurn",
    "Runtime",
    "Sessions",
    "open_runtime",
]

_HOMES = {
    "ModelOptions": "lango.submissions",
    "RunningTurn": "lango.turns.running_turn",
    "Runtime": "lango.runtime.runtime",
    "Sessions": "lango.runtime.sessions.sessions",
    "open_runtime": "lango.runtime.opening",
}


def __getattr__(name: str) -> Any:
    """Import each name when it is used: `lango sessions` needs no ADK."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(_HOMES[name]), name)
