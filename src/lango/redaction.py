"""Redact secrets in texts and JSON before they are shown or stored."""

import os
import re
from collections.abc import Mapping, Sequence
from typing import Any, cast

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
