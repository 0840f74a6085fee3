"""`/model`: another model for the next turns of the same session."""

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

from lango.adk.agents.model_registry import ModelRegistry
from lango.errors import LangoError, ProviderRejected, UsageError
from lango.messages import Message
from lango.providers import Request, label

if TYPE_CHECKING:
    from lango.config import Settings


_ANSWER_TIMEOUT_S = 30.0


def model_name(settings: "Settings") -> str:
    """Say which model answers; an agent of one's own may have its own."""
    if settings.agent.model is None and settings.agent.module:
        return f"the model of {Path(settings.agent.module).name}"
    return settings.model


def model_label(settings: "Settings") -> str:
    """Say what the model is: one of this process is labelled as what it is."""
    name = model_name(settings)
    return label(name) if name == settings.model else name


async def check_model(settings: "Settings", model: str) -> str:
    """Raise what makes a model unusable: a name, a key, weights. Return what may pass: no answer for now."""
    models = ModelRegistry(settings)
    try:
        made = models.get(model)
        if model.startswith("local/"):
            return ""
        request = Request(made.model, (Message("user", "ping"),), max_tokens=16)
        async with asyncio.timeout(_ANSWER_TIMEOUT_S):
            async for _ in made.provider.stream(request):
                return ""
    except TimeoutError:
        return f"nothing within {_ANSWER_TIMEOUT_S:g} s"
    except ProviderRejected:
        raise
    except LangoError as error:
        if isinstance(error, UsageError):
            raise
        return str(error)
    finally:
        await models.close()
    return ""
