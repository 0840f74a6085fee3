"""The functions that a message passes from the route to ADK's Runner are those that docs/design.md lists."""

import re
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import httpx
from google.adk.runners import Runner

from lango import open_runtime
from lango.runtime.execution.turn_supervisor import TurnSupervisor
from lango.server.api.turns import turn_routes
from lango.server.app import create_app
from lango.testing import ScriptedProvider
from tests.agents.parts import settings_for

DOCS = Path(__file__).parents[3] / "docs" / "design.md"
MOST = 12


def documented() -> list[str]:
    """Return the functions in the list of the docs."""
    section = DOCS.read_text().partition("### Hand-overs")[2].partition("\n## ")[0]
    return re.findall(r"^\d+\. `(.+)`$", section, re.MULTILINE)


def name_of(frame: FrameType) -> str:
    return f"{frame.f_globals['__name__']}.{frame.f_code.co_qualname}"


@contextmanager
def recorded_stacks(*functions: Any) -> Generator[dict[Any, list[str]]]:
    """Record the stack of each function when it is first entered: of our own functions, the outermost first."""
    codes = {function.__code__: function for function in functions}
    stacks: dict[Any, list[str]] = {}

    def record(frame: FrameType, event: str, _: object) -> None:
        function = codes.get(frame.f_code)
        if event == "call" and function is not None and function not in stacks:
            names: list[str] = []
            caller: FrameType | None = frame
            while caller is not None:
                if str(caller.f_globals.get("__name__")).startswith("lango.") or caller is frame:
                    names.insert(0, name_of(caller))
                caller = caller.f_back
            stacks[function] = names

    sys.setprofile(record)
    try:
        yield stacks
    finally:
        sys.setprofile(None)


async def test_a_message_passes_the_functions_that_the_docs_list(sqlite_url: str) -> None:
    settings = settings_for(sqlite_url)
    async with open_runtime(settings, provider=ScriptedProvider(["hello"])) as runtime:
        transport = httpx.ASGITransport(app=create_app(settings, runtime))
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:8787") as client:
            with recorded_stacks(TurnSupervisor.start, Runner.run_async) as stacks:
                answer = await client.post("/v1/sessions/s/messages", json={"text": "hi"})
    assert answer.status_code == 200
    to_start, to_adk = stacks[TurnSupervisor.start], stacks[Runner.run_async]
    route = f"{turn_routes.__name__}.{turn_routes.send_message.__qualname__}"
    chain = [*to_start[to_start.index(route) :], *to_adk]
    assert chain == documented()
    assert len(chain) - 1 <= MOST
