"""Hints about changes reach a reader however slowly it reads."""

import asyncio
from contextlib import aclosing
from pathlib import Path

from lango import open_runtime
from lango.config import Settings, StoreSettings
from lango.runtime.sessions.session_watch import SessionWatch
from lango.server.streaming.live import Changed, live_events
from lango.server.streaming.metrics import Metrics
from lango.server.streaming.turn_streams import TurnStreams
from lango.testing import ScriptedProvider
from tests.support.processes import TIMEOUT_S
from tests.support.runtimes import store_of


async def test_a_change_while_an_earlier_hint_is_sent_is_not_lost(tmp_path: Path) -> None:
    settings = Settings(store=StoreSettings(url=f"sqlite:///{tmp_path}/lango.db"))
    async with open_runtime(settings, provider=ScriptedProvider([])) as runtime:
        streams = TurnStreams(runtime, Metrics(), heartbeat_s=TIMEOUT_S)
        async with (
            runtime.sessions.changes.watch("alice") as watched,
            asyncio.timeout(TIMEOUT_S),
            aclosing(live_events(streams, "alice", None, None)) as events,
        ):
            while not watched.inbox_changes:  # the first poll counts as a change: a reader may have read before it
                await watched.changed.wait()
            assert [await anext(events), await anext(events)] == [Changed("sessions"), Changed("inbox")]
            watched.inbox_changes += 1
            watched.changed.notify()  # the reader still holds the last hint
            assert await anext(events) == Changed("inbox")


async def test_a_change_of_the_inbox_of_another_agent_is_a_hint(tmp_path: Path) -> None:
    settings = Settings(store=StoreSettings(url=f"sqlite:///{tmp_path}/lango.db"))
    async with open_runtime(settings, provider=ScriptedProvider([])) as runtime:
        streams, other = (
            TurnStreams(runtime, Metrics(), heartbeat_s=TIMEOUT_S),
            SessionWatch(store_of(runtime), "other"),
        )
        async with (
            runtime.sessions.changes.watch("alice") as watched,
            other.watch("alice") as elsewhere,
            asyncio.timeout(TIMEOUT_S),
            aclosing(live_events(streams, "alice", None, None, [other])) as events,
        ):
            for watch in (watched, elsewhere):
                while not watch.inbox_changes:
                    await watch.changed.wait()
            assert [await anext(events), await anext(events)] == [Changed("sessions"), Changed("inbox")]
            elsewhere.inbox_changes += 1
            elsewhere.changed.notify()
            assert await anext(events) == Changed("inbox")
