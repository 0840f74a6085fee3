"""Export a session as lines of JSON, and import it again."""

import asyncio
import tempfile
import time
from collections.abc import AsyncIterable, Callable, Iterable, Iterator
from typing import TYPE_CHECKING

from lango.store import SessionId, SessionRecord, Store, StoredEvent
from lango.store.lifecycle import delete

if TYPE_CHECKING:
    from lango.store.transfer.import_check import Lines


_MAX_IN_MEMORY_BYTES = 1_000_000


async def import_session(
    store: Store,
    lines: "Lines | AsyncIterable[str | bytes]",
    app_name: str | None = None,
    user_id: str | None = None,
    session_id: str | None = None,
    progress: Callable[[float], None] | None = None,
) -> SessionRecord:
    """Make a session of the lines of an export; where no app, user or id is named, those of the export.

    `progress` is told, from any thread, which share of the work is done: from 0 to 1, once the lines are read.
    """
    with tempfile.SpooledTemporaryFile(max_size=_MAX_IN_MEMORY_BYTES) as file:
        if isinstance(lines, AsyncIterable):
            async for line in lines:
                file.write(line.encode() if isinstance(line, str) else line)
        else:
            file.writelines(line.encode() if isinstance(line, str) else line for line in lines)
        size = file.tell()

        def lines_from_start(before: float) -> "Lines":
            file.seek(0)
            return file if progress is None else _with_progress(file, progress, before, 0.5 / max(1, size))

        from lango.store.transfer import import_check, import_write  # few need it, and it takes long to import

        checked = await asyncio.to_thread(lambda: import_check.check_lines(lines_from_start(0.0), _event_validator()))
        exported = checked.session
        assert exported
        name = SessionId(app_name or exported.app, user_id or exported.user, session_id or exported.id)
        staged = await store.write_long(import_write.stage_session, time.time())
        try:
            batches = import_write.row_batches(staged, checked, lines_from_start(0.5))
            while (batch := await asyncio.to_thread(next, batches, None)) is not None:
                await store.write_long(import_write.insert_batch, batch)
            return await store.write_long(import_write.publish_session, name, staged, checked)
        except BaseException:
            await asyncio.shield(store.write_long(delete.delete_session, staged.name))
            raise


def _with_progress(
    lines: Iterable[bytes], report: Callable[[float], None], done: float, share_per_byte: float
) -> Iterator[bytes]:
    """Say of each line how much is done with it, once it is."""
    for line in lines:
        yield line
        done += len(line) * share_per_byte
        report(done)


def _event_validator() -> Callable[[StoredEvent], None]:
    """Return what refuses a stored event that ADK could not be given."""
    from lango.adk.services.events_to_rows import DEFAULT_AGENT_NAME  # takes seconds: only when it is needed
    from lango.adk.services.rows_to_events import stored_to_events

    def must_be_an_event(stored: StoredEvent) -> None:
        stored_to_events([stored], DEFAULT_AGENT_NAME)

    return must_be_an_event
