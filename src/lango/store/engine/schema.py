"""Create the schema, or upgrade it with the numbered SQL files in `migrations/`."""

import functools
import re
from importlib import resources

from lango.errors import SchemaError
from lango.store.engine.database import Operation

_VERSION = "SELECT COALESCE(MAX(version), 0) FROM lango_schema"


@functools.cache
def migrations() -> list[tuple[int, list[str]]]:
    """Return the numbered migrations, the oldest first, each as its statements."""
    folder = resources.files("lango.store") / "migrations"
    numbered = sorted((int(file.name[:4]), file) for file in folder.iterdir() if file.name.endswith(".sql"))
    return [(number, _statements(file.read_text("utf-8"))) for number, file in numbered]


def _statements(text: str) -> list[str]:
    bare = "\n".join(line.split("-- ")[0].rstrip() for line in text.splitlines())
    # only semicolons at the end of a line: the body of a trigger contains others
    return [part.strip() for part in re.split(r";\s*(?:\n|$)", bare) if part.strip()]


def newest_version() -> int:
    """Return the version of the schema that this code needs."""
    return migrations()[-1][0]


def upgrade(database_name: str, dialect: str) -> Operation[int]:
    """Upgrade the schema and return its version. The caller holds the lock of the database.

    SQL for only one database is in a comment that begins with its name: `/*sqlite WITHOUT ROWID*/`.
    """
    yield "CREATE TABLE IF NOT EXISTS lango_schema (version BIGINT PRIMARY KEY, applied_at TEXT NOT NULL)", ()
    [[version]] = yield _VERSION, ()
    numbered = migrations()
    newest = numbered[-1][0]
    if version > newest:
        raise SchemaError(
            f"{database_name} was created by a newer Lango (schema {version}, this one supports {newest}): "
            "install a newer version, or use another store"
        )
    for number, statements in numbered:
        if number > version:
            for statement in statements:
                sql = re.sub(r"/\*.*?\*/", "", re.sub(rf"/\*{dialect} (.*?)\*/", r"\1", statement))
                if sql.strip():
                    yield sql, ()
            yield "INSERT INTO lango_schema (version, applied_at) VALUES ($1, CURRENT_TIMESTAMP)", (number,)
    return newest
