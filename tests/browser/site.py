"""A server of the page in the test's own process: its agent answers from the test's script."""

import asyncio
from collections.abc import AsyncGenerator, Iterable, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import uvicorn

from lango import Settings, Tool, open_runtime
from lango.config import ServerSettings, StoreSettings
from lango.providers import Delta, Request, TextDelta
from lango.runtime.runtime import Runtime
from lango.server.app import create_app
from lango.server.startup import bind_port
from lango.testing import Entry, ScriptedProvider

PATIENCE_S = 120
PAUSE = "\N{DOUBLE VERTICAL BAR}"


class Script:
    """What the model will say: a test adds to it as it goes."""

    def __init__(self, entries: Iterable[Entry] = ()) -> None:
        self._entries = list(entries)

    def add(self, *entries: Entry) -> None:
        self._entries += entries

    def __iter__(self) -> "Script":
        return self

    def __next__(self) -> Entry:
        if not self._entries:
            raise StopIteration
        return self._entries.pop(0)


class Pausing(ScriptedProvider):
    """A scripted model that stops where its text says `PAUSE`, until the test lets it go on."""

    def __init__(self, script: Iterable[Entry], *, chunk_delay_s: float = 0.0) -> None:
        super().__init__(script, chunk_delay_s=chunk_delay_s)
        self.go_on = asyncio.Event()

    async def stream(self, request: Request) -> AsyncGenerator[Delta, None]:
        async for delta in super().stream(request):
            parts = delta.text.split(PAUSE) if isinstance(delta, TextDelta) else []
            for number, part in enumerate(parts):
                if number:
                    await self.go_on.wait()
                    self.go_on.clear()
                yield TextDelta(part)
            if not parts:
                yield delta


@dataclass
class Site:
    """A running server, what its model will say, and what it was asked."""

    url: str
    script: Script
    provider: Pausing
    runtime: Runtime
    store_url: str


@asynccontextmanager
async def serving_script(
    folder: Path,
    script: Iterable[Entry] = (),
    *,
    tools: Sequence[Tool] = (),
    chunk_delay_s: float = 0.0,
    server: ServerSettings | None = None,
    **settings: Any,
) -> AsyncGenerator[Site]:
    """Serve the page, the API and an agent that answers from a script, until the block ends."""
    entries = Script(script)
    provider = Pausing(entries, chunk_delay_s=chunk_delay_s)
    store = StoreSettings(url=f"sqlite:///{folder}/page.db")
    chosen = Settings(store=store, server=server or ServerSettings(port=0, shutdown_s=0.1), **settings)
    place = bind_port(chosen.server)
    async with open_runtime(chosen, tools=tools, provider=provider) as runtime:
        app = create_app(chosen, runtime)
        config = uvicorn.Config(app, log_config=None, access_log=False, timeout_graceful_shutdown=PATIENCE_S)
        serving = _Server(config)
        running = asyncio.create_task(serving.serve([place]))
        try:
            await serving.ready.wait()
            yield Site(f"http://127.0.0.1:{place.getsockname()[1]}", entries, provider, runtime, store.url)
        finally:
            serving.should_exit = True
            await app.state.context.turns.drain(chosen.server.shutdown_s)
            await running
            place.close()


class _Server(uvicorn.Server):
    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.ready = asyncio.Event()

    async def startup(self, sockets: Any = None) -> None:
        await super().startup(sockets)
        self.ready.set()

    @contextmanager
    def capture_signals(self):
        """Signals are pytest's."""
        yield
