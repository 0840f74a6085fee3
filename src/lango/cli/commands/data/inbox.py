"""Run `lango inbox`: list what waits for a user, and answer it."""

import json
import sys
import time
from getpass import getpass
from typing import TYPE_CHECKING, Annotated

import typer

from lango.cli.agent_choice import choose_agent
from lango.cli.options import AgentName, AgentPathOption, AppFilter, Config, Json, StoreUrl, settings_from_options
from lango.cli.process_setup import fast_imports, run_async
from lango.cli.session_target import LOCAL_USER
from lango.cli.store_access import SessionOptions, run_on_store
from lango.cli.tables import print_table
from lango.cli.terminal_text import format_age, format_time, printable
from lango.cli.wait_answers import describe_wait, read_answer, wait_json
from lango.errors import UsageError
from lango.grants import NewGrant
from lango.waits import CredentialWait

if TYPE_CHECKING:
    from collections.abc import Callable

    from lango.config import Settings
    from lango.runtime.stored_data import StoredData
    from lango.waits import Answer, InboxItem, Wait

app = typer.Typer(help="What waits for you: list and answer.", invoke_without_command=True)

User = Annotated[str, typer.Option("--user", help="The user whose inbox it is.")]

_PAGE = 200


@app.callback(invoke_without_command=True)
def list_items(
    context: typer.Context,
    user: User = LOCAL_USER,
    app_name: AppFilter = None,
    as_json: Json = False,
    config: Config = None,
    store: StoreUrl = None,
) -> None:
    """List what waits for a user in all sessions, the newest first: approvals, inputs, credentials, results."""
    if context.invoked_subcommand is not None:
        return

    async def read(data: "StoredData") -> "list[InboxItem]":
        found: list[InboxItem] = []
        for name, _ in await SessionOptions(app_name, user).owners(data):
            inbox = data.app(name).inbox
            page = await inbox.list(user_id=user, limit=_PAGE)
            while page:
                found += page
                page = await inbox.list(user_id=user, after=page[-1].place, limit=_PAGE)
        return sorted(found, key=lambda item: item.wait.opened_at, reverse=True)

    items = run_on_store(config, store, read)
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
def answer(
    item_id: Annotated[str, typer.Argument(metavar="ID", help="The item; a prefix of its id is enough.")],
    value: Annotated[
        str,
        typer.Argument(
            help="yes or no for an approval; a text or JSON for an input or a result, or decline where a tool asks; "
            "for a credential the address that you were sent to, a key, or name:password; - reads a credential from "
            "standard input."
        ),
    ],
    always: Annotated[
        bool, typer.Option("--always", help="Approve later calls of the tool in the session, too.")
    ] = False,
    expires_s: Annotated[
        float | None, typer.Option("--expires", metavar="SECONDS", help="How long --always holds.")
    ] = None,
    reason: Annotated[str, typer.Option("--reason", help="Why you refuse the call; the model reads it.")] = "",
    update: Annotated[bool, typer.Option("--update", help="More results of the long-running tool follow.")] = False,
    user: User = LOCAL_USER,
    path: AgentPathOption = None,
    agent: AgentName = None,
    config: Config = None,
    store: StoreUrl = None,
) -> None:
    """Answer an item, run the turn that continues with it, and print its text."""
    if expires_s is not None and not always:
        raise UsageError("--expires says how long --always holds: use both")
    grant = NewGrant(expires_in_s=expires_s) if always else None
    settings = choose_agent(settings_from_options(config, store, None), path, agent)

    def to_answer(wait: "Wait") -> "Answer":
        text = _read_secret() if isinstance(wait, CredentialWait) and value == "-" else value
        return read_answer(wait, text, grant=grant, reason=reason, update=update)

    run_async(_answer(settings, item_id, user, to_answer))


async def _answer(settings: "Settings", item_id: str, user: str, to_answer: "Callable[[Wait], Answer]") -> None:
    with fast_imports():
        from lango.runtime.opening import open_runtime

    async with open_runtime(settings, every_session=False) as runtime:
        wait = (await runtime.inbox.find(item_id, user_id=user)).wait
        turn = await runtime.answer(wait.session_id, wait.id, to_answer(wait), user_id=user)
        if text := await turn.collect_answer():
            print(printable(text))
        for item in await runtime.inbox.list(user_id=user):
            if item.wait.session_id == wait.session_id:
                print(f"{item.id} waits now: {printable(describe_wait(item.wait))}")


def _read_secret() -> str:
    """Read a credential from standard input; a terminal does not show it."""
    return (getpass("the credential: ") if sys.stdin.isatty() else sys.stdin.readline()).strip()
