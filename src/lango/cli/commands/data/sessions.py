"""Run `lango sessions`: list, show, search, rename, fork, rewind, check and delete sessions."""

import json
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lango.cli.options import Json, SessionIdArgument, SessionOptions, load_settings, with_shared_options
from lango.cli.progress import progress_bar
from lango.cli.tables import print_table, print_values, struct_json, summary_lines, turn_row
from lango.cli.terminal_text import counted, describe_resumption, format_time, printable

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lango.messages import Message
    from lango.runtime.sessions.sessions import Problem
    from lango.runtime.stored_data import AppData, StoredData
    from lango.sessions import SessionId, SessionInfo, StoredEvent


app = typer.Typer(
    help="Sessions: list, show, trace, search, usage, rename, fork, rewind, check, artifacts, export, import, delete.",
    no_args_is_help=True,
)


@app.command("list")
@with_shared_options
def list_sessions(chosen: SessionOptions, as_json: Json = False) -> None:
    """List sessions, the newest last."""
    print_values(chosen.run(chosen.sessions), session_json, as_json=as_json, empty="no sessions yet", cut=("title",))


@app.command()
@with_shared_options
def show(chosen: SessionOptions, session_id: SessionIdArgument, as_json: Json = False) -> None:
    """Show the messages of a session, without those that were rewound."""

    async def read(
        app: "AppData", record: "SessionInfo"
    ) -> "tuple[Sequence[StoredEvent], Mapping[int, Sequence[Mapping[str, Any]]]]":
        user = record.name.user_id
        messages = await app.sessions.messages(record.name.id, user_id=user, limit=record.last_seq)
        return messages, await app.sessions.resumptions(record.name.id, user_id=user)

    messages, resumptions = chosen.run_on(session_id, read)
    for seq, message in ((stored.seq, stored.message) for stored in messages if stored.message):
        resumed = resumptions.get(seq, [])
        if as_json:
            print(json.dumps(_message_json(seq, message) | _resumptions_json(resumed)))
        else:
            calls = "".join(f" {call.name}({call.id})" for call in message.tool_calls)
            print(printable(f"{seq:>4} {message.author or message.role}:{calls} {message.content}").rstrip())
            for one in resumed:
                print(printable(f"     resumed {format_time(one['at'])}: {describe_resumption(one['reason'])}"))


@app.command()
@with_shared_options
def usage(
    chosen: SessionOptions,
    session_id: SessionIdArgument,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="The number of newest turns.")] = 20,
    as_json: Json = False,
) -> None:
    """Show tokens, cost and time of the turns of a session, and the size of its next request."""
    found = chosen.run_on(
        session_id,
        lambda app, record: app.sessions.usage(record.name.id, user_id=record.name.user_id, limit=limit),
        load_settings(chosen.config),
    )
    if as_json:
        from lango.server.api.sessions.usage_routes import to_report
        from lango.server.openapi import shown

        print(json.dumps(shown(to_report(found))))
        return
    print_table([turn_row(turn) for turn in found.turns], empty="no turns", cut=["tools"])
    print(*summary_lines(found), sep="\n")


@app.command()
@with_shared_options
def delete(chosen: SessionOptions, session_id: SessionIdArgument) -> None:
    """Delete a session and all its data."""

    async def remove(app: "AppData", record: "SessionInfo") -> str:
        await app.sessions.delete(record.name.id, user_id=record.name.user_id)
        return record.name.id

    print(f"deleted {chosen.run_on(session_id, remove)}")


@app.command()
@with_shared_options
def rename(
    chosen: SessionOptions,
    session_id: SessionIdArgument,
    title: Annotated[str, typer.Argument(help="The title; leave it empty to use the first words again.")],
    as_json: Json = False,
) -> None:
    """Set the title of a session."""
    renamed = chosen.run_on(
        session_id, lambda app, record: app.sessions.rename(record.name.id, title, user_id=record.name.user_id)
    )
    _print_session(renamed, as_json, "{id} has the title {title!r}")


@app.command()
@with_shared_options
def fork(
    chosen: SessionOptions,
    session_id: SessionIdArgument,
    at: Annotated[int | None, typer.Option("--at", min=0, help="The last message to copy; 0: none.")] = None,
    new_id: Annotated[str | None, typer.Option("--id", help="The fork's id; else a random one.")] = None,
    title: Annotated[str | None, typer.Option("--title", help="The fork's title.")] = None,
    as_json: Json = False,
) -> None:
    """Copy a session up to a message into a new session, and print its id."""
    made = chosen.run_on(
        session_id,
        lambda app, record: app.sessions.fork(
            record.name.id, at=at, new_id=new_id, title=title, user_id=record.name.user_id
        ),
    )
    _print_session(made, as_json, "{id}")


