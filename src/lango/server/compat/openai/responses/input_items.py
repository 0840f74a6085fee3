"""Read the input items of a request as chat messages, and find what refers to stored items.

The agent's own tool calls and thoughts are in its session, so a client that resends them sends nothing new: they are
left out. System and developer messages become instructions of the turn.
"""

import base64
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Annotated, Any

from msgspec import Struct
from pydantic import BaseModel, ConfigDict, Field

from lango.server.compat.openai.chat_request import (
    ChatCall,
    ChatCallFunction,
    ChatMessage,
    ContentPart,
    FileData,
    ImageUrl,
)
from lango.server.compat.openai.responses.response_ids import read_approval_request_id, response_of_item
from lango.server.errors import ApiError, bad_request
from lango.threads import run_in_thread

MAX_ITEMS = 5_000
_COMPACTION = "lango1."
"""Starts the content of a compaction item of this server."""
_SUMMARY_HEAD = "[Our conversation so far was compacted. These are notes on it; my messages above are part of it.]"
_AGENTS_OWN = ("reasoning", "mcp_call", "mcp_list_tools", "mcp_approval_request")
_ROLES = ("user", "assistant", "system", "developer")

LoadItem = Callable[[str], Awaitable[dict[str, Any]]]
"""Loads an output item of a stored response by its id."""


class InputPart(BaseModel):
    """A part of a message or of a function's output."""

    type: str
    text: str = ""
    refusal: str = ""
    image_url: str | None = None
    filename: str | None = None
    file_data: str | None = None
    file_url: str | None = None
    file_id: str | None = None

    def shown(self) -> dict[str, Any]:
        """Return the part as the client sent it."""
        return self.model_dump(exclude_unset=True) | ({"detail": "auto"} if self.type == "input_image" else {})

    def to_chat_part(self) -> ContentPart:
        """Return the part as chat completions have it; raise `ApiError` for what has no place there."""
        match self.type:
            case "input_text" | "output_text" | "text":
                return ContentPart(type="text", text=self.text)
            case "refusal":
                return ContentPart(type="text", text=self.refusal)
            case "input_image" if self.image_url:
                return ContentPart(type="image_url", image_url=ImageUrl(url=self.image_url))
            case "input_file" if self.file_data or self.file_url:
                data = self.file_data or self.file_url
                return ContentPart(type="file", file=FileData(filename=self.filename, file_data=data))
            case "input_image" | "input_file":
                raise _bad_request("file_id is not supported; send the file itself as a data: URL")
            case _:
                raise _bad_request(f"parts of type {self.type!r} are not supported; send text, images and files")


class InputItem(BaseModel):
    """An item of the input: a message, a function call, its output, or an answer to an approval request."""

    model_config = ConfigDict(extra="ignore")

    type: str = "message"
    id: str | None = None
    role: str | None = None
    content: str | list[InputPart] | None = None
    call_id: str | None = None
    name: str | None = None
    arguments: str | None = None
    output: str | list[InputPart] | None = None
    approval_request_id: str | None = None
    approve: bool | None = None
    reason: str | None = None
    encrypted_content: Annotated[str, Field(max_length=10_485_760)] | None = None


class Approval(Struct, frozen=True):
    """An answer to an approval request."""

    response_id: str
    call_id: str
    approved: bool
    reason: str = ""


class ReadInput(Struct, frozen=True):
    """The input of a request."""

    messages: list[ChatMessage]
    """Without system and developer messages."""
    instructions: list[str]
    """The texts of system and developer messages."""
    approvals: list[Approval]
    """Those at the end; a resent history may hold others."""
    earlier_approvals: list[Approval]
    response_ids: list[str]
    """The responses whose items are resent, in order."""

    @property
    def ends_with_results(self) -> bool:
        """Whether the last message is the output of a client's function."""
        return bool(self.messages) and self.messages[-1].role == "tool"


