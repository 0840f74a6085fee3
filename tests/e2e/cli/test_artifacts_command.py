"""`lango artifacts` as users run it: list, get, put, delete."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from lango.runtime.artifacts import Artifacts
from lango.sessions import SessionId
from lango.store import Store
from lango.store.artifacts.artifacts import NewArtifact, Reference, save_artifact
from lango.store.engine.database import Operation
from lango.store.lifecycle.integrity import check_database
from tests.e2e.cli.test_commands import lango, refused
from tests.e2e.cli.test_sessions_command import TEXTS, fill
from tests.support.processes import LANGO

LARGE = bytes(range(256)) * 3_000


@pytest.fixture
async def folder(tmp_path: Path) -> Path:
    async with Store(f"sqlite:///{tmp_path}/lango.db") as store:
        await fill(store, SessionId("app", "alice", "first"), TEXTS)
    return tmp_path


def objects(*arguments: str, cwd: Path) -> list[dict[str, Any]]:
    run = lango("artifacts", "list", *arguments, "--json", cwd=cwd)
    assert run.returncode == 0, run
    return [json.loads(line) for line in run.stdout.splitlines()]


async def test_artifacts_are_listed_and_written(folder: Path) -> None:
    async with Store(f"sqlite:///{folder}/lango.db") as store:
        artifacts = Artifacts(store, "app")
        await artifacts.save("first", "notes/\x1b[31m.txt", "hello", user_id="alice")
        for data in (b"old", LARGE):
            await artifacts.save("first", "user:large.bin", data, mime_type="image/png", user_id="alice")
        reference = Reference("app", "alice", None, "user:large.bin", 1).uri
        part = {"file_data": {"file_uri": reference}}
        new = NewArtifact("points there", "uri", None, None, part)
        await store.write(save_artifact, SessionId("app", "alice", "first"), new, 1.0)
    listed = objects("first", cwd=folder)
    assert [(one["name"], one["version"], one["type"], one["bytes"]) for one in listed] == [
        ("notes/\x1b[31m.txt", 0, "text/plain", 5),
        ("points there", 0, "", 0),
        ("user:large.bin", 1, "image/png", len(LARGE)),
    ]
    table = lango("artifacts", "list", "first", cwd=folder)
    assert "user:large.bin" in table.stdout
    assert "\x1b" not in table.stdout
    versions = objects("first", "--name", "user:large.bin", cwd=folder)
    assert [one["bytes"] for one in versions] == [3, len(LARGE)]
    written = lango("artifacts", "get", "first", "user:large.bin", "-o", "out.bin", cwd=folder)
    assert written.stdout == f"wrote {len(LARGE)} bytes to out.bin\n"
    assert (folder / "out.bin").read_bytes() == LARGE
    assert lango("artifacts", "get", "first", "user:large.bin", "--version", "0", cwd=folder).stdout == "old"
    assert lango("artifacts", "get", "first", "points there", "-o", "out2.bin", cwd=folder).returncode == 0
    assert (folder / "out2.bin").read_bytes() == LARGE
    refused(lango("artifacts", "get", "first", "none", "-o", "none.bin", cwd=folder), "no artifact 'none'")
    assert not (folder / "none.bin").exists()
    refused(lango("artifacts", "get", "first", "user:large.bin", "--version", "7", cwd=folder), "of version 7")
    refused(lango("artifacts", "get", "first", "user:large.bin", "-o", "no/folder", cwd=folder), "cannot be written")
    refused(lango("artifacts", "get", "first", "a", "b", cwd=folder), "quote a name with spaces")
    refused(lango("artifacts", "list", "nobody", cwd=folder), "no session 'nobody'")


async def test_a_file_is_saved_and_deleted(folder: Path) -> None:
    (folder / "my chart.png").write_bytes(LARGE)
    for version in range(2):
        saved = lango("artifacts", "put", "first", "my chart.png", cwd=folder)
        assert saved.stdout == f"saved {len(LARGE)} bytes as version {version} of my chart.png\n"
    lango("artifacts", "put", "first", "my chart.png", "--name", "user:\u2603/b", "--type", "image/webp", cwd=folder)
    assert [(one["name"], one["version"], one["type"]) for one in objects("first", cwd=folder)] == [
        ("my chart.png", 1, "image/png"),
        ("user:\u2603/b", 0, "image/webp"),
    ]
    piped = subprocess.run(
        [LANGO, "artifacts", "put", "first", "-", "--name", "from a pipe.txt"],
        input=b"piped",
        cwd=folder,
        capture_output=True,
        check=True,
    )
    assert piped.stdout == b"saved 5 bytes as version 0 of from a pipe.txt\n"
    assert lango("artifacts", "get", "first", "from a pipe.txt", cwd=folder).stdout == "piped"
    for name in ("my chart.png", "user:\u2603/b", "from a pipe.txt"):
        assert lango("artifacts", "delete", "first", name, cwd=folder).stdout == f"deleted {name}\n"
        refused(lango("artifacts", "delete", "first", name, cwd=folder), "no artifact")
    async with Store(f"sqlite:///{folder}/lango.db") as store:
        assert await store.read(check_database, "sqlite") == []
        assert await store.read(_contents) == 0


def _contents() -> Operation[int]:
    [[count]] = yield "SELECT COUNT(*) FROM content_chunks", ()
    return count


def test_the_artifacts_of_a_user_need_no_session(folder: Path) -> None:
    (folder / "a.txt").write_text("mine")
    owner = ("--app", "app", "--user", "alice")
    assert "version 0 of a.txt" in lango("artifacts", "put", "a.txt", *owner, cwd=folder).stdout
    assert [one["name"] for one in objects(*owner, cwd=folder)] == ["user:a.txt"]
    assert [one["name"] for one in objects("first", cwd=folder)] == ["user:a.txt"]
    for name in ("a.txt", "user:a.txt"):
        assert lango("artifacts", "get", name, *owner, cwd=folder).stdout == "mine"
    assert objects("--user", "bob", "--app", "app", cwd=folder) == []
    assert lango("artifacts", "delete", "a.txt", *owner, cwd=folder).returncode == 0
    assert objects(*owner, cwd=folder) == []


def test_what_cannot_be_saved_is_refused_with_a_sentence(folder: Path) -> None:
    (folder / "empty").write_bytes(b"")
    (folder / "large").write_bytes(bytes(101))
    (folder / "small").write_bytes(bytes(100))
    put = ("artifacts", "put", "first")
    limit = {"LANGO_STORE__MAX_ARTIFACT_BYTES": "100"}
    refused(lango(*put, "none", cwd=folder), "none cannot be read")
    refused(lango(*put, ".", "--name", "x", cwd=folder), "cannot be read")
    refused(lango(*put, "-", cwd=folder), "name the artifact")
    refused(lango(*put, "empty", cwd=folder), "removed artifact")
    refused(lango(*put, "large", cwd=folder, **limit), "has 101 bytes; the limit is 100")
    refused(lango(*put, "small", "--type", "x", cwd=folder), "is not a media type")
    for name in ("../escape", "/etc/passwd", "C:x", "user:", "a/../b"):
        refused(lango(*put, "small", "--name", name, cwd=folder), "relative path")
    assert lango(*put, "small", cwd=folder, **limit).returncode == 0
    assert lango(*put, "empty", "--type", "text/plain", cwd=folder).returncode == 0
