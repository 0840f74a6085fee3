"""Take the conversation of an export, and leave the claims that only this store may make.

An approval in the tool journal would let a call run that no person approved here, and the address of a file would make
the model's server fetch it.
"""

from typing import Any, cast

from lango.json_values import as_object
from lango.store.artifacts.artifacts import SCHEME
from lango.store.codec.json_text import loads_untagged
from lango.store.transfer.export_format import ArtifactLine, Line, MessageLine, ToolJournalLine

_NO_APPROVAL: dict[str, Any] = {"approved": None, "approved_by": None, "approved_at": None}


def without_claims(line: Line) -> Line:
    """Return a line without approvals, and with a text in the place of each file that only has an address."""
    match line:
        case ToolJournalLine():
            return line.model_copy(update=_NO_APPROVAL)
        case MessageLine() if "file_data" in (line.column("extra") or ""):
            return _without_addresses(line)
        case _:
            return line


def address_as_text(file: Any) -> str | None:
    """Return what a model reads in place of a file's address, or None for that of an artifact, or no address."""
    address = as_object(file).get("file_uri")
    if not isinstance(address, str) or address.startswith(SCHEME):
        return None
    return f"[file omitted: files that are only a URL cannot be imported, {address}]"


def imported_artifact(line: ArtifactLine) -> tuple[ArtifactLine, bytes | None]:
    """Return the artifact to store, and its new content if it was an address: then it is a text that names it."""
    text = address_as_text((line.part or {}).get("file_data"))
    if line.content != "uri" or text is None:
        return line, None
    data = text.encode("utf-8", "surrogatepass")
    return line.model_copy(update={"content": "text", "mime_type": "text/plain", "part": None}), data


def _without_addresses(line: MessageLine) -> MessageLine:
    """Replace the parts that are addresses by texts, at their place in the content of the message."""
    extra: dict[str, Any] = loads_untagged(line.column("extra") or "{}")
    layout: Any = extra.get("parts")
    if not isinstance(layout, list):
        return line
    texts: list[str] = []
    parts: list[Any] = []
    position = 0
    for part in cast("list[Any]", layout):
        fields = as_object(part)
        length: Any = part if isinstance(part, int) else fields.get("text")
        if isinstance(length, str):
            length = 0 if fields.get("thought") is True else len(length)
        if isinstance(length, int):
            texts.append(line.content[position : position + length])
            position += length
        _drop_addresses_of_result(fields.get("result"))
        if (text := address_as_text(fields.get("file_data"))) is None:
            parts.append(part)
            continue
        texts.append(text)
        parts.append(len(text))
    changes = {
        "content": "".join([*texts, line.content[position:]]),
        "extra": {**extra, "parts": parts},
    }
    return line.model_copy(update=changes)


def _drop_addresses_of_result(result: Any) -> None:
    """Leave the files of a tool's result out that are addresses: the result itself says what the tool returned."""
    members = as_object(result)
    files = members.get("parts")
    if isinstance(files, list):
        kept = [file for file in cast("list[Any]", files) if address_as_text(as_object(file).get("file_data")) is None]
        members["parts"] = kept
