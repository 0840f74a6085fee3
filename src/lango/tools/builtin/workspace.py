"""Open files inside the workspace without following links out of it.

Every path is walked one component at a time, each opened relative to its parent and never through a symbolic link. So
the opened file is the checked file, even if names are exchanged in between.
"""

import errno
import os
import secrets
import stat
from collections.abc import Generator, Iterator
from contextlib import contextmanager, suppress
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath
from typing import BinaryIO

from msgspec import Struct
from msgspec.structs import force_setattr

from lango.errors import ConfigError, ToolError
from lango.tools.builtin.safe_open import FOLDER, NO_LINKS, folders, folders_below, open_checked

PRIVATE = (
    *(".env", ".env.*", "*.env", "lango.toml", "lango.db", "lango.db-*", ".git", ".hg", ".svn"),
    *("id_rsa*", "id_dsa*", "id_ecdsa*", "id_ed25519*", "*.pem", "*.key", "*.p12", "*.pfx", "*.keystore"),
    *(".ssh", ".gnupg", ".aws", ".azure", ".gcloud", ".kube", ".docker"),
    *(".netrc", ".pgpass", ".pypirc", ".npmrc", ".git-credentials", ".htpasswd"),
)
"""Names that no tool reads or writes, at any depth: keys, repositories, and Lango's own files."""
MAX_DEPTH = 40
MAX_HIDDEN_SEARCH = 500_000
"""Files that are visited to find those that a command must not see."""
_TEMPORARY_SUFFIXES = ("-wal", "-shm", "-journal")  # they are deleted, and their inode numbers reused
_KERNEL_FOLDERS = ("/proc", "/sys", "/dev")  # what they hold are not plain files


_FileId = tuple[int, int]
"""The device and inode number of a file."""


class WorkspaceEntry(Struct, frozen=True):
    """A file or folder, with its path relative to the workspace."""

    path: str
    kind: str
    size: int


class Workspace(Struct, frozen=True):
    """The folder of the file tools. Paths are relative to it, with `/`."""

    root: Path
    private: tuple[str, ...] = PRIVATE
    protected: tuple[Path, ...] = ()
    """Files and folders that no tool reads or writes, in any place and under any name."""
    _known: set[_FileId] = set()
    """The protected files and folders: they stay protected when they are moved."""
    _homes: set[tuple[_FileId, str]] = set()
    """Their parent folders, and their names there."""

    def __post_init__(self) -> None:
        """Raise `ConfigError` if the root is not a folder, or the platform cannot walk a path safely."""
        if os.open not in os.supports_dir_fd or not hasattr(os, "O_NOFOLLOW"):
            raise ConfigError("file tools need a system that opens files relative to a folder (Linux, macOS)")
        root = Path(self.root).expanduser().resolve()
        if not root.is_dir():
            raise ConfigError(f"the workspace {self.root} is not a folder: create it, or set tools.workspace")
        if root == Path(root.anchor):
            raise ConfigError("the workspace cannot be the root of the file system: set tools.workspace to a folder")
        force_setattr(self, "root", root)
        force_setattr(self, "protected", tuple(path.resolve() for path in self.protected))
        self._note_protected()

    @contextmanager
    def folder(self, path: str, *, create: bool = False) -> Generator[int]:
        """Open a folder of the workspace as a file descriptor."""
        with _os_errors_as_tool_errors(path):
            current = os.open(self.root, FOLDER)
            try:
                for part in self._parts(path):
                    if create:
                        with suppress(FileExistsError):
                            os.mkdir(part, dir_fd=current)
                    self._refuse_home(current, part, path)
                    following = os.open(part, FOLDER, dir_fd=current)
                    os.close(current)
                    current = following
                    self._refuse_alias(os.fstat(current), path)
                yield current
            finally:
                os.close(current)

    @contextmanager
    def open(self, path: str) -> Generator[BinaryIO]:
        """Open a plain file for reading."""
        folder, name = self._split(path)

        def check(status: os.stat_result) -> None:
            _check_plain(status, path)
            self._refuse_alias(status, path)

        with self.folder(folder) as within, _os_errors_as_tool_errors(path):
            self._refuse_home(within, name, path)
            with open_checked(name, within, check) as file:
                yield file

    def write(self, path: str, content: bytes) -> bool:
        """Write a file atomically; return whether it is new."""
        folder, name = self._split(path)
        with self.folder(folder, create=True) as within, _os_errors_as_tool_errors(path):
            self._refuse_home(within, name, path)
            mode = _mode_of(name, within, path)
            temporary = f".lango-{secrets.token_hex(8)}.tmp"
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | NO_LINKS
            try:
                with os.fdopen(os.open(temporary, flags, 0o666, dir_fd=within), "wb") as file:
                    if mode is not None:
                        os.fchmod(file.fileno(), mode)
                    file.write(content)
                    file.flush()
                    os.fsync(file.fileno())
                # a rename replaces a link of that name, never its target
                os.rename(temporary, name, src_dir_fd=within, dst_dir_fd=within)
            except BaseException:
                with suppress(OSError):
                    os.unlink(temporary, dir_fd=within)
                raise
            return mode is None

    def walk(self, path: str, *, recursive: bool, skip: frozenset[str] = frozenset()) -> Iterator[WorkspaceEntry]:
        """Yield the entries of a folder, and of those below it; links are included, never followed."""
        with self.folder(path) as within:
            start = "/".join(self._parts(path))
            for folder in folders_below(within, start, MAX_DEPTH if recursive else 0):
                for entry in folder.entries:
                    place = folder.path_of(entry)
                    if entry.name in skip or self.is_private(entry.name) or self.is_protected(place):
                        folder.skip.add(entry.name)
                        continue
                    with suppress(OSError):  # deleted in between
                        status = entry.stat(follow_symlinks=False)
                        yield WorkspaceEntry(place, _kind(status.st_mode), status.st_size)

    def is_private(self, name: str) -> bool:
        """Whether no tool may read or write files of this name."""
        return any(fnmatchcase(name.lower(), pattern) for pattern in self.private)

    def is_protected(self, path: str) -> bool:
        """Whether a relative path is protected, or inside a protected folder."""
        absolute = self.root / path
        return any(absolute.is_relative_to(protected) for protected in self.protected)

    def hidden(self) -> list[str]:
        """Return the paths that a command must not see: private names at any depth, and protected files."""
        self._note_protected()
        found: list[str] = []
        seen = 0
        for folder in folders(self.root):
            seen += len(folder.entries)
            if seen > MAX_HIDDEN_SEARCH:
                raise ToolError(f"the workspace has more than {MAX_HIDDEN_SEARCH} files: choose a smaller folder")
            if folder.too_deep:
                raise ToolError("the workspace has folders that are nested too deeply: remove them first")
            status = os.fstat(folder.descriptor)
            for entry in folder.entries:
                path = folder.path_of(entry)
                known = (status.st_dev, entry.inode()) in self._known or (_id_of(status), entry.name) in self._homes
                if known or self.is_private(entry.name) or self.is_protected(path):
                    found.append(path)
                    folder.skip.add(entry.name)
        return sorted({*found, *self._linked(found)})

    def _linked(self, paths: list[str]) -> list[str]:
        """Return the targets of those paths that are links within the workspace."""
        targets = [(self.root / path).resolve() for path in paths if (self.root / path).is_symlink()]
        inside = [target for target in targets if target.is_relative_to(self.root) and target.exists()]
        return [target.relative_to(self.root).as_posix() for target in inside if target != self.root]

    def _note_protected(self) -> set[_FileId]:
        """Record the ids of the protected files and folders, and return those that exist now."""
        now: set[_FileId] = set()
        for path in self.protected:
            with suppress(OSError):
                self._homes.add((_id_of(path.parent.stat()), path.name))
                now.add(_id_of(path.stat()))
                if not path.name.endswith(_TEMPORARY_SUFFIXES):
                    self._known.add(_id_of(path.stat()))
        return now

    def _refuse_home(self, within: int, name: str, path: str) -> None:
        """Raise for a protected name in its folder, even if the folder was moved."""
        if self._homes and (_id_of(os.fstat(within)), name) in self._homes:
            raise ToolError(f"access to {path} denied: it is private")

    def _refuse_alias(self, status: os.stat_result, path: str) -> None:
        """Raise for another name of a protected file: a hard link, a new name, or another case or Unicode form."""
        if _id_of(status) in self._note_protected() | self._known:
            raise ToolError(f"access to {path} denied: it is private")

    def _split(self, path: str) -> tuple[str, str]:
        parts = self._parts(path)
        if not parts:
            raise ToolError(f"{path!r} is a folder, not a file")
        return "/".join(parts[:-1]), parts[-1]

    def _parts(self, path: str) -> list[str]:
        if "\0" in path:
            raise ToolError("a path cannot contain NUL")
        pure = PurePosixPath(path)
        if pure.is_absolute() or path.startswith("~"):
            raise ToolError(f"{path} is not inside the workspace: give a path relative to it")
        if ".." in pure.parts:
            raise ToolError(f"access to {path} denied: a path cannot contain ..")
        if private := next((part for part in pure.parts if self.is_private(part)), ""):
            raise ToolError(f"access to {path} denied: {private} is private")
        if self.is_protected(str(pure)):
            raise ToolError(f"access to {path} denied: it is private")
        return list(pure.parts)


