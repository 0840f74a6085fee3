"""Run `lango memory`: show and delete observations and facts."""

import json
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lango.cli.options import AppFilter, Config, Json, SessionIdArgument, StoreUrl, UserFilter, load_settings
from lango.cli.store_access import run_on_store, session_by_id
from lango.cli.terminal_text import format_time, printable
from lango.errors import UsageError

if TYPE_CHECKING:
    from lango.store import Store
    from lango.store.memory.user_facts import Fact

app = typer.Typer(help="Memory: show observations and facts, forget a fact.", no_args_is_help=True)

UserOption = Annotated[str, typer.Option("--user", help="The user of the facts.")]
AppOption = Annotated[str | None, typer.Option("--app", help="The app; else the one of the settings.")]
IncludeInactive = Annotated[bool, typer.Option("--all", help="Include what was condensed, replaced or rewound.")]


@app.command()
def show(
    session_id: SessionIdArgument,
    app: AppFilter = None,
    user: UserFilter = None,
    every: IncludeInactive = False,
    as_json: Json = False,
    config: Config = None,
    store: StoreUrl = None,
) -> None:
    """Show the observations of a session, each with its messages."""

    async def read(opened: "Store") -> list[dict[str, Any]]:
        from lango.store.memory.observations import SessionMemory, read_all_batches, read_memory

        session = await session_by_id(opened, session_id, app, user)
        recalled = await opened.read(read_memory, session)
        if every:
            recalled = SessionMemory(tuple(await opened.read(read_all_batches, session)))
        return recalled.as_json()

    notes = run_on_store(config, store, read)
    if as_json:
        for note in notes:
            print(json.dumps(note | {"created_at": format_time(note["created_at"])}))
    else:
        _print_notes(notes)


@app.command()
def facts(
    user: UserOption = "user",
    app: AppOption = None,
    every: IncludeInactive = False,
    as_json: Json = False,
    config: Config = None,
    store: StoreUrl = None,
) -> None:
    """Show the facts about a user across sessions."""
    from lango.store.memory.user_facts import read_facts

    app_name = app or load_settings(config).agent.name
    found = run_on_store(config, store, lambda opened: opened.read(read_facts, app_name, user, replaced=every))
    if as_json:
        for fact in found:
            print(json.dumps(_fact_json(fact)))
        return
    for fact in found:
        replaced = f" (replaced by {fact.replaced_by})" if fact.replaced_by else ""
        source = f"session {fact.session_id}, messages {fact.first_seq}-{fact.last_seq}, {fact.day}"
        print(printable(f"{fact.id:>4} {fact.name}: {fact.text}  [{source}]{replaced}"))
    if not found:
        print("no facts")


@app.command()
def forget(
    fact_id: Annotated[int, typer.Argument(help="The id that `lango memory facts` shows.")],
    user: UserOption = "user",
    app: AppOption = None,
    config: Config = None,
    store: StoreUrl = None,
) -> None:
    """Delete a fact and those that it replaced."""
    from lango.store.memory.user_facts import delete_fact

    app_name = app or load_settings(config).agent.name
    if not run_on_store(config, store, lambda opened: opened.write(delete_fact, app_name, user, fact_id)):
        raise UsageError(f"there is no fact {fact_id} of user {user!r}; `lango memory facts` lists them")
    print(f"forgot {fact_id}")


def _print_notes(notes: list[dict[str, Any]]) -> None:
    if not notes:
        print("no observations")
    batch = 0
    for note in notes:
        if note["batch"] != batch:
            batch = note["batch"]
            print(_batch_heading(note))
        source = f"(messages {note['first_seq']}-{note['last_seq']})"
        print(printable(f"  [{note['priority']}] {note['day']} {source} {note['text']}"))


def _batch_heading(note: dict[str, Any]) -> str:
    """Describe a batch of notes and its cost."""
    origin = f"condensed from {', '.join(map(str, note['sources']))}" if note["sources"] else "observed"
    standing = "" if note["standing"] == "current" else f", {note['standing'].replace('_', ' ')}"
    cost = f"{note['model']}, {note['input_tokens']} tokens in, {note['output_tokens']} out"
    batch = f"batch {note['batch']} (generation {note['generation']}, {origin}{standing})"
    return f"{batch} {format_time(note['created_at'])} {cost}"


def _fact_json(fact: "Fact") -> dict[str, Any]:
    return {
        "id": str(fact.id),
        "name": fact.name,
        "text": fact.text,
        "session_id": fact.session_id,
        "first_seq": fact.first_seq,
        "last_seq": fact.last_seq,
        "day": fact.day,
        "model": fact.model,
        "created_at": format_time(fact.created_at),
        "replaced_by": None if fact.replaced_by is None else str(fact.replaced_by),
    }