async def read_input(given: Sequence[InputItem], load_item: LoadItem) -> ReadInput:
    """Read the input of a request. Raise `ApiError` for items that are not supported."""
    items = [
        InputItem.model_validate(await load_item(item.id or "")) if _is_reference(item) else item for item in given
    ]
    return await run_in_thread(_read_items, items)  # there may be thousands


def _is_reference(item: InputItem) -> bool:
    return item.type == "item_reference" or item.model_fields_set == {"id"}


def _read_items(items: Sequence[InputItem]) -> ReadInput:
    read = ReadInput([], [], [], [], [])
    for item in items:
        if item.id and (response_id := response_of_item(item.id)):
            read.response_ids.append(response_id)
        count = len(read.messages)
        _add_item(read, item)
        if len(read.messages) > count:
            read.earlier_approvals.extend(read.approvals)
            read.approvals.clear()
    return read


def _add_item(read: ReadInput, item: InputItem) -> None:
    match item.type:
        case "message":
            _add_message(read, item)
        case "function_call":
            _add_call(read, item)
        case "function_call_output":
            if not item.call_id:
                raise _bad_request("a function_call_output needs the call_id of the call that it answers")
            read.messages.append(ChatMessage(role="tool", tool_call_id=item.call_id, content=_content(item.output)))
        case "mcp_approval_response":
            about = read_approval_request_id(item.approval_request_id or "")
            if about is None or item.approve is None:
                raise _bad_request(
                    "an mcp_approval_response needs approve, and the approval_request_id of a request of this server"
                )
            read.approvals.append(Approval(*about, item.approve, "" if item.approve else item.reason or ""))
        case "compaction":
            read.messages.append(ChatMessage(role="user", content=read_compaction(item.encrypted_content or "")))
        case kind if kind in _AGENTS_OWN:
            pass
        case kind:
            raise _bad_request(
                f"items of type {kind!r} are not supported; send messages, function calls and their outputs"
            )


def _add_message(read: ReadInput, item: InputItem) -> None:
    content = _content(item.content)
    match item.role:
        case "user" | "assistant":
            read.messages.append(ChatMessage(role=item.role, content=content))
        case "system" | "developer":
            read.instructions.append(ChatMessage(role="system", content=content).to_instruction())
        case _:
            raise _bad_request(f"the role of a message must be one of {', '.join(_ROLES)}")


def _add_call(read: ReadInput, item: InputItem) -> None:
    """Add a call to the assistant's message before it: parallel calls are one message."""
    if not (item.call_id and item.name):
        raise _bad_request("a function_call needs a call_id and a name")
    call = ChatCall(id=item.call_id, function=ChatCallFunction(name=item.name, arguments=item.arguments))
    last = read.messages[-1] if read.messages else None
    if last is None or last.role != "assistant":
        last = ChatMessage(role="assistant")
        read.messages.append(last)
    last.tool_calls = [*(last.tool_calls or ()), call]


def _content(given: str | list[InputPart] | None) -> str | list[ContentPart]:
    if given is None:
        raise _bad_request("a message needs content, and a function_call_output needs output")
    return given if isinstance(given, str) else [part.to_chat_part() for part in given]


def compaction_content(summary: str) -> str:
    """Return what a compaction item carries: the summary, which is encoded and not secret."""
    return _COMPACTION + base64.urlsafe_b64encode(summary.encode("utf-8", "surrogatepass")).decode()


def read_compaction(content: str) -> str:
    """Return the message that stands for a compaction item. Raise `ApiError` if it was not made here."""
    if content.startswith(_COMPACTION):
        with suppress(ValueError):
            summary = base64.urlsafe_b64decode(content.removeprefix(_COMPACTION)).decode("utf-8", "replace")
            return f"{_SUMMARY_HEAD}\n{summary}"
    raise _bad_request("the compaction item was not made by this server; send the history instead")


def _bad_request(message: str) -> ApiError:
    return bad_request(f"input: {message}")
