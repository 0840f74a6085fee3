"""Run `lango artifacts`: list, get, put and delete the artifacts of a session or a user."""

import mimetypes
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lango.cli.options import Json, SessionOptions, load_settings, with_shared_options
from lango.cli.tables import print_values
from lango.cli.terminal_text import format_time, printable
from lango.errors import ArtifactNotFound, UsageError
from lango.messages import MIME_TYPE

if TYPE_CHECKING:
    from lango.config import Settings
    from lango.runtime.artifacts import Artifact, Artifacts
    from lango.runtime.stored_data import StoredData

app = typer.Typer(help="Files that agents and users save: list, get, put, delete.", no_args_is_help=True)

ArtifactPlace = Annotated[
    list[str], typer.Argument(metavar="[SESSION] NAME", help="The artifact; without a session, of the user.")
]
FilePlace = Annotated[
    list[str],
    typer.Argument(metavar="[SESSION] FILE", help="The file, `-` for the input; without a session, the user's."),
]


@dataclass(frozen=True)
class ArtifactOptions(SessionOptions):
    """The options of commands about artifacts, of a session or a user."""

    user: Annotated[
        str | None, typer.Option("--user", help="Of this user; without a session the default is `user`.")
    ] = None


@app.command("list")
@with_shared_options
def list_artifacts(
    chosen: ArtifactOptions,
    session_id: Annotated[str | None, typer.Argument(metavar="[SESSION]", help="The session's id.")] = None,
    name: Annotated[str | None, typer.Option("--name", help="List every version of this artifact.")] = None,
    as_json: Json = False,
) -> None:
    """List the artifacts of a session and of its user; without a session, of a user."""

    async def read(data: "StoredData") -> "Sequence[Artifact]":
        artifacts, session, user_id = await _open(data, session_id, chosen)
        if name is not None:
            return await artifacts.versions(session, name, user_id=user_id)
        return await artifacts.list(session, user_id=user_id)

    def row(artifact: "Artifact") -> dict[str, Any]:
        return _artifact_json(artifact) | {"created_at": format_time(artifact.created_at)}

    found = [artifact for artifact in chosen.run(read) if not artifact.is_removed]
    print_values(found, _artifact_json, row=row, as_json=as_json, empty="no artifacts yet", cut=("name",))


@app.command("get")
@with_shared_options
def get_artifact(
    chosen: ArtifactOptions,
    where: ArtifactPlace,
    version: Annotated[int | None, typer.Option("--version", min=0, help="The version; else the newest.")] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="The file to write; else standard output.")
    ] = None,
) -> None:
    """Write an artifact to a file, or to standard output."""
    session_id, wanted = _split(where, "NAME")

    async def read(data: "StoredData") -> None:
        artifacts, session, user_id = await _open(data, session_id, chosen)
        artifact = await artifacts.resolve(session, wanted, version, user_id=user_id)
        await _write(artifacts.chunks(artifact), artifact.size, output)

    try:
        chosen.run(read)
    except OSError as error:
        raise UsageError(f"{output or 'standard output'} cannot be written: {error.strerror}") from error


@app.command("put")
@with_shared_options
def put_artifact(
    chosen: ArtifactOptions,
    where: FilePlace,
    name: Annotated[str | None, typer.Option("--name", help="The artifact's name; else that of the file.")] = None,
    mime_type: Annotated[str | None, typer.Option("--type", help="Its type; else the one of its name.")] = None,
) -> None:
    """Save a file as the next version of an artifact."""
    session_id, source = _split(where, "FILE")
    if name is None and source == "-":
        raise UsageError("name the artifact with --name: the input has no name")
    shown = name if name is not None else Path(source).name
    settings = load_settings(chosen.config)
    content = _read(source, settings.store.max_artifact_bytes)
    kind = mime_type or mimetypes.guess_type(shown)[0] or "application/octet-stream"
    if not MIME_TYPE.fullmatch(kind):
        raise UsageError(f"{kind!r} is not a media type: give one such as image/png")

    async def save(data: "StoredData") -> int:
        artifacts, session, user_id = await _open(data, session_id, chosen, settings)
        return await artifacts.save(session, shown, content, mime_type=kind, user_id=user_id)

    version = chosen.run(save)
    print(f"saved {len(content)} bytes as version {version} of {printable(shown)}")


@app.command("delete")
@with_shared_options
def delete_artifact(chosen: ArtifactOptions, where: ArtifactPlace) -> None:
    """Delete every version of an artifact."""
    session_id, wanted = _split(where, "NAME")

    async def delete(data: "StoredData") -> bool:
        artifacts, session, user_id = await _open(data, session_id, chosen)
        return await artifacts.delete(session, wanted, user_id=user_id)

    if not chosen.run(delete):
        raise ArtifactNotFound(f"there is no artifact {wanted!r}")
    print(f"deleted {printable(wanted)}")


def _split(where: list[str], last: str) -> tuple[str | None, str]:
    """Return the session, if there are two arguments, and the last argument."""
    if len(where) > 2:
        raise UsageError(f"give a session and a {last}, or only a {last}; quote a name with spaces")
    return (None if len(where) == 1 else where[0]), where[-1]


async def _open(
    data: "StoredData", session_id: str | None, chosen: ArtifactOptions, settings: "Settings | None" = None
) -> "tuple[Artifacts, str | None, str]":
    """Return the artifacts of the app of a session, the session's id and user; or those of the configured app."""
    if session_id is None:
        return data.app(chosen.app_name(), settings).artifacts, None, chosen.user or "user"
    found = (await chosen.session(data, session_id)).name
    return data.app(found.app_name, settings).artifacts, found.id, found.user_id


def _read(source: str, limit: int) -> bytes:
    """Read a file, or the input, up to one byte more than an artifact may have."""
    try:
        if source == "-":
            return sys.stdin.buffer.read(limit + 1)
        with Path(source).open("rb") as opened:
            return opened.read(limit + 1)
    except OSError as error:
        raise UsageError(f"{source} cannot be read: {error.strerror}") from error


async def _write(chunks: AsyncIterator[bytes], size: int, output: Path | None) -> None:
    if output is None and sys.stdout.isatty():
        raise UsageError(f"these are {size} bytes: write them to a file with --output, or into a pipe")
    first = await anext(chunks, b"")  # before the file is created: it may not be there
    with nullcontext(sys.stdout.buffer) if output is None else output.open("wb") as file:
        file.write(first)
        async for chunk in chunks:
            file.write(chunk)
        file.flush()
    if output is not None:
        print(f"wrote {size} bytes to {output}")


def _artifact_json(artifact: "Artifact") -> dict[str, Any]:
    return {
        "name": artifact.name,
        "version": artifact.version,
        "type": artifact.mime_type or "",
        "bytes": artifact.size,
        "created_at": artifact.created_at,
    }
