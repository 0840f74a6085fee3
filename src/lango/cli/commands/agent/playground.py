"""Run `lango playground`: run turns on with something changed, as forks, and compare runs."""

import itertools
import json
from collections.abc import Sequence
from difflib import SequenceMatcher
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer
from msgspec import Struct

from lango.cli.options import AgentOptions, SessionIdArgument, read_json_option, with_shared_options
from lango.cli.session_target import LOCAL_USER
from lango.cli.terminal_text import format_cost, printable
from lango.errors import LangoError, UsageError
from lango.model_options import AgentOptions as TriedOptions

if TYPE_CHECKING:
    from lango.runtime.playground import Changes
    from lango.runtime.runtime import Runtime

app = typer.Typer(help="Try something else: run turns on with changes, and compare runs.", no_args_is_help=True)

Of = Annotated[str | None, typer.Option("--of", metavar="AGENT", help="Whose prompt and model; the root agent's.")]
State = Annotated[str | None, typer.Option("--state", metavar="JSON", help="Other values in the state.")]
User = Annotated[str, typer.Option("--user", help="The user whose sessions these are.")]
_MAX_MESSAGES = 500


class _Run(Struct, frozen=True):
    """A run of a turn, as people compare it."""

    title: str
    parts: dict[str, str]


@app.command("run")
@with_shared_options
def run_on(
    chosen: AgentOptions,
    session_id: SessionIdArgument,
    turn: Annotated[int, typer.Option("--turn", "-t", min=1, help="The turn that is run again.")],
    before: Annotated[
        int | None,
        typer.Option(
            "--before", min=1, help="Run on from this message of the turn: what comes before is not done again."
        ),
    ] = None,
    message: Annotated[str | None, typer.Option("--message", help="Another message for the whole turn.")] = None,
    system: Annotated[str | None, typer.Option("--system", help="Another system text.")] = None,
    model: Annotated[str | None, typer.Option("--model", help="Another model, as provider/name.")] = None,
    result: Annotated[
        list[str] | None,
        typer.Option("--result", metavar="CALL=JSON", help="Another result of a tool call before that."),
    ] = None,
    state: State = None,
    of: Of = None,
    user: User = LOCAL_USER,
) -> None:
    """Run a turn again, or on from one of its messages, with something changed; compare it with the original.

    The run is a fork: the session stays as it is.
    """
    values = _read_object("--state", state)
    results = dict(_read_result(text) for text in result or ())

    async def run(runtime: "Runtime") -> list[_Run]:
        from lango.runtime.playground import Changes

        changes = Changes(message, _tried(runtime, of, system, model), results, values)
        fork = await _run_fork(runtime, session_id, turn, changes, before, user)
        return [await _read_run(runtime, session_id, turn, user), await _read_run(runtime, fork, None, user)]

    _print_runs(chosen.run_on_agent(run))


@app.command()
@with_shared_options
def compare(
    chosen: AgentOptions,
    runs: Annotated[list[str], typer.Argument(metavar="SESSION[:TURN]...", help="The runs; the newest turn of each.")],
    user: User = LOCAL_USER,
) -> None:
    """Compare runs: words, tools with their arguments, state, tokens, cost, time. New words stand in [+ +]."""
    if len(runs) < 2:
        raise UsageError("name two runs or more, such as `lango playground compare s:2 f:1`")

    async def run(runtime: "Runtime") -> list[_Run]:
        return [await _read_run(runtime, *_split_place(text), user) for text in runs]

    _print_runs(chosen.run_on_agent(run))


@app.command()
@with_shared_options
def columns(
    chosen: AgentOptions,
    message: Annotated[str, typer.Argument(help="The message of each run.")],
    model: Annotated[list[str] | None, typer.Option("--model", help="A model, as provider/name; several.")] = None,
    system: Annotated[list[str] | None, typer.Option("--system", help="A system text; several.")] = None,
    resume: Annotated[str | None, typer.Option("--resume", "-r", help="Send it to forks of this session.")] = None,
    state: State = None,
    of: Of = None,
    user: User = LOCAL_USER,
) -> None:
    """Send one message to several models or system texts, each in its own session, and show the runs as columns."""
    values = _read_object("--state", state)

    async def run(runtime: "Runtime") -> list[_Run]:
        from lango.runtime.playground import Changes

        source = resume or (await runtime.sessions.create(user_id=user)).name.id
        try:
            found: list[_Run] = []
            for one_model, text in itertools.product(model or [None], system or [None]):
                changes = Changes(message, _tried(runtime, of, text, one_model), {}, values)
                fork = await _run_fork(runtime, source, None, changes, None, user)
                found.append(await _read_run(runtime, fork, None, user))
            return found
        finally:
            if resume is None:
                await runtime.sessions.delete(source, user_id=user)

    _print_runs(chosen.run_on_agent(run))


