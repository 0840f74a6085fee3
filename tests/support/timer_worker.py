"""A replica that continues turns whose time has come, in a process of its own."""

import asyncio
import logging
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from google.adk.agents.context import Context
from google.adk.workflow import START, Workflow

from lango import open_runtime
from lango.adk import sleep
from tests.agents.parts import settings_for


def alarm_clock(folder: Path) -> Workflow:
    """Return a workflow that sleeps for an hour, and then writes a line into a file of its session."""

    def nap(node_input: Any) -> Any:
        return sleep(3600)

    async def ring(ctx: Context) -> str:
        with (folder / ctx.session.id).open("a") as file:
            file.write("ring\n")
        await asyncio.sleep(0.02)  # long enough to die in it
        return "awake"

    return Workflow(name="clock", edges=[(START, nap, ring)])


def serve_alarm_clock(pipe: Connection, url: str, folder: str) -> None:
    """Run the turns of every session until the test says stop."""

    async def run() -> None:
        async with open_runtime(settings_for(url), root_agent=alarm_clock(Path(folder))):
            pipe.send("ready")
            await asyncio.to_thread(pipe.recv)

    logging.disable(logging.WARNING)
    asyncio.run(run())
