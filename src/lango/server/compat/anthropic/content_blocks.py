"""Read the messages of Anthropic's API: texts, pictures, documents, calls of the client's tools and their results."""

from functools import partial
from typing import Any, Literal

from pydantic import BaseModel

from lango.config import ServerLimits
from lango.history.pairing import parse_result_text
from lango.messages import Attachment, Message, ToolCall, make_attachment
from lango.server.compat.inline_files import read_base64_file, read_user_message
from lango.server.compat.linked_files import FileLink, LinkedFiles
from lango.server.compat.resent_history import FILE_LEFT_OUT, result_message
from lango.server.errors import bad_request

_FILE_TYPES = frozenset({"image", "document"})


class TextBlock(BaseModel):
    """A part of a message of which only the text is used."""

    type: str
    text: str = ""


Content = str | list[TextBlock] | dict[str, Any] | None
"""What a part holds; other parts than results of the client's tools may have other objects."""


def texts_of(content: Content) -> list[str]:
    """Return the texts of a content."""
    if isinstance(content, list):
        return [block.text for block in content if block.type == "text"]
    return [content] if isinstance(content, str) else []


class FileSource(BaseModel):
    """What a picture or document holds: `base64` or `text` with its data, `content` with texts, or `url`."""

    type: str
    media_type: str | None = None
    data: str = ""
    content: Content = None
    url: str = ""
    file_id: str = ""


class Citations(BaseModel):
    """Whether the answer should cite a document."""

    enabled: bool | None = None


class ContentBlock(BaseModel):
    """A part of a message: `text`, `image`, `document`, `tool_use` or `tool_result`. Of others, the type is read."""

    type: str
    text: str = ""
    source: FileSource | str | None = None
    title: str | None = None
    citations: Citations | None = None
    id: str = ""
    name: str = ""
    input: dict[str, Any] | None = None
    tool_use_id: str = ""
    content: Content = None
    is_error: bool | None = None

    @property
    def link(self) -> FileLink | None:
        """Where its picture or document is, or None if it is in the request."""
        match self.source:
            case FileSource(type="url", url=url):
                return FileLink(url, is_image=self.type == "image")
            case FileSource(type="file", file_id=file_id):
                return FileLink(file_id, is_upload=True)
            case _:
                return None

    def read_file(self, linked: LinkedFiles, number: int) -> Attachment:
        """Return the picture or document of this part; raise `ApiError` for parts that are not supported."""
        if self.type not in _FILE_TYPES:
            raise bad_request(f"messages: content of the type {self.type!r} is not supported in messages of the user")
        if self.citations and self.citations.enabled:
            raise bad_request("messages: citations are not supported; leave them out")
        if (link := self.link) is not None:
            return linked.read(number, self.title, link)
        source = self.source if isinstance(self.source, FileSource) else FileSource(type="")
        match self.type, source.type:
            case _, "base64":
                return read_base64_file(number, self.title, source.media_type, source.data)
            case "document", "text":
                return self._text_file(number, source.data)
            case "document", "content":
                return self._text_file(number, "\n".join(texts_of(source.content)))
            case _:
                raise bad_request(f"messages: file {number} cannot be read: send it as base64, or its https address")

    def _text_file(self, number: int, text: str) -> Attachment:
        return make_attachment(number, self.title, "text/plain", text.encode(errors="replace"))

    def to_result(self) -> Message:
        """Return the result of a client's tool. Raise `ApiError` if it does not name its call."""
        if not self.tool_use_id:
            raise bad_request("messages: a tool_result needs the tool_use_id of the call that it answers")
        texts = texts_of(self.content)
        others = len(self.content) - len(texts) if isinstance(self.content, list) else 0
        text = "".join(texts) + FILE_LEFT_OUT * others
        return result_message(self.tool_use_id, {"error": text} if self.is_error else parse_result_text(text))


class InputMessage(BaseModel):
    """A message of the conversation, or an instruction of the client in it."""

    role: Literal["user", "assistant", "system"]
    content: str | list[ContentBlock]

    @property
    def file_links(self) -> list[FileLink]:
        """Where the files of a message of the user are."""
        links = [block.link for block in self._blocks if block.type in _FILE_TYPES] if self.role == "user" else []
        return [link for link in links if link is not None]

    @property
    def _blocks(self) -> list[ContentBlock]:
        return self.content if isinstance(self.content, list) else [ContentBlock(type="text", text=self.content)]

    @property
    def _texts(self) -> list[str]:
        return [block.text for block in self._blocks if block.type == "text"]

    def to_instruction(self) -> str:
        """Return the text of a system message. Raise `ApiError` if it has files."""
        if len(self._texts) < len(self._blocks):
            raise bad_request("messages: system messages are text only; send files in messages of the user")
        return "\n\n".join(self._texts)

    def to_messages(self, limits: ServerLimits, linked: LinkedFiles, *, last: bool) -> list[Message]:
        """Return the results of the client's tools in this message, and the message itself if it has anything else.

        Raise `ApiError` for an unreadable file in the last message.
        """
        if self.role == "assistant":  # its thoughts are read from the session
            used = [block for block in self._blocks if block.type == "tool_use"]
            calls = [ToolCall(block.id, block.name, block.input or {}) for block in used]
            return [Message("assistant", "".join(self._texts), tuple(calls))]
        results = [block.to_result() for block in self._blocks if block.type == "tool_result"]
        others = [block for block in self._blocks if block.type not in ("text", "tool_result")]
        readers = [partial(block.read_file, linked) for block in others]
        text = "\n".join(self._texts)
        if results and not (text or readers):
            return results
        return [*results, read_user_message(text, readers, last=last, limits=limits)]
