"""Collect the files in a tool's result: the model gets each as a picture or a file, and the result names it.

A tool returns an `Attachment`, alone or anywhere in its result. A file that is too large, or one too many, is left out
with a note.
"""

import mimetypes
import re
from typing import Any

from msgspec import Struct

from lango.messages import FILE_NAME, MIME_TYPE, Attachment

_NOT_IN_A_NAME = re.compile(r"[/\\:\x00-\x1f\x7f]+")

_ENDINGS = {"image/jpeg": ".jpg", "image/webp": ".webp", "audio/wav": ".wav", "audio/mpeg": ".mp3", "audio/ogg": ".ogg"}
"""Those that Python does not know, or that depend on the machine."""


class FileLimits(Struct, frozen=True):
    """Limits of the files in one result; the defaults are those of the files in a message."""

    max_files: int = 10
    max_bytes: int = 10_000_000
    """Of all files together."""


class ResultFiles:
    """The files of one result, each with a name of its own."""

    def __init__(self, limits: FileLimits | None = None) -> None:
        self.files: list[Attachment] = []
        self._limits = limits or FileLimits()
        self._bytes = 0

    def add(self, file: Attachment) -> dict[str, Any]:
        """Add a file. Return what stands for it in the result: its name, type and size, or why it is left out."""
        name = self._free_name(file)
        if problem := self._problem(file):
            return {"left_out": f"{name}: {problem}"}
        self._bytes += len(file.data)
        self.files.append(Attachment(name, file.mime_type.lower(), file.data))
        return {"file": name, "mime_type": file.mime_type.lower(), "bytes": len(file.data)}

    def _problem(self, file: Attachment) -> str:
        if not (file.data and MIME_TYPE.fullmatch(file.mime_type)):
            return "the file is empty, or its type is not valid"
        if len(self.files) >= self._limits.max_files:
            return f"a result may have at most {self._limits.max_files} files (setting server.max_attachments)"
        if self._bytes + len(file.data) > self._limits.max_bytes:
            return (
                f"it has {len(file.data)} bytes, and the files of a result may have {self._limits.max_bytes} together "
                "(setting server.max_attachment_bytes)"
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
    return clean if "." in clean else clean + _ending(mime_type.lower())


def _ending(mime_type: str) -> str:
    return _ENDINGS.get(mime_type) or mimetypes.guess_extension(mime_type) or ""
