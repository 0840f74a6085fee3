"""`lango sessions check`: whether conversations are whole."""

import json
from typing import TYPE_CHECKING, Annotated

import typer

from lango.cli.options import Config, Json, StoreUrl, store_url
from lango.cli.progress import progress_bar
from lango.cli.store_access import App, User, run
from lango.cli.terminal_text import visible
from lango.errors import SessionNotFound

if TYPE_CHECKING:
    from lango.store import SessionId, Store
    from lango.store.lifecycle.integrity import Problem


def check(
    session_id: Annotated[str | None, typer.Argument(help="The session's id; else every session.")] = None,
    app: App = None,
    user: User = None,
    as_json: Json = False,
    config: Config = None,
    store: StoreUrl = None,
) -> None:
    """Check that sessions are whole: no message missing, totals, calls and state as the events made them.

    Changes nothing. Exits with 1 where something is wrong.
    """

    async def look(opened: "Store") -> "tuple[int, list[tuple[SessionId | None, Problem]]]":
        from lango.store.lifecycle import integrity

        wanted = [
            name
            for name in await opened.read(integrity.names)
            if session_id in (None, name.id) and app in (None, name.app_name) and user in (None, name.user_id)
        ]
        if session_id is not None and not wanted:
            raise SessionNotFound(f"there is no session {session_id!r}; `lango sessions list` shows what there is")
        found: list[tuple[SessionId | None, Problem]] = []
        if session_id is None:
            found += [(None, problem) for problem in await opened.check_database()]
        with progress_bar("checking", "sessions") as tell:
            for done, name in enumerate(wanted, 1):
                found += [(name, problem) for problem in await opened.check(name)]
                tell(done, len(wanted))
        return len(wanted), found

    count, found = run(store_url(config, store), look)
    for name, problem in found:
        print(_json(name, problem) if as_json else visible(f"{name.id}: {problem}" if name else str(problem)))
    if not found and not as_json:
        print(f"{count} session{'' if count == 1 else 's'} checked: nothing is wrong")
    if found:
        raise typer.Exit(1)


def _json(name: "SessionId | None", problem: "Problem") -> str:
    told = {"problem": problem.what}
    if name is None:
        return json.dumps(told)
    return json.dumps({"app": name.app_name, "user": name.user_id, "session": name.id, "seq": problem.seq} | told)
