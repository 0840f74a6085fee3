"""A table in place of an index on the existing messages of a SQLite file: kept by triggers, filled in batches.

Triggers belong to the schema, so processes of older versions keep the table as well. This is the example of
docs/howto/upgrades.md.
"""

from lango.store.engine.database import LARGEST, Operation, Row

_MIGRATION = """
/*postgres CREATE INDEX CONCURRENTLY messages_{column} ON messages (session_key, {column})*/;
/*sqlite CREATE TABLE messages_by_{column} (
    session_key BIGINT NOT NULL, {column} NOT NULL, seq BIGINT NOT NULL, PRIMARY KEY (session_key, {column}, seq)
) WITHOUT ROWID*/;
/*sqlite CREATE TABLE messages_by_{column}_fill (session_key BIGINT PRIMARY KEY, seq BIGINT NOT NULL)*/;
/*sqlite CREATE TRIGGER messages_by_{column}_insert AFTER INSERT ON messages
BEGIN {insert}; END*/;
/*sqlite CREATE TRIGGER messages_by_{column}_update AFTER UPDATE OF {column} ON messages
BEGIN {delete}; {insert}; END*/;
/*sqlite CREATE TRIGGER messages_by_{column}_delete AFTER DELETE ON messages
BEGIN {delete}; END*/;
"""
_INSERT = "INSERT OR IGNORE INTO messages_by_{column} SELECT NEW.session_key, NEW.{column}, NEW.seq"
_DELETE = """
DELETE FROM messages_by_{column} WHERE session_key = OLD.session_key AND {column} = OLD.{column} AND seq = OLD.seq
""".strip()
_FILLED = "SELECT session_key, seq FROM messages_by_{column}_fill ORDER BY session_key DESC LIMIT 1"
_LAST_OF_BATCH = """
SELECT session_key, seq FROM messages WHERE (session_key, seq) > ($1, $2)
ORDER BY session_key, seq LIMIT 1 OFFSET $3
"""
_COPY = """
INSERT OR IGNORE INTO messages_by_{column} SELECT session_key, {column}, seq FROM messages
WHERE (session_key, seq) > ($1, $2) AND (session_key, seq) <= ($3, $4)
"""
_NOTE = "INSERT OR REPLACE INTO messages_by_{column}_fill VALUES ($1, $2)"
_BY_TABLE = "SELECT seq FROM messages_by_{column} WHERE session_key = $1 AND {column} = $2 ORDER BY seq"
_BY_SCAN = "SELECT seq FROM messages WHERE session_key = $1 AND {column} = $2 ORDER BY seq"


def migration(column: str) -> str:
    """Return the expand step that makes messages of a session readable by a column."""
    insert, delete = (sql.format(column=column) for sql in (_INSERT, _DELETE))
    return _MIGRATION.format(column=column, insert=insert, delete=delete)


def fill_batch(column: str, count: int) -> Operation[bool]:
    """Copy the next messages of the older versions, in one transaction; return False once none are left."""
    filled = yield _FILLED.format(column=column), ()
    after: Row = filled[0] if filled else (0, 0)
    last = yield _LAST_OF_BATCH, (*after, count - 1)
    to: Row = last[0] if last else (LARGEST, 0)
    yield _COPY.format(column=column), (*after, *to)
    yield _NOTE.format(column=column), tuple(to)
    return bool(last)


def read_by(column: str, key: int, value: object) -> Operation[tuple[list[int], bool]]:
    """Return the messages of a session with a value, and whether the table was used: not until it is filled."""
    filled = yield _FILLED.format(column=column), ()
    is_filled = bool(filled) and filled[0][0] == LARGEST
    sql = _BY_TABLE if is_filled else _BY_SCAN
    return [seq for [seq] in (yield sql.format(column=column), (key, value))], is_filled
