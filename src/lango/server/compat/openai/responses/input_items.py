"""Read the input items of a request as chat messages, and find what refers to stored items.

The agent's own tool calls and thoughts are in its session, so a client that resends them sends nothing new: they are
left out. System and developer messages become instructions of the turn.
"""

import base64
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Annotated, Any

from msgspec import Struct
from msgspec.structs import replace
from pydantic import BaseModel, ConfigDict, Field

from lango.config import ServerLimits
from lango.history.pairing import parse_result_text
from lango.messages import Attachment, Message, ToolCall
from lango.server.compat.carried_history import parse_arguments
from lango.server.compat.inline_files import read_user_message
from lango.server.compat.linked_files import FileLink, LinkedFiles, load_links
from lango.server.compat.openai.files.uploaded_files import UploadedFiles
from lango.server.compat.openai.responses.response_ids import read_approval_request_id, response_of_item
from lango.server.compat.resent_history import FILE_LEFT_OUT, result_message
from lango.server.context import AgentUser
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

    @property
    def link(self) -> FileLink | None:
        """Where its image or file is, or None if it names none."""
        is_image = self.type == "input_image"
        address = self.image_url if is_image else self.file_data or self.file_url
        if address:
            return FileLink(address, is_image=is_image)
        return FileLink(self.file_id, is_upload=True) if self.file_id else None

    def read_file(self, linked: LinkedFiles, number: int) -> Attachment:
        """Return the image or file of this part."""
        name = self.filename if self.type == "input_file" else None
        return linked.read(number, name, self.link or FileLink(""))


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


class Instruction(Struct, frozen=True):
    """A system or developer message."""

    role: str
    text: str
    messages_before: int
    """How many messages of the conversation come before it."""


class ReadInput(Struct, frozen=True):
    """The input of a request."""

    messages: list[Message]
    """Without system and developer messages."""
    instructions: list[Instruction]
    approvals: list[Approval]
    """Those at the end; a resent history may hold others."""
    earlier_approvals: list[Approval]
    response_ids: list[str]
    """The responses whose items are resent, in order."""

    @property
    def instruction_texts(self) -> list[str]:
        """The texts of the instructions."""
        return [one.text for one in self.instructions]


async def read_input(user: AgentUser, given: Sequence[InputItem], load_item: LoadItem) -> ReadInput:
    """Read the input of a request. Raise `ApiError` for items that are not supported."""
    items = [
        InputItem.model_validate(await load_item(item.id or "")) if _is_reference(item) else item for item in given
    ]
    parts = [part for item in items if item.role == "user" and isinstance(item.content, list) for part in item.content]
    links = [part.link for part in parts if part.type in ("input_image", "input_file") and part.link is not None]
    settings = user.settings.server
    linked = await load_links(links, settings, UploadedFiles(user).load)
    return await run_in_thread(_read_items, items, settings.limits, linked)  # there may be thousands


def _is_reference(item: InputItem) -> bool:
    return item.type == "item_reference" or item.model_fields_set == {"id"}


def _read_items(items: Sequence[InputItem], limits: ServerLimits, linked: LinkedFiles) -> ReadInput:
    read = ReadInput([], [], [], [], [])
    for item in items:
        if item.id and (response_id := response_of_item(item.id)):
            read.response_ids.append(response_id)
        count = len(read.messages)
        _add_item(read, item, limits, linked, last=item is items[-1])
        if len(read.messages) > count:
            read.earlier_approvals.extend(read.approvals)
            read.approvals.clear()
    return read


def _add_item(read: ReadInput, item: InputItem, limits: ServerLimits, linked: LinkedFiles, *, last: bool) -> None:
    match item.type:
        case "message":
            _add_message(read, item, limits, linked, last=last)
        case "function_call":
            _add_call(read, item)
        case "function_call_output":
            if not item.call_id:
                raise _bad_request("a function_call_output needs the call_id of the call that it answers")
            text, files = _split(item.output)
            read.messages.append(result_message(item.call_id, parse_result_text(text + FILE_LEFT_OUT * len(files))))
        case "mcp_approval_response":
            about = read_approval_request_id(item.approval_request_id or "")
            if about is None or item.approve is None:
                raise _bad_request(
                    "an mcp_approval_response needs approve, and the approval_request_id of a request of this server"
                )
            read.approvals.append(Approval(*about, item.approve, "" if item.approve else item.reason or ""))
        case "compaction":
            read.messages.append(Message("user", read_compaction(item.encrypted_content or "")))
        case kind if kind in _AGENTS_OWN:
            pass
        case kind:
            raise _bad_request(
                f"items of type {kind!r} are not supported; send messages, function calls and their outputs"
            )


def _add_message(read: ReadInput, item: InputItem, limits: ServerLimits, linked: LinkedFiles, *, last: bool) -> None:
    text, files = _split(item.content)
    match item.role:
        case "user":
            readers = [partial(part.read_file, linked) for part in files]
            read.messages.append(read_user_message(text, readers, last=last, limits=limits))
        case "assistant":
            read.messages.append(Message("assistant", text))
        case "system" | "developer":
            if files:
                raise _bad_request("system and developer messages are text only; send files in user messages")
            read.instructions.append(Instruction(item.role, text, len(read.messages)))
        case _:
            raise _bad_request(f"the role of a message must be one of {', '.join(_ROLES)}")


def _add_call(read: ReadInput, item: InputItem) -> None:
    """Add a call to the assistant's message before it: parallel calls are one message."""
    if not (item.call_id and item.name):
        raise _bad_request("a function_call needs a call_id and a name")
    call = ToolCall(item.call_id, item.name, parse_arguments(item.arguments))
    is_joined = bool(read.messages) and read.messages[-1].role == "assistant"
    last = read.messages.pop() if is_joined else Message("assistant")
    read.messages.append(replace(last, tool_calls=(*last.tool_calls, call)))


def _split(content: str | list[InputPart] | None) -> tuple[str, list[InputPart]]:
    """Return the text of a message or an output, and its files. Raise `ApiError` for parts that are not supported."""
    if content is None:
        raise _bad_request("a message needs content, and a function_call_output needs output")
    if isinstance(content, str):
        return content, []
    texts: list[str] = []
    files: list[InputPart] = []
    for part in content:
        match part.type:
            case "input_text" | "output_text" | "text":
                texts.append(part.text)
            case "refusal":
                texts.append(part.refusal)
            case "input_image" | "input_file" if part.link is not None:
                files.append(part)
            case "input_image":
                raise _bad_request("an input_image needs an image_url, or the file_id of an upload")
            case "input_file":
                raise _bad_request("an input_file needs file_data, a file_url, or the file_id of an upload")
            case kind:
                raise _bad_request(f"parts of type {kind!r} are not supported; send text, images and files")
    return "".join(texts), files


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
