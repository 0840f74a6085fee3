"""Run `lango inbox`: list what waits for a user, and answer it."""

import json
import sys
import time
from dataclasses import dataclass
from getpass import getpass
from typing import TYPE_CHECKING, Annotated

import typer

from lango.cli.options import AgentOptions, Json, SessionOptions, read_json_option, with_shared_options
from lango.cli.session_target import LOCAL_USER
from lango.cli.tables import print_table
from lango.cli.terminal_text import format_age, format_time, printable
from lango.cli.wait_answers import describe_wait, read_answer, wait_json
from lango.errors import UsageError
from lango.waits import CredentialWait, EventWait, NewGrant, TimerWait

if TYPE_CHECKING:
    from lango.runtime.runtime import Runtime
    from lango.runtime.stored_data import StoredData
    from lango.waits import InboxItem

app = typer.Typer(help="What waits for you: list and answer.", invoke_without_command=True)

User = Annotated[str, typer.Option("--user", help="The user whose inbox it is.")]


@dataclass(frozen=True)
class InboxOptions(SessionOptions):
    """The options that select the inbox of a user."""

    user: User = LOCAL_USER


@app.callback(invoke_without_command=True)
@with_shared_options
def list_items(context: typer.Context, chosen: InboxOptions, as_json: Json = False) -> None:
    """List what waits for a user in all sessions, the newest first: approvals, inputs, credentials, results."""
    if context.invoked_subcommand is not None:
        return

    async def read(data: "StoredData") -> "list[InboxItem]":
        owners = await chosen.owners(data)
        found = [item for name, _ in owners for item in await data.app(name).inbox.every(user_id=chosen.user)]
        return sorted(found, key=lambda item: item.wait.opened_at, reverse=True)

    items = chosen.run(read)
    if as_json:
        for item in items:
            print(json.dumps({"id": item.id, "title": item.title, "wait": wait_json(item.wait)}))
        return
    now = time.time()
    rows = [
        {
            "id": item.id,
            "waits for": (wait := item.wait).kind.replace("_", " "),
            "what": describe_wait(wait),
            "session": wait.session_id,
            "since": format_age(wait.opened_at.timestamp(), now),
            "until": "" if wait.expires_at is None else format_time(wait.expires_at.timestamp()),
        }
        for item in items
    ]
    print_table(rows, empty="nothing is waiting for you", cut=("what", "session"))
    for item in items:
        if isinstance(item.wait, CredentialWait) and item.wait.auth_url:
            print(f"{item.id}: allow the access at {printable(item.wait.auth_url)}")


@app.command()
@with_shared_options
def answer(
    chosen: AgentOptions,
    item_id: Annotated[str, typer.Argument(metavar="ID", help="The item; a prefix of its id is enough.")],
    value: Annotated[
        str,
        typer.Argument(
            help="yes or no for an approval; a text or JSON for an input, a result or an event, or decline where a "
            "tool asks; wake for a timer; for a credential the address that you were sent to, a key, or name:password; "
            "- reads a credential from standard input."
        ),
    ],
    always: Annotated[
        bool, typer.Option("--always", help="Also approve later calls of the tool in the session.")
    ] = False,
    expires_s: Annotated[
        float | None, typer.Option("--expires", metavar="SECONDS", help="How long --always lasts.")
    ] = None,
    reason: Annotated[str, typer.Option("--reason", help="Why you refuse the call; the model reads it.")] = "",
    payload: Annotated[
        str | None,
        typer.Option("--payload", metavar="JSON", help="What the tool gets instead of the payload that it asks with."),
    ] = None,
    update: Annotated[bool, typer.Option("--update", help="More results of the long-running tool follow.")] = False,
    user: User = LOCAL_USER,
) -> None:
    """Answer an item, run the turn that continues with it, and print its text."""
    if expires_s is not None and not always:
        raise UsageError("--expires says how long --always holds: use both")
    grant = NewGrant(expires_in_s=expires_s) if always else None

    given = read_json_option("--payload", payload)

    async def run(runtime: "Runtime") -> None:
        wait = (await runtime.inbox.find(item_id, user_id=user)).wait
        text = _read_secret() if isinstance(wait, CredentialWait) and value == "-" else value
        answered = read_answer(wait, text, grant=grant, reason=reason, update=update, payload=given)
        turn = await runtime.answer(wait.session_id, wait.id, answered, user_id=user)
        if text := await turn.collect_answer():
            print(printable(text))
        for item in await runtime.inbox.list(user_id=user):
            if item.wait.session_id == wait.session_id:
                print(f"{item.id} waits now: {printable(describe_wait(item.wait))}")

    chosen.run_on_agent(run)


@app.command()
@with_shared_options
def cancel(
    chosen: AgentOptions,
    item_id: Annotated[str, typer.Argument(metavar="ID", help="The item; a prefix of its id is enough.")],
    user: User = LOCAL_USER,
) -> None:
    """End a timer or a wait for an event without an answer: nothing runs, and its call has an error."""

    async def run(runtime: "Runtime") -> None:
        wait = (await runtime.inbox.find(item_id, user_id=user)).wait
        if not isinstance(wait, TimerWait | EventWait):
            raise UsageError("only a timer or a wait for an event can be cancelled: use `lango inbox answer`")
        if not await runtime.cancel_wait(wait.session_id, wait.id, user_id=user):
            raise UsageError(f"{item_id} cannot be cancelled now: it has ended, or a turn of its session runs")
        print("cancelled")

    chosen.run_on_agent(run)


def _read_secret() -> str:
    """Read a credential from standard input; a terminal does not show it."""
    return (getpass("the credential: ") if sys.stdin.isatty() else sys.stdin.readline()).strip()
