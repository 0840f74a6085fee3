"""`lango run` and `lango chat`: the agent in the terminal."""

import asyncio
import json
import logging
import signal
import sys
import uuid
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from lango.cli.options import Config, StoreUrl, settings
from lango.errors import LangoError, TurnCancelled, UsageError

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from lango.config import Settings
    from lango.events import TurnEvent
    from lango.running import RunningTurn
    from lango.runtime import Runtime

Prompt = Annotated[str | None, typer.Argument(help="What to ask; else it is read from standard input.")]
Resume = Annotated[str | None, typer.Option("-r", "--resume", help="Go on with this session.")]
Continue = Annotated[bool, typer.Option("-c", "--continue", help="Go on with the newest session.")]
Model = Annotated[str | None, typer.Option("-m", "--model", help="provider/name, instead of the setting agent.model.")]
Format = Annotated[
    Literal["text", "json", "stream-json"], typer.Option("--output-format", help="How the answer is printed.")
]

USER = "user"


def run(
    prompt: Prompt = None,
    resume: Resume = None,
    go_on: Continue = False,
    model: Model = None,
    output_format: Format = "text",
    config: Config = None,
    store: StoreUrl = None,
) -> None:
    """Ask once and print the answer."""
    text = prompt if prompt is not None else _from_pipe()
    if not text.strip():
        raise UsageError('there is nothing to ask: lango run "your question", or pipe it in')
    chosen = _chosen(config, store, model)
    asyncio.run(_run(chosen, text, resume, go_on, output_format))


def chat(
    resume: Resume = None, go_on: Continue = False, model: Model = None, config: Config = None, store: StoreUrl = None
) -> None:
    """Talk with the agent. Ctrl-C stops an answer, Ctrl-D ends."""
    asyncio.run(_chat(_chosen(config, store, model), resume, go_on))


def _from_pipe() -> str:
    return "" if sys.stdin.isatty() else sys.stdin.read()


def _chosen(config: str | None, store: str | None, model: str | None) -> "Settings":
    quiet()
    chosen = settings(config)
    update: dict[str, Any] = {}
    if model:
        update["agent"] = chosen.agent.model_copy(update={"model": model})
    if store:
        update["store"] = chosen.store.model_copy(update={"url": store})
    return chosen.model_copy(update=update)


def quiet() -> None:
    """Leave the terminal to the conversation: what fails is told in a sentence, not in ADK's tracebacks."""
    logging.basicConfig(level=logging.WARNING, format="lango: %(message)s")
    logging.getLogger("google_adk").setLevel(logging.CRITICAL)


async def _run(chosen: "Settings", text: str, resume: str | None, go_on: bool, output_format: str) -> None:
    from lango.events import TextDelta, TurnDone, to_json

    async with _opened(chosen) as runtime:
        session_id = await _session_id(runtime, resume, go_on)
        pieces: list[str] = []
        usage: dict[str, Any] = {}
        async for event in _told(runtime, session_id, text):
            match event:
                case _ if output_format == "stream-json":
                    print(json.dumps(to_json(event) | {"session": session_id}, ensure_ascii=False), flush=True)
                case TextDelta():
                    pieces.append(event.text)
                    if output_format == "text":
                        print(event.text, end="", flush=True)
                case TurnDone():
                    usage = to_json(event)["usage"]
                case _:
                    pass
        if output_format == "text":
            print()
        elif output_format == "json":
            told = {"session": session_id, "text": "".join(pieces), "usage": usage}
            print(json.dumps(told, ensure_ascii=False))


async def _chat(chosen: "Settings", resume: str | None, go_on: bool) -> None:
    async with _opened(chosen) as runtime:
        session_id = await _session_id(runtime, resume, go_on)
        print(f"{_label(chosen)}\nsession {session_id}; Ctrl-C stops an answer, Ctrl-D ends")
        while (line := await _next_line()) is not None:
            if line.strip():
                await _answer(runtime, session_id, line)


async def _answer(runtime: "Runtime", session_id: str, line: str) -> None:
    from lango.events import ApprovalNeeded

    question: ApprovalNeeded | None = None
    try:
        async for event in _told(runtime, session_id, line):
            _show(event)
            question = event if isinstance(event, ApprovalNeeded) else question
        while question is not None:
            asked, question = question, None
            print(f"\n{asked.name} {json.dumps(dict(asked.arguments), ensure_ascii=False)}")
            approved = (await _next_line("run exactly this? [y/N] ") or "").strip().lower() in ("y", "yes")
            turn = await runtime.submit_approval(session_id, asked.call_id, approved=approved, user_id=USER)
            async for event in _followed(turn):
                _show(event)
                question = event if isinstance(event, ApprovalNeeded) else question
    except LangoError as error:
        print(f"\n{error}", file=sys.stderr)
    print()


def _show(event: "TurnEvent") -> None:
    from lango.events import TextDelta, ToolEnd, ToolStart

    match event:
        case TextDelta():
            print(event.text, end="", flush=True)
        case ToolStart():
            print(f"\n· {event.name} {json.dumps(dict(event.arguments), ensure_ascii=False)}", flush=True)
        case ToolEnd():
            print(f"· {event.name} {'done' if event.ok else 'failed'}", flush=True)
        case _:
            pass


async def _told(runtime: "Runtime", session_id: str, text: str) -> "AsyncGenerator[TurnEvent, None]":
    async for event in _followed(await runtime.submit(session_id, text, user_id=USER)):
        yield event


async def _followed(turn: "RunningTurn") -> "AsyncGenerator[TurnEvent, None]":
    """Follow a turn; Ctrl-C stops the turn, not the program. A fatal error is raised at the end."""
    loop = asyncio.get_running_loop()
    with suppress(NotImplementedError):  # no signals on this platform
        loop.add_signal_handler(signal.SIGINT, lambda: turn.stop(TurnCancelled("stopped")))
    try:
        async for event in turn.follow():
            yield event
    finally:
        with suppress(NotImplementedError):
            loop.remove_signal_handler(signal.SIGINT)
    if turn.error is not None:
        raise turn.error


async def _next_line(prompt: str = "> ") -> str | None:
    """Read a line without holding up the loop; None at the end of the input."""
    try:
        return await asyncio.to_thread(input, prompt if sys.stdin.isatty() else "")
    except EOFError:
        return None


@asynccontextmanager
async def _opened(chosen: "Settings") -> "AsyncGenerator[Runtime, None]":
    from lango.runtime import open_runtime

    async with open_runtime(chosen) as runtime:
        yield runtime


async def _session_id(runtime: "Runtime", resume: str | None, go_on: bool) -> str:
    if resume:
        return resume
    if go_on:
        known = await runtime.store.sessions(runtime.app_name, USER)
        if not known:
            raise UsageError("there is no session to go on with yet")
        return known[-1].name.id
    return uuid.uuid4().hex[:12]


def _label(chosen: "Settings") -> str:
    from lango.providers import label

    return label(chosen.model)
