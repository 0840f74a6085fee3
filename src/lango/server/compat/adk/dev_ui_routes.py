"""Serve ADK's dev UI at `/dev-ui/` to developers on this machine, on top of the ADK REST routes.

The UI is served as in ADK's package, without what it would load from other hosts (fonts, analytics): that is removed
from its page and forbidden by its content security policy. Its evaluations are our test cases (`eval_routes`); its
requests for traces, tests and the builder get empty responses, and 501 where they would change something.
"""

import importlib.util
import json
import mimetypes
import re
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

from fastapi import FastAPI
from starlette.responses import FileResponse, PlainTextResponse, RedirectResponse, Response

from lango.development.agent_cards import NodeCard
from lango.errors import ConfigError
from lango.server.compat.adk import eval_routes
from lango.server.compat.adk.adk_paths import check_app
from lango.server.context import CurrentUser
from lango.server.errors import ApiError, not_found
from lango.server.json_body import JsonResponse
from lango.server.security.auth import AuthenticatedRouter

_POLICY = (
    "default-src 'none'; script-src 'self' 'unsafe-eval'; style-src 'self' 'unsafe-inline'; "
    "connect-src 'self'; img-src 'self' data: blob:; media-src 'self' data: blob:; font-src 'self' data:; "
    "worker-src 'self' blob:; frame-ancestors 'none'; base-uri 'self'; form-action 'none'"
)
# resources of other hosts, and inline scripts, which the policy forbids
_EXTERNAL_RESOURCES = re.compile(
    r"<link\b[^>]*\bhref=\"https?://[^>]*>|@font-face\s*\{[^}]*https?://[^}]*\}|\sonload=\"this\.media='all'\"",
    re.IGNORECASE,
)
_MEDIA = re.compile(r"(<link\b[^>]*rel=\"stylesheet\"[^>]*)\smedia=\"print\"", re.IGNORECASE)

router = AuthenticatedRouter(include_in_schema=False)


def _dev_ui_folder() -> Path | None:
    """Return the folder of ADK's built dev UI; None if this ADK has none."""
    spec = importlib.util.find_spec("google.adk")
    for place in (spec and spec.submodule_search_locations) or ():
        folder = Path(place) / "cli" / "browser"
        if (folder / "index.html").is_file():
            return folder
    return None


def add_dev_ui(app: FastAPI) -> None:
    """Add the UI to an app; raise `ConfigError` if the installed ADK has none."""
    if _dev_ui_folder() is None:
        raise ConfigError("this version of google-adk comes without its dev UI: set server.adk_ui = false")
    app.router.routes.extend([*eval_routes.router.routes, *router.routes])


@lru_cache(maxsize=1)
def _index(file: Path) -> str:
    """Return the UI's page without resources of other hosts."""
    return _MEDIA.sub(r"\1", _EXTERNAL_RESOURCES.sub("", file.read_text("utf-8")))


@lru_cache(maxsize=1)
def _files(folder: Path) -> dict[str, Path]:
    """Return the files of the UI by name: a requested name is only looked up, never used as a path."""
    return {file.relative_to(folder).as_posix(): file for file in folder.rglob("*") if file.is_file()}


@router.get("/dev-ui")
async def redirect_to_page() -> Response:
    """Redirect to the page."""
    return RedirectResponse("/dev-ui/")


@router.get("/dev-ui/assets/config/runtime-config.json")
async def runtime_config() -> dict[str, Any]:
    """Configure the UI to use this server, without telemetry."""
    return {"backendUrl": "", "telemetry": False}


@router.get("/dev-ui/config")
async def ui_config() -> dict[str, Any]:
    """Configure the UI without a logo."""
    return {"logo_text": None, "logo_image_url": None}


@router.get("/dev-ui/{path:path}")
async def page(path: str) -> Response:
    """Serve the UI's page or one of its files."""
    folder = _dev_ui_folder()
    assert folder
    headers = {"Content-Security-Policy": _POLICY, "Cache-Control": "no-cache"}
    if path in ("", "index.html"):
        return Response(_index(folder / "index.html"), media_type="text/html; charset=utf-8", headers=headers)
    file = _files(folder).get(path)
    if file is None and path.endswith(".css"):
        return Response("", media_type="text/css", headers=headers)  # ADK's page links one that its package lacks
    if file is None:
        raise not_found("there is no such file of the dev UI")
    kind = "text/javascript" if file.suffix == ".js" else mimetypes.guess_type(file.name)[0]
    return FileResponse(file, media_type=kind, headers=headers)


# -- requests of the UI beyond ADK's REST API ---------------------------------------------------------------------

_EMPTY: dict[str, Any] = {
    "builder": "",
    "debug/trace/session/[^/]+": [],  # spans go to the collector of `[telemetry]`
    "tests": [],
    "users/[^/]+/sessions/[^/]+/events/[^/]+/graph": {},
}
"""What the UI reads of an app and this server does not have: patterns of paths, each with its empty response."""


@router.get("/config/telemetry")
async def telemetry_consent() -> dict[str, bool]:
    """Report that telemetry is off."""
    return {"telemetry": False}


@router.get("/dev/apps/{app}/build_graph")
async def build_graph(app: str, user: CurrentUser) -> dict[str, Any]:
    """Return the tree of agents."""
    check_app(user.context, app)
    return {"name": app, "root_agent": _graph_node(await user.runtime.describe_agents())}


def _graph_node(node: NodeCard) -> dict[str, Any]:
    return {
        "name": node.name,
        "type": node.of_class,
        "description": node.description,
        "tools": [tool.name for tool in node.tools],
        "sub_agents": [_graph_node(below) for below in node.children],
    }


@router.get("/dev/apps/{app}/build_graph_image")
async def build_graph_image(app: str, user: CurrentUser) -> dict[str, Any]:
    """Return the agents and their tools as a Graphviz graph."""
    check_app(user.context, app)
    lines = "\n".join(_graph_lines(await user.runtime.describe_agents()))
    return {"": {"dotSrc": f"digraph {{\nrankdir=TB\nnode [shape=box, style=rounded]\n{lines}\n}}"}}


def _graph_lines(node: NodeCard) -> Iterator[str]:
    name = json.dumps(node.name)
    yield name
    for tool in node.tools:
        yield f"{json.dumps(tool.name)} [shape=ellipse]"
        yield f"{name} -> {json.dumps(tool.name)}"
    for below in node.children:
        yield f"{name} -> {json.dumps(below.name)}"
        yield from _graph_lines(below)


@router.get("/dev/apps/{app}/{what:path}")
async def read_unsupported(app: str, what: str, user: CurrentUser) -> Response:
    """Return an empty response for data that this server does not have."""
    check_app(user.context, app)
    empty = next((response for pattern, response in _EMPTY.items() if re.fullmatch(pattern, what)), None)
    if empty is None:
        raise not_found(f"{what.partition('/')[0]}: not supported; use ADK's own server (`adk web`)")
    return PlainTextResponse(empty) if isinstance(empty, str) else JsonResponse(empty)


@router.api_route("/dev/apps/{app}/{what:path}", methods=["POST", "PUT", "DELETE", "PATCH"])
async def refuse_change(app: str, what: str, user: CurrentUser) -> None:
    """Refuse changes to tests, builders or deployments."""
    raise ApiError(501, "NotImplemented", f"{what.partition('/')[0]}: use ADK's own server (`adk web`) for this")
