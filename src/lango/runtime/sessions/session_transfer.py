"""Export a session as lines of JSON, and import it again."""

import asyncio
import itertools
import tempfile
import time
from collections.abc import AsyncGenerator, AsyncIterable, Callable, Collection, Iterable, Iterator
from typing import TYPE_CHECKING

from lango.sessions import SessionId, SessionInfo
from lango.store import Store
from lango.store.contents import release_some
from lango.threads import run_in_thread

if TYPE_CHECKING:
    from lango.store.transfer.export import ExportState
    from lango.store.transfer.import_check import CheckEvent, Lines
    from lango.store.transfer.import_write import StagedSession


_MAX_IN_MEMORY_BYTES = 1_000_000
_LINES_AT_ONCE = 100


async def export_session(store: Store, name: SessionId, *, with_app_state: bool = True) -> AsyncGenerator[str, None]:
    """Export a session as lines of JSON, with or without changes of the state that all users share."""
    from lango.store.transfer import export as exports  # slow to import, and rarely needed

    export = await store.read(exports.begin_export, name, with_app_state)
    count = 0
    async for line in _lines(store, export):
        count += 1
        yield line
    yield exports.end_line(count)


async def _lines(store: Store, export: "ExportState") -> AsyncGenerator[str, None]:
    """Export all lines but the last."""
    from lango.store.transfer import export as exports

    async for line in _encoded(exports.header_lines(export)):
        yield line
    async for line in _content_lines(store, export):
        yield line
    for first in range(1, max(export.session.last_seq, 1) + 1, exports.PAGE):
        for line in await store.read(exports.event_lines, export, first):
            yield line
    async for line in _encoded(exports.turn_lines(export)):
        yield line
    call_ids = sorted(export.open_calls)
    for first in range(0, len(call_ids), exports.PAGE):
        for line in await store.read(exports.tool_journal_lines, export, call_ids[first : first + exports.PAGE]):
            yield line
    for line in await store.read(exports.observation_lines, export):
        yield line
    async for line in _encoded(exports.artifact_lines(export)):
        yield line


async def _encoded(lines: Iterable[str]) -> AsyncGenerator[str, None]:
    """Yield lines that are encoded in a thread, some at a time."""
    left = iter(lines)
    while some := await run_in_thread(lambda: list(itertools.islice(left, _LINES_AT_ONCE))):
        for line in some:
            yield line


async def _content_lines(store: Store, export: "ExportState") -> AsyncGenerator[str, None]:
    """Export the contents of the session's files, piece by piece."""
    from lango.store.transfer.export import content_line

    for hash_ in export.contents:
        number = 0
        while (line := await store.read(content_line, export, hash_, number)) is not None:
            yield line
            number += 1


async def import_session(
    store: Store,
    lines: "Lines | AsyncIterable[str | bytes]",
    app_name: str | None = None,
    user_id: str | None = None,
    session_id: str | None = None,
    progress: Callable[[float], None] | None = None,
    credential_names: Collection[str] = (),
) -> SessionInfo:
    """Create a session from the lines of an export; the app, the user and the id default to those of the export.

    Credentials and names that ADK reserves are left out of its state, `credential_names` too. `progress` is called,
    from any thread, with the share of the work that is done, from 0 to 1, once the lines are read.
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

        from lango.store.transfer import import_check, import_write  # slow to import, and rarely needed

        checked = await run_in_thread(
            lambda: import_check.check_lines(lines_from_start(0.0), _event_check(), credential_names)
        )
        exported = checked.session
        assert exported
        name = SessionId(app_name or exported.app, user_id or exported.user, session_id or exported.id)
        await delete_abandoned_imports(store, time.time())
        staged = await store.write_long(import_write.stage_session, time.time())
        try:
            batches = import_write.row_batches(staged, checked, lines_from_start(0.5))
            while (batch := await run_in_thread(next, batches, None)) is not None:
                await store.write_long(import_write.insert_batch, staged, batch)
            while await store.write_long(release_some, staged.key, 0):
                pass
            return await store.write_long(import_write.publish_session, name, staged, checked)
        except BaseException:
            await asyncio.shield(_delete_staged(store, staged))
            raise


async def delete_abandoned_imports(store: Store, now: float) -> None:
    """Delete what killed processes had imported until a day ago."""
    from lango.store.transfer.import_write import find_abandoned

    for staged in await store.read(find_abandoned, now):
        await _delete_staged(store, staged)


async def _delete_staged(store: Store, staged: "StagedSession") -> None:
    """Delete what an import wrote, a few rows at a time."""
    from lango.store.transfer.import_write import delete_some

    while await store.write_long(delete_some, staged):
        pass


def _with_progress(
    lines: Iterable[bytes], report: Callable[[float], None], done: float, share_per_byte: float
) -> Iterator[bytes]:
    """Report the share of the work that is done after each line."""
    for line in lines:
        yield line
        done += len(line) * share_per_byte
        report(done)


def _event_check() -> "CheckEvent":
    """Return the check of each event of an import; importing ADK takes seconds."""
    from lango.adk.events.rows_to_events import check_imported

    return check_imported
