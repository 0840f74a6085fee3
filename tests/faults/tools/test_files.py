"""Attack 10: file tools stay inside the workspace, against real files and a real race."""

import os
import shutil
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from lango.errors import ConfigError
from lango.tools import Tool, ToolOutcome, run_tool
from lango.tools.builtin.files import MAX_MATCHES, file_tools
from lango.tools.builtin.workspace import Workspace

SECRET = "the-secret-outside"


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    folder = tmp_path / "outside"
    folder.mkdir()
    (folder / "secret.txt").write_text(SECRET)
    return folder


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "workspace"
    (folder / "src").mkdir(parents=True)
    (folder / "src" / "a.py").write_text("one\ntwo\nthree\n")
    return folder


@pytest.fixture
def tools(root: Path) -> dict[str, Tool]:
    return {one.name: one for one in file_tools(Workspace(root))}


async def call(tools: dict[str, Tool], tool: str, **arguments: Any) -> ToolOutcome:
    return await run_tool(tools[tool], arguments)


async def every_way(tools: dict[str, Tool], path: str) -> list[ToolOutcome]:
    """Try to reach a path with each of the tools."""
    return [
        await call(tools, "read_file", path=path),
        await call(tools, "list_files", path=path),
        await call(tools, "search_files", query="secret", path=path),
        await call(tools, "write_file", path=path, content="mine now"),
        await call(tools, "write_file", path=f"{path}/new.txt", content="mine now"),
        await call(tools, "edit_file", path=path, old=SECRET, new="mine now"),
    ]


@pytest.mark.parametrize(
    "path",
    [
        "../outside/secret.txt",
        "src/../../outside/secret.txt",
        "src/..",
        "..",
        "/etc/passwd",
        "//etc/passwd",
        "~/secret.txt",
        "/proc/self/environ",
        "a\0b",
        "x" * 5000,
    ],
)
async def test_attack_10_paths_that_lead_out_are_refused(tools: dict[str, Tool], outside: Path, path: str) -> None:
    for outcome in await every_way(tools, path):
        assert not outcome.ok
        assert SECRET not in str(outcome.result)
    assert (outside / "secret.txt").read_text() == SECRET
    assert [one.name for one in outside.iterdir()] == ["secret.txt"]


async def test_attack_10_an_absolute_path_to_the_outside_is_refused(tools: dict[str, Tool], outside: Path) -> None:
    assert not any(outcome.ok for outcome in await every_way(tools, str(outside / "secret.txt")))


async def test_attack_10_symbolic_links_are_not_followed(tools: dict[str, Tool], root: Path, outside: Path) -> None:
    (root / "file").symlink_to(outside / "secret.txt")
    (root / "folder").symlink_to(outside)
    (root / "environ").symlink_to("/proc/self/environ")
    (root / "loop").symlink_to("loop")
    for path in ("file", "folder", "folder/secret.txt", "environ", "loop"):
        for outcome in await every_way(tools, path):
            assert not outcome.ok, path
            assert str(outside) not in str(outcome.result)
    assert (outside / "secret.txt").read_text() == SECRET
    assert [one.name for one in outside.iterdir()] == ["secret.txt"]
    listed = (await call(tools, "list_files", recursive=True)).result["entries"]
    assert {"path": "folder", "kind": "link"} in listed
    assert not any("secret" in entry["path"] for entry in listed)
    assert (await call(tools, "search_files", query=SECRET)).result == {"matches": []}


async def test_attack_10_special_files_are_refused(tools: dict[str, Tool], root: Path) -> None:
    os.mkfifo(root / "pipe")
    for path in ("pipe", "src"):
        assert not (await call(tools, "read_file", path=path)).ok
        assert not (await call(tools, "write_file", path=path, content="x")).ok
    if os.geteuid() == 0:
        os.mknod(root / "zero", 0o666 | 0o020000, os.makedev(1, 5))
        assert "not a plain file" in (await call(tools, "read_file", path="zero")).result["error"]


@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="no procfs here")
async def test_attack_10_a_workspace_cannot_be_the_machine() -> None:
    with pytest.raises(ConfigError, match="root of the file system"):
        Workspace(Path("/"))
    tools = {one.name: one for one in file_tools(Workspace(Path(f"/proc/{os.getpid()}")))}
    assert not (await call(tools, "read_file", path="environ")).ok


async def test_attack_10_private_names_are_refused(tools: dict[str, Tool], root: Path) -> None:
    for name in (".env", ".env.local", "lango.toml", "lango.db", "lango.db-wal", "LANGO.TOML", "src/.env"):
        (root / name).write_text(SECRET)
        assert not (await call(tools, "read_file", path=name)).ok
        assert not (await call(tools, "write_file", path=name, content="approval = 'auto'")).ok
        assert (root / name).read_text() == SECRET
    assert (await call(tools, "search_files", query=SECRET)).result == {"matches": []}


