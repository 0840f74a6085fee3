"""Serve the web page and its static files from the package."""

import hashlib
import re
from functools import cache
from pathlib import Path

from fastapi import APIRouter, Header, HTTPException
from starlette.responses import Response

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
        raise HTTPException(404, "there is no such file")
    tag = f'"{_digest(content)}"'
    # a page that was loaded before an update asks for its own version, and gets the current files
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
    folder = Path(__file__).with_name("static")
    found = (file for file in folder.rglob("*") if file.suffix in _TYPES)
    files = {file.relative_to(folder).as_posix(): file.read_bytes() for file in found}
    version = _digest(b"".join(content for _, content in sorted(files.items())))
    files["index.html"] = files["index.html"].replace(b'"/page/', f'"/page/{version}/'.encode())
    return files, version


@cache
def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:16]
