"""Attack 22: names in the workspace are swapped during tool calls: links, hard links, moved folders."""

import os
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path

import pytest

from lango.errors import ToolError
from lango.sessions import SessionId
from lango.store import Store
from lango.store.sessions.sessions import create_session
from lango.tools import Tool, run_tool
from lango.tools.builtin.files import file_tools
from lango.tools.builtin.safe_open import MAX_FOLDER_DEPTH, drop_setuid
from lango.tools.builtin.workspace import Workspace

SECRET = "the-secret-outside"
ROUNDS = 300


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    folder = tmp_path / "outside"
    folder.mkdir()
    (folder / "secret.txt").write_text(SECRET)
    (folder / "secret.txt").chmod(0o600)
    return folder


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "workspace"
    (root / "data").mkdir(parents=True)
    (root / "data" / "chats.sqlite").write_text(SECRET)
    (root / "data" / "chats.sqlite-wal").write_text(SECRET)
    (root / "plain.txt").write_text("plain")
    return root


@pytest.fixture
def workspace(root: Path) -> Workspace:
    return Workspace(root, protected=(root / "data" / "chats.sqlite", root / "data" / "chats.sqlite-wal"))


def named(workspace: Workspace) -> dict[str, Tool]:
    return {one.name: one for one in file_tools(workspace)}


@contextmanager
def swapping(swap: Callable[[], None]) -> Generator[None]:
    """Swap in a loop, in another thread, until the block ends."""
    stop = threading.Event()

    def loop() -> None:
        while not stop.is_set():
            swap()

    thief = threading.Thread(target=loop)
    thief.start()
    try:
        yield
    finally:
        stop.set()
        thief.join()


async def test_attack_22_a_file_that_turns_into_a_link_or_the_store_is_never_read_or_written(
    workspace: Workspace, root: Path, outside: Path
) -> None:
    tools = named(workspace)
    target, spare = root / "notes.txt", root / "spare.txt"
    target.write_text("plain")

    def swap() -> None:
        """Replace the name atomically, so that it always exists."""
        for make in (
            lambda: spare.symlink_to(outside / "secret.txt"),
            lambda: os.link(root / "data" / "chats.sqlite", spare),
            lambda: spare.write_text("plain") and None,
        ):
            with suppress(FileExistsError):
                make()
            spare.replace(target)
            spare.unlink(missing_ok=True)  # two names of the same file: then a rename does nothing

    read = 0
    with swapping(swap):
        for _ in range(ROUNDS):
            outcome = await run_tool(tools["read_file"], {"path": "notes.txt"})
            assert SECRET not in str(outcome.result)
            read += outcome.ok
            await run_tool(tools["write_file"], {"path": "notes.txt", "content": "plain"})
            await run_tool(tools["edit_file"], {"path": "notes.txt", "old": "plain", "new": "plain"})
    assert read, "the two never met: this shows nothing"
    assert (outside / "secret.txt").read_text() == SECRET
    assert (root / "data" / "chats.sqlite").read_text() == SECRET


async def test_attack_22_a_moved_file_or_folder_stays_protected(workspace: Workspace, root: Path) -> None:
    tools = named(workspace)
    (root / "data").rename(root / "innocent")
    for path in ("innocent/chats.sqlite", "innocent/chats.sqlite-wal"):
        assert path in workspace.hidden()
        for tool, more in (("read_file", {}), ("write_file", {"content": "mine"})):
            outcome = await run_tool(tools[tool], {"path": path, **more})
            assert not outcome.ok
            assert SECRET not in str(outcome.result)
    assert (await run_tool(tools["search_files"], {"query": SECRET})).result == {"matches": []}
    (root / "innocent" / "chats.sqlite").rename(root / "notes.txt")
    assert not (await run_tool(tools["read_file"], {"path": "notes.txt"})).ok
    assert "notes.txt" in workspace.hidden()


async def test_attack_22_a_folder_swapped_with_the_protected_one_is_never_written(tmp_path: Path) -> None:
    root = tmp_path / "workspace"
    (root / "agent").mkdir(parents=True)
    (root / "other").mkdir()
    (root / "agent" / "agent.py").write_text(SECRET)
    tools = named(Workspace(root, protected=(root / "agent",)))

    numbers = count()
    swaps = 0

    def swap() -> None:
        nonlocal swaps
        with suppress(FileNotFoundError):  # or a write has made it again meanwhile
            (root / "other").rename(tmp_path / f"aside{next(numbers)}")
        with suppress(OSError):
            (root / "agent").rename(root / "other")
            (root / "other").rename(root / "agent")
            swaps += 1

    with swapping(swap):
        for _ in range(ROUNDS):
            await run_tool(tools["write_file"], {"path": "other/agent.py", "content": "mine"})
            outcome = await run_tool(tools["read_file"], {"path": "other/agent.py"})
            assert SECRET not in str(outcome.result)
    assert swaps, "the two never met: this shows nothing"
    assert (root / "agent" / "agent.py").read_text() == SECRET


