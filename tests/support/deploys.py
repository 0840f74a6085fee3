"""An app on one store whose versions follow each other, each judged by `lango deploy check` before it opens."""

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from lango import Runtime, Settings, open_runtime
from lango.events import TurnDone
from lango.runtime.checks import judge_turns
from lango.runtime.opening import build_agent_app
from lango.store import Store
from lango.waits import ApprovalWait, Approve, InputWait, LongRunningWait, Result, Value, Wait
from tests.agents.parts import TIMEOUT_S, collect, rows
from tests.support.changed_agents import HELD, World
from tests.support.kill_points import copy_store, until_idle
from tests.support.runtimes import store_of

Make = Callable[[World], Any]
STATUS = """
SELECT t.status, t.extra FROM turns t JOIN sessions s ON s.session_key = t.session_key WHERE s.id = '{}' ORDER BY t.turn
"""
_MODES = {"name": "app", "input_expires_s": 0, "retry_delay_s": 0}


class Deploys:
    """The versions of an app. The name of a session is the moment at which its turn is stopped."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.world = World()
        self.checked: dict[str, str] = {}
        """What the check said of each session before the newest version was opened."""

    @asynccontextmanager
    async def version(self, make: Make, **agent: Any) -> AsyncGenerator[Runtime]:
        """Deploy a version, with these settings of its agent; when it ends, it hands its turns over."""
        sections = {"agent": _MODES | agent, "server": {"drain_s": 0}, "store": {"url": self.url}}
        settings = Settings.model_validate(sections)
        self.world.notes.clear()
        self.checked = await self._check(settings, make(World()))
        async with open_runtime(settings, root_agent=make(self.world)) as runtime:
            yield runtime

    async def _check(self, settings: Settings, root: Any) -> dict[str, str]:
        app = build_agent_app(settings, root)
        try:
            async with Store(self.url) as store:
                found = await judge_turns(store, app, 0)
        finally:
            await app.models.close()
        return {one.session: one.verdict for one in found if one.state != "queued"}

    async def begin(self, make: Make, *moments: str, killed: bool = False, **agent: Any) -> None:
        """Begin turns in a version, each stopped at a moment; `killed`: the next one finds what a kill leaves."""
        async with self.holding(), self.version(make, **agent) as runtime:
            for moment in moments:
                await self.come_to(runtime, moment)
            if killed:
                file = Path(self.url.removeprefix("sqlite:///"))
                copy_store(file, file.with_name("killed.db"))
                self.url = f"sqlite:///{file.with_name('killed.db')}"

    @asynccontextmanager
    async def holding(self) -> AsyncGenerator[None]:
        """Let turns stop at their moments during the body, each anew."""
        self.world.held.clear()
        self.world.holds = True
        yield
        self.world.holds = False

    async def come_to(self, runtime: Runtime, moment: str) -> None:
        """Create a session, and let its turn come to a moment."""
        await runtime.sessions.create(moment)
        turn = await runtime.submit(moment, "go")
        if moment in HELD:
            await self.world.until_held({moment})
        else:
            await collect(turn.follow())

    def effects(self, session: str) -> Counter[str]:
        """Return how often each effect happened in a session."""
        return self.world.effects.get(session, Counter())


async def statuses(runtime: Runtime, session: str) -> list[str]:
    """Return how the turns of a session stand."""
    return [status for status, _ in await rows(store_of(runtime), STATUS.format(session))]


async def answer(runtime: Runtime, session: str, how: Any = None) -> None:
    """Answer what a session waits for."""
    wait = (await runtime.waits(session))[0]
    await collect((await runtime.answer(session, wait.id, how or answer_to(wait))).follow())


async def finish(runtime: Runtime, session: str) -> str:
    """Answer all that a session waits for; return how its last turn ended."""
    await until_idle(runtime)
    async with asyncio.timeout(TIMEOUT_S):
        while await runtime.waits(session):
            await answer(runtime, session)
    return (await statuses(runtime, session) or [""])[-1]  # a fork may have no turn


async def next_is_answered(runtime: Runtime, session: str) -> None:
    """Check that the queue of a session continues."""
    last = (await collect((await runtime.submit(session, "next")).follow()))[-1]
    assert isinstance(last, TurnDone), last
    await finish(runtime, session)
    assert not {"queued", "running"} & {*await statuses(runtime, session)}


def answer_to(wait: Wait) -> Any:
    """Return an answer that fits a wait."""
    match wait:
        case ApprovalWait():
            return Approve()
        case LongRunningWait():
            return Result({"ordered": "7"})
        case InputWait():
            return Value("3")
        case _:
            raise AssertionError(wait)
