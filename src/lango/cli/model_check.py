"""Describe the configured model and check that it answers."""

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

from lango.adk.agents.model_registry import ModelRegistry
from lango.errors import LangoError, ProviderRejected, UsageError
from lango.messages import Message
from lango.providers import Request, label
from lango.providers.protocol import closing_stream

if TYPE_CHECKING:
    from lango.config import Settings


_ANSWER_TIMEOUT_S = 30.0


def model_name(settings: "Settings") -> str:
    """Return the name of the model; an agent of a module may bring its own."""
    if settings.agent.model is None and settings.agent.module:
        return f"the model of {Path(settings.agent.module).name}"
    return settings.model


def model_label(settings: "Settings") -> str:
    """Return the name of the model, a local model's with its description."""
    name = model_name(settings)
    return label(name) if name == settings.model else name


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
