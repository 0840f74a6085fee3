"""Convert the result of an MCP tool to one that a model reads: text, structured content, and files.

Pictures, sounds and binary resources are taken out as files, wherever they are, so that no base64 is left in the text.
Links to resources and the text of resources become text.
"""

import base64
import binascii
from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Any, cast
from urllib.parse import unquote, urlsplit

from lango.json_values import as_object
from lango.messages import Attachment
from lango.tools.results import file_name

_UNREADABLE = "[{kind} of type {mime_type} omitted: its data is not base64]"
_SHORTEST_DATA = 64  # shorter texts are only replaced inside the blocks that say what they are


def read_mcp_result(tool: str, result: Mapping[str, Any]) -> dict[str, Any]:
    """Return a tool's result with readable blocks, and its files as `Attachment`s.

    Structured content stays. If it repeats the data of a file, the name of the file stands there instead.
    """
    reader = _Reader(tool)
    read = {**result, "content": [reader.block(block) for block in _objects(result.get("content"))]}
    if "structuredContent" in result:
        read["structuredContent"] = reader.without_data(result["structuredContent"])
    return read


class _Reader:
    """Reads the blocks of one result."""

    def __init__(self, tool: str) -> None:
        self._tool = tool
        self._names: dict[str, str] = {}
        """The names of the files by their base64."""

    def block(self, block: Mapping[str, Any]) -> Any:
        match block.get("type"):
            case "image" | "audio" as kind:
                return self._file(kind, block.get("data"), block.get("mimeType"), "")
            case "resource":
                return self._resource(as_object(block.get("resource")))
            case "resource_link":
                return _text(_link_text(block))
            case _:
                return dict(block)

    def _resource(self, resource: Mapping[str, Any]) -> Any:
        uri = str(resource.get("uri") or "")
        if (text := resource.get("text")) is not None:
            return _text(f"[{uri}]\n{text}")
        name = unquote(PurePosixPath(urlsplit(uri).path).name)
        return self._file("resource", resource.get("blob"), resource.get("mimeType"), name)

    def _file(self, kind: str, data: Any, mime_type: Any, name: str) -> Any:
        mime_type = str(mime_type or "application/octet-stream").partition(";")[0].strip()
        try:
            content = base64.b64decode(str(data or ""), validate=True)
        except (ValueError, binascii.Error):
            return _text(_UNREADABLE.format(kind=kind, mime_type=mime_type))
        name = file_name(f"{self._tool}-{name}" if name else self._tool, mime_type)
        self._names[str(data)] = name
        return Attachment(name, mime_type, content)

    def without_data(self, value: Any) -> Any:
        """Return structured content with names of files in place of their data."""
        match value:
            case dict():
                members = cast("dict[str, Any]", value)
                if members.get("type") in ("image", "audio") and isinstance(members.get("data"), str):
                    name = self._names.get(members["data"])
                    return self.block(members) if name is None else {"file": name}
                return {name: self.without_data(member) for name, member in members.items()}
            case list():
                return [self.without_data(item) for item in cast("list[Any]", value)]
            case str() if len(value) >= _SHORTEST_DATA and value in self._names:
                return f"[{self._names[value]}]"
            case _:
                return value


def _link_text(link: Mapping[str, Any]) -> str:
    about = [link.get("title") or link.get("name"), link.get("mimeType"), link.get("description")]
    return f"[link to a resource: {link.get('uri')}] " + ", ".join(str(item) for item in about if item)


def _text(text: str) -> dict[str, str]:
    return {"type": "text", "text": text}


def _objects(value: Any) -> list[Mapping[str, Any]]:
    items = cast("list[Any]", value) if isinstance(value, list) else []
    return [as_object(item) for item in items]
