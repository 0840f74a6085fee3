"""Import what the processes of tests need. Only the fork server imports this module."""

import gc
import importlib
import pkgutil

import lango
from lango.adk.agents.adk_internals import preload_adk
from lango.history import warm_up

_IMPORTED_LATE = (
    "pytest",
    "apsw",
    "asyncpg",
    "genai_prices",
    "google.adk.runners",
    "google.adk.tools.mcp_tool.mcp_toolset",
    "uvicorn.protocols.http.h11_impl",
    "uvicorn.protocols.websockets.websockets_sansio_impl",
    "tests.support.processes",
    "tests.support.turn_worker",
)

for _module in pkgutil.walk_packages(lango.__path__, "lango."):
    if not _module.name.endswith("__main__"):
        importlib.import_module(_module.name)
for _name in _IMPORTED_LATE:
    importlib.import_module(_name)
warm_up()
preload_adk()
gc.collect()
gc.freeze()  # the collector of a forked process leaves these pages alone, so that they stay shared
