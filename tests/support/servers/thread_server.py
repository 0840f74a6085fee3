"""A small HTTP server in a thread, for what a test stands in for."""

import threading
from collections.abc import Generator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


def _quiet(*_: object) -> None:
    pass


@contextmanager
def serving(handler: type[BaseHTTPRequestHandler]) -> Generator[str]:
    """Serve until the block ends, and log nothing; yield the address."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Quiet", (handler,), {"log_message": _quiet}))
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
