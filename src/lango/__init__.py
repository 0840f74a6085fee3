"""Lango: a durable agent runtime on Google ADK."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lango.config import Settings
    from lango.errors import LangoError
    from lango.messages import Attachment
    from lango.runtime.opening import open_runtime
    from lango.runtime.runtime import Runtime
    from lango.tools import Tool, tool

__version__ = "0.1.0"

__all__ = ["Attachment", "LangoError", "Runtime", "Settings", "Tool", "__version__", "open_runtime", "tool"]

_HOMES = {
    "Attachment": "lango.messages",
    "LangoError": "lango.errors",
    "Runtime": "lango.runtime.runtime",
    "Settings": "lango.config",
    "Tool": "lango.tools",
    "open_runtime": "lango.runtime.opening",
    "tool": "lango.tools",
}


def __getattr__(name: str) -> Any:
    """Import each name when it is asked for: `import lango` brings neither ADK nor an SDK."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(_HOMES[name]), name)
