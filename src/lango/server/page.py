"""The page at `/`: three files that come with the package, and nothing from elsewhere."""

from importlib import resources
from typing import Literal

from fastapi import APIRouter
from starlette.responses import Response

from lango.providers import label
from lango.server.served import Here

router = APIRouter(include_in_schema=False)

_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; "
    "frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
)
_TYPES = {"index.html": "text/html", "page.css": "text/css", "page.js": "text/javascript"}


@router.get("/")
async def page() -> Response:
    """Show the page."""
    return _file("index.html")


@router.get("/page/about")
async def about(here: Here) -> dict[str, str]:
    """Say which model answers, as what it is."""
    return {"model": label(here.settings.model)}


@router.get("/page/{name}")
async def part(name: Literal["page.css", "page.js"]) -> Response:
    """Serve a part of the page."""
    return _file(name)


def _file(name: str) -> Response:
    content = (resources.files("lango.server") / "static" / name).read_bytes()
    headers = {"Content-Security-Policy": _POLICY, "Cache-Control": "no-cache"}
    return Response(content, media_type=f"{_TYPES[name]}; charset=utf-8", headers=headers)
