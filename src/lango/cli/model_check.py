"""`/model`: another model for the next turns of the same session."""

import asyncio
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from lango.adk.agents.app_builder import Models
from lango.errors import LangoError, ProviderRejected, UsageError
from lango.messages import Message
from lango.providers import Request, label

if TYPE_CHECKING:
    from lango.cli.chat.chat_session import Chat
    from lango.config import Settings

_ASK_TIMEOUT_S = 30.0


def model_name(settings: "Settings") -> str:
    """Say which model answers; an agent of one's own may have its own."""
    if settings.agent.model is None and settings.agent.module:
        return f"the model of {Path(settings.agent.module).name}"
    return settings.model


def model_label(settings: "Settings") -> str:
    """Say what the model is: one of this process is labelled as what it is."""
    name = model_name(settings)
    return label(name) if name == settings.model else name


def known(settings: "Settings") -> Iterable[str]:
    """Return names to complete: the models that the settings name, and those of this process."""
    from lango.providers.local.known_models import MODELS

    agent = settings.agent
    named = [settings.model, agent.fallback_model, settings.memory.model]
    named += [sub.model for sub in agent.sub_agents.values()]
    named += [f"local/{model.name}" for model in MODELS]
    return list(dict.fromkeys(name for name in named if name))


async def change(chat: "Chat", rest: str) -> None:
    """Say the model, or change it: it is asked first, so that a wrong name does not cost a message."""
    if not rest:
        chat.screen.say(model_label(chat.settings))
        chat.screen.say("/model provider/name changes it, such as /model openai/gpt-5-mini", "dim")
        return
    if chat.settings.store.url in ("sqlite://", "sqlite:///", "sqlite:///:memory:"):
        raise UsageError("the conversation is kept in memory only, and would be lost: choose the model with -m")
    agent = chat.settings.agent.model_copy(update={"model": rest})
    settings = chat.settings.model_copy(update={"agent": agent})
    doubt = await chat.interruptible(_check(settings, rest))
    if doubt is None:
        chat.screen.say(f"stopped; the model is still {model_name(chat.settings)}", "yellow")
        return
    await chat.reopen(settings)
    chat.screen.say(f"from now on: {model_label(settings)}")
    if doubt:
        chat.screen.say(f"it did not answer a first question: {doubt}", "yellow")


async def _check(settings: "Settings", model: str) -> str:
    """Raise what makes a model unusable: a name, a key, weights. Return what may pass: no answer for now."""
    models = Models(settings)
    try:
        made = models.named(model)
        if model.startswith("local/"):
            return ""
        request = Request(made.model, (Message("user", "ping"),), max_tokens=16)
        async with asyncio.timeout(_ASK_TIMEOUT_S):
            async for _ in made.provider.stream(request):
                return ""
    except TimeoutError:
        return f"nothing within {_ASK_TIMEOUT_S:g} s"
    except ProviderRejected:
        raise
    except LangoError as error:
        if isinstance(error, UsageError):
            raise
        return str(error)
    finally:
        await models.close()
    return ""
