"""Write on the one connection of a SQLite file that writes: in groups, in single statements, with checkpoints."""

import functools
import time
from typing import Any

import apsw

from lango.store.engine.database import SingleStatement, SingleStatementWrite
from lango.store.engine.sqlite.connection import WriteJob, execute_on, run_group, translate_error
from lango.store.engine.sqlite.files import OpenedFiles

_FAST_COMMIT_S = 0.001  # an event loop can wait for this long; waking a thread takes about half of it
_FAST_COMMITS_NEEDED = 5  # after this many in a row the disk counts as fast
_CHECKPOINT_PAGES = 1000


class SqliteWriter:
    """The connection that writes, from its opening to its end. Its owner holds a lock while it is in use."""

    def __init__(self, connection: apsw.Connection, files: OpenedFiles | None, busy_timeout_s: float) -> None:
        """`files` are None for a database in memory."""
        self.connection = connection
        self.files = files
        self._busy_timeout_s = busy_timeout_s
        self._waits_for_locks = True
        self._pages_written = self._pages_checkpointed = self._fast_commits = 0
        self._cursors: dict[SingleStatement, apsw.Cursor] = {}

    @property
    def commits_fast(self) -> bool:
        """Whether the last commits were fast enough to be made on an event loop."""
        return self._fast_commits >= _FAST_COMMITS_NEEDED

    @property
    def log_has_grown(self) -> bool:
        """Whether a checkpoint is due."""
        return self._pages_written - self._pages_checkpointed > _CHECKPOINT_PAGES

    def time_commit(self, began: float) -> None:
        """Note how long a commit took that began at a time."""
        self._fast_commits = self._fast_commits + 1 if time.perf_counter() - began < _FAST_COMMIT_S else 0

    def wait_for_locks(self, wait: bool) -> None:
        """Set whether it waits for other processes: the writer's thread may, the event loop must not."""
        if wait != self._waits_for_locks:
            self.connection.set_busy_timeout(int(self._busy_timeout_s * 1000) if wait else 0)
            self._waits_for_locks = wait

    def run_single_statement(self, short: SingleStatementWrite[Any]) -> bool:
        """Run a single statement; return False if it wrote nothing."""
        statement = short.statement
        cursor = self._cursors.get(statement)
        if cursor is None:
            for text in statement.create_trigger:
                execute_on(self.connection, text)
            cursor = self._cursors[statement] = self.connection.cursor()
        try:
            cursor.execute(statement.insert, short.values)  # pyright: ignore[reportUnknownMemberType]
        except apsw.ConstraintError:  # it was rolled back
            return False
        return True

    def run_group(self, jobs: list[WriteJob], path: str) -> None:
        """Run jobs in one transaction; `path` names the file in their errors."""
        connection = self.connection
        execute = functools.partial(execute_on, connection)
        began = time.perf_counter()
        execute_on(connection, "BEGIN IMMEDIATE")
        try:
            if jobs[0].run(execute) if len(jobs) == 1 else run_group(connection, jobs, execute):
                execute_on(connection, "COMMIT")
            elif connection.in_transaction:  # or SQLite has rolled it back already
                execute_on(connection, "ROLLBACK")
        except BaseException:
            if connection.in_transaction:
                execute_on(connection, "ROLLBACK")
            raise
        self.time_commit(began)
        self._pages_written, _ = connection.status(apsw.SQLITE_DBSTATUS_CACHE_WRITE)
        for job in jobs:
            if isinstance(job.error, apsw.Error):
                job.error = translate_error(job.error, path)

    def checkpoint(self, *, truncate: bool) -> bool:
        """Checkpoint the log; with `truncate`, return whether it was truncated, which a reader can prevent."""
        self._pages_checkpointed = self._pages_written
        if not truncate:
            execute_on(self.connection, "PRAGMA wal_checkpoint(PASSIVE)")
            return False
        self.wait_for_locks(False)
        [[busy, _, _]] = execute_on(self.connection, "PRAGMA wal_checkpoint(TRUNCATE)")
        return not busy