_LOCK = """
import fcntl, sys
with open(sys.argv[1], "r+b") as file:
    try:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, int(sys.argv[3]), int(sys.argv[2]))
    except BlockingIOError:
        print("locked")
"""


def locked(file: Path, start: int, length: int) -> bool:
    """Whether this process locks bytes of a file, as another process sees it."""
    command = [sys.executable, "-c", _LOCK, str(file), str(start), str(length)]
    return "locked" in subprocess.run(command, capture_output=True, text=True, check=True).stdout


async def test_attack_22_reading_a_hard_link_to_the_store_keeps_its_locks(root: Path, tmp_path: Path) -> None:
    """Closing any descriptor of a file drops all locks of the process on it, including SQLite's."""
    database = tmp_path / "lango.db"
    protected = (database, tmp_path / "lango.db-wal", tmp_path / "lango.db-shm")
    async with Store(f"sqlite:///{database}") as store:
        await store.write(create_session, SessionId("lango", "user", "s"), None, time.time())
        for number, file in enumerate(protected):
            os.link(file, root / f"innocent{number}.txt")
        assert locked(database, 0x40000002, 510), "SQLite holds a shared lock as long as it has a log"
        tools = named(Workspace(root, protected=protected))
        for number in range(len(protected)):
            path = f"innocent{number}.txt"
            assert not (await run_tool(tools["read_file"], {"path": path})).ok
            assert not (await run_tool(tools["edit_file"], {"path": path, "old": "a", "new": "b"})).ok
        assert (await run_tool(tools["search_files"], {"query": "SQLite"})).ok
        assert locked(database, 0x40000002, 510), "or another process takes the log away, and rows are lost"
        assert locked(tmp_path / "lango.db-shm", 128, 1)


def test_attack_22_clearing_setuid_affects_nothing_outside(workspace: Workspace, root: Path, outside: Path) -> None:
    """A file with setuid is swapped for a link to another file meanwhile."""
    target, spare, link = root / "tool", root / "spare", root / "link"

    def swap() -> None:
        spare.write_text("x")
        spare.chmod(0o4777)
        spare.replace(target)
        with suppress(FileExistsError):
            link.symlink_to(outside / "secret.txt")
        link.replace(target)

    with swapping(swap):
        for _ in range(4 * ROUNDS):
            drop_setuid(workspace.root, 0.0)
    assert stat.S_IMODE((outside / "secret.txt").stat().st_mode) == 0o600


def test_attack_22_setuid_is_cleared_at_any_depth(workspace: Workspace, root: Path) -> None:
    """Folders can be nested deeper than any path can name, and than a walk can hold open."""
    shallow = root / "shallow"
    shallow.write_text("x")
    shallow.chmod(0o4755)
    at = os.open(root, os.O_RDONLY)
    for _ in range(MAX_FOLDER_DEPTH + 100):
        os.mkdir("d" * 40, dir_fd=at)
        at, above = os.open("d" * 40, os.O_RDONLY, dir_fd=at), at
        os.close(above)
    os.close(os.open("deep", os.O_CREAT | os.O_WRONLY, 0o755, dir_fd=at))
    os.fchmod(at, 0o755)
    os.close(at)
    drop_setuid(workspace.root, 0.0)
    assert stat.S_IMODE(shallow.stat().st_mode) == 0o755
    closed = os.open(root, os.O_RDONLY)
    modes: list[int] = []
    for _ in range(MAX_FOLDER_DEPTH):
        closed, above = os.open("d" * 40, os.O_RDONLY, dir_fd=closed), closed
        os.close(above)
        modes.append(stat.S_IMODE(os.fstat(closed).st_mode))
    os.close(closed)
    assert modes[-1] == 0o700, "what is not looked at is closed to others"
    assert modes[-2] != 0o700
    with pytest.raises(ToolError, match="nested too deeply"):
        workspace.hidden()
