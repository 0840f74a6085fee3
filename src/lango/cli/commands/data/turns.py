"""Run `lango turns`: list the turns of all apps that have not ended, follow one, and cancel them."""

import json
import time
from typing import TYPE_CHECKING, Annotated

import typer

from lango.cli.agent_choice import configured_apps
from lango.cli.options import AgentPathOption, Json, SessionIdArgument, load_settings, with_shared_options
from lango.cli.store_access import SessionOptions
from lango.cli.tables import print_table
from lango.cli.terminal_text import format_age, printable
from lango.errors import UsageError

if TYPE_CHECKING:
    from lango.runtime.unfinished_turns import ListedTurn
    from lango.store import Store

app = typer.Typer(help="Turns that have not ended, of all apps: list, follow, cancel.", no_args_is_help=True)

TurnNumber = Annotated[int | None, typer.Option("--turn", "-t", min=1, help="The number of the turn.")]


@app.command("list")
@with_shared_options
def list_turns(chosen: SessionOptions, path: AgentPathOption = None, as_json: Json = False) -> None:
    """List queued, running and paused turns, the oldest first, and those that are stranded.

    A turn is stranded if no process runs it and its app is neither the configured one nor at --path: rename the agent
    back, or cancel the turn.
    """

    async def read(opened: "Store") -> "list[ListedTurn]":
        from lango.runtime import unfinished_turns

        found = await unfinished_turns.list_turns(opened, configured_apps(load_settings(chosen.config), path))
        return [one for one in found if chosen.include(one.turn.session.app_name, one.turn.session.user_id)]

    turns, now = chosen.run(read), time.time()
    if as_json:
        for one in turns:
            print(json.dumps(_turn_json(one)))
        return
    rows = [
        {
            "session": one.turn.session.id,
            "turn": "" if one.turn.turn is None else str(one.turn.turn),
            "state": one.state,
            "since": format_age(one.turn.since, now),
            "app": one.turn.session.app_name,
            "user": one.turn.session.user_id,
            "owner": one.owner,
        }
        for one in turns
    ]
    print_table(rows, empty="every turn has ended", cut=("session", "owner"))


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

    async def read(opened: "Store") -> None:
        from lango.events import TextDelta, ToolStart, TurnDone, TurnError
        from lango.runtime.execution.repeated_turns import follow_event_log
        from lango.store import Turn
        from lango.store.turns.queue import find_current_turn
        from lango.store.turns.turns import read_turn

        record = await chosen.session(opened, session_id)
        number = await opened.read(find_current_turn, record) if turn is None else turn
        if number is None or await opened.read(read_turn, record.key, number) is None:
            raise UsageError(f"session {session_id!r} has no such turn; `lango turns list` lists them")
        async for event in follow_event_log(opened, Turn(record.key, number)):
            match event:
                case TextDelta():
                    print(printable(event.text), end="", flush=True)
                case ToolStart():
                    print(f"\n[{printable(event.name)}]", flush=True)
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
    """Stop the open turns of a session, or one of them; stored messages stay. A paused turn waits no longer."""

    async def stop(opened: "Store") -> int:
        from lango.runtime.unfinished_turns import cancel_turns

        return await cancel_turns(opened, await chosen.session(opened, session_id), turn)

    count = chosen.run(stop)
    if not count:
        raise UsageError(f"no such turn of session {session_id!r} is open; `lango turns list` lists them")
    print(f"stopped {count} turn{'' if count == 1 else 's'} of {session_id}")
