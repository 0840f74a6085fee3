"""Import what the processes of tests need, and run a turn: the first builds what all others use.

Only the fork server imports this module. It has no thread but its first one when it is done.
"""

import asyncio
import gc
import importlib
import pkgutil
import tempfile
import threading
from pathlib import Path

import lango
from lango import Settings, open_runtime
from lango.adk.agents.adk_internals import preload_adk
from lango.history import warm_up
from tests.support.shared_certificates import share_certificates
from tests.support.shared_declarations import share_declarations

_IMPORTED_LATE = (
    "pytest",
    "anthropic",
    "apsw",
    "asyncpg",
    "genai_prices",
    "google.adk.runners",
    "google.adk.tools.mcp_tool.mcp_toolset",
    "mcp.server.mcpserver",
    "openai.resources.chat",
    "openai.resources.responses",
    "uvicorn.protocols.http.h11_impl",
    "uvicorn.protocols.websockets.websockets_sansio_impl",
    "multiprocessing.popen_forkserver",
    "tests.support.held_turns",
    "tests.support.paused_turns",
    "tests.support.processes",
)

gc.disable()  # until everything is imported
for _module in pkgutil.walk_packages(lango.__path__, "lango."):
    if not _module.name.endswith("__main__"):
        importlib.import_module(_module.name)
for _name in _IMPORTED_LATE:
    importlib.import_module(_name)
warm_up()
preload_adk()
share_certificates()
share_declarations()


async def _run_turn() -> None:
    """Run a turn with a tool call: ADK's models build their validators when they are first used."""
    agent = str(Path(__file__).with_name("servers") / "command_agent.py")
    with tempfile.TemporaryDirectory() as folder:
        settings = Settings.model_validate(
            {"agent": {"name": "command_agent", "module": agent}, "store": {"url": f"sqlite:///{folder}/lango.db"}}
        )
        async with open_runtime(settings) as runtime:
            await runtime.run("s", "note")


asyncio.run(_run_turn())
assert threading.active_count() == 1, "a fork copies no thread"
gc.collect()
gc.enable()
gc.freeze()  # the collector of a forked process leaves these pages alone, so that they stay shared