async def test_attack_10_a_swap_race_is_never_won(tools: dict[str, Tool], root: Path, outside: Path) -> None:
    """While a folder is swapped for a link to the outside and back, nothing outside is read or written."""
    (root / "here").mkdir()
    (root / "here" / "secret.txt").write_text("inside")
    here, aside = root / "here", root / "aside"
    stop, swaps = threading.Event(), 0

    def swap() -> None:
        nonlocal swaps
        while not stop.is_set():
            here.rename(aside)
            with suppress(FileExistsError):  # a write was first, and made the folder
                here.symlink_to(outside)
                here.unlink()
            while aside.exists():
                shutil.rmtree(here, ignore_errors=True)
                with suppress(OSError):
                    aside.rename(here)
            swaps += 1
            stop.wait(0.0005)  # both must have a chance

    thief = threading.Thread(target=swap)
    thief.start()
    read = 0
    try:
        number = 0
        while number < 400 or not read or swaps <= 50:
            assert number < 1_000_000, "the two never met: this shows nothing"
            number += 1
            outcome = await call(tools, "read_file", path="here/secret.txt")
            assert SECRET not in str(outcome.result)
            read += outcome.ok
            await call(tools, "write_file", path=f"here/{number % 7}.txt", content="mine now")
    finally:
        stop.set()
        thief.join()
    assert [one.name for one in outside.iterdir()] == ["secret.txt"]


# What they are for.


async def test_read_lines(tools: dict[str, Tool], root: Path) -> None:
    result = (await call(tools, "read_file", path="src/a.py", first_line=2, max_lines=1)).result
    assert result == {"path": "src/a.py", "first_line": 2, "lines": 1, "next_line": 3, "text": "two\n"}
    (root / "big.txt").write_text("x" * 1_000_000 + "\nend\n")
    assert len((await call(tools, "read_file", path="big.txt")).result["text"]) <= 200_000
    (root / "data.bin").write_bytes(b"\x7fELF\0\1")
    outcome = await call(tools, "read_file", path="data.bin")
    assert outcome.result == {"error": "data.bin is a binary file", "bytes": 6}
    assert (await call(tools, "read_file", path="nowhere.txt")).result == {"error": "nowhere.txt does not exist"}


async def test_write_and_edit(tools: dict[str, Tool], root: Path) -> None:
    result = (await call(tools, "write_file", path="new/deep/b.txt", content="a b a é")).result
    assert result == {"path": "new/deep/b.txt", "bytes": 8, "created": True}
    (root / "new/deep/b.txt").chmod(0o640)
    assert "occurs 2 times" in (await call(tools, "edit_file", path="new/deep/b.txt", old="a", new="c")).result["error"]
    assert (
        "not in the file" in (await call(tools, "edit_file", path="new/deep/b.txt", old="z", new="c")).result["error"]
    )
    assert (await call(tools, "edit_file", path="new/deep/b.txt", old="b a", new="c")).ok
    assert (root / "new/deep/b.txt").read_text() == "a c é"
    assert (root / "new/deep/b.txt").stat().st_mode & 0o777 == 0o640
    assert [one.name for one in (root / "new/deep").iterdir()] == ["b.txt"]
    (root / "latin.txt").write_bytes(b"caf\xe9")
    assert not (await call(tools, "edit_file", path="latin.txt", old="caf", new="x")).ok
    assert not (await call(tools, "write_file", path="half.txt", content="\ud800")).ok


async def test_list_and_search(tools: dict[str, Tool], root: Path) -> None:
    (root / "node_modules").mkdir()
    (root / "node_modules" / "x.py").write_text("two")
    listed = (await call(tools, "list_files", pattern="*.py", recursive=True)).result
    assert listed == {"entries": [{"path": "src/a.py", "kind": "file", "bytes": 14}]}
    expected = {"matches": [{"path": "src/a.py", "line": 2, "text": "two"}]}
    assert (await call(tools, "search_files", query="two")).result == expected
    assert (await call(tools, "search_files", query="^T[vw]o$", regex=True, ignore_case=True)).result == expected
    assert (await call(tools, "search_files", query="t.o")).result == {"matches": []}
    assert "not a regular expression" in (await call(tools, "search_files", query="(", regex=True)).result["error"]
    (root / "many.txt").write_text("hit\n" * 5000)
    many = (await call(tools, "search_files", query="hit")).result
    assert (len(many["matches"]), many["more"]) == (MAX_MATCHES, True)


async def test_attack_16_an_expression_is_compiled_only_in_a_child_process(
    tools: dict[str, Tool], root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (root / "trap.txt").write_text("\u0101\n")
    long_class = "[" + "".join(chr(code) for code in range(0x100, 0x4E0)) + "]"
    assert len((await call(tools, "search_files", query=long_class, regex=True)).result["matches"]) == 1

    def never(*_: object) -> None:
        raise AssertionError("a pattern of a model was compiled on the event loop")

    with monkeypatch.context() as patched:
        patched.setattr("re.compile", never)
        assert len((await call(tools, "search_files", query=long_class, regex=True)).result["matches"]) == 1


async def test_an_endless_regular_expression_is_killed(
    tools: dict[str, Tool], root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lango.tools.builtin.files.REGEX_TIMEOUT_S", 0.5)
    (root / "trap.txt").write_text("a" * 60 + "!")
    outcome = await call(tools, "search_files", query="(a+)+$", regex=True)
    assert "took more than" in outcome.result["error"]
