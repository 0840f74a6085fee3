"""`lango memory`: what was observed of conversations, what is known of users, and how to forget it."""

import json
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lango.cli.options import App, Config, Id, Json, StoreUrl, User, settings, store_url
from lango.cli.store_access import one_session, run
from lango.cli.terminal_text import moment, visible
from lango.errors import UsageError

if TYPE_CHECKING:
    from lango.store import Store
    from lango.store.memory.user_facts import Fact

app = typer.Typer(help="What is remembered: show, facts, forget.", no_args_is_help=True)

OneUser = Annotated[str, typer.Option("--user", help="Whose facts.")]
OneApp = Annotated[str | None, typer.Option("--app", help="Of this app; else the one of the settings.")]
Everything = Annotated[bool, typer.Option("--all", help="Also what was condensed, replaced, or taken back.")]


@app.command()
def show(
    session_id: Id,
    app: App = None,
    user: User = None,
    every: Everything = False,
    as_json: Json = False,
    config: Config = None,
    store: StoreUrl = None,
) -> None:
    """Show what was observed of a session, each note with the messages that it came from."""

    async def read(opened: "Store") -> list[dict[str, Any]]:
        from lango.store.memory.observations import Recalled

        session = await one_session(opened, session_id, app, user)
        recalled = await opened.memory.recall(session)
        if every:
            recalled = Recalled(tuple(await opened.memory.history(session)))
        return recalled.as_json()

    notes = run(store_url(config, store), read)
    if as_json:
        for note in notes:
            print(json.dumps(note | {"created_at": moment(note["created_at"])}))
    else:
        _print_notes(notes)


@app.command()
def facts(
    user: OneUser = "user",
    app: OneApp = None,
    every: Everything = False,
    as_json: Json = False,
    config: Config = None,
    store: StoreUrl = None,
) -> None:
    """Show what is known of a user across sessions."""
    app_name = app or settings(config).agent.name

    async def read(opened: "Store") -> "list[Fact]":
        return await opened.memory.facts(app_name, user, replaced=every)

    found = run(store_url(config, store), read)
    if as_json:
        for fact in found:
            print(json.dumps(_fact(fact)))
        return
    for fact in found:
        replaced = f" (replaced by {fact.replaced_by})" if fact.replaced_by else ""
        source = f"session {fact.session_id}, messages {fact.first_seq}-{fact.last_seq}, {fact.day}"
        print(visible(f"{fact.id:>4} {fact.name}: {fact.text}  [{source}]{replaced}"))
    if not found:
        print("no facts")


@app.command()
def forget(
    fact_id: Annotated[int, typer.Argument(help="The number that `lango memory facts` shows.")],
    user: OneUser = "user",
    app: OneApp = None,
    config: Config = None,
    store: StoreUrl = None,
) -> None:
    """Delete a fact, and all that was known under its name before."""
    app_name = app or settings(config).agent.name

    async def remove(opened: "Store") -> bool:
        return await opened.memory.forget(app_name, user, fact_id)

    if not run(store_url(config, store), remove):
        raise UsageError(f"there is no fact {fact_id} of user {user!r}; `lango memory facts` shows what there is")
    print(f"forgot {fact_id}")


def _print_notes(notes: list[dict[str, Any]]) -> None:
    if not notes:
        print("nothing was observed")
    batch = 0
    for note in notes:
        if note["batch"] != batch:
            batch = note["batch"]
            print(_head(note))
        source = f"(messages {note['first_seq']}-{note['last_seq']})"
        print(visible(f"  [{note['priority']}] {note['day']} {source} {note['text']}"))


def _head(note: dict[str, Any]) -> str:
    """Say what a batch of notes is and what it cost."""
    made = f"condensed from {', '.join(map(str, note['sources']))}" if note["sources"] else "observed"
    standing = "" if note["standing"] == "current" else f", {note['standing'].replace('_', ' ')}"
    cost = f"{note['model']}, {note['input_tokens']} tokens in, {note['output_tokens']} out"
    return (
        f"batch {note['batch']} (generation {note['generation']}, {made}{standing}) {moment(note['created_at'])} {cost}"
    )


def _fact(fact: "Fact") -> dict[str, Any]:
    return {
        "id": str(fact.id),
        "name": fact.name,
        "text": fact.text,
        "session_id": fact.session_id,
        "first_seq": fact.first_seq,
        "last_seq": fact.last_seq,
        "day": fact.day,
        "model": fact.model,
        "created_at": moment(fact.created_at),
        "replaced_by": None if fact.replaced_by is None else str(fact.replaced_by),
    }
