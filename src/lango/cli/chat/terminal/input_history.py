"""Keep typed messages in a private file, without secrets."""

import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from platformdirs import user_state_path
from prompt_toolkit.history import History

_SECRET_VARIABLE_SUFFIXES = ("KEY", "TOKEN", "SECRET", "PASSWORD")
_SECRET_LENGTH = 8
_SECRET_PREFIXES = ("sk-", "AIza", "lango_", "ghp_", "github_pat_", "xoxb-", "AKIA", "Bearer ")
_MAX_BYTES = 1_000_000
_MAX_ENTRIES = 1_000


def history_file() -> Path:
    """Return the path of the history, in the user's state folder."""
    return user_state_path("lango") / "chat_history"


class InputHistory(History):
    """Messages in a file that only its user may read: one JSON text per line, the newest last.

    A message is not stored if it begins with a space, contains a secret of the environment or looks like a key. If the
    file cannot be used, the history lasts as long as the process.
    """

    def __init__(self, file: Path, environ: Mapping[str, str] | None = None) -> None:
        super().__init__()
        self._file = file
        self._environ = os.environ if environ is None else environ

    def load_history_strings(self) -> Iterable[str]:
        """Return the stored messages, the newest first."""
        try:
            if self._file.stat().st_size > _MAX_BYTES:
                self._shorten()
            lines = self._file.read_text("utf-8", "replace").splitlines()
        except OSError:
            return []
        return [text for line in reversed(lines) if (text := _parse_line(line)) is not None]

    def append_string(self, string: str) -> None:
        """Add a message, unless it is private or repeats the last one."""
        if self.get_strings()[-1:] != [string] and not self._is_private(string):
            super().append_string(string)

    def store_string(self, string: str) -> None:
        """Add a message to the file."""
        try:
            self._file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            with self._open(os.O_APPEND) as file:
                os.write(file.fileno(), (json.dumps(string) + "\n").encode())
        except OSError:
            return

    def _is_private(self, text: str) -> bool:
        if text.startswith(" ") or any(start in text for start in _SECRET_PREFIXES):
            return True
        named = (value for name, value in self._environ.items() if name.upper().endswith(_SECRET_VARIABLE_SUFFIXES))
        return any(len(value) >= _SECRET_LENGTH and value in text for value in named)

    def _shorten(self) -> None:
        lines = self._file.read_bytes().splitlines(keepends=True)[-_MAX_ENTRIES:]
        with self._open(os.O_TRUNC) as file:
            file.write(b"".join(lines))

    def _open(self, flags: int):  # noqa: ANN202 - the type of fdopen
        descriptor = os.open(self._file, os.O_WRONLY | os.O_CREAT | flags, 0o600)
        os.chmod(self._file, 0o600)  # noqa: PTH101 - an older program may have created it
        return os.fdopen(descriptor, "ab")


def _parse_line(line: str) -> str | None:
    try:
        text = json.loads(line)
    except ValueError:
        return None
    return text if isinstance(text, str) else None
