"""Serve the web page and its static files from the package."""

import hashlib
import re
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
_VERSION = re.compile("[0-9a-f]{16}")
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
    files, version = _files()
    folder, _, rest = name.partition("/")
    if _VERSION.fullmatch(folder):
        name = rest
    content = files.get(name)
    if content is None:
        raise HTTPException(404, "the page has no such file")
    tag = f'"{_digest(content)}"'
    # a page that was loaded before an update asks for its own version, and is given the files that there are now
    caching = "public, max-age=31536000, immutable" if folder == version else "no-cache"
    headers = {"Content-Security-Policy": _POLICY, "Cache-Control": caching, "ETag": tag}
    if etag == tag:
        return Response(status_code=304, headers=headers)
    media_type = _TYPES["." + name.rpartition(".")[2]]
    return Response(content, media_type=f"{media_type}; charset=utf-8", headers=headers)


@cache
def _files() -> tuple[dict[str, bytes], str]:
    """Read all files once, and give them a version: no name that a client sends becomes a path.

    The page loads its script and styles from a folder of that version, and the script its modules beside it. A browser
    keeps them: a reload requests none again.
    """
    files = dict(_read_folder(resources.files("lango.server.web") / "static", ""))
    version = _digest(b"".join(content for _, content in sorted(files.items())))
    files["index.html"] = files["index.html"].replace(b'"/page/', f'"/page/{version}/'.encode())
    return files, version


def _read_folder(folder: Traversable, prefix: str) -> list[tuple[str, bytes]]:
    files: list[tuple[str, bytes]] = []
    for entry in folder.iterdir():
        if entry.is_dir():
            files += _read_folder(entry, f"{prefix}{entry.name}/")
        elif f".{entry.name.rpartition('.')[2]}" in _TYPES:
            files.append((prefix + entry.name, entry.read_bytes()))
    return files


@cache
def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:16]
