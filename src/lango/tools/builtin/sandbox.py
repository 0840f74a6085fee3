"""Build the bubblewrap command line that isolates a shell command.

The sandbox contains only the system's programs (read-only), the workspace as /workspace, and a private /tmp. It has no
network, no environment, no other processes, no home folders and little of /etc, and ends with everything started in it.
If bubblewrap is missing, too old, or not allowed to create namespaces, no command runs.
"""

import re
import shutil
import subprocess
from functools import lru_cache
from pathlib import Path

from msgspec import Struct

from lango.tools.builtin.workspace import Workspace

MOUNT_POINT = "/workspace"
MIN_VERSION = (0, 8)
TMP_BYTES = 512 * 1024 * 1024
ENVIRONMENT = {"PATH": "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin", "HOME": "/tmp", "LANG": "C.UTF-8"}  # noqa: S108
"""The environment of a command."""
_SYSTEM = ("/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
_ETC = (
    *("alternatives", "ld.so.cache", "ld.so.conf", "ld.so.conf.d", "localtime", "nsswitch.conf"),
    *("passwd", "group", "ssl/certs", "ssl/openssl.cnf", "ca-certificates", "mime.types", "terminfo"),
)
_HOW_TO_INSTALL = (
    "install bubblewrap 0.8 or newer (on Debian and Ubuntu: apt install bubblewrap) and allow it user namespaces,"
    ' or set tools.sandbox = "none" to run commands with all rights of this user'
)


class Sandbox(Struct, frozen=True):
    """A working bubblewrap."""

    program: str
    hardening: tuple[str, ...]

    def command(self, workspace: Workspace, *argv: str) -> list[str]:
        """Return the command line that runs `argv` in the sandbox."""
        return [self.program, *self.hardening, *_options(workspace), "--", *argv]


@lru_cache(maxsize=1)
def find_sandbox() -> Sandbox | str:
    """Return the sandbox, or a sentence why there is none. It is tried once, with an empty command."""
    program = shutil.which("bwrap")
    if program is None:
        return f"there is no sandbox on this machine: {_HOW_TO_INSTALL}"
    try:
        version_output = _run([program, "--version"]).stdout
        version = tuple(int(number) for number in re.findall(r"\d+", version_output)[:2])
        if version < MIN_VERSION:
            return f"bubblewrap {'.'.join(map(str, version))} is too old: {_HOW_TO_INSTALL}"
        # namespaces inside the sandbox only add attack surface; not every system can forbid them
        for hardening in (("--unshare-user", "--disable-userns"), ()):
            tried = _run([program, *hardening, *_base_options(), "--", "/bin/sh", "-c", "exit 0"])
            if tried.returncode == 0:
                return Sandbox(program, hardening)
    except (OSError, subprocess.SubprocessError) as error:
        return f"bubblewrap does not work here ({type(error).__name__}): {_HOW_TO_INSTALL}"
    why = tried.stderr.strip().splitlines()[-1:] or ["it gave no reason"]
    return f"bubblewrap does not work here ({why[0][:200]}): {_HOW_TO_INSTALL}"


def _run(command: list[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(  # noqa: S603 - a fixed command
        command, env={}, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=10, check=False
    )


def _options(workspace: Workspace) -> list[str]:
    options = [*_base_options(), "--bind", str(workspace.root), MOUNT_POINT, "--chdir", MOUNT_POINT]
    for path in workspace.hidden():  # an empty mount over each, which no command can write to or move
        place, inside = workspace.root / path, f"{MOUNT_POINT}/{path}"
        if place.is_symlink():
            continue
        if place.is_dir():
            options += ["--tmpfs", inside, "--remount-ro", inside]
        else:
            options += ["--ro-bind", "/dev/null", inside]
    return options


def _base_options() -> list[str]:
    options = [
        *("--unshare-all", "--die-with-parent", "--new-session", "--cap-drop", "ALL", "--clearenv"),
        *("--hostname", "sandbox", "--ro-bind", "/usr", "/usr"),
    ]
    for place in map(Path, _SYSTEM):
        if place.is_symlink():
            options += ["--symlink", str(place.readlink()), str(place)]
        elif place.is_dir():
            options += ["--ro-bind", str(place), str(place)]
    for name in _ETC:
        options += ["--ro-bind-try", f"/etc/{name}", f"/etc/{name}"]
    options += ["--ro-bind-try", "/nix/store", "/nix/store"]
    for name, value in ENVIRONMENT.items():
        options += ["--setenv", name, value]
    return [*options, "--proc", "/proc", "--dev", "/dev", "--size", str(TMP_BYTES), "--tmpfs", "/tmp"]  # noqa: S108
