"""Register `lango+sqlite:///...` and `lango+postgresql://...` with `adk web` and `adk api_server`.

ADK imports a `services.py` in the agents' folder; one line there is enough: `import lango.adk.registry`.
"""

from typing import Any

from google.adk.cli.service_registry import get_service_registry

from lango.adk.services.artifact_service import SqlArtifactService
from lango.adk.services.memory_service import SqlMemoryService
from lango.adk.services.session_service import SqlSessionService

SCHEMES = ("lango+sqlite", "lango+postgresql")


def session_service(uri: str, **_: Any) -> SqlSessionService:
    """Make the session service of a URI. ADK's registry calls it."""
    return SqlSessionService(uri)


def artifact_service(uri: str, **_: Any) -> SqlArtifactService:
    """Make the artifact service of a URI. ADK's registry calls it."""
    return SqlArtifactService(uri)


def memory_service(uri: str, **_: Any) -> SqlMemoryService:
    """Make the memory service of a URI. ADK's registry calls it."""
    return SqlMemoryService(uri)


for _scheme in SCHEMES:
    get_service_registry().register_artifact_service(_scheme, artifact_service)
    get_service_registry().register_session_service(_scheme, session_service)
    get_service_registry().register_memory_service(_scheme, memory_service)
