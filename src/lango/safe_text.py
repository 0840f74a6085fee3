"""Make texts safe to show, log and store: without control characters, and without secrets.

A control character in the text of a model, a tool or a file could move the cursor, rewrite the screen, set the
clipboard, type input or forge lines of a log. Each becomes a visible sign of the same width.
"""

import os
import re
from collections.abc import Mapping, Sequence
from typing import Any, cast

_KEPT_CHARACTERS = "\n\t"
_REPLACEMENTS = {
    # ␛ for escape, ␇ for the bell
    **{code: 0x2400 + code for code in range(0x20) if chr(code) not in _KEPT_CHARACTERS},
    0x7F: 0x2421,
    **dict.fromkeys(range(0x80, 0xA0), 0xFFFD),  # C1: an escape sequence in one character
    # change the direction of text
    **dict.fromkeys([0x200E, 0x200F, 0x061C, *range(0x202A, 0x202F), *range(0x2066, 0x206A)], 0xFFFD),
    **dict.fromkeys([0x2028, 0x2029], 0x20),
    **dict.fromkeys(range(0xD800, 0xE000), 0xFFFD),  # lone surrogates
}
_LINE_END = "\N{SYMBOL FOR LINE FEED}"


def printable(text: str) -> str:
    """Return text without control characters, except line ends and tabs."""
    return text.replace("\r\n", "\n").translate(_REPLACEMENTS)


def printable_line(text: str) -> str:
    """Return text without control characters as one line, with a sign for each line end."""
    return printable(text).replace("\n", _LINE_END)


REDACTED = "[secret]"
_SECRET_VARIABLE = re.compile(r"KEY|TOKEN|SECRET|PASSW|CREDENTIAL|DATABASE_URL|STORE__URL", re.IGNORECASE)
_SECRET_SHAPES = re.compile(
    r"\b(sk-[\w-]{16,}|AIza[\w-]{20,}|gh[pousr]_\w{20,}|xox[abpr]-[\w-]{10,}|AKIA[A-Z0-9]{16})"
    r"|(?<=://)[^/\s:@]+:[^/\s@]+(?=@)"
    r"|(?<=[Bb]earer )[\w.~+/=-]{12,}"
)
_SECRET_MEMBER = re.compile(
    r"^(x[-_]?)?(goog[-_]?)?api[-_]?key$|^(proxy[-_]?)?authorization$|^(set[-_]?)?cookie$|^passw(or)?d$"
    r"|^(client|app)?[-_]?secret$|^(access|refresh|id|auth|bearer|session)[-_]?token$|^private[-_]?key$|^credentials?$",
    re.IGNORECASE,
)
_MIN_SECRET_CHARACTERS = 8


def redact_secrets(text: str) -> str:
    """Redact the secrets of the environment, and texts that look like keys."""
    for name, value in os.environ.items():
        if len(value) >= _MIN_SECRET_CHARACTERS and value in text and _SECRET_VARIABLE.search(name):
            text = text.replace(value, REDACTED)
    return _SECRET_SHAPES.sub(REDACTED, text)


def redact_json(value: Any) -> Any:
    """Redact the secrets in all texts of a JSON value, and the texts of members that are named like secrets."""
    secrets = [
        re.escape(secret)
        for name, secret in os.environ.items()
        if len(secret) >= _MIN_SECRET_CHARACTERS and _SECRET_VARIABLE.search(name)
    ]
    pattern = re.compile("|".join([*secrets, f"(?:{_SECRET_SHAPES.pattern})"]))
    return _redact(value, pattern)


def _redact(value: Any, pattern: re.Pattern[str]) -> Any:
    if isinstance(value, str):
        return pattern.sub(REDACTED, value) if len(value) >= _MIN_SECRET_CHARACTERS else value
    if isinstance(value, Mapping):
        members = cast("Mapping[str, Any]", value)
        return {name: _redact_member(name, member, pattern) for name, member in members.items()}
    if isinstance(value, list | tuple):
        return [_redact(item, pattern) for item in cast("Sequence[Any]", value)]
    return value


def _redact_member(name: str, member: Any, pattern: re.Pattern[str]) -> Any:
    if isinstance(member, str) and member and _SECRET_MEMBER.search(name):
        return REDACTED
    return _redact(member, pattern)
