"""Every migration follows the rules of docs/howto/upgrades.md, and the rules find what would stop an older version."""

from pathlib import Path

import pytest

from lango.store.engine.schema import Migration, load_migrations
from tests.support import index_tables
from tests.support.migration_rules import violations


@pytest.mark.parametrize("migration", load_migrations().steps, ids=lambda step: step.file_name)
def test_a_migration_follows_the_rules(migration: Migration) -> None:
    assert list(violations(migration)) == []


def violations_of(folder: Path, name: str, sql: str) -> list[str]:
    (folder / name).write_text(sql, "utf-8")
    [migration] = load_migrations(folder).steps
    return list(violations(migration))


@pytest.mark.parametrize(
    "sql",
    [
        "ALTER TABLE messages ADD COLUMN label TEXT;  -- a comment",
        "ALTER TABLE messages ADD COLUMN weight BIGINT NOT NULL DEFAULT 0;\nALTER TABLE messages ADD COLUMN b TEXT;",
        "CREATE TABLE labels (\n    name TEXT NOT NULL CHECK (name <> '')\n);\nCREATE UNIQUE INDEX a ON labels (name);",
        "/*postgres CREATE INDEX CONCURRENTLY messages_label ON messages (session_key, label)*/;",
        index_tables.migration("author"),
        "/*sqlite DROP VIEW labelled*/;\nCREATE /*postgres OR REPLACE*/ VIEW labelled AS SELECT seq FROM messages;",
        "-- Marks the version that no longer uses the column x.",
    ],
)
def test_an_expand_step_may_add(tmp_path: Path, sql: str) -> None:
    assert violations_of(tmp_path, "0002_expand_x.sql", sql) == []


@pytest.mark.parametrize(
    "sql",
    [
        "ALTER TABLE messages ALTER COLUMN tokens TYPE TEXT;",
        "ALTER TABLE messages ADD COLUMN label TEXT NOT NULL;",
        "ALTER TABLE messages ADD COLUMN at TEXT DEFAULT CURRENT_TIMESTAMP;",
        "ALTER TABLE messages ADD COLUMN label TEXT CHECK (label <> '');",
        "ALTER TABLE messages ADD COLUMN label TEXT UNIQUE;",
        "ALTER TABLE messages ADD COLUMN label TEXT REFERENCES labels (name);",
        "ALTER TABLE messages DROP COLUMN tokens;",
        "ALTER TABLE messages RENAME COLUMN tokens TO weight;",
        "ALTER TABLE messages RENAME TO texts;",
        "ALTER TABLE messages ADD CONSTRAINT positive CHECK (tokens >= 0);",
        "ALTER TABLE messages ALTER COLUMN title SET NOT NULL;",
        "DROP TABLE messages;",
        "DROP INDEX messages_event;",
        "DROP VIEW conversation;",
        "CREATE INDEX messages_label ON messages (label);",
        "CREATE INDEX /*postgres CONCURRENTLY*/ messages_label ON messages (label);",
        "/*sqlite CREATE TRIGGER t AFTER INSERT ON messages BEGIN DELETE FROM sessions WHERE session_key = 1; END*/;",
        "CREATE TABLE a (b TEXT);\n"
        "/*sqlite CREATE TRIGGER t AFTER INSERT ON messages BEGIN INSERT INTO a SELECT NEW.seq; END*/;",
        "CREATE TABLE a (b TEXT);\n"
        "/*sqlite CREATE TRIGGER t BEFORE INSERT ON messages BEGIN INSERT OR IGNORE INTO a SELECT NEW.seq; END*/;",
        "CREATE UNIQUE INDEX /*postgres CONCURRENTLY*/ messages_label ON messages (label);",
        "ALTER TABLE messages ADD COLUMN a TEXT;\nCREATE INDEX /*postgres CONCURRENTLY*/ messages_a ON messages (a);",
        "ALTER TABLE messages ADD COLUMN a TEXT;\nALTER TABLE sessions ADD COLUMN a TEXT;",
        "UPDATE messages SET tokens = 0;",
        "INSERT INTO messages SELECT session_key FROM sessions;",
        "CREATE TRIGGER t AFTER INSERT ON messages BEGIN SELECT 1; END;",
        "LOCK TABLE messages;",
        "-- oldest reader: 2\nALTER TABLE messages ADD COLUMN a TEXT;",
    ],
)
def test_an_expand_step_may_do_nothing_else(tmp_path: Path, sql: str) -> None:
    assert violations_of(tmp_path, "0002_expand_x.sql", sql)


def test_a_contract_step_may_drop(tmp_path: Path) -> None:
    sql = "-- oldest reader: 2\nALTER TABLE messages DROP COLUMN label;\n"
    assert violations_of(tmp_path, "0003_contract_x.sql", sql) == []


@pytest.mark.parametrize(
    "sql",
    [
        "ALTER TABLE messages DROP COLUMN label;",
        "-- oldest reader: 4\nALTER TABLE messages DROP COLUMN label;",
        "-- oldest reader: 2\nALTER TABLE messages DROP COLUMN label;\nDROP TABLE labels;",
        "-- oldest reader: 2\nALTER TABLE messages ALTER COLUMN tokens TYPE TEXT;",
        "-- oldest reader: 2\nDELETE FROM messages;",
    ],
)
def test_a_contract_step_may_do_nothing_else(tmp_path: Path, sql: str) -> None:
    assert violations_of(tmp_path, "0003_contract_x.sql", sql)
