"""A receiver of webhooks: it keeps what comes, answers as a test says, and holds answers back."""

import asyncio
import json
import queue
import threading
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from typing import Any

from standardwebhooks import Webhook

from tests.support.processes import TIMEOUT_S
from tests.support.servers import thread_server


@dataclass(frozen=True)
class Received:
    """A request as it came."""

    path: str
    headers: Mapping[str, str]
    body: bytes

    @property
    def id(self) -> str:
        return self.headers["webhook-id"]

    def verified(self, secret: str) -> dict[str, Any]:
        """Return the body, if the package of Standard Webhooks accepts its signature."""
        return Webhook(secret).verify(self.body, dict(self.headers))

    @property
    def data(self) -> dict[str, Any]:
        return json.loads(self.body)["data"]


@dataclass
class Receiver:
    """What came, and what is answered."""

    url: str = ""
    requests: "queue.SimpleQueue[Received]" = field(default_factory=queue.SimpleQueue[Received])
    answers: list[tuple[int, dict[str, str]]] = field(default_factory=list[tuple[int, dict[str, str]]])
    """Statuses and headers of the next answers, then 204."""
    go_on: threading.Event = field(default_factory=threading.Event)

    @property
    def address(self) -> str:
        return self.url.removeprefix("http://")

    async def next(self) -> Received:
        """Return the next request that came."""
        return await asyncio.to_thread(self.requests.get, timeout=TIMEOUT_S)


@contextmanager
def receiving() -> Generator[Receiver]:
    """Receive webhooks until the block ends."""
    receiver = Receiver()
    receiver.go_on.set()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            headers = {name.lower(): value for name, value in self.headers.items()}
            receiver.requests.put(Received(self.path, headers, body))
            receiver.go_on.wait(TIMEOUT_S)
            status, more = receiver.answers.pop(0) if receiver.answers else (204, dict[str, str]())
            try:
                self.send_response(status)
                for name, value in {"Content-Length": "0", **more}.items():
                    self.send_header(name, value)
                self.end_headers()
            except OSError:
                pass  # the sender was killed

    with thread_server.serving(Handler) as url:
        receiver.url = url
        try:
            yield receiver
        finally:
            receiver.go_on.set()
