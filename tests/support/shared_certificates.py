"""Read the certificates of the system once in a process: each new HTTP client reads them all, for 40 ms.

The clients of the tests talk with servers on this machine only, without TLS.
"""

import functools
import importlib
import importlib.util
import ssl
from typing import Any


def share_certificates() -> None:
    """Give all HTTP clients of this process that are created from now on the same certificates."""
    ssl.create_default_context = functools.cache(ssl.create_default_context)
    if importlib.util.find_spec("httpcore2"):  # not with the tests of the pure core
        httpcore2: Any = importlib.import_module("httpcore2")
        httpcore2.default_ssl_context = functools.cache(httpcore2.default_ssl_context)
        httpcore2.default_ssl_context(_trust_env=True)
    if importlib.util.find_spec("httpx"):
        httpx: Any = importlib.import_module("httpx")
        httpx.create_ssl_context()
    ssl.create_default_context()
