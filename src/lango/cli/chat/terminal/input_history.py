"""Keep typed messages in a private file, without secrets."""

import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path

from platformdirs import user_state_path
from prompt_toolkit.history import FileHistory

_SECRET_VARIABLE_SUFFIXES = ("KEY", "TOKEN", "SECRET", "PASSWORD")
_SECRET_LENGTH = 8
_SECRET_PREFIXES = ("sk-", "AIza", "lango_", "ghp_", "github_pat_", "xoxb-", "AKIA", "Bearer ")
_MAX_BYTES = 1_000_000


def history_file() -> Path:
    """Return the path of the history, in the user's state folder."""
    return user_state_path("lango") / "chat_history"


class InputHistory(FileHistory):
    """Messages in a file that only its user may read; of a large file, the older half is dropped.

    A message is not stored if it begins with a space, contains a secret of the environment or looks like a key. If the
    file cannot be used, the history lasts as long as the process.
    """

    def __init__(self, file: Path, environ: Mapping[str, str] | None = None) -> None:
        super().__init__(file)
        self._file = file
        self._environ = os.environ if environ is None else environ

    def load_history_strings(self) -> Iterable[str]:
        """Return the stored messages, the newest first."""
        try:
            if self._file.stat().st_size > _MAX_BYTES:
                self._file.write_bytes(self._file.read_bytes()[-_MAX_BYTES // 2 :])
            return super().load_history_strings()
        except OSError:
            return []

    def append_string(self, string: str) -> None:
        """Add a message, unless it is private or repeats the last one."""
        if self.get_strings()[-1:] != [string] and not self._is_private(string):
            super().append_string(string)

    def store_string(self, string: str) -> None:
        """Add a message to the file."""
        with suppress(OSError):
            self._file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._file.touch(0o600)
            self._file.chmod(0o600)  # an older program may have created it
            super().store_string(string)

    def _is_private(self, text: str) -> bool:
        if text.startswith(" ") or any(start in text for start in _SECRET_PREFIXES):
            return True
        named = (value for name, value in self._environ.items() if name.upper().endswith(_SECRET_VARIABLE_SUFFIXES))
        return any(len(value) >= _SECRET_LENGTH and value in text for value in named)
