"""Run `lango sessions export` and `import`."""

import functools
import json
import os
import stat
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Any, Literal, cast

import typer

from lango.cli.commands.data.sessions import session_json
from lango.cli.options import Json, SessionOptions, StoreOptions, with_shared_options
from lango.cli.progress import Progress, progress_bar
from lango.cli.terminal_text import counted, printable
from lango.errors import UsageError

if TYPE_CHECKING:
    from lango.runtime.stored_data import StoredData
    from lango.sessions import SessionInfo


ExportFormat = Literal["jsonl", "markdown", "html"]
File = Annotated[Path | None, typer.Option("--output", "-o", help="The file to write; else standard output.")]


@with_shared_options
def export(
    chosen: SessionOptions,
    session_id: Annotated[str | None, typer.Argument(help="The session's id.")] = None,
    every: Annotated[bool, typer.Option("--all", help="Export every session.")] = False,
    output: File = None,
    format: Annotated[
        ExportFormat,
        typer.Option(help="jsonl: all data, for import; markdown or html: the conversation, to read and to share."),
    ] = "jsonl",
) -> None:
    """Write a session with all its data as lines of JSON, or its conversation as a document."""
    if (session_id is None) == (not every):
        raise UsageError("name a session, or use --all")
    if every and format != "jsonl":
        raise UsageError(f"--format {format} writes one conversation: name a session instead of --all")

    async def write(data: "StoredData") -> int:
        records = await chosen.sessions(data) if session_id is None else [await chosen.session(data, session_id)]
        if output is None and sys.stdout.isatty():  # the lines themselves show the progress
            return await _export(data, records, format, _TerminalFile(), lambda done, total: None)
        with progress_bar("exporting", "messages") as advance:
            if output is None:
                return await _export(data, records, format, sys.stdout.buffer, advance)
            with output.open("wb") as file:
                return await _export(data, records, format, file, advance)

    try:
        count = chosen.run(write)
    except OSError as error:
        raise UsageError(f"{output} cannot be written: {error.strerror}") from error
    if output is not None:
        print(f"exported {counted(count, 'session')} to {output}")


class _TerminalFile:
    """Writes an export to a terminal, without the control characters that a file keeps."""

    def write(self, data: bytes) -> None:
        sys.stdout.write(printable(data.decode("utf-8", "replace")))

    def flush(self) -> None:
        sys.stdout.flush()


async def _export(
    data: "StoredData",
    records: "list[SessionInfo]",
    format: ExportFormat,
    file: "IO[bytes] | _TerminalFile",
    advance: Progress,
) -> int:
    done, total = 0, sum(record.last_seq for record in records)
    for record in records:
        name, sessions = record.name, data.app(record.name.app_name).sessions
        if format != "jsonl":
            async for part in sessions.export_document(name.id, format, user_id=name.user_id):
                file.write(part.encode("utf-8", "replace"))
            continue
        async for line in sessions.export_lines(name.id, user_id=name.user_id):
            file.write(line.encode())
            done += line.startswith('{"kind":"message"')
            advance(done, total)
    file.flush()
    return len(records)


@with_shared_options
def import_(
    chosen: StoreOptions,
    file: Annotated[str, typer.Argument(help="An exported file; -: standard input.")],
    new_id: Annotated[str | None, typer.Option("--id", help="The new session's id; else that of the export.")] = None,
    app: Annotated[str | None, typer.Option("--app", help="The app of the new session.")] = None,
    user: Annotated[str | None, typer.Option("--user", help="The user of the new session.")] = None,
    as_json: Json = False,
) -> None:
    """Import the sessions of an exported file, each completely or not at all."""

    async def read(data: "StoredData", parts: _ExportFile) -> None:
        while parts.has_more:
            made = await data.import_session(parts.next_export(), app, user, new_id, parts.report_imported_share)
            sentence = f"imported {made.name.id}: {made.last_seq} messages"
            print(json.dumps(session_json(made)) if as_json else printable(sentence))

    try:
        with sys.stdin.buffer if file == "-" else Path(file).open("rb") as lines, progress_bar("importing") as advance:
            chosen.run(functools.partial(read, parts=_ExportFile(lines, advance)))
    except OSError as error:
        raise UsageError(f"{file} cannot be read: {error.strerror}") from error


class _ExportFile:
    """A file with one or more exports, each of which begins with a header."""

    def __init__(self, lines: IO[bytes], advance: Progress) -> None:
        self._lines: Iterator[bytes] = iter(lines)
        self._advance = advance
        status = os.fstat(lines.fileno())
        self._size = status.st_size if stat.S_ISREG(status.st_mode) else None
        self._before = 0
        self._read = 0
        self._next = next(self._lines, None)
        self.has_more = True

    async def next_export(self) -> AsyncIterator[bytes]:
        """Read the lines of one export."""
        self._before, first = self._read, True
        while self._next is not None and (first or not _is_header(self._next)):
            yield self._next
            first = False
            self._read += len(self._next)
            if self._size is None:  # a pipe may be slow
                self._advance(self._read, None)
            self._next = next(self._lines, None)
        self.has_more = self._next is not None

    def report_imported_share(self, share: float) -> None:
        """Report which share of the last export is imported."""
        self._advance(self._before + round(share * (self._read - self._before)), self._size)


def _is_header(line: bytes) -> bool:
    if len(line) > 1_000 or b"header" not in line:
        return False
    try:
        header: Any = json.loads(line)
    except ValueError:
        return False
    return isinstance(header, dict) and cast("dict[str, Any]", header).get("kind") == "header"
