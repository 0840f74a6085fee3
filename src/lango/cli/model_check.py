"""Check that a model answers."""

import asyncio
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from lango.errors import ProviderRejected

if TYPE_CHECKING:
    from lango.config import Settings


def next_step(model: str) -> str:
    """Say how to get a better model than the one for demonstrations; empty: it is another one."""
    from lango.providers.local.known_models import QWEN, is_demonstration

    if not is_demonstration(model):
        return ""
    return (
        f"/model local/{QWEN.name} downloads one that calls tools (1.1 GB); "
        "/model gemini/..., openai/..., anthropic/... or ollama/... uses one of yours"
    )


async def pull_missing_weights(model: str, report: Callable[[str], None]) -> None:
    """Download a known local model that is not here yet, and report how far it is.

    Cancelling stops the download; the next one goes on from there.
    """
    from lango.providers.local.known_models import local_model, weights_path
    from lango.providers.local.weights import pull

    provider, _, name = model.partition("/")
    found = local_model(name) if provider == "local" else None
    if found is None or found.weights is None or weights_path(found.weights).is_file():
        return
    stopped, loop = threading.Event(), asyncio.get_running_loop()

    def progress(done: int, total: int) -> None:
        if stopped.is_set():
            raise ProviderRejected("the download was stopped", provider=provider)
        line = f"downloading {found.name}: {done / 1e6:,.0f} of {total / 1e6:,.0f} MB; Ctrl-C stops it"
        loop.call_soon_threadsafe(report, line)

    try:
        await asyncio.to_thread(pull, found, progress=progress)
    finally:
        stopped.set()


async def check_model(settings: "Settings", model: str, *, send: bool = True) -> str:
    """Check a model that no runtime has yet; return the reason of a failure that may pass, or ""."""
    from lango.runtime.models import Models

    async with Models(settings) as models:
        return await models.check(model, send=send)
