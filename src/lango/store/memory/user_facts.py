"""Store facts about a user that hold across sessions; the newest of each name is valid."""

import logging
from collections.abc import Sequence

from msgspec import Struct

from lango.json_values import storable_text
from lango.sessions import is_id
from lango.store.engine.database import Operation, Row
from lango.store.sessions.state import LOCK_USER_STATE

_log = logging.getLogger("lango.store")

_NEXT = "SELECT COALESCE(MAX(id), 0) + 1 FROM user_facts WHERE app_name = $1 AND user_id = $2"
_INSERT = """
INSERT INTO user_facts (app_name, user_id, id, name, text, session_key, first_seq, last_seq, day, model, created_at)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)
"""
_LIST = """
SELECT f.id, f.name, f.text, s.id, f.first_seq, f.last_seq, f.day, f.model, f.created_at
FROM user_facts f JOIN sessions s ON s.session_key = f.session_key
WHERE f.app_name = $1 AND f.user_id = $2 ORDER BY f.id
"""
_NAME_OF = "SELECT name FROM user_facts WHERE app_name = $1 AND user_id = $2 AND id = $3"
_DELETE_BY_NAME = "DELETE FROM user_facts WHERE app_name = $1 AND user_id = $2 AND name = $3"
BY_USER = "user"
"""In place of the model: the user wrote or pinned a fact."""
_COPY = """
INSERT INTO user_facts (app_name, user_id, id, name, text, session_key, first_seq, last_seq, day, model, created_at)
SELECT app_name, user_id, CAST($1 AS BIGINT), name, CAST($2 AS TEXT), session_key, first_seq, last_seq, day,
    CAST($3 AS TEXT), CAST($4 AS DOUBLE PRECISION)
FROM user_facts WHERE app_name = $5 AND user_id = $6 AND id = $7
"""
_UNPIN = "UPDATE user_facts SET model = '' WHERE app_name = $1 AND user_id = $2 AND name = $3 AND model = $4"
MOST_FACTS = 100
"""How many names of facts a user can have. Others are not stored, so that none displaces a known fact."""
_NAMES = "SELECT DISTINCT name FROM user_facts WHERE app_name = $1 AND user_id = $2"
_ID_LIMIT = 2**63


class Fact(Struct, frozen=True):
    """A fact about a user, and the messages that it was learned from."""

    name: str
    text: str
    first_seq: int
    last_seq: int
    day: str = ""
    model: str = ""
    id: int = 0
    session_id: str = ""
    created_at: float = 0.0
    replaced_by: int | None = None
    """The newer fact of the same name."""
    pinned: bool = False
    """The user wrote or pinned it: it is quoted before the others are."""


def add_facts(app_name: str, user_id: str, session_key: int, facts: Sequence[Fact], now: float) -> Operation[None]:
    """Store facts about a user, up to the limit of names."""
    if not facts:
        return
    yield LOCK_USER_STATE, (app_name, user_id)
    known = {name for [name] in (yield _NAMES, (app_name, user_id))}
    kept: list[Fact] = []
    for fact in facts:
        name = storable_text(fact.name)
        if name in known or len(known) < MOST_FACTS:
            known.add(name)
            kept.append(fact)
        else:
            _log.warning("a fact was not stored: user %r already has %d facts; delete some", user_id, MOST_FACTS)
    [[number]] = yield _NEXT, (app_name, user_id)
    for at, fact in enumerate(kept, number):
        learned = session_key, fact.first_seq, fact.last_seq, fact.day, storable_text(fact.model), now
        yield _INSERT, (app_name, user_id, at, storable_text(fact.name), storable_text(fact.text), *learned)


def read_facts(app_name: str, user_id: str, *, replaced: bool = False) -> Operation[list[Fact]]:
    """Read the valid facts about a user, the oldest first; with `replaced`, the others too."""
    if not is_id(app_name) or not is_id(user_id):
        return []
    rows = yield _LIST, (app_name, user_id)
    newest: dict[str, int] = {row[1]: row[0] for row in rows}
    pinned = {row[1] for row in rows if row[7] == BY_USER}
    facts = [_row_to_fact(row, newest, pinned) for row in rows]
    return [fact for fact in facts if replaced or fact.replaced_by is None]


def edit_fact(
    app_name: str, user_id: str, fact_id: int, now: float, *, text: str | None = None, pinned: bool | None = None
) -> Operation[Fact | None]:
    """Correct the valid fact of a name, pin it, or unpin it; return None if there is none.

    The earlier text is kept.
    """
    if not is_id(app_name) or not is_id(user_id) or not 0 < fact_id < _ID_LIMIT:
        return None
    yield LOCK_USER_STATE, (app_name, user_id)
    facts = yield from read_facts(app_name, user_id)
    old = next((fact for fact in facts if fact.id == fact_id), None)
    if old is None:
        return None
    if text is not None or (pinned and not old.pinned):
        [[number]] = yield _NEXT, (app_name, user_id)
        new_text = old.text if text is None else storable_text(" ".join(text.split()))
        yield _COPY, (number, new_text, BY_USER, now, app_name, user_id, fact_id)
    if pinned is False:
        yield _UNPIN, (app_name, user_id, old.name, BY_USER)
    facts = yield from read_facts(app_name, user_id)
    return next((fact for fact in facts if fact.name == old.name), None)


def delete_fact(app_name: str, user_id: str, fact_id: int) -> Operation[bool]:
    """Delete a fact with all its earlier versions; return False if there is none."""
    if not is_id(app_name) or not is_id(user_id) or not 0 < fact_id < _ID_LIMIT:
        return False
    names = yield _NAME_OF, (app_name, user_id, fact_id)
    for [name] in names:
        yield _DELETE_BY_NAME, (app_name, user_id, name)
    return bool(names)


def _row_to_fact(row: Row, newest: dict[str, int], pinned: set[str]) -> Fact:
    id_, name, text, session_id, first_seq, last_seq, day, model, created_at = row
    replaced_by = None if newest[name] == id_ else newest[name]
    return Fact(name, text, first_seq, last_seq, day, model, id_, session_id, created_at, replaced_by, name in pinned)
