"""Run `lango memory`: show, correct, pin and delete observations and facts."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from lango.cli.options import Json, SessionIdArgument, SessionOptions, with_shared_options
from lango.cli.tables import print_values, struct_json
from lango.cli.terminal_text import format_time, printable
from lango.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lango.memory.runtime_memory import ListedNote
    from lango.runtime.stored_data import StoredData

app = typer.Typer(help="Memory: show, correct, pin and forget notes and facts.", no_args_is_help=True)

ItemId = Annotated[str, typer.Argument(help="The id that `lango memory facts` or `lango memory show` shows.")]
SessionOption = Annotated[str | None, typer.Option("--session", help="The session of a note.")]
IncludeInactive = Annotated[bool, typer.Option("--all", help="Include condensed, replaced and rewound items.")]


@dataclass(frozen=True)
class FactOptions(SessionOptions):
    """The options of commands about facts, which belong to one user of one app."""

    app: Annotated[str | None, typer.Option("--app", help="The app; else the one of the settings.")] = None
    user: Annotated[str, typer.Option("--user", help="The user of the facts.")] = "user"


@app.command()
@with_shared_options
def show(
    chosen: SessionOptions,
    session_id: SessionIdArgument,
    every: IncludeInactive = False,
    as_json: Json = False,
) -> None:
    """Show the observations of a session, each with its messages."""
    found = chosen.run_on(
        session_id, lambda app, record: app.memory.show(record.name.id, user_id=record.name.user_id, every=every)
    )
    if as_json:
        print_values(found.notes, struct_json, as_json=True, empty="")
    else:
        _print_notes(found.notes)


@app.command()
@with_shared_options
def facts(chosen: FactOptions, every: IncludeInactive = False, as_json: Json = False) -> None:
    """Show the facts about a user across sessions."""
    app_name = chosen.app_name()
    found = chosen.run(lambda data: data.app(app_name).memory.facts(user_id=chosen.user, replaced=every))
    if as_json:
        print_values(found, struct_json, as_json=True, empty="")
        return
    for fact in found:
        replaced = f" (replaced by {fact.replaced_by})" if fact.replaced_by else " (pinned)" if fact.pinned else ""
        source = f"session {fact.session_id}, messages {fact.first_seq}-{fact.last_seq}, {fact.day}"
        print(printable(f"{fact.id:>4} {fact.name}: {fact.text}  [{source}]{replaced}"))
    if not found:
        print("No facts yet.")


@app.command()
@with_shared_options
def forget(chosen: FactOptions, item_id: ItemId, session: SessionOption = None) -> None:
    """Delete a fact and those that it replaced, or a note with `--session`."""
    _change(chosen, item_id, session, forget=True)
    print(f"forgot {item_id}")


@app.command()
@with_shared_options
def correct(
    chosen: FactOptions,
    item_id: ItemId,
    text: Annotated[str, typer.Argument(help="The new text.")],
    session: SessionOption = None,
) -> None:
    """Correct a fact, or a note with `--session`. What you write is pinned."""
    if not text.strip():
        raise UsageError(f"the new text is empty; `lango memory forget {item_id}` deletes the item")
    _change(chosen, item_id, session, text=text)
    print(f"corrected {item_id}")


@app.command()
@with_shared_options
def pin(
    chosen: FactOptions,
    item_id: ItemId,
    session: SessionOption = None,
    undo: Annotated[bool, typer.Option("--undo", help="Unpin it.")] = False,
) -> None:
    """Pin a fact, or a note with `--session`: it is never condensed, and shown first."""
    _change(chosen, item_id, session, pinned=not undo)
    print(f"{'unpinned' if undo else 'pinned'} {item_id}")


def _change(
    chosen: FactOptions,
    item_id: str,
    session: str | None,
    *,
    text: str | None = None,
    pinned: bool | None = None,
    forget: bool = False,
) -> None:
    """Edit or delete a note of a session, or without one a fact. Raise `UsageError` if there is none of that id."""

    async def write(data: "StoredData") -> bool:
        app_name, session_id, user_id = "", None, chosen.user
        if session is not None:
            name = (await chosen.session(data, session)).name
            app_name, session_id, user_id = name.app_name, name.id, name.user_id
        memory = data.app(app_name or chosen.app_name()).memory
        return await memory.change(item_id, session_id, text=text, pinned=pinned, forget=forget, user_id=user_id)

    if not chosen.run(write):
        if session is not None:
            raise UsageError(f"session {session!r} has no note {item_id}; `lango memory show` lists them")
        raise UsageError(f"there is no fact {item_id} of user {chosen.user!r}; `lango memory facts` lists them")


def _print_notes(notes: "Sequence[ListedNote]") -> None:
    if not notes:
        print("no notes yet")
    batch = 0
    for note in notes:
        if note.batch != batch:
            batch = note.batch
            print(printable(_batch_heading(note)))
        source = f"(messages {note.first_seq}-{note.last_seq})"
        print(printable(f"  {note.id} [{note.priority}] {note.day} {source} {note.text}"))


def _batch_heading(note: "ListedNote") -> str:
    """Describe a batch of notes and its cost."""
    origin = f"condensed from {', '.join(map(str, note.sources))}" if note.sources else "observed"
    standing = "" if note.standing == "current" else f", {note.standing}"
    cost = f"{note.model}, {note.input_tokens} tokens in, {note.output_tokens} out"
    batch = f"batch {note.batch} (generation {note.generation}, {origin}{standing})"
    return f"{batch} {format_time(note.created_at)} {cost}"
