"""Convert a handler's return value to JSON, clip it and redact secrets.

- A dict stays as it is; any other JSON value becomes `{"result": value}`. Models, dataclasses, dates, enums, paths and
  sets become JSON as pydantic writes them.
- An `Attachment`, alone or anywhere in a result, is taken out as a file, and replaced by its name: the model
  gets it as a picture or a file. One that is too large, or one too many, is left out with a note.
- Values without a JSON form (bytes, NaN, an open file, a structure that contains itself) raise `NotJson`.
- NUL and lone surrogates, which some databases and all requests reject, become U+FFFD.
- A result that is too long keeps its head and its tail, with a note about the gap.
"""

import dataclasses
import itertools
import json
import math
import mimetypes
import os
import re
from collections.abc import Iterable, Mapping
from enum import Enum
from typing import Any, cast

from msgspec import Struct
from msgspec.structs import asdict
from pydantic import BaseModel
from pydantic_core import PydanticSerializationError, to_jsonable_python

from lango.errors import NotJson, ToolError
from lango.json_values import storable_text
from lango.messages import FILE_NAME, MIME_TYPE, Attachment
from lango.safe_text import redact_secrets

MAX_RESULT_CHARACTERS = 40_000
"""Limit of a result for the model: some 10,000 tokens."""
MAX_KEPT_CHARACTERS = 2_000_000
"""Limit of a stored result, which can be read in pieces."""
MAX_RESULT_VALUES = 100_000
MAX_ERROR_CHARACTERS = 2_000
_MAX_DEPTH = 100
_MAX_INT_BITS = 4096  # Python refuses to print much longer ones


_NOT_IN_A_NAME = re.compile(r"[/\\:\x00-\x1f\x7f]+")

_ENDINGS = {"image/jpeg": ".jpg", "image/webp": ".webp", "audio/wav": ".wav", "audio/mpeg": ".mp3", "audio/ogg": ".ogg"}
"""Those that Python does not know, or that depend on the machine."""


class Clipped(Struct, frozen=True):
    """A result for the model, and the full text if it was clipped."""

    result: dict[str, Any]
    whole: str | None = None


class FileLimits(Struct, frozen=True):
    """Limits of the files in one result; the defaults are those of the files in a message."""

    max_files: int = 10
    max_bytes: int = 10_000_000
    """Of all files together."""


class ResultFiles:
    """The files of one result, each with a different name."""

    def __init__(self, limits: FileLimits | None = None) -> None:
        self.files: list[Attachment] = []
        self._limits = limits or FileLimits()
        self._bytes = 0

    def add(self, file: Attachment) -> dict[str, Any]:
        """Add a file. Return what replaces it in the result: its name, type and size, or why it is left out."""
        name = self._free_name(file)
        if problem := self._problem(file):
            return {"left_out": f"{name}: {problem}"}
        self._bytes += len(file.data)
        self.files.append(Attachment(name, file.mime_type.lower(), file.data))
        return {"file": name, "mime_type": file.mime_type.lower(), "bytes": len(file.data)}

    def _problem(self, file: Attachment) -> str:
        if not (file.data and MIME_TYPE.fullmatch(file.mime_type)):
            return "the file is empty, or its type is invalid"
        if len(self.files) >= self._limits.max_files:
            return f"a result may have at most {self._limits.max_files} files (setting server.limits.max_attachments)"
        if self._bytes + len(file.data) > self._limits.max_bytes:
            return (
                f"it has {len(file.data)} bytes; all files of a result may have {self._limits.max_bytes} "
                "(setting server.limits.max_attachment_bytes)"
            )
        return ""

    def _free_name(self, file: Attachment) -> str:
        """Return a name that an artifact can have, and no other file of the result has."""
        name = file_name(file.name, file.mime_type)
        taken = {other.name for other in self.files}
        stem, dot, ending = name.rpartition(".") if "." in name[1:] else (name, "", "")
        number = 1
        while name in taken:
            number += 1
            name = f"{stem}-{number}{dot}{ending}"
        return name


def file_name(name: str, mime_type: str) -> str:
    """Return a name without path and control characters, and with the ending of its type if it has none."""
    encodable = name.encode(errors="replace").decode()
    clean = _NOT_IN_A_NAME.sub("_", encodable).strip("._ ")[:150]
    if not FILE_NAME.fullmatch(clean):
        clean = "file"
    if "." in clean:
        return clean
    kind = mime_type.lower()
    return clean + (_ENDINGS.get(kind) or mimetypes.guess_extension(kind) or "")


def to_result(value: Any, files: ResultFiles | None = None) -> dict[str, Any]:
    """Convert a handler's return value to a JSON object. Raises `NotJson` if that is impossible or too large.

    `files` collects the files in it; with None, a file is not JSON.
    """
    plain = _to_json_value(value, "result", 0, _Conversion(files))
    return cast("dict[str, Any]", plain) if isinstance(plain, dict) else {"result": plain}


class _Conversion:
    """One conversion of a result: how many values it has so far, and where its files go."""

    def __init__(self, files: ResultFiles | None) -> None:
        self.files = files
        self.values = itertools.count()


