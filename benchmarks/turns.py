"""One turn with an instant model, at histories of every length: the runtime beside ADK's Runner on ADK's services."""

import asyncio
import contextlib
import itertools
import logging
import os
import tempfile
import warnings
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

from google.adk.agents import LlmAgent
from google.adk.agents.run_config import RunConfig
from google.adk.models import BaseLlm
from google.adk.models.llm_request import LlmRequest
from google.adk.models.llm_response import LlmResponse
from google.adk.runners import Runner
from google.adk.sessions import DatabaseSessionService
from google.adk.sessions.sqlite_session_service import SqliteSessionService
from google.genai import types

from benchmarks.sessions import ADK_DATABASE, ADK_SQLITE, APP, USER, _fill_adk, fill
from benchmarks.table import Times, bar, interleaved, print_line, quick, table
from lango import Settings, open_runtime
from lango.adk import SqlSessionService
from lango.runtime.runtime import Runtime
from lango.testing import ScriptedProvider
from tests.support.runtimes import store_of

OURS, BARE = "lango runtime", "ADK Runner on SqlSessionService"
SIZES = [0, 1_000, 5_000, 100_000]
QUICK_SIZES = [0, 1_000, 5_000]
FULL = 1_000
"""From here on, the window is full."""
ADK_MOST = 5_000
"""ADK's services read the whole session in every turn: twenty times as many messages take twenty times as long."""

Call = Callable[[], Awaitable[object]]


class Instant(BaseLlm):
    """A model that answers at once."""

    model: str = "instant"

    async def generate_content_async(
        self, llm_request: LlmRequest, stream: bool = False
    ) -> AsyncGenerator[LlmResponse, None]:
        yield LlmResponse(content=types.Content(role="model", parts=[types.Part(text="yes")]))


def adk_turn(runner: Runner, session_id: str) -> Call:
    """Return a function that runs one turn with ADK's own service."""
    content = types.Content(role="user", parts=[types.Part(text="and now?")])

    async def turn() -> None:
        async for _ in runner.run_async(
            user_id=USER, session_id=session_id, new_message=content, run_config=RunConfig()
        ):
            pass

    return turn


@contextlib.asynccontextmanager
async def ours(folder: Path) -> AsyncIterator[Runtime]:
    """Open the runtime with a model that answers at once."""
    # the agent has the name of the stored events' author: ADK would quote another agent's text
    settings = Settings.model_validate(
        {"store": {"url": f"sqlite:///{folder}/ours.db"}, "agent": {"name": "assistant"}}
    )
    async with open_runtime(settings, provider=ScriptedProvider(itertools.repeat("yes"))) as runtime:
        yield runtime


async def measure(folder: Path, sizes: list[int]) -> tuple[dict[int, dict[str, Times]], dict[str, Times]]:
    """Fill sessions of each size and measure the contestants in turns, then Lango's sizes with a full window."""
    measured: dict[int, dict[str, Times]] = {}
    async with ours(folder) as runtime:
        service = SqlSessionService("", store=store_of(runtime))
        for size in sizes:
            session = await service.create_session(app_name=runtime.app_name, user_id=USER, session_id=f"s{size}")
            await fill(service, session, size)
            contestants: dict[str, Call] = {OURS: _our_turn(runtime, f"s{size}")}
            calls = {OURS: 10}
            async with contextlib.AsyncExitStack() as stack:
                if size <= ADK_MOST:
                    place = folder / f"adk-{size}"
                    place.mkdir()
                    for name, peer in _peers(place).items():
                        stack.push_async_callback(peer.close)
                        await _fill_adk(place, peer, size)
                        agent = LlmAgent(name="assistant", model=Instant())
                        contestants[name] = adk_turn(Runner(app_name=APP, agent=agent, session_service=peer), "full")
                        # the session grows with each turn: an empty one must grow alike for all contestants
                        calls[name] = calls[OURS] if size == 0 else 1
                await interleaved(contestants, rounds=1, calls=1)
                measured[size] = await interleaved(contestants, rounds=3 if quick() else 7, calls=calls)
        full = {f"{size:,}": _our_turn(runtime, f"s{size}") for size in sizes if size >= FULL}
        return measured, await interleaved(full, rounds=3 if quick() else 15, calls=5)


def _our_turn(runtime: Runtime, session_id: str) -> Call:
    return lambda: runtime.run(session_id, "and now?", user_id=USER)


def _peers(folder: Path) -> dict[str, SqliteSessionService | DatabaseSessionService]:
    return {
        ADK_SQLITE: SqliteSessionService(str(folder / "adk.db")),
        ADK_DATABASE: DatabaseSessionService(f"sqlite+aiosqlite:///{folder}/adk-database.db"),
    }


def show(measured: dict[int, dict[str, Times]], full: dict[str, Times]) -> None:
    """Print the time of a turn."""
    names = [OURS, ADK_SQLITE, ADK_DATABASE]
    rows: list[list[Any]] = []
    for name in names:
        cells = [measured[size][name].p50_us / 1e3 if name in measured[size] else "skipped" for size in measured]
        rows.append([name, *cells])
    for name in names[1:]:
        ratios = [
            measured[size][name].p50_us / measured[size][OURS].p50_us if name in measured[size] else ""
            for size in measured
        ]
        rows.append([f"{name} / ours", *ratios])
    [least, *_, most] = full
    at_0, at_5000 = measured[0], measured[5_000]
    table(
        "one turn, instant model, SQLite: p50 ms by messages in the session",
        ["", *(f"{size:,}" for size in measured)],
        rows,
        f"skipped: ADK's services read every event of the session in every turn; beyond {ADK_MOST:,} they are left out",
        bar(f"ours at {most} / at {least}, in turns", full[most].over(full[least])[0], at_most=1.2),
        bar("ours / SqliteSessionService at 0", at_0[OURS].p50_us / at_0[ADK_SQLITE].p50_us, at_most=1),
        bar("DatabaseSessionService / ours at 5,000", at_5000[ADK_DATABASE].p50_us / at_5000[OURS].p50_us, at_least=25),
    )


def main() -> None:
    """Print the table."""
    logging.disable(logging.WARNING)
    warnings.simplefilter("ignore")
    print_line(f"{os.cpu_count()} cores{', quick' if quick() else ''}")
    with tempfile.TemporaryDirectory(prefix="lango-bench-") as folder:
        show(*asyncio.run(measure(Path(folder), QUICK_SIZES if quick() else SIZES)))


if __name__ == "__main__":
    main()
