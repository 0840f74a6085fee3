"""Serve the web page and its static files from the package."""

import hashlib
from functools import cache
from importlib import resources
from importlib.resources.abc import Traversable
from typing import Any

from fastapi import APIRouter, Header, HTTPException
from starlette.responses import Response

from lango import __version__
from lango.providers import label
from lango.providers.local.known_models import is_demonstration
from lango.server.context import Context, ServerContext

router = APIRouter(include_in_schema=False)

_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data: blob:; "
    "frame-ancestors 'none'; base-uri 'none'; form-action 'none'; "
    # only the sanitizer may create markup
    "require-trusted-types-for 'script'; trusted-types dompurify"
)
_TYPES = {
    ".html": "text/html",
    ".css": "text/css",
    ".js": "text/javascript",
    ".svg": "image/svg+xml",
    ".txt": "text/plain",
    ".md": "text/plain",
}


@router.get("/")
async def read_page(etag: str | None = Header(None, alias="If-None-Match")) -> Response:
    """Serve the page."""
    return _file_response("index.html", etag)


@router.get("/page/about")
async def read_about(context: Context) -> dict[str, Any]:
    """Return the agents with their models, the version and the limits on attachments."""
    settings = context.settings
    return {
        "agents": [_describe_agent(one) for one in context.agents.contexts.values()],
        "version": __version__,
        "max_attachment_bytes": settings.server.max_attachment_bytes,
        "max_attachments": settings.server.max_attachments,
    }


def _describe_agent(context: ServerContext) -> dict[str, Any]:
    """Name an agent and its model, a local model with its description, and what a user may choose."""
    model, allowed = context.runtime.app.model_name, context.runtime.options
    return {
        "name": context.runtime.app_name,
        "model": label(model),
        "models": allowed.models,
        "may_set_instruction": allowed.with_instruction,
        "demonstration": is_demonstration(model),
        "named_model": context.named_model,
        "has_tools": context.runtime.app.may_call_tools,
    }


@router.get("/page/{name:path}")
async def read_part(name: str, etag: str | None = Header(None, alias="If-None-Match")) -> Response:
    """Serve a static file."""
    return _file_response(name, etag)


def _file_response(name: str, etag: str | None) -> Response:
    file = _files().get(name)
    if file is None:
        raise HTTPException(404, "the page has no such file")
    content, tag = file
    headers = {"Content-Security-Policy": _POLICY, "Cache-Control": "no-cache", "ETag": tag}
    if etag == tag:
        return Response(status_code=304, headers=headers)
    media_type = _TYPES["." + name.rpartition(".")[2]]
    return Response(content, media_type=f"{media_type}; charset=utf-8", headers=headers)


@cache
def _files() -> dict[str, tuple[bytes, str]]:
    """Read all files once: no name that a client sends becomes a path."""
    return dict(_read_folder(resources.files("lango.server.web") / "static", ""))


def _read_folder(folder: Traversable, prefix: str) -> list[tuple[str, tuple[bytes, str]]]:
    files: list[tuple[str, tuple[bytes, str]]] = []
    for entry in folder.iterdir():
        if entry.is_dir():
            files += _read_folder(entry, f"{prefix}{entry.name}/")
        elif f".{entry.name.rpartition('.')[2]}" in _TYPES:
            content = entry.read_bytes()
            files.append((prefix + entry.name, (content, f'"{hashlib.sha256(content).hexdigest()[:16]}"')))
    return files
