"""Run a server in a process of its own, and start it again when the files of its agents change.

This process holds the listening socket, so that no connection is refused during a restart. The server hands its turns
over when it is stopped, and the next one continues them.
"""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable

from lango.cli.terminal_text import printable
from lango.config.agent_files import Snapshot

_POLL_S = 0.3
_CLEANUP_S = 20.0


def run_with_reload(
    start: Callable[[], "subprocess.Popen[bytes]"], watch: Callable[[], Snapshot], stop_s: float
) -> int:
    """Keep a server running until a signal arrives, and restart it after a change; return its exit code.

    A first start that fails ends everything. A later one that fails waits for the next change.
    """
    stopping = threading.Event()

    def stop(*_: object) -> None:
        stopping.set()

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, stop)
    seen, process, restarted = watch(), start(), False
    while not stopping.wait(_POLL_S):
        if process.poll() is not None and not (restarted and process.returncode):
            return process.returncode
        now = watch()
        changed = [path for path in {**seen, **now} if seen.get(path) != now.get(path)]
        if changed:
            print(f"lango: {printable(str(changed[0]))} changed: restarting the server", file=sys.stderr, flush=True)
            _stop(process, stop_s)
            seen, process, restarted = now, start(), True
    return _stop(process, stop_s)


def start_server(listener_fd: int) -> "subprocess.Popen[bytes]":
    """Start this command once more as the server behind the socket."""
    command = [sys.executable, "-c", "from lango.cli.main import main; main()", *sys.argv[1:]]
    return subprocess.Popen(  # noqa: S603 - this command itself
        [*command, "--listener-fd", str(listener_fd)],
        stdin=subprocess.PIPE,  # the server sees its end when this process is gone
        pass_fds=[listener_fd],
        # compiled files are known by the second and the size of their source: a quick change would not be seen
        env=os.environ | {"PYTHONDONTWRITEBYTECODE": "1"},
    )


def stop_with_parent() -> None:
    """Stop this process as soon as the one that started it is gone."""

    def wait() -> None:
        while os.read(0, 1024):  # not sys.stdin, whose lock this thread would hold at the end of the process
            pass
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=wait, daemon=True).start()


def _stop(process: "subprocess.Popen[bytes]", stop_s: float) -> int:
    """Stop a server, which hands over its turns; kill one that does not end, so that they are taken over."""
    process.terminate()
    try:
        return process.wait(stop_s + _CLEANUP_S)
    except subprocess.TimeoutExpired:
        process.kill()
        return process.wait()
