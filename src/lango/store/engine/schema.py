"""Create the schema, and upgrade it with the numbered SQL files in `migrations/`.

`0002_expand_<what>.sql` only adds to the schema, so older versions continue to read and write.
`0003_contract_<what>.sql` drops what they no longer need. Its first line, such as `-- oldest reader: 2`, names the
newest migration of the oldest version that can use the store afterwards. `docs/howto/upgrades.md` has the rules, and a
test holds every file against them.
"""

import functools
import re
from collections.abc import Iterable
from importlib import resources
from importlib.resources.abc import Traversable
from typing import Self

from msgspec import Struct

from lango.errors import SchemaError
from lango.store.engine.database import Dialect, Operation, Row

CREATE_TABLE = """
CREATE TABLE IF NOT EXISTS lango_schema (
    version BIGINT PRIMARY KEY, oldest_reader BIGINT NOT NULL, applied_at TEXT NOT NULL)
"""
APPLIED = "SELECT version, oldest_reader FROM lango_schema"
RECORD = "INSERT INTO lango_schema (version, oldest_reader, applied_at) VALUES ({}, {}, CURRENT_TIMESTAMP)"
_FILE_NAME = re.compile(r"(\d{4})_(schema|expand_\w+|contract_\w+)\.sql")
_OLDEST_READER = re.compile(r"-- oldest reader: (\d+)\n")


class Migration(Struct, frozen=True):
    """A numbered file of SQL statements."""

    version: int
    name: str
    statements: tuple[str, ...]
    oldest_reader: int = 1
    """The newest migration of the oldest version that can use the store afterwards."""

    @property
    def is_contract(self) -> bool:
        """Whether it drops what older versions use."""
        return self.name.startswith("contract_")

    @property
    def file_name(self) -> str:
        """The name of its file."""
        return f"{self.version:04}_{self.name}.sql"

    @property
    def record(self) -> str:
        """The statement that records it as applied."""
        return RECORD.format(self.version, self.oldest_reader)

    def for_dialect(self, dialect: Dialect) -> list[str]:
        """Return the statements of one database.

        SQL for only one database is in a comment that begins with its name: `/*sqlite WITHOUT ROWID*/`.
        """
        own = [re.sub(rf"(?s)/\*{dialect} (.*?)\*/", r"\1", statement) for statement in self.statements]
        return [sql for statement in own if (sql := re.sub(r"(?s)/\*.*?\*/", "", statement).strip())]


class Applied(Struct, frozen=True):
    """The migrations that a store has; none if it does not exist yet."""

    versions: frozenset[int] = frozenset()
    oldest_reader: int = 0

    @classmethod
    def of(cls, rows: Iterable[Row]) -> Self:
        """Create one from the rows of `APPLIED`."""
        found = [(version, oldest_reader) for version, oldest_reader in rows]
        return cls(frozenset(version for version, _ in found), max((oldest for _, oldest in found), default=0))

    @property
    def newest(self) -> int:
        """The newest migration, the version of the schema; 0 if there is none."""
        return max(self.versions, default=0)


class Migrations(Struct, frozen=True):
    """The migrations that this code knows, the oldest first.

    With `contract`, contract steps run on any store; otherwise only where the schema is created, which no older version
    uses.
    """

    steps: tuple[Migration, ...]
    contract: bool = False

    @property
    def newest(self) -> int:
        """The version of the schema that this code needs."""
        return self.steps[-1].version

    def due(self, applied: Applied, database_name: str) -> list[Migration]:
        """Return the migrations that are to be run. Raise `SchemaError` for a store that needs a newer version."""
        if applied.oldest_reader > self.newest:
            raise SchemaError(
                f"{database_name} was upgraded by a newer Lango (schema {applied.newest}, this one supports "
                f"{self.newest}): install a newer version, or use another store"
            )
        missing = [step for step in self.steps if step.version not in applied.versions]
        return [step for step in missing if self.contract or not applied.versions or not step.is_contract]


@functools.cache
def load_migrations(folder: Traversable | None = None, *, contract: bool = False) -> Migrations:
    """Load the migrations of a folder; without one, those of Lango."""
    files = (folder or resources.files("lango.store") / "migrations").iterdir()
    named = [(match, file) for file in files if (match := _FILE_NAME.fullmatch(file.name))]
    steps = [_migration(int(match[1]), match[2], file.read_text("utf-8")) for match, file in named]
    return Migrations(tuple(sorted(steps, key=lambda step: step.version)), contract)


def _migration(version: int, name: str, text: str) -> Migration:
    head = _OLDEST_READER.match(text)
    bare = "\n".join(line.split("-- ")[0].rstrip() for line in text.splitlines())
    # only semicolons at the end of a line: the body of a trigger contains others
    statements = tuple(part.strip() for part in re.split(r";\s*(?:\n|$)", bare) if part.strip())
    return Migration(version, name, statements, int(head[1]) if head else 1)


def missing_in_schema(database_name: str, error: str) -> str:
    """Say that a table or column is gone: a contract step has dropped it while this version was running."""
    return f"{database_name} was changed by another version of Lango ({error}): install that version"


def upgrade(database_name: str, migrations: Migrations | None = None) -> Operation[None]:
    """Upgrade the schema of a SQLite file, in one transaction."""
    migrations = migrations or load_migrations()
    yield CREATE_TABLE, ()
    applied = Applied.of((yield APPLIED, ()))
    for migration in migrations.due(applied, database_name):
        for statement in migration.for_dialect("sqlite"):
            yield statement, ()
        yield migration.record, ()
