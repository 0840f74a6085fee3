"""Hints about changes reach a reader however slowly it reads."""

import asyncio
from contextlib import aclosing
from pathlib import Path

from lango import open_runtime
from lango.config import Settings, StoreSettings
from lango.server.streaming.live import Changed, live_events
from lango.server.streaming.metrics import Metrics
from lango.server.streaming.turn_streams import TurnStreams
from lango.testing import ScriptedProvider
from tests.support.processes import TIMEOUT_S


async def test_a_change_while_an_earlier_hint_is_sent_is_not_lost(tmp_path: Path) -> None:
    settings = Settings(store=StoreSettings(url=f"sqlite:///{tmp_path}/lango.db"))
    async with open_runtime(settings, provider=ScriptedProvider([])) as runtime:
        streams = TurnStreams(runtime, Metrics(), heartbeat_s=TIMEOUT_S)
        async with (
            runtime.session_watch.watch("alice") as watched,
            asyncio.timeout(TIMEOUT_S),
            aclosing(live_events(streams, "alice", None, None)) as events,
        ):
            while not watched.inbox_changes:  # the first poll counts as a change: a reader may have read before it
                await watched.changed.wait()
            assert [await anext(events), await anext(events)] == [Changed("sessions"), Changed("inbox")]
            watched.inbox_changes += 1
            watched.changed.notify()  # the reader still holds the last hint
            assert await anext(events) == Changed("inbox")
