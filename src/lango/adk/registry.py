"""Make `lango+sqlite:///...` and `lango+postgresql://...` known to `adk web` and `adk api_server`.

ADK looks into the agents' folder for a `services.py`; one line there is enough: `import lango.adk.registry`.
"""

from typing import Any

from google.adk.cli.service_registry import get_service_registry

from lango.adk.services.session_service import SqlSessionService

SCHEMES = ("lango+sqlite", "lango+postgresql")


def session_service(uri: str, **_: Any) -> SqlSessionService:
    """Make the service for a URI, as ADK's registry calls it."""
    return SqlSessionService(uri)


for _scheme in SCHEMES:
    get_service_registry().register_session_service(_scheme, session_service)
