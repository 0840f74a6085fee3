"""Run `lango inbox`: list what waits for a user, and answer it."""

import json
import sys
import time
from getpass import getpass
from typing import TYPE_CHECKING, Annotated, Any, assert_never

import typer

from lango.cli.agent_choice import choose_agent
from lango.cli.options import AgentName, AgentPathOption, AppFilter, Config, Json, StoreUrl, settings_from_options
from lango.cli.process_setup import fast_imports, run_async
from lango.cli.session_target import LOCAL_USER
from lango.cli.store_access import SessionOptions, run_on_store
from lango.cli.tables import print_table
from lango.cli.terminal_text import format_age, format_time, printable
from lango.errors import UsageError

if TYPE_CHECKING:
    from lango.config import Settings
    from lango.grants import NewGrant
    from lango.runtime.runtime import Runtime
    from lango.runtime.stored_data import StoredData
    from lango.store.tool_calls.inbox import InboxItem
    from lango.turns.running_turn import RunningTurn

app = typer.Typer(help="What waits for you: list and answer.", invoke_without_command=True)

User = Annotated[str, typer.Option("--user", help="The user whose inbox it is.")]

_PAGE = 200
_YES, _NO = ("y", "yes", "approve"), ("n", "no", "deny")


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
            page = await inbox.items(user_id=user, limit=_PAGE)
            while page:
                found += page
                page = await inbox.items(user_id=user, after=page[-1], limit=_PAGE)
        return sorted(found, key=lambda item: item.waiting_since, reverse=True)

    items = run_on_store(config, store, read)
    if as_json:
        for item in items:
            print(json.dumps(_item_json(item)))
        return
    now = time.time()
    rows = [
        {
            "id": item.id,
            "waits for": _item_json(item)["kind"],
            "what": _describe(item),
            "session": item.session_id,
            "since": format_age(item.waiting_since, now),
            "until": "" if item.expires_at is None else format_time(item.expires_at),
        }
        for item in items
    ]
    print_table(rows, empty="nothing is waiting for you", cut=("what", "session"))
    for item in items:
        if address := _item_json(item).get("auth_url"):
            print(f"{item.id}: allow the access at {printable(address)}")


@app.command()
def answer(
    item_id: Annotated[str, typer.Argument(metavar="ID", help="The item; a prefix of its id is enough.")],
    value: Annotated[
        str,
        typer.Argument(
            help="yes or no for an approval; a text or JSON for an input, or decline where a tool asks; a JSON object "
            "for a result; for a credential the address that you were sent to, a key, or name:password; - reads a "
            "credential from standard input."
        ),
    ],
    always: Annotated[
        bool, typer.Option("--always", help="Approve later calls of the tool in the session, too.")
    ] = False,
    expires_s: Annotated[
        float | None, typer.Option("--expires", metavar="SECONDS", help="How long --always holds.")
    ] = None,
    update: Annotated[bool, typer.Option("--update", help="More results of the long-running tool follow.")] = False,
    user: User = LOCAL_USER,
    path: AgentPathOption = None,
    agent: AgentName = None,
    config: Config = None,
    store: StoreUrl = None,
) -> None:
    """Answer an item, run the turn that continues with it, and print its text."""
    from lango.grants import NewGrant

    if expires_s is not None and not always:
        raise UsageError("--expires says how long --always holds: use both")
    grant = NewGrant(expires_in_s=expires_s) if always else None
    settings = choose_agent(settings_from_options(config, store, None), path, agent)
    run_async(_answer(settings, item_id, value, user, grant, update=update))


async def _answer(
    settings: "Settings", item_id: str, value: str, user: str, grant: "NewGrant | None", *, update: bool
) -> None:
    with fast_imports():
        from lango.runtime.opening import open_runtime
        from lango.turns.running_turn import collect_answer

    async with open_runtime(settings, every_session=False) as runtime:
        item = await runtime.inbox.find_item(item_id, user_id=user)
        turn = await _submit(runtime, item, value, user, grant, update=update)
        text = await collect_answer(turn)
        if text:
            print(printable(text))
        for waiting in await runtime.inbox.items(user_id=user):
            if waiting.session_id == item.session_id:
                print(f"{waiting.id} waits now: {printable(_describe(waiting))}")


async def _submit(
    runtime: "Runtime", item: "InboxItem", value: str, user: str, grant: "NewGrant | None", *, update: bool
) -> "RunningTurn":
    """Submit an answer. Raise `UsageError` for one that does not belong to the item."""
    from lango.store.tool_calls.inbox import ApprovalItem, CredentialItem, InputItem, ResultItem

    if grant is not None and not isinstance(item, ApprovalItem):
        raise UsageError("--always works only for an approval, and this is not one")
    if update and not isinstance(item, ResultItem):
        raise UsageError("--update works only for a long-running tool, and this is not one")
    match item:
        case ApprovalItem():
            if value.lower() not in (*_YES, *_NO):
                raise UsageError(f"{item.tool} waits for an approval: answer yes or no")
            approved = value.lower() in _YES
            return await runtime.submit_approval(
                item.session_id, item.call_id, approved=approved, user_id=user, grant=grant
            )
        case InputItem():
            decline = bool(item.tool_call_id) and value.lower() in (*_NO, "decline")
            return await runtime.submit_input(item.session_id, item.call_id, value, user_id=user, decline=decline)
        case ResultItem():
            result = _json_object(value)
            return await runtime.submit_results(
                item.session_id, {item.call_id: result}, user_id=user, will_continue=update
            )
        case CredentialItem():
            return await runtime.submit_credential(
                item.session_id, item.call_id, _read_secret() if value == "-" else value, user_id=user
            )
        case _:
            assert_never(item)


def _read_secret() -> str:
    """Read a credential from standard input; a terminal does not show it."""
    return (getpass("the credential: ") if sys.stdin.isatty() else sys.stdin.readline()).strip()


def _json_object(text: str) -> dict[str, Any]:
    try:
        result: Any = json.loads(text)
    except ValueError:
        result = None
    if not isinstance(result, dict):
        raise UsageError(f"a result is a JSON object, such as {json.dumps({'status': 'done'})}")
    return result  # pyright: ignore[reportUnknownVariableType]


def _item_json(item: "InboxItem") -> dict[str, Any]:
    from msgspec import to_builtins

    from lango.json_output import to_client_json

    members: dict[str, Any] = to_builtins(item)
    members.pop("place")
    return {"id": item.id} | to_client_json(members)


def _describe(item: "InboxItem") -> str:
    """Say in a line what is asked."""
    from lango.store.tool_calls.inbox import ApprovalItem, CredentialItem, InputItem, ResultItem

    match item:
        case ApprovalItem() | ResultItem():
            said = f": {item.hint}" if isinstance(item, ApprovalItem) and item.hint else ""
            return f"{item.tool} {json.dumps(dict(item.arguments), ensure_ascii=False)}{said}"
        case InputItem():
            return item.message
        case CredentialItem():
            return item.message or "a tool needs access to an account of yours"
        case _:
            assert_never(item)
