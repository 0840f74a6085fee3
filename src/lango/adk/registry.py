"""Register `lango+sqlite:///...` and `lango+postgresql://...` with `adk web` and `adk api_server`.

ADK imports a `services.py` in the agents' folder; one line there is enough: `import lango.adk.registry`.
"""

from google.adk.cli.service_registry import get_service_registry

from lango.adk.services.artifact_service import SqlArtifactService
from lango.adk.services.memory_service import SqlMemoryService
from lango.adk.services.session_service import SqlSessionService

SCHEMES = ("lango+sqlite", "lango+postgresql")

for _scheme in SCHEMES:  # ADK also passes the folder of the agents, which the store does not need
    get_service_registry().register_artifact_service(_scheme, lambda uri, **_: SqlArtifactService(uri))
    get_service_registry().register_session_service(_scheme, lambda uri, **_: SqlSessionService(uri))
    get_service_registry().register_memory_service(_scheme, lambda uri, **_: SqlMemoryService(uri))
