"""Export the drop-ins for a user's own ADK Runner. Only this package imports `google.adk`."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lango.adk.agents.remote_agents import a2a_config
    from lango.adk.agents.tools.adk_tool import AdkTool, idempotent, once
    from lango.adk.agents.tools.progress import report_progress
    from lango.adk.model.provider_llm import ProviderLlm
    from lango.adk.services.artifact_service import SqlArtifactService
    from lango.adk.services.credential_service import SqlCredentialService
    from lango.adk.services.memory_service import SqlMemoryService
    from lango.adk.services.session_service import SqlSessionService
    from lango.waits.pauses import event_data, sleep, wait_for_event

__all__ = [
    "AdkTool",
    "ProviderLlm",
    "SqlArtifactService",
    "SqlCredentialService",
    "SqlMemoryService",
    "SqlSessionService",
    "a2a_config",
    "event_data",
    "idempotent",
    "once",
    "report_progress",
    "sleep",
    "wait_for_event",
]

_HOMES = {
    "AdkTool": "lango.adk.agents.tools.adk_tool",
    "ProviderLlm": "lango.adk.model.provider_llm",
    "SqlArtifactService": "lango.adk.services.artifact_service",
    "SqlCredentialService": "lango.adk.services.credential_service",
    "SqlMemoryService": "lango.adk.services.memory_service",
    "SqlSessionService": "lango.adk.services.session_service",
    "event_data": "lango.waits.pauses",
    "a2a_config": "lango.adk.agents.remote_agents",
    "idempotent": "lango.adk.agents.tools.adk_tool",
    "once": "lango.adk.agents.tools.adk_tool",
    "report_progress": "lango.adk.agents.tools.progress",
    "sleep": "lango.waits.pauses",
    "wait_for_event": "lango.waits.pauses",
}


def __getattr__(name: str) -> Any:
    """Import each drop-in when it is first used: a session service needs no model."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(_HOMES[name]), name)