def _tried(runtime: "Runtime", of: str | None, system: str | None, model: str | None) -> dict[str, TriedOptions]:
    return {of or runtime.root_name: TriedOptions(system=system or "", model=model or "")} if system or model else {}


async def _run_fork(
    runtime: "Runtime", session_id: str, turn: int | None, changes: "Changes", before: int | None, user: str
) -> str:
    """Run a fork to its end; return its id. Its trace has an error of the turn."""
    fork, running = await runtime.playground.run_on(session_id, turn, changes, before=before, user_id=user)
    try:
        await running.collect_answer()
    except LangoError:
        if running.error is None:
            raise
    return fork.name.id


async def _read_run(runtime: "Runtime", session_id: str, turn: int | None, user: str) -> _Run:
    """Read a turn, or the newest, as it is compared."""
    sessions = runtime.sessions
    [traced] = (await sessions.trace(session_id, user_id=user, turn=turn, limit=1)).turns
    first, last = traced.first_seq or 0, traced.last_seq or 0
    page = await sessions.messages(session_id, user_id=user, before=last + 1, limit=_MAX_MESSAGES)
    messages = [one.message for one in page if one.message and one.seq >= first]
    calls = [call for one in messages if one.role == "assistant" for call in one.tool_calls if call.output is None]
    state = (await sessions.state(session_id, user_id=user, at=last or None)).session
    usage = traced.usage
    models = dict.fromkeys(step.model or step.name for _, step in traced.walk() if step.kind == "model_call")
    answers = [one.content for one in messages if one.role == "assistant" and one.content]
    parts = {
        "message": next((one.content for one in messages if one.role == "user"), ""),
        "model": ", ".join(models) or "none",
        "tools": "\n".join(f"{call.name}({_json(dict(call.input or {}))})" for call in calls) or "none",
        "answer": "\n\n".join(answers) or traced.error or traced.status,
        "state": "\n".join(sorted(f"{name}: {_json(value)}" for name, value in state.items())) or "none",
        "tokens": f"{usage.input_tokens:,} in ({usage.cached_tokens:,} cached), {usage.output_tokens:,} out",
        "cost": format_cost(usage.cost_usd) or "not known",
        "time": "" if traced.duration_s is None else f"{traced.duration_s:.2f} s",
    }
    return _Run(f"{session_id}:{traced.turn}", parts)


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)


def _split_place(text: str) -> tuple[str, int | None]:
    """Return the session and the turn that `SESSION:TURN` names."""
    session_id, colon, number = text.rpartition(":")
    return (session_id, int(number)) if colon and number.isdecimal() else (text, None)


def _read_object(option: str, text: str | None) -> dict[str, Any]:
    """Return the JSON object that an option has; empty: it is not given. Raise `UsageError`."""
    found = read_json_option(option, text)
    if found is not None and not isinstance(found, dict):
        raise UsageError(f'{option} takes a JSON object, such as {{"found": 3}}')
    return cast("dict[str, Any]", found or {})


def _read_result(text: str) -> tuple[str, dict[str, Any]]:
    call_id, equals, value = text.partition("=")
    if not equals:
        raise UsageError('--result takes the id of a call and a JSON object, such as c1={"found": 3}')
    return call_id, _read_object("--result", value)


def _print_runs(runs: Sequence[_Run]) -> None:
    """Print the runs side by side, the first one whole, and of the others the new words marked."""
    from rich.console import Console
    from rich.table import Table

    table = Table(show_lines=True)
    table.add_column("")
    for run in runs:
        table.add_column(printable(run.title), overflow="fold")
    for name, first in runs[0].parts.items():
        others = [_marked(first, run.parts[name]) for run in runs[1:]]
        differs = any(run.parts[name] != first for run in runs)
        cells = [printable(text) for text in (f"{name} *" if differs else name, first, *others)]
        table.add_row(*(cell.replace("[", r"\[") for cell in cells))
    Console(highlight=False).print(table)


def _marked(before: str, after: str) -> str:
    """Mark the words of a text that another one does not have at that place."""
    old, new = before.split(" "), after.split(" ")
    marked: list[str] = []
    for kind, _, _, start, end in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        words = " ".join(new[start:end])
        if words:
            marked.append(words if kind == "equal" else f"[+{words}+]")
    return " ".join(marked)
