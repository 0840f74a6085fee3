"""What can be wrong with a SQLite file, told in a sentence with the way out."""

import contextlib
import os
from collections.abc import Generator
from pathlib import Path

import apsw

from lango.errors import LangoError, SchemaError, StoreError, StoreUnavailable, StoreUrlError


def check_path(path: Path) -> None:
    """Refuse, before anything is touched, a path where no database can be."""
    folder = path.parent
    if path.is_dir():
        raise StoreUrlError(f"{path} is a folder; name a file in it, such as sqlite:///{path}/lango.db")
    if not folder.is_dir():
        raise StoreUrlError(f"the folder {folder} does not exist: create it, or use another path for the store")
    if not path.exists() and not os.access(folder, os.W_OK):
        raise StoreUrlError(f"no right to write in the folder {folder}: change its rights, or use another path")
    if path.exists() and not os.access(path, os.R_OK | os.W_OK):
        raise StoreUrlError(f"no right to read and write {path}: change its rights, or use another path")


def only_readable(path: str) -> bool:
    """Whether there is a file that cannot be written: reading goes on, and writing begins when it can be written."""
    return os.access(path, os.R_OK) and not os.access(path, os.W_OK)


@contextlib.contextmanager
def translated(path: str) -> Generator[None]:
    """Turn SQLite's errors into ours."""
    try:
        yield
    except LangoError:
        raise
    except apsw.Error as error:
        raise translate(error, path) from error


def translate(error: apsw.Error, path: str) -> StoreError:
    """Say what SQLite's error means and what to do."""
    match error:
        case apsw.BusyError() | apsw.LockedError():
            told: StoreError = StoreUnavailable(
                f"{path} is locked by another program: close it, or try again", retry_after_s=1.0
            )
        case apsw.NotADBError():
            told = SchemaError(f"{path} is not a SQLite database: name another file for the store")
        case apsw.CorruptError():
            told = StoreUnavailable(f"{path} is damaged ({error}): restore it from a backup")
        case apsw.FullError():
            told = StoreUnavailable(f"the disk that holds {path} is full: make room; nothing was written")
        case apsw.ReadOnlyError():
            told = StoreUnavailable(f"{path} cannot be written: change its rights; reading goes on")
        case apsw.CantOpenError() | apsw.IOError() | apsw.PermissionsError():
            told = StoreUnavailable(f"{path} cannot be read or written ({error}): look at its disk and its rights")
        case apsw.TooBigError():
            told = StoreUnavailable(f"a value is larger than SQLite can store ({error}): store less")
        case _:
            told = StoreError(f"{path}: {type(error).__name__}: {error}")
    told.__cause__ = error
    return told
