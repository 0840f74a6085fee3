"""Attack 12: the shell is sandboxed, limited and killed with all its processes; without a sandbox it does not run."""

import asyncio
import os
import random
import resource
import shutil
import time
from pathlib import Path
from typing import Any

import pytest

from lango.tools import Tool, ToolOutcome, run_tool
from lango.tools.builtin.sandbox import find_sandbox
from lango.tools.builtin.shell import ShellLimits, shell_tool
from lango.tools.builtin.workspace import Workspace
from tests.agents.parts import TIMEOUT_S, Leaps

boxed = pytest.mark.skipif(isinstance(find_sandbox(), str), reason=f"no sandbox: {find_sandbox()}")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "workspace"
    folder.mkdir()
    return folder


@pytest.fixture
def boxed_shell(root: Path) -> Tool:
    return shell_tool(Workspace(root))


@pytest.fixture
def open_shell(root: Path) -> Tool:
    return shell_tool(Workspace(root), sandbox="none")


async def call(shell: Tool, command: str, **arguments: Any) -> ToolOutcome:
    return await run_tool(shell, {"command": command, **arguments})


def alive(marker: str) -> list[str]:
    """Return the processes whose command line contains a marker."""
    found: list[str] = []
    for process in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = process.read_bytes().replace(b"\0", b" ").decode("utf-8", "replace")
        except OSError:
            continue
        if marker in line:
            found.append(line)
    return found


def unique() -> str:
    """A sleep duration that no other process on this machine uses."""
    return f"{random.SystemRandom().randrange(10**8, 10**9)}.5"


async def begun(root: Path, task: "asyncio.Future[Any]") -> None:
    """Wait until a command has created its file."""
    async with asyncio.timeout(TIMEOUT_S):
        while not (root / "begun").exists():
            assert not task.done(), task.result()
            await asyncio.sleep(0.01)


async def gone(marker: str) -> bool:
    """Wait until no process has the marker: the kernel needs a moment after a kill."""
    deadline = time.monotonic() + TIMEOUT_S
    while alive(marker):
        if time.monotonic() > deadline:
            return False
        await asyncio.sleep(0.02)
    return True


