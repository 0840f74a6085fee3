"""`lango sessions`: look at conversations, and delete them."""

import asyncio
import json
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lango.cli.options import Config, Json, StoreUrl, settings, store_url
from lango.cli.tables import moment, print_table
from lango.cli.visible import visible
from lango.errors import SessionNotFound, UsageError

if TYPE_CHECKING:
    from lango.store import SessionRecord, Store, Stored
    from lango.usage import SessionUsage

app = typer.Typer(help="Conversations: list, show, usage, delete.", no_args_is_help=True)

Id = Annotated[str, typer.Argument(help="The session's id.")]
App = Annotated[str | None, typer.Option("--app", help="Of this app only.")]
User = Annotated[str | None, typer.Option("--user", help="Of this user only.")]


@app.command("list")
def list_sessions(
    app: App = None, user: User = None, as_json: Json = False, config: Config = None, store: StoreUrl = None
) -> None:
    """List sessions, the newest last."""

    async def read(opened: "Store") -> "list[SessionRecord]":
        return await _matching(opened, app, user)

    records = _run(store_url(config, store), read)
    if as_json:
        for record in records:
            print(json.dumps(_summary(record)))
    else:
        print_table([_summary(record) for record in records], empty="no sessions")


@app.command()
def show(
    session_id: Id,
    app: App = None,
    user: User = None,
    as_json: Json = False,
    config: Config = None,
    store: StoreUrl = None,
) -> None:
    """Show a session, message by message."""

    async def read(opened: "Store") -> "list[Stored]":
        record = await _one(opened, session_id, app, user)
        found = await opened.events(record.name)
        return found[1] if found else []

    for one in _run(store_url(config, store), read):
        if one.message is None:
            continue
        if as_json:
            print(json.dumps(_message(one)))
        else:
            calls = "".join(f" {call.name}({call.id})" for call in one.message.tool_calls)
            who = one.message.author or one.message.role
            print(visible(f"{one.seq:>4} {who}:{calls} {one.message.content}").rstrip())


@app.command()
def usage(
    session_id: Id,
    app: App = None,
    user: User = None,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="So many of the newest turns.")] = 20,
    as_json: Json = False,
    config: Config = None,
    store: StoreUrl = None,
) -> None:
    """Show what the turns of a session took, and what the next request would keep of it."""
    from lango.cli.usage import print_usage, read_usage

    async def read(opened: "Store") -> "SessionUsage":
        record = await _one(opened, session_id, app, user)
        return await read_usage(opened, record.name, settings(config), limit)

    print_usage(_run(store_url(config, store), read), as_json=as_json)


@app.command()
def delete(
    session_id: Id,
    app: App = None,
    user: User = None,
    config: Config = None,
    store: StoreUrl = None,
) -> None:
    """Delete a session and everything that belongs to it."""

    async def remove(opened: "Store") -> None:
        record = await _one(opened, session_id, app, user)
        await opened.delete_session(record.name)

    _run(store_url(config, store), remove)
    print(f"deleted {session_id}")


def _run(url: str, work: Any) -> Any:
    from lango.store import Store

    async def run() -> Any:
        async with Store(url) as opened:
            return await work(opened)

    return asyncio.run(run())


async def _matching(store: "Store", app: str | None, user: str | None) -> "list[SessionRecord]":
    return [record for record in await store.sessions(app) if user is None or record.name.user_id == user]


async def _one(store: "Store", session_id: str, app: str | None, user: str | None) -> "SessionRecord":
    found = [record for record in await _matching(store, app, user) if record.name.id == session_id]
    if not found:
        raise SessionNotFound(f"there is no session {session_id!r}; `lango sessions list` shows what there is")
    if len(found) > 1:
        raise UsageError(f"{len(found)} sessions have the id {session_id!r}: say which with --app and --user")
    return found[0]


def _summary(record: "SessionRecord") -> dict[str, Any]:
    return {
        "id": record.name.id,
        "app": record.name.app_name,
        "user": record.name.user_id,
        "messages": record.last_seq,
        "tokens": record.total_tokens,
        "updated_at": moment(record.updated_at),
    }


def _message(one: "Stored") -> dict[str, Any]:
    assert one.message
    told: dict[str, Any] = {"seq": one.seq, "role": one.message.role, "author": one.message.author}
    told["content"] = one.message.content
    calls = [{"id": c.id, "name": c.name, "input": c.input, "output": c.output} for c in one.message.tool_calls]
    return told | ({"tool_calls": calls} if calls else {})