@app.command()
@with_shared_options
def rewind(
    chosen: SessionOptions,
    session_id: SessionIdArgument,
    before: Annotated[int, typer.Option("--before", min=1, help="A message: its turn and all later ones are removed.")],
    as_json: Json = False,
) -> None:
    """Remove the turn of a message and all later ones from the history. Nothing is deleted."""
    rewound = chosen.run_on(
        session_id, lambda app, record: app.sessions.rewind(record.name.id, before=before, user_id=record.name.user_id)
    )
    _print_session(rewound, as_json, "{id} is as it was before the turn of message {before}", before)


@app.command()
@with_shared_options
def search(
    chosen: SessionOptions,
    words: Annotated[list[str], typer.Argument(help="Words that a message must contain.")],
    limit: Annotated[int, typer.Option("--limit", min=1, max=1000, help="The most results.")] = 20,
    as_json: Json = False,
) -> None:
    """Find messages and titles by words; the last word may be incomplete."""

    async def find(data: "StoredData") -> list[dict[str, Any]]:
        hits: list[dict[str, Any]] = []
        for app_name, user_id in await chosen.owners(data):
            # only the first search after many new messages takes long
            with progress_bar("indexing", "messages") as advance:
                sessions = data.app(app_name).sessions
                found = await sessions.search(" ".join(words), user_id=user_id, limit=limit, indexing=advance)
            hits += [{"app": app_name, "user": user_id, **struct_json(hit)} for hit in found]
        return hits[:limit]

    def row(hit: dict[str, Any]) -> dict[str, Any]:
        return {"session": hit["session_id"], "seq": hit["seq"], "role": hit["role"], "text": hit["text"]}

    print_values(chosen.run(find), dict, row=row, as_json=as_json, empty="nothing found", cut=("text",))


def _print_session(record: "SessionInfo", as_json: bool, sentence: str, before: int = 0) -> None:
    fields = session_json(record)
    print(json.dumps(fields) if as_json else printable(sentence.format(**fields, before=before)))


def session_json(record: "SessionInfo") -> dict[str, Any]:
    """Return a session as JSON fields."""
    return {
        "id": record.name.id,
        "title": record.display_title,
        "app": record.name.app_name,
        "user": record.name.user_id,
        "messages": record.last_seq,
        "tokens": record.total_tokens,
        "updated_at": format_time(record.updated_at),
    }


def _message_json(seq: int, message: "Message") -> dict[str, Any]:
    fields = {"seq": seq, "role": message.role, "author": message.author, "content": message.content}
    calls = [{"id": c.id, "name": c.name, "input": c.input, "output": c.output} for c in message.tool_calls]
    return fields | ({"tool_calls": calls} if calls else {})


def _resumptions_json(resumptions: "Sequence[Mapping[str, Any]]") -> dict[str, Any]:
    """Say when and why the turn that a message started was resumed."""
    if not resumptions:
        return {}
    return {"resumptions": [{"at": format_time(one["at"]), "reason": one["reason"]} for one in resumptions]}


@app.command()
@with_shared_options
def check(
    chosen: SessionOptions,
    session_id: Annotated[str | None, typer.Argument(help="The session's id; else every session.")] = None,
    as_json: Json = False,
) -> None:
    """Check the integrity of sessions: no message missing; totals, calls and state match the events.

    Changes nothing. Exits with 1 if there are problems.
    """

    async def find_problems(data: "StoredData") -> "tuple[int, list[tuple[SessionId | None, Problem]]]":
        names = [name for name in await data.session_names() if chosen.include(name.app_name, name.user_id)]
        wanted = [name for name in names if session_id in (None, name.id)]
        if session_id is not None and not wanted:
            wanted = [(await chosen.session(data, session_id)).name]
        found: list[tuple[SessionId | None, Problem]] = []
        if session_id is None:
            found += [(None, problem) for problem in await data.check()]
        with progress_bar("checking", "sessions") as advance:
            for done, name in enumerate(wanted, 1):
                sessions = data.app(name.app_name).sessions
                found += [(name, problem) for problem in await sessions.check(name.id, user_id=name.user_id)]
                advance(done, len(wanted))
        return len(wanted), found

    count, found = chosen.run(find_problems)
    for name, problem in found:
        print(_problem_json(name, problem) if as_json else printable(f"{name.id}: {problem}" if name else str(problem)))
    if not found and not as_json:
        print(f"{counted(count, 'session')} checked: no problems")
    if found:
        raise typer.Exit(1)


def _problem_json(name: "SessionId | None", problem: "Problem") -> str:
    where = {"app": name.app_name, "user": name.user_id, "session": name.id, "seq": problem.seq} if name else {}
    return json.dumps(where | {"problem": problem.what})
