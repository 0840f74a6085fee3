"""A package index on this machine with one wheel that it can hold back in the middle."""

import threading
import zipfile
from collections.abc import Generator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path


class Index:
    """The wheel, and what is allowed."""

    def __init__(self, wheel: Path, metadata: bytes, project: str) -> None:
        self.wheel = wheel
        self.metadata = metadata
        self.project = project
        self.go_on = threading.Event()
        self.port = 0

    @property
    def environment(self) -> dict[str, str]:
        """What makes pip and uv look here, and nowhere else."""
        simple = f"http://127.0.0.1:{self.port}/simple"
        return {
            "PIP_CONFIG_FILE": "/dev/null",
            "PIP_INDEX_URL": simple,
            "PIP_EXTRA_INDEX_URL": "",
            "UV_NO_CONFIG": "1",
            "UV_DEFAULT_INDEX": simple,
            "UV_INDEX_URL": simple,
            "UV_INDEX": "",
            "UV_EXTRA_INDEX_URL": "",
            "NO_PROXY": "127.0.0.1",
        }


@contextmanager
def index_of(folder: Path, requirement: str, member: Path) -> Generator[Index]:
    """Serve a wheel of that name and version with one file in it."""
    project, version = requirement.split("==")
    name = project.replace("-", "_")
    wheel = folder / f"{name}-{version}-py3-none-any.whl"
    metadata = f"Metadata-Version: 2.1\nName: {project}\nVersion: {version}\n"
    with zipfile.ZipFile(wheel, "w") as archive:
        info = f"{name}-{version}.dist-info"
        archive.writestr(f"{info}/METADATA", metadata)
        archive.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        archive.writestr(f"{info}/RECORD", "")
        archive.write(member, f"{name}/{member.name}")
    index = Index(wheel, metadata.encode(), project)
    with ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"index": index})) as server:
        index.port = server.server_port
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield index
        finally:
            index.go_on.set()
            server.shutdown()
            thread.join()


class _Handler(BaseHTTPRequestHandler):
    index: Index

    def do_GET(self) -> None:
        wheel = self.index.wheel
        if self.path.rstrip("/") == f"/simple/{self.index.project}":
            link = f'<a href="/{wheel.name}" data-dist-info-metadata="true">{wheel.name}</a>'
            self._answer(link.encode(), "text/html")
        elif self.path == f"/{wheel.name}.metadata":
            self._answer(self.index.metadata, "text/plain")
        elif self.path == f"/{wheel.name}":
            self._send_wheel(wheel.read_bytes())
        else:
            self.send_error(404)

    def _answer(self, body: bytes, kind: str) -> None:
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _send_wheel(self, data: bytes) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "application/octet-stream")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        half = len(data) // 2
        self.wfile.write(data[:half])
        self.wfile.flush()
        self.index.go_on.wait()
        self.wfile.write(data[half:])

    def log_message(self, format: str, *args: object) -> None:
        pass