async def test_attack_12_without_a_sandbox_nothing_runs(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    empty = tmp_path / "bin"
    empty.mkdir()
    try:
        for broken in (
            "",
            "#!/bin/sh\necho bubblewrap 0.3.0\n",
            "#!/bin/sh\n[ $1 = --version ] && echo 0.9.0 || exit 1\n",
        ):
            if broken:
                (empty / "bwrap").write_text(broken)
                (empty / "bwrap").chmod(0o755)
            monkeypatch.setenv("PATH", str(empty))
            find_sandbox.cache_clear()
            outcome = await call(shell_tool(Workspace(root)), "touch ran")
            assert not outcome.ok
            assert outcome.result["error"].startswith("not run: ")
            assert "apt install bubblewrap" in outcome.result["error"]
            assert not (root / "ran").exists()
    finally:
        monkeypatch.undo()
        find_sandbox.cache_clear()


@boxed
async def test_the_sandbox_runs_commands_in_the_workspace(boxed_shell: Tool, root: Path) -> None:
    (root / "in.txt").write_text("hello")
    outcome = await call(boxed_shell, "cat in.txt; echo out > out.txt; echo warn >&2; pwd; exit 3")
    assert outcome.ok
    assert outcome.result == {"exit_code": 3, "stdout": "hello/workspace\n", "stderr": "warn\n"}
    assert (root / "out.txt").read_text() == "out\n"


@boxed
async def test_attack_12_keys_are_out_of_reach(
    boxed_shell: Tool, root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GOOGLE_API_KEY", "canary-env")
    (tmp_path / "key.txt").write_text("canary-file")
    (root / ".env").write_text("KEY=canary-dotenv")
    (root / "link").symlink_to(tmp_path / "key.txt")
    home = Path.home()
    outcome = await call(
        boxed_shell,
        f"env; cat /proc/*/environ; cat {tmp_path}/key.txt link .env; ls -la {home} /home /root /etc/shadow"
        " /var /run /proc/1/root/; cat /etc/shadow",
    )
    assert "canary" not in str(outcome.result)
    assert str(tmp_path) not in outcome.result["stdout"]
    assert "PATH=" in outcome.result["stdout"]
    assert "shadow" not in outcome.result["stdout"]


@boxed
async def test_attack_12_there_is_no_network(boxed_shell: Tool) -> None:
    met = asyncio.Event()

    async def meet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        met.set()
        writer.close()

    server = await asyncio.start_server(meet, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        outcome = await call(boxed_shell, f"exec 3<>/dev/tcp/127.0.0.1/{port} && echo connected; cat /proc/net/dev")
    assert "connected" not in outcome.result["stdout"]
    assert not met.is_set()
    interfaces = {line.split(":")[0].strip() for line in outcome.result["stdout"].splitlines() if ":" in line}
    assert interfaces <= {"lo"}


@boxed
async def test_attack_12_the_system_is_read_only_and_tmp_is_private(boxed_shell: Tool) -> None:
    name = f"lango-{os.getpid()}"
    outcome = await call(
        boxed_shell, f"touch /usr/{name} /etc/{name}; touch /tmp/{name} && echo private; mount -t tmpfs x /mnt"
    )
    assert outcome.result["stdout"] == "private\n"
    assert not (Path("/tmp") / name).exists()
    assert not (Path("/usr") / name).exists()


@boxed
async def test_attack_12_fork_bombs_are_killed(root: Path) -> None:
    shell = shell_tool(Workspace(root), limits=ShellLimits(processes=64))
    marker = unique()
    outcome = await call(shell, f"while :; do sleep {marker} & done", timeout_s=5)
    # as root by our own count, else by the kernel's limit first, which makes fork fail until the time is up
    assert not outcome.ok or "fork" in outcome.result["stderr"]
    assert await gone(marker)


@boxed
async def test_attack_12_memory_and_files_have_limits(root: Path) -> None:
    shell = shell_tool(Workspace(root), limits=ShellLimits(memory_bytes=200 * 1024**2, file_bytes=1024**2))
    outcome = await call(
        shell, "head -c 5000000 /dev/zero > big.bin; head -c 400000000 /dev/zero | tail -c 400000000 | wc -c"
    )
    assert (root / "big.bin").stat().st_size <= 1024**2
    assert outcome.result["stdout"].strip() != "400000000"


async def test_a_shell_without_a_sandbox_must_be_configured_and_gets_no_keys(
    open_shell: Tool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GOOGLE_API_KEY", "canary-env")
    outcome = await call(open_shell, "env; ulimit -c; ulimit -n; echo done")
    assert "canary" not in outcome.result["stdout"]
    assert outcome.result["stdout"].endswith("\n0\n512\ndone\n")


@pytest.fixture(params=["none", pytest.param("bubblewrap", marks=boxed)])
def shell(request: pytest.FixtureRequest, root: Path) -> Tool:
    return shell_tool(Workspace(root), sandbox=request.param)


async def test_a_command_that_hangs_dies_with_its_children(
    shell: Tool, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, marker = Leaps(monkeypatch), unique()
    command = f"echo begun; sleep {marker} & touch begun; sleep {marker}"
    task = asyncio.ensure_future(call(shell, command, timeout_s=60))
    await begun(root, task)
    clock.leap(61)
    outcome = await task
    assert not outcome.ok
    assert outcome.result["error"] == "the command was killed: it ran for more than 60 s"
    assert outcome.result["stdout"] == "begun\n"
    assert await gone(marker)


async def test_a_cancel_kills_the_whole_group(shell: Tool, root: Path) -> None:
    marker = unique()
    task = asyncio.ensure_future(call(shell, f"sleep {marker} & touch begun; sleep {marker}"))
    await begun(root, task)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await gone(marker)


@pytest.mark.parametrize("end", ["timeout", "cancel", "exit"])
async def test_processes_that_left_the_group_are_killed(
    shell: Tool, root: Path, end: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, marker = Leaps(monkeypatch), unique()
    leaving = [f"setsid sleep {marker} &", f"(setsid sleep {marker} &)"]  # its parent lives on; it has none any more
    if end != "exit":  # else nothing is left to know it by
        leaving.append(f"env -i setsid sleep {marker} &")
    last = "true" if end == "exit" else f"sleep {marker}"
    wait = f"while [ $(pgrep -cf '^sleep {marker}') -lt {len(leaving)} ]; do :; done"
    command = "\n".join([*leaving, wait, "touch begun", last])
    task = asyncio.ensure_future(call(shell, command, timeout_s=60))
    await begun(root, task)
    if end == "cancel":
        task.cancel()
    elif end == "timeout":
        clock.leap(61)
    await asyncio.wait([task])
    assert await gone(marker)


async def test_a_cancel_at_any_moment_of_the_start_leaves_nothing_running(shell: Tool) -> None:
    marker = unique()
    for steps in range(30):
        task = asyncio.ensure_future(call(shell, f"sleep {marker} & sleep {marker}"))
        for _ in range(steps):
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert await gone(marker)


async def test_background_processes_of_a_command_are_killed(shell: Tool) -> None:
    marker = unique()
    outcome = await call(shell, f"nohup sleep {marker} >/dev/null 2>&1 & sleep {marker} & echo done")
    assert (outcome.ok, outcome.result["stdout"]) == (True, "done\n")
    assert await gone(marker)


async def test_150_megabytes_never_sit_in_memory(shell: Tool) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    outcome = await call(
        shell, "echo first; head -c 157286400 /dev/zero | tr '\\0' x; echo; echo last; printf '\\377\\0'"
    )
    grown_kilobytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert outcome.ok
    assert outcome.whole is not None
    assert outcome.whole.startswith("first\nxxx")
    assert outcome.whole.endswith("\nlast\n\ufffd\ufffd")
    assert "bytes were left out" in outcome.whole
    assert len(outcome.result["stdout"]) < 50_000
    assert grown_kilobytes < 75_000


async def test_without_stored_results_there_is_no_read_result(shell: Tool) -> None:
    assert (await call(shell, "cat; echo end")).result["stdout"] == "end\n"


def test_the_sandbox_of_this_machine_is_found() -> None:
    if shutil.which("bwrap") is None:
        assert "no sandbox" in str(find_sandbox())