def _id_of(status: os.stat_result) -> _FileId:
    return status.st_dev, status.st_ino


def _check_plain(status: os.stat_result, path: str) -> None:
    if stat.S_ISDIR(status.st_mode):
        raise ToolError(f"{path} is a folder: list it with list_files")
    if not stat.S_ISREG(status.st_mode) or status.st_dev in _kernel_devices():
        raise ToolError(f"access to {path} denied: it is not a plain file")


def _kernel_devices() -> set[int]:
    found: set[int] = set()
    for folder in _KERNEL_FOLDERS:
        with suppress(OSError):
            found.add(os.stat(folder).st_dev)  # noqa: PTH116 - only the number
    return found


def _mode_of(name: str, within: int, path: str) -> int | None:
    """Return the mode of an existing file, or None."""
    try:
        status = os.stat(name, dir_fd=within, follow_symlinks=False)
    except FileNotFoundError:
        return None
    if not stat.S_ISREG(status.st_mode):
        raise ToolError(f"access to {path} denied: it is a {_kind(status.st_mode)}, not a plain file")
    return stat.S_IMODE(status.st_mode) & 0o777


def _kind(mode: int) -> str:
    if stat.S_ISREG(mode):
        return "file"
    if stat.S_ISDIR(mode):
        return "folder"
    return "link" if stat.S_ISLNK(mode) else "special file"


@contextmanager
def _os_errors_as_tool_errors(path: str) -> Generator[None]:
    """Raise an `OSError` as a `ToolError` without absolute paths."""
    try:
        yield
    except OSError as error:
        match error.errno:
            case errno.ELOOP | errno.EMLINK:
                message = f"access to {path} denied: it is a symbolic link, and links are not followed"
            case errno.ENOTDIR:
                message = f"access to {path} denied: a part of it is a file or a symbolic link, not a folder"
            case errno.ENOENT:
                message = f"{path} does not exist"
            case errno.EACCES | errno.EPERM:
                message = f"permission denied: {path}"
            case _:
                message = f"{path}: {error.strerror or 'it cannot be opened'}"
        raise ToolError(message) from error
