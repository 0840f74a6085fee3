"""Run a server with a scripted agent in the test's process."""

import asyncio
from collections.abc import AsyncGenerator, Iterable, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import uvicorn

from lango import Settings, Tool, open_runtime
from lango.config import ServerSettings, StoreSettings, ToolSettings
from lango.errors import ProviderUnavailable
from lango.providers import Delta, Request, TextDelta
from lango.runtime.runtime import Runtime
from lango.server.app import create_app
from lango.server.startup import bind_port
from lango.testing import Entry, ScriptedProvider

TIMEOUT_S = 120
PAUSE = "\N{DOUBLE VERTICAL BAR}"
FAILURE = "\N{BALLOT X}"


class Script:
    """The model's answers; a test may add more while the server runs."""

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


class PausingProvider(ScriptedProvider):
    """A scripted model that pauses at every `PAUSE` in its text until `resume` is set, and fails at `FAILURE`."""

    def __init__(self, script: Iterable[Entry], *, chunk_delay_s: float = 0.0) -> None:
        super().__init__(script, chunk_delay_s=chunk_delay_s)
        self.resume = asyncio.Event()

    async def stream(self, request: Request) -> AsyncGenerator[Delta, None]:
        async for delta in super().stream(request):
            parts = delta.text.split(PAUSE) if isinstance(delta, TextDelta) else []
            for number, part in enumerate(parts):
                if number:
                    await self.resume.wait()
                    self.resume.clear()
                if FAILURE in part:
                    raise ProviderUnavailable("the provider is gone", provider="scripted")
                yield TextDelta(part)
            if not parts:
                yield delta


@dataclass
class Site:
    """A running server with its script, provider and runtime."""

    url: str
    script: Script
    provider: PausingProvider
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
    approval: Literal["ask", "auto"] = "ask",
    is_scripted: bool = True,
    root_agent: Any = None,
    **settings: Any,
) -> AsyncGenerator[Site]:
    """Serve the page, the API and a scripted agent until the block ends; without the script, the configured model."""
    entries = Script(script)
    provider = PausingProvider(entries, chunk_delay_s=chunk_delay_s)
    store = StoreSettings(url=f"sqlite:///{folder}/page.db")
    settings["tools"] = ToolSettings(approval=approval)
    chosen = Settings(store=store, server=server or ServerSettings(port=0, drain_s=0.1), **settings)
    listener = bind_port(chosen.server)
    async with open_runtime(
        chosen, tools=tools, provider=provider if is_scripted else None, root_agent=root_agent
    ) as runtime:
        app = create_app(chosen, runtime)
        config = uvicorn.Config(app, log_config=None, access_log=False, timeout_graceful_shutdown=TIMEOUT_S)
        serving = _Server(config)
        running = asyncio.create_task(serving.serve([listener]))
        try:
            await serving.ready.wait()
            yield Site(f"http://127.0.0.1:{listener.getsockname()[1]}", entries, provider, runtime, store.url)
        finally:
            serving.should_exit = True
            await app.state.context.turns.drain(chosen.server.drain_s)
            await running
            listener.close()


class _Server(uvicorn.Server):
    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.ready = asyncio.Event()

    async def startup(self, sockets: Any = None) -> None:
        await super().startup(sockets)
        self.ready.set()

    @contextmanager
    def capture_signals(self):
        """Leave signals to pytest."""
        yield
