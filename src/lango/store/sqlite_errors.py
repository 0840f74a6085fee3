"""What can be wrong with a SQLite file, explained in a sentence with the way out."""

import contextlib
from collections.abc import Generator
from pathlib import Path

import apsw

from lango.errors import LangoError, SchemaError, StoreDamaged, StoreError, StoreUnavailable


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
    """Say what SQLite's error means and what to do. Clients read it, too: it names the file, and not its folder."""
    file = Path(path).name
    match error:
        case apsw.BusyError() | apsw.LockedError():
            translated_error: StoreError = StoreUnavailable(
                f"{file} is locked by another program: close it, or try again", retry_after_s=1.0
            )
        case apsw.NotADBError():
            translated_error = SchemaError(f"{file} is not a SQLite database: name another file for the store")
        case apsw.CorruptError():
            translated_error = StoreDamaged(f"{file} is damaged ({error}): restore it from a backup")
        case apsw.FullError():
            translated_error = StoreUnavailable(f"the disk that holds {file} is full: make room; nothing was written")
        case apsw.ReadOnlyError():
            translated_error = StoreUnavailable(f"{file} cannot be written: change its rights; reading goes on")
        case apsw.CantOpenError() | apsw.IOError() | apsw.PermissionsError():
            translated_error = StoreUnavailable(
                f"{file} cannot be read or written ({error}): look at its disk and its rights"
            )
        case apsw.TooBigError():
            translated_error = StoreUnavailable(f"a value is larger than SQLite can store ({error}): store less")
        case _:
            translated_error = StoreError(f"{file}: {type(error).__name__}: {error}")
    translated_error.__cause__ = error
    return translated_error
