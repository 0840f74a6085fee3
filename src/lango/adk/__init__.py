"""Export the drop-ins for a user's own ADK Runner. Only this package imports `google.adk`."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lango.adk.agents.adk_tool import AdkTool
    from lango.adk.model.provider_llm import ProviderLlm
    from lango.adk.run.workflow_nodes import once
    from lango.adk.services.session_service import SqlSessionService

__all__ = ["AdkTool", "ProviderLlm", "SqlSessionService", "once"]

_HOMES = {
    "AdkTool": "lango.adk.agents.adk_tool",
    "ProviderLlm": "lango.adk.model.provider_llm",
    "SqlSessionService": "lango.adk.services.session_service",
    "once": "lango.adk.run.workflow_nodes",
}


def __getattr__(name: str) -> Any:
    """Import each drop-in when it is first used: a session service needs no model."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(_HOMES[name]), name)
