"""A process with several turns, one of which ends the process each time that it runs."""

import asyncio
import logging
import os
from multiprocessing.connection import Connection
from pathlib import Path

from google.adk.agents.callback_context import CallbackContext
from google.adk.models.llm_request import LlmRequest
from google.adk.tools import ToolContext

from lango import open_runtime
from tests.agents.parts import settings_for
from tests.support.agent_shapes import agent, call
from tests.support.kill_points import Journal, until_idle

BYSTANDERS = [f"bystander-{number}" for number in range(6)]
POISON = "poison"


def run_beside_poison(pipe: Connection, url: str, folder: str, begins: bool, in_tools: bool) -> None:
    """Begin or resume a turn that ends its process, and bystanders that are in a model call or `in_tools` then."""
    logging.disable(logging.WARNING)
    asyncio.run(_run(pipe, url, _Steps(Path(folder), begins, in_tools), begins))


class _Steps:
    """What the agent's tool and its callback do."""

    def __init__(self, folder: Path, begins: bool, in_tools: bool) -> None:
        self._folder, self._begins, self._in_tools = folder, begins, in_tools
        self._all_hold = asyncio.Event()
        self._holding: set[str] = set()

    async def work(self, tool_context: ToolContext) -> dict[str, str]:
        """Work, or end the process."""
        if tool_context.session.id == POISON:
            if self._begins:
                await self._all_hold.wait()
            (self._folder / f"died-{os.getpid()}").touch()
            os._exit(1)
        if self._in_tools:
            await self._hold(tool_context.session.id)
        return {"work": "is done"}

    async def before_model(self, callback_context: CallbackContext, llm_request: LlmRequest) -> None:
        if not self._in_tools and callback_context.session.id != POISON:
            await self._hold(callback_context.session.id)

    async def _hold(self, session_id: str) -> None:
        """Stay in this step, in the process that begins the turns."""
        self._holding.add(session_id)
        if len(self._holding) == len(BYSTANDERS):
            self._all_hold.set()
        if self._begins:
            await asyncio.Event().wait()


async def _run(pipe: Connection, url: str, steps: _Steps, begins: bool) -> None:
    root = agent(Journal(), "r", call("work"), "done", tools=[steps.work], before_model_callback=steps.before_model)
    settings = settings_for(url, tools={"idempotent": ["work"]}, name="app", retry_delay_s=0.1)
    async with open_runtime(settings, root_agent=root) as runtime:
        if begins:
            for session_id in (POISON, *BYSTANDERS):
                await runtime.sessions.create(session_id)
                await runtime.submit(session_id, "go")
        await until_idle(runtime)
        pipe.send("idle")