def _to_json_value(value: Any, path: str, depth: int, run: _Conversion) -> Any:
    if depth > _MAX_DEPTH:
        raise NotJson(f"{path[:80]} is nested too deeply, or contains itself")
    if next(run.values) > MAX_RESULT_VALUES:
        raise NotJson(f"it has more than {MAX_RESULT_VALUES} values")
    match value:
        case Enum():  # before the scalars: an enum may also be a str or an int
            return _to_json_value(value.value, path, depth + 1, run)
        case str() if depth > 1:  # nested texts are not clipped in place, but all values as one JSON text
            return storable_text(_limit_kept_text(value))
        case None | bool() | int() | float() | str():
            return _scalar(value, path)
        case Mapping():
            members = cast("Mapping[Any, Any]", value)
            return {
                _key(key, path): _to_json_value(item, f"{path}.{key}", depth + 1, run) for key, item in members.items()
            }
        case list() | tuple() | set() | frozenset():
            items = cast("Iterable[Any]", value)
            return [_to_json_value(item, f"{path}[{at}]", depth + 1, run) for at, item in enumerate(items)]
        case Attachment() if run.files is not None:
            return run.files.add(value)
        case BaseModel():
            return _to_json_value(value.model_dump(by_alias=True), path, depth + 1, run)
        case _:
            return _to_json_value(_convert_other(value, path), path, depth + 1, run)


def _scalar(value: float | str | None, place: str) -> float | str | None:
    match value:
        case str():
            return storable_text(value)
        case float() if not math.isfinite(value):
            raise NotJson(f"{place} is {value}")
        case int() if value.bit_length() > _MAX_INT_BITS:
            raise NotJson(f"{place} is a number that is too long")
        case _:
            return value


def _convert_other(value: Any, place: str) -> Any:
    if isinstance(value, bytes | bytearray | memoryview):
        raise NotJson(f"{place} is bytes; return text, or a file as lango.Attachment")
    if isinstance(value, os.PathLike):
        return os.fspath(cast("os.PathLike[str]", value))
    if isinstance(value, Struct):
        return asdict(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    if not hasattr(value, "__next__"):  # a generator would be consumed, and may never end
        try:
            return to_jsonable_python(value)
        except (PydanticSerializationError, ValueError, RecursionError):
            pass
    raise NotJson(f"{place} is of type {type(value).__name__}, which is not JSON")


def _key(key: Any, place: str) -> str:
    match key:
        case Enum():
            return _key(key.value, place)
        case str():
            return storable_text(key)
        case None | bool() | int() | float():
            return json.dumps(key)
        case _:
            raise NotJson(f"{place} has a key of type {type(key).__name__}")


def clip_to_characters(
    result: Mapping[str, Any],
    max_characters: int = MAX_RESULT_CHARACTERS,
    *,
    how_to_read: str = "",
) -> Clipped:
    """Return the result within `max_characters`: its longest text clipped, or else all of it as clipped JSON text.

    `how_to_read` is added to the note about the gap, whose offsets refer to `whole`.
    """
    texts = {key: text for key, text in result.items() if isinstance(text, str)}
    longest = max(texts, key=lambda key: len(texts[key]), default="")
    if len(texts.get(longest, "")) <= max_characters and len(_compact(result)) <= max_characters:
        return Clipped(dict(result))
    if longest:
        beside = len(_compact({**result, longest: ""}))
        if beside <= max_characters // 2:
            return Clipped(
                {**result, longest: _clip_text(texts[longest], max_characters - beside, how_to_read)},
                _limit_kept_text(texts[longest]),
            )
    room = max_characters - len(_compact({"clipped": ""}))
    whole = _compact({key: _limit_kept_text(text) if isinstance(text, str) else text for key, text in result.items()})
    return Clipped({"clipped": _clip_text(whole, room, how_to_read)}, _limit_kept_text(whole))


def _clip_text(text: str, max_characters: int, how_to_read: str) -> str:
    more = f"; {how_to_read}" if how_to_read else ""
    room = max_characters
    while True:
        head, tail = room * 2 // 3, room // 3
        left_out = f"characters {head} to {len(text) - tail} of {len(text)} were left out{more}"
        clipped = f"{text[:head]}\n[... {left_out} ...]\n{text[len(text) - tail :]}"
        cost = len(_compact(clipped))  # JSON escapes make a text longer
        if cost <= max_characters or room <= 0:
            return clipped
        room = min(room * max_characters // cost, room - 1)


def _limit_kept_text(text: str) -> str:
    if len(text) <= MAX_KEPT_CHARACTERS:
        return text
    head, tail = MAX_KEPT_CHARACTERS * 3 // 4, MAX_KEPT_CHARACTERS // 4
    return f"{text[:head]}\n[... {len(text) - head - tail} characters omitted ...]\n{text[-tail:]}"


def _compact(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def error_text(error: BaseException) -> str:
    """Return name and message of an exception for a model, shortened and without secrets."""
    try:
        message = str(error).strip()
    except Exception:  # noqa: BLE001 - a __str__ of the tool's author
        message = ""
    if not isinstance(error, ToolError):
        name = type(error).__name__
        message = f"{name}: {message}" if message else name
    message = storable_text(redact_secrets(message[: MAX_ERROR_CHARACTERS * 4]))
    return message if len(message) <= MAX_ERROR_CHARACTERS else message[:MAX_ERROR_CHARACTERS] + " [...]"
