"""Run `lango turns` and `lango replicas`: list, follow, cancel and retry turns; list the processes that run them."""

import time
from typing import TYPE_CHECKING, Annotated

import typer

from lango.cli.options import (
    AgentPathOption,
    Json,
    SessionIdArgument,
    SessionOptions,
    StoreOptions,
    configured_apps,
    load_settings,
    with_shared_options,
)
from lango.cli.tables import print_values
from lango.cli.terminal_text import counted, describe_progress, format_age, printable
from lango.errors import UsageError
from lango.events import Steered, TextDelta, ToolProgress, ToolStart, TurnDone, TurnError
from lango.events.text import one_text_at_a_time

if TYPE_CHECKING:
    from lango.runtime.stored_data import StoredData
    from lango.runtime.turns import FailedTurn, ListedTurn

app = typer.Typer(help="Turns of all apps: list, follow, cancel, retry.", no_args_is_help=True)

Failed = Annotated[bool, typer.Option("--failed", help="Those that failed for good, the newest first.")]
TurnNumber = Annotated[int | None, typer.Option("--turn", "-t", min=1, help="The number of the turn.")]


@app.command("list")
@with_shared_options
def list_turns(
    chosen: SessionOptions, path: AgentPathOption = None, failed: Failed = False, as_json: Json = False
) -> None:
    """List queued, running and paused turns, the oldest first, and those that are stranded; or the failed ones.

    A failed turn does not continue by itself: `lango turns retry` runs it again from what is stored. A turn is
    stranded if no process runs it and its app is neither the configured one nor at --path: rename the agent back, or
    cancel the turn.
    """
    if failed:
        _list_failed(chosen, as_json)
        return
    apps = configured_apps(load_settings(chosen.config), path)
    found, now = chosen.run(lambda data: data.turns.list(apps)), time.time()
    turns = [one for one in found if chosen.include(one.turn.session.app_name, one.turn.session.user_id)]

    def row(one: "ListedTurn") -> dict[str, object]:
        number = "" if one.turn.turn is None else str(one.turn.turn)
        fields = _turn_json(one) | {"turn": number, "since": format_age(one.turn.since, now)}
        del fields["attempts"]
        return fields

    print_values(turns, _turn_json, row=row, as_json=as_json, empty="every turn has ended", cut=("session", "owner"))


def _list_failed(chosen: SessionOptions, as_json: bool) -> None:
    now = time.time()
    turns = [
        one
        for one in chosen.run(lambda data: data.turns.failed())
        if chosen.include(one.session.app_name, one.session.user_id)
    ]

    def row(one: "FailedTurn") -> dict[str, object]:
        fields = _failed_json(one) | {"turn": str(one.turn), "failed": format_age(one.failed_at, now)}
        fields["retry"] = "yes" if one.can_retry else "no"
        del fields["attempts"], fields["first_words"]
        return fields

    print_values(turns, _failed_json, row=row, as_json=as_json, empty="no turn has failed", cut=("session", "message"))


def _failed_json(one: "FailedTurn") -> dict[str, object]:
    return {
        "session": one.session.id,
        "turn": one.turn,
        "failed": one.failed_at,
        "error": one.error,
        "message": one.message,
        "retry": one.can_retry,
        "app": one.session.app_name,
        "user": one.session.user_id,
        "attempts": one.attempts,
        "first_words": one.first_words,
    }


def _turn_json(one: "ListedTurn") -> dict[str, object]:
    session = one.turn.session
    return {
        "session": session.id,
        "turn": one.turn.turn,
        "state": one.state,
        "since": one.turn.since,
        "app": session.app_name,
        "user": session.user_id,
        "owner": one.owner,
        "attempts": one.turn.attempts,
    }


@app.command()
@with_shared_options
def follow(chosen: SessionOptions, session_id: SessionIdArgument, turn: TurnNumber = None) -> None:
    """Print what a turn does until it ends, whichever process runs it; without --turn, the newest of the session."""

    async def read(data: "StoredData") -> None:
        speaker = ""
        async for event in one_text_at_a_time(data.turns.follow(await chosen.session(data, session_id), turn)):
            match event:
                case TextDelta():
                    if speaker and event.author != speaker:
                        print(f"\n\n{printable(event.author)}:", flush=True)
                    speaker = event.author
                    print(printable(event.text), end="", flush=True)
                case ToolStart():
                    print(f"\n[{printable(event.name)}]", flush=True)
                case ToolProgress():
                    print(f"  {printable(describe_progress(event))}", flush=True)
                case Steered():
                    print(f"\n> {printable(event.text)}", flush=True)
                case TurnError():
                    print(f"\n{printable(event.message)}")
                case TurnDone():
                    print("" if event.status == "done" else f"\n{event.status.replace('_', ' ')}")
                case _:
                    pass

    chosen.run(read)


@app.command()
@with_shared_options
def cancel(chosen: SessionOptions, session_id: SessionIdArgument, turn: TurnNumber = None) -> None:
    """Stop the open turns of a session, or one of them; stored messages stay. A paused turn no longer waits."""

    async def stop(data: "StoredData") -> int:
        return await data.turns.cancel(await chosen.session(data, session_id), turn)

    count = chosen.run(stop)
    if not count:
        raise UsageError(f"no such turn of session {session_id!r} is open; `lango turns list` lists them")
    print(f"stopped {counted(count, 'turn')} of {session_id}")


@app.command()
@with_shared_options
def retry(chosen: SessionOptions, session_id: SessionIdArgument, turn: TurnNumber = None) -> None:
    """Run a turn again that failed for good, from what is stored; without --turn, the newest. A server continues it."""

    async def run(data: "StoredData") -> int:
        return await data.turns.retry(await chosen.session(data, session_id), turn)

    print(f"turn {chosen.run(run)} of {session_id} will run again")


@with_shared_options
def replicas(chosen: StoreOptions, as_json: Json = False) -> None:
    """List the live processes that run turns of any app, with the version that each runs.

    A process is listed until it stops, or for some seconds after it died. Commands such as `lango run` are not listed.
    """
    print_values(
        chosen.run(lambda data: data.replicas()),
        lambda one: {
            "app": printable(one.app),
            "version": printable(one.version),
            "place": printable(one.place),
            "since": one.started_at.isoformat(timespec="seconds"),
            "turns": one.running_turns,
        },
        as_json=as_json,
        empty="no replica runs",
    )
