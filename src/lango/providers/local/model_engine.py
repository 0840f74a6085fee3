"""Run one loaded model in a worker thread, one request at a time.

This is the only module that uses `xllamacpp`, whose types are partial. The engine calls back once per chunk, on the
worker thread, so the event loop is not blocked; a callback that returns True ends the generation.
"""

import asyncio
import atexit
import importlib
import importlib.util
import os
import queue
import secrets
import threading
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from pathlib import Path
from typing import Any, Protocol

from lango.errors import ConfigError, MissingDependency
from lango.providers.local.known_models import LocalModel
from lango.providers.local.weights import verify

Chunk = dict[str, Any]

_BATCH_TOKENS = 64
"""Prompt tokens between two callbacks: large enough for full speed, small enough to cancel within a second or two."""
_PROMPT_CACHE_MIB = 256
"""Cached prompts of other sessions, so that alternating sessions do not process theirs again each time."""
_QUEUE_CHUNK_S = 20.0
"""How often a queued request yields an empty chunk: its reader would take silence for a failure."""
_EXIT_WAIT_S = 10.0
INSTALL = 'pip install "lango-adk[local]"'
"""The command that installs the engine."""


class ChatServer(Protocol):
    """The part of `xllamacpp.Server` that is used here."""

    def handle_chat_completions(self, prompt: Chunk, callback: Callable[[Chunk], bool]) -> None:
        """Run one chat completion to its end."""
        ...


class _Job:
    """One request, shared by the event loop that awaits it and the thread that runs it."""

    def __init__(self, body: Chunk | None) -> None:
        self.body = body
        self.started = False
        self.stopped = threading.Event()
        self.chunks: asyncio.Queue[Chunk | Exception | None] = asyncio.Queue()
        self._loop = asyncio.get_running_loop()

    async def get(self) -> Chunk | Exception | None:
        """Wait for the next chunk; it is empty while the request is queued."""
        try:
            async with asyncio.timeout(None if self.started else _QUEUE_CHUNK_S):
                return await self.chunks.get()
        except TimeoutError:
            return {}

    def put(self, item: Chunk | Exception | None) -> bool:
        """Pass an item to the event loop; return True to stop the generation."""
        try:
            self._loop.call_soon_threadsafe(self.chunks.put_nowait, item)
        except RuntimeError:  # the loop was closed: its reader is gone
            self.stopped.set()
        return self.stopped.is_set()


class Engine:
    """A model file, loaded by the first request."""

    def __init__(self, load: Callable[[], ChatServer]) -> None:
        self._load = load
        self._server: ChatServer | None = None
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._running: _Job | None = None
        self._closed = False
        # a daemon: `close` ends it, and a process that exits without `close` must not wait for it
        self._thread = threading.Thread(target=self._work, name="lango-local-model", daemon=True)
        self._thread.start()

    async def load(self) -> None:
        """Load the model ahead of its first request."""
        async with aclosing(self.chat(None)) as nothing:
            async for _ in nothing:
                pass

    async def chat(self, body: Chunk | None) -> AsyncGenerator[Chunk]:
        """Stream the chunks of one chat completion, of None none; closing the stream stops the generation."""
        job = _Job(body)
        self._jobs.put(job)
        try:
            while (item := await job.get()) is not None:
                if isinstance(item, Exception):
                    raise item
                yield item
        finally:
            job.stopped.set()

    def close(self) -> None:
        """Stop the running request, and free the model."""
        self._closed = True
        if job := self._running:
            job.stopped.set()
        self._jobs.put(None)
        self._thread.join(_EXIT_WAIT_S)

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None and not self._closed:
            if job.stopped.is_set():
                continue
            self._running = job
            job.started = True
            try:
                self._server = self._server or self._load()
                if job.body is not None:
                    self._server.handle_chat_completions(job.body, job.put)
            except Exception as error:  # noqa: BLE001 - raised in the coroutine that awaits the request
                job.put(error)
            except BaseException as error:  # noqa: BLE001 - a panic must not end this thread
                job.put(RuntimeError(f"{type(error).__name__}: {error}"))
            self._running = None
            job.put(None)
            job = None  # a finished request must not stay in memory until the next one
        self._server = None


_engines: dict[Path, Engine] = {}
_engines_lock = threading.Lock()


def engine_for(model: LocalModel, path: Path) -> Engine:
    """Return the engine of a model file; there is one per file and process."""
    if not is_installed():
        raise MissingDependency(f"local models need an engine: {INSTALL}")
    with _engines_lock:
        if not _engines:
            atexit.register(close_engines)
        key = path.resolve()
        if key not in _engines:
            _engines[key] = Engine(lambda: _load(model, path))
        return _engines[key]


def close_engines() -> None:
    """Free all loaded models. Called at exit, so that no thread outlives the interpreter."""
    with _engines_lock:
        engines = list(_engines.values())
        _engines.clear()
    atexit.unregister(close_engines)
    for engine in engines:
        engine.close()


def is_installed() -> bool:
    """Whether the engine's package is installed."""
    return importlib.util.find_spec("xllamacpp") is not None


def threads() -> int:
    """Return how many cores the engine may use: all but one, which is left to the event loop."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 2
    return max(1, cores - 1)


def _load(model: LocalModel, path: Path) -> ChatServer:
    if model.weights:
        verify(path, model.weights)
    native: Any = importlib.import_module("xllamacpp")
    params = native.CommonParams()
    params.model.path = str(path)
    params.n_ctx = model.context_tokens
    params.n_parallel = 1
    params.n_batch = params.n_ubatch = _BATCH_TOKENS
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = threads()
    params.cache_ram_mib = _PROMPT_CACHE_MIB
    params.chat_template = model.template
    params.use_jinja = True
    params.warmup = False
    params.fit_params = False
    params.verbosity = -1
    # the engine opens an unused port on loopback: a random key closes it
    params.port = 0
    params.api_keys = [secrets.token_hex()]
    params.ui = params.endpoint_slots = False
    try:
        return native.Server(params)
    except RuntimeError as error:
        raise ConfigError(
            f"{path} could not be loaded: it is not a GGUF model, or there is not enough memory"
        ) from error
