"""ADK's dev UI at `/dev-ui/`, on our ADK REST: an option for developers, on this machine only.

The UI is served as ADK's package brings it, apart from what it would load from other hosts (fonts, analytics): that is
cut from its page, and its policy forbids it. What it asks for beyond talking (traces, evaluation, artifacts, the
builder) is answered: empty where nothing is there, and 501 where it would change what is not here.
"""

import json
import mimetypes
import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any

from fastapi import APIRouter, FastAPI
from fastapi import Path as PathParameter
from starlette.responses import FileResponse, PlainTextResponse, RedirectResponse, Response

from lango.adk.services.adk_server import dev_ui_folder
from lango.errors import ConfigError
from lango.server.context import Here
from lango.server.errors import Refused
from lango.server.json_body import JsonResponse
from lango.server.security.auth import User
from lango.server.security.authenticated_route import AuthenticatedRoute

_POLICY = (
    "default-src 'none'; script-src 'self' 'unsafe-eval'; style-src 'self' 'unsafe-inline'; "
    "connect-src 'self'; img-src 'self' data: blob:; media-src 'self' data: blob:; font-src 'self' data:; "
    "worker-src 'self' blob:; frame-ancestors 'none'; base-uri 'self'; form-action 'none'"
)
# what a page would load from other hosts, and what runs in line, which the policy does not let run
_ELSEWHERE = re.compile(
    r"<link\b[^>]*\bhref=\"https?://[^>]*>|@font-face\s*\{[^}]*https?://[^}]*\}|\sonload=\"this\.media='all'\"",
    re.IGNORECASE,
)
_MEDIA = re.compile(r"(<link\b[^>]*rel=\"stylesheet\"[^>]*)\smedia=\"print\"", re.IGNORECASE)

router = APIRouter(include_in_schema=False, route_class=AuthenticatedRoute)


def install(app: FastAPI) -> None:
    """Add the UI to an app; raise `ConfigError` where ADK has none."""
    if dev_ui_folder() is None:
        raise ConfigError("this version of google-adk comes without its dev UI: set server.adk_ui = false")
    app.include_router(router)


@lru_cache(maxsize=1)
def _index(file: Path) -> str:
    """Return the UI's page without what it would load from elsewhere."""
    return _MEDIA.sub(r"\1", _ELSEWHERE.sub("", file.read_text("utf-8")))


@lru_cache(maxsize=1)
def _files(folder: Path) -> dict[str, Path]:
    """Return the files of the UI by their paths: what is asked for is looked up, and never made a path of."""
    return {file.relative_to(folder).as_posix(): file for file in folder.rglob("*") if file.is_file()}


@router.get("/dev-ui")
async def to_the_page() -> Response:
    """Go to the page."""
    return RedirectResponse("/dev-ui/")


@router.get("/dev-ui/assets/config/runtime-config.json")
async def runtime_config() -> dict[str, Any]:
    """Tell the UI that its server is this one, and that it measures nothing."""
    return {"backendUrl": "", "telemetry": False}


@router.get("/dev-ui/config")
async def ui_config() -> dict[str, Any]:
    """Tell the UI that it has no logo of its own."""
    return {"logo_text": None, "logo_image_url": None}


@router.get("/dev-ui/{path:path}")
async def page(path: str) -> Response:
    """Serve the UI's page, or a file of it."""
    folder = dev_ui_folder()
    assert folder
    headers = {"Content-Security-Policy": _POLICY, "Cache-Control": "no-cache"}
    if path in ("", "index.html"):
        return Response(_index(folder / "index.html"), media_type="text/html; charset=utf-8", headers=headers)
    file = _files(folder).get(path)
    if file is None and path.endswith(".css"):
        return Response("", media_type="text/css", headers=headers)  # ADK's page names one that ADK does not bring
    if file is None:
        raise Refused(404, "NotFound", "there is no such file of the dev UI")
    kind = "text/javascript" if file.suffix == ".js" else mimetypes.guess_type(file.name)[0]
    return FileResponse(file, media_type=kind, headers=headers)


# -- what the UI asks for beyond ADK's REST -----------------------------------------------------------------------

App = Annotated[str, PathParameter()]
_EMPTY: dict[str, Any] = {
    "builder": "",
    "eval-results": {"evalResultIds": []},
    "eval-sets": {"evalSetIds": []},
    "eval_results": [],
    "eval_sets": [],
    "metrics-info": {"metricsInfo": []},
    "tests": [],
}


@router.get("/config/telemetry")
async def consent() -> dict[str, bool]:
    """Say that nothing is measured."""
    return {"telemetry": False}


@router.get("/dev/apps/{app}/build_graph")
async def build_graph(app: App, user: User, here: Here) -> dict[str, Any]:
    """Show the app: its root agent and those below."""
    _check(app, here)
    return {"name": app, "root_agent": here.runtime.agents()}


@router.get("/dev/apps/{app}/build_graph_image")
async def build_graph_image(app: App, user: User, here: Here) -> dict[str, Any]:
    """Draw the agents and their tools, in Graphviz' words."""
    _check(app, here)
    lines = "\n".join(_drawn(here.runtime.agents()))
    return {"": {"dotSrc": f"digraph {{\nrankdir=TB\nnode [shape=box, style=rounded]\n{lines}\n}}"}}


def _drawn(agent: Mapping[str, Any]) -> Iterator[str]:
    name = json.dumps(agent["name"])
    yield name
    for tool in agent["tools"]:
        yield f"{json.dumps(tool)} [shape=ellipse]"
        yield f"{name} -> {json.dumps(tool)}"
    for sub in agent["sub_agents"]:
        yield f"{name} -> {json.dumps(sub['name'])}"
        yield from _drawn(sub)


@router.get("/dev/apps/{app}/debug/trace/session/{session_id}")
async def session_trace(app: App, session_id: str, user: User, here: Here) -> list[Any]:
    """Show no spans: they go to the collector of `[telemetry]`."""
    _check(app, here)
    return []


@router.get("/dev/apps/{app}/users/{user_id}/sessions/{session_id}/events/{event_id}/graph")
async def event_graph(app: App, user_id: str, session_id: str, event_id: str, user: User, here: Here) -> dict[str, Any]:
    """Show no picture of an event."""
    _check(app, here)
    return {}


@router.get("/dev/apps/{app}/{what:path}")
async def nothing(app: App, what: str, user: User, here: Here) -> Response:
    """Answer what is read and is not here: empty lists for lists."""
    _check(app, here)
    if what not in _EMPTY:
        raise Refused(404, "NotFound", f"there is no {what.partition('/')[0]} here: it belongs to ADK's own server")
    found = _EMPTY[what]
    return PlainTextResponse(found) if isinstance(found, str) else JsonResponse(found)


@router.api_route("/dev/apps/{app}/{what:path}", methods=["POST", "PUT", "DELETE", "PATCH"])
async def not_here(app: App, what: str, user: User, here: Here) -> None:
    """Refuse what would change evaluations, tests, builders or deployments."""
    raise Refused(501, "NotImplemented", f"{what.partition('/')[0]}: use ADK's own server (`adk web`) for this")


def _check(app: str, here: Here) -> None:
    if app != here.runtime.app_name:
        raise Refused(404, "NotFound", f"there is no app {app!r}")
