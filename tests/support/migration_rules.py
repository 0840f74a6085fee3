"""The rules of migrations: what a file may contain, so that older versions work while it runs and afterwards."""

import re
from collections.abc import Iterator

from lango.store.engine.database import Dialect
from lango.store.engine.schema import Migration

_CONSTANT = r"(?:-?[\d.]+|'[^']*'|NULL|TRUE|FALSE)"
_TYPE = r"(?:BIGINT|DOUBLE PRECISION|TEXT|BLOB|BYTEA)"
_NEW_INDEX = r"CREATE (?:UNIQUE )?INDEX \w+ ON (\w+) .+"
_TRIGGER = (
    r"CREATE TRIGGER \w+ AFTER (?:INSERT|DELETE|UPDATE OF [\w, ]+) ON (\w+)"
    r" BEGIN (?P<writes>(?:(?:INSERT OR (?:IGNORE|REPLACE) INTO|DELETE FROM) \w+ [^;]+; )+)END"
)
"""Keeps a table that is created in the same file, and cannot fail."""
_EXPAND: dict[Dialect, list[str]] = {
    "sqlite": [r"CREATE TABLE \w+ .+", r"CREATE VIEW \w+ AS .+", r"DROP VIEW (\w+)", _TRIGGER],
    "postgres": [
        r"CREATE TABLE \w+ .+",
        r"CREATE VIEW \w+ AS .+",
        r"CREATE OR REPLACE VIEW (\w+) AS .+",
        r"CREATE INDEX CONCURRENTLY \w+ ON (\w+) .+",
    ],
}
_ADD_COLUMN = rf"ALTER TABLE (\w+) ADD COLUMN \w+ {_TYPE}(?: (?:NOT NULL )?DEFAULT {_CONSTANT})?"
_CONTRACT = [r"DROP (?:TABLE|VIEW) (\w+)", r"DROP (?:INDEX|TRIGGER) (\w+)", r"ALTER TABLE (\w+) DROP COLUMN \w+"]


def violations(migration: Migration) -> Iterator[str]:
    """Yield what breaks the rules. The first migration meets no data, and may do anything."""
    if migration.version == 1:
        return
    if migration.is_contract and not 1 < migration.oldest_reader <= migration.version:
        yield "a contract step needs the line '-- oldest reader: N', with the number of an earlier migration"
    if not migration.is_contract and migration.oldest_reader != 1:
        yield "only a contract step has an oldest reader"
    for dialect in ("sqlite", "postgres"):
        yield from _violations(migration, dialect)


def _violations(migration: Migration, dialect: Dialect) -> Iterator[str]:
    statements = [re.sub(r"\s+", " ", sql) for sql in migration.for_dialect(dialect)]
    created = {match[1] for sql in statements if (match := re.match(r"CREATE TABLE (\w+)", sql))}
    changed = set[str]()
    for sql in statements:
        if not migration.is_contract and (match := re.fullmatch(_NEW_INDEX, sql)) and match[1] in created:
            continue
        allowed = _CONTRACT if migration.is_contract else [*_EXPAND[dialect], _ADD_COLUMN]
        found = next((match for rule in allowed if (match := re.fullmatch(rule, sql))), None)
        if found is None:
            yield f"{dialect}: not allowed: {sql}"
        elif found.re.groups:
            changed.add(found[1])
            written = re.findall(r"(?:INTO|FROM) (\w+)", found.groupdict().get("writes", ""))
            if not created.issuperset(written):
                yield f"{dialect}: a trigger writes only to tables that its file creates: {sql}"
            if "CONCURRENTLY" in sql and len(statements) > 1:
                yield f"{dialect}: an index on an existing table needs a file of its own: {sql}"
    if len(changed) > 1:
        yield f"{dialect}: a file changes one table, so that it waits for one lock: {', '.join(sorted(changed))}"
