"""Show and change the model of a chat: check it, download its weights, ask for its key."""

import asyncio
import threading
from collections.abc import Callable, Iterable

from lango.cli.chat.chat_session import ChatSession
from lango.cli.chat.terminal.message_reader import InputInterrupted
from lango.cli.session_target import LOCAL_USER
from lango.config import Settings
from lango.errors import MissingCredentials, ProviderRejected, UsageError
from lango.providers import label
from lango.providers.catalog import using_key
from lango.providers.local.known_models import MODELS, QWEN, is_demonstration, local_model, weights_path
from lango.providers.local.weights import pull
from lango.runtime.checks import ModelRegistry


def next_step(model: str) -> str:
    """Say how to get a better model than the one for demonstrations, or "" if it is another one."""
    if not is_demonstration(model):
        return ""
    return (
        f"/model local/{QWEN.name} downloads one that calls tools (1.1 GB); "
        "/model gemini/..., openai/..., anthropic/... or ollama/... uses one of yours"
    )


async def change_model(chat: ChatSession, rest: str) -> None:
    """Show the model, or change it after a check, so that a wrong name does not fail the next message."""
    if not rest:
        chat.screen.print_line(label(chat.model))
        chat.screen.print_line("/model provider/name changes it, such as /model openai/gpt-5-mini", "dim")
        return
    if chat.settings.store.url in ("sqlite://", "sqlite:///", "sqlite:///:memory:"):
        raise UsageError("the session is in memory only, and would be lost: choose the model with -m")
    agent = chat.settings.agent.model_copy(update={"model": rest})
    settings = chat.settings.model_copy(update={"agent": agent})
    failure = await _check_with_key(chat, settings, rest)
    if failure is None:
        chat.screen.print_line(f"stopped; the model is still {chat.model}", "yellow")
        return
    await chat.reopen(settings)
    if chat.runtime.options.models and not chat.target.new:  # what was chosen on the page would hold instead
        await chat.runtime.options.change(chat.target.session_id, {"model": None}, user_id=LOCAL_USER)
    chat.screen.print_line(f"now using {label(chat.model)}")
    if failure:
        chat.screen.print_line(f"it did not answer a test request: {failure}", "yellow")


async def _check_with_key(chat: ChatSession, settings: Settings, model: str) -> str | None:
    """Check a model; ask for a missing key. Return why it does not answer, or None if the user stopped."""
    try:
        return await chat.run_interruptible(_bring_and_check(chat, settings, model))
    except MissingCredentials as error:
        if not chat.reader.hides_input:
            raise
        chat.screen.print_line(str(error), "yellow")
    provider = model.partition("/")[0]
    chat.screen.print_line("or type it here: it is kept in the memory of this process only", "dim")
    try:
        key = await chat.reader.ask_line(f"the key of {provider}:", hidden=True)
    except InputInterrupted:
        key = None
    if not key:
        return None
    with using_key(provider, key):
        return await chat.run_interruptible(_bring_and_check(chat, settings, model))


async def _bring_and_check(chat: ChatSession, settings: Settings, model: str) -> str:
    """Download a local model that is not here yet, and check that the model answers; return why it does not."""
    try:
        await _pull_missing_weights(model, lambda line: chat.screen.draw([], [line]))
    finally:
        chat.screen.draw([], [])
    async with ModelRegistry(settings) as models:
        return await models.check(model)


async def _pull_missing_weights(model: str, report: Callable[[str], None]) -> None:
    """Download a known local model that is not here yet, and report the progress.

    Cancelling stops the download; the next one continues from there.
    """
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


def known_models(settings: Settings) -> Iterable[str]:
    """Return the models of the settings and the local models, for completion."""
    return list(dict.fromkeys([*settings.named_models, *(f"local/{model.name}" for model in MODELS)]))
