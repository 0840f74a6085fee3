"""Edit the message that a user types while an answer is shown, and decide what becomes of it."""

import codecs
import re
from collections.abc import Callable

from lango.sessions import WhenBusy

HINT = "Enter sends it into this answer; /next before it: after this answer; /instead: in place of it"

_COMMANDS: dict[str, WhenBusy] = {"/next": "wait", "/instead": "rollback"}
_PASTE_MARK = re.compile(r"\x1b\[20[01]~")
_KEY_SEQUENCE = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|\x1bO.|\x1b[^\n]")
_KEYS = re.compile(r"\x1b\n|[^\x00-\x1f\x7f]+|[\x00-\x1f\x7f]")
_NEWLINE, _ALT_ENTER, _DELETE_LINE, _DELETE_WORD, _BACKSPACES = "\n", "\x1b\n", "\x15", "\x17", ("\x7f", "\x08")


def is_command(text: str) -> bool:
    """Whether a message is a command, and not text that begins with a path."""
    first = text.split(maxsplit=1)[0]
    return text.startswith("/") and "/" not in first[1:] and "\n" not in text.strip()


def split_when_busy(text: str) -> tuple[WhenBusy | None, str]:
    """Return what becomes of a message that was typed during an answer, and its text; None for another command."""
    command, _, rest = text.strip().partition(" ")
    if command in _COMMANDS:
        return _COMMANDS[command], rest.strip()
    return (None if is_command(text) else "steer"), text


class TypedLine:
    """The message being typed, edited at its end."""

    def __init__(self, text: str, send: Callable[[str], None], show: Callable[[str], None]) -> None:
        """`send` gets each message that Enter ends; `show` gets the message so far after each key."""
        self.text = text
        self._send = send
        self._show = show
        self._decoder = codecs.getincrementaldecoder("utf-8")("ignore")

    def feed(self, data: bytes) -> None:
        """Take what the terminal sent: a key, or a pasted text, of which only an end with Enter is sent."""
        typed = _KEY_SEQUENCE.sub("", _PASTE_MARK.sub("", self._decoder.decode(data).replace("\r", "\n")))
        keys = _KEYS.findall(typed)
        for at, key in enumerate(keys):
            self._press(key, is_last=at == len(keys) - 1)
        self._show(self.text)

    def _press(self, key: str, *, is_last: bool) -> None:
        if key == _NEWLINE and self.text.endswith("\\"):
            self.text = self.text[:-1] + "\n"
        elif key == _ALT_ENTER or (key == _NEWLINE and not is_last):
            self.text += "\n"
        elif key == _NEWLINE:
            text, self.text = self.text, ""
            if text.strip():
                self._send(text)
        elif key in _BACKSPACES:
            self.text = self.text[:-1]
        elif key == _DELETE_LINE:
            self.text = ""
        elif key == _DELETE_WORD:
            self.text = re.sub(r"\S*\s*\Z", "", self.text)
        elif key == "\t" or key >= " ":  # what the terminal must not get is escaped when it is shown
            self.text += key
