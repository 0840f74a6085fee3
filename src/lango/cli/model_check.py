"""Check that a model answers."""

import asyncio
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from lango.adk.agents.model_registry import ModelRegistry
from lango.errors import LangoError, ProviderRejected, UsageError
from lango.messages import Message
from lango.providers import Request
from lango.providers.protocol import closing_stream

if TYPE_CHECKING:
    from lango.config import Settings


_ANSWER_TIMEOUT_S = 30.0


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
    """Check a model and, with `send`, that it answers; return the reason of a failure that may be temporary, or "".

    Raises for a wrong name, a missing key, missing weights and a request that the provider rejects.
    """
    models = ModelRegistry(settings)
    try:
        resolved = models.get(model)
        if send and not model.startswith("local/"):
            request = Request(resolved.model, (Message("user", "ping"),), max_tokens=16)
            async with asyncio.timeout(_ANSWER_TIMEOUT_S), closing_stream(resolved.provider.stream(request)) as deltas:
                async for _ in deltas:
                    pass
    except TimeoutError:
        return f"no answer within {_ANSWER_TIMEOUT_S:g} s"
    except (ProviderRejected, UsageError):
        raise
    except LangoError as error:
        return str(error)
    finally:
        await models.close()
    return ""
