"""Parse a chat completion request and refuse what the agent does not support."""

from functools import partial
from typing import Annotated, Any, Literal

from msgspec.structs import replace
from pydantic import BaseModel, ConfigDict, FailFast, Field

from lango.config import ServerLimits, ServerSettings
from lango.history.pairing import parse_result_text
from lango.messages import Attachment, Message, ToolCall
from lango.server.compat.carried_history import parse_arguments
from lango.server.compat.inline_files import read_user_message
from lango.server.compat.linked_files import FileLink, LinkedFiles
from lango.server.compat.openai.chat_options import ChatOptions
from lango.server.compat.resent_history import FILE_LEFT_OUT, check_last, client_instruction, result_message
from lango.server.errors import bad_request
from lango.submissions import ModelOptions
from lango.tools import Tool
from lango.tools.client_tool_definitions import read_client_tools

_MAX_MESSAGES = 5_000


class ImageUrl(BaseModel):
    """An image as a `data:` URL, or by its address."""

    url: str


class FileData(BaseModel):
    """A file, as a `data:` URL, or by the id of an upload."""

    filename: str | None = None
    file_data: str | None = None
    file_id: str | None = None


class ContentPart(BaseModel):
    """A part of a message: `text`, `image_url` or `file`."""

    type: str
    text: str = ""
    image_url: ImageUrl | None = None
    file: FileData | None = None

    @property
    def link(self) -> FileLink | None:
        """Where its image or file is, or None if it names none."""
        if self.type == "image_url" and self.image_url:
            return FileLink(self.image_url.url, is_image=True)
        if self.type == "file" and self.file and self.file.file_data:
            return FileLink(self.file.file_data)
        if self.type == "file" and self.file and self.file.file_id:
            return FileLink(self.file.file_id, is_upload=True)
        return None

    def read_file(self, linked: LinkedFiles, number: int) -> Attachment:
        """Return the image or file of this part; raise `ApiError` for parts that are not supported."""
        if (link := self.link) is not None:
            return linked.read(number, self.file.filename if self.type == "file" and self.file else None, link)
        if self.type == "file":
            raise bad_request("messages: a file needs file_data, a data: URL, or the file_id of an upload")
        raise bad_request("messages: a message may have parts of the types text, image_url and file only")


class ChatCallFunction(BaseModel):
    """The name of a called function, and its arguments as JSON text."""

    name: str = ""
    arguments: str | None = None


class ChatCall(BaseModel):
    """A call of a client's tool in a resent message."""

    id: str
    function: ChatCallFunction | None = None

    def to_call(self) -> ToolCall:
        """Return the call."""
        function = self.function or ChatCallFunction()
        return ToolCall(self.id, function.name, parse_arguments(function.arguments))


class ChatMessage(BaseModel):
    """A message of the conversation."""

    role: Literal["system", "developer", "user", "assistant", "tool", "function"]
    content: str | list[ContentPart] | None = None
    tool_calls: list[ChatCall] | None = None
    tool_call_id: str | None = None
    function_call: Any = None

    @property
    def text(self) -> str:
        """The text of all parts."""
        if isinstance(self.content, list):
            return "".join(part.text for part in self.content if part.type == "text")
        return self.content or ""

    @property
    def is_instruction(self) -> bool:
        """Whether it is an instruction of the client, and no part of the conversation."""
        return self.role in ("system", "developer")

    def to_instruction(self) -> str:
        """Return the text of an instruction. Raise `ApiError` if it has files."""
        if self.file_parts:
            raise bad_request("messages: system and developer messages are text only; send files in user messages")
        return self.text

    @property
    def file_parts(self) -> list[ContentPart]:
        """The parts that are not text, in order."""
        return [part for part in self.content if part.type != "text"] if isinstance(self.content, list) else []

    def to_message(self, limits: ServerLimits, linked: LinkedFiles, *, last: bool) -> Message:
        """Return the message, without what only its author's server knows.

        Raise `ApiError` for an unreadable file in the last message of the user.
        """
        match self.role:
            case "tool":
                text = self.text + FILE_LEFT_OUT * len(self.file_parts)
                return result_message(self.tool_call_id or "", parse_result_text(text))
            case "assistant":
                return Message("assistant", self.text, tuple(call.to_call() for call in self.tool_calls or ()))
            case _:
                readers = [partial(part.read_file, linked) for part in self.file_parts]
                return read_user_message(self.text, readers, last=last, limits=limits)


class ChatFunction(BaseModel):
    """The name, description and parameters of a client's tool."""

    name: str
    description: str | None = None
    parameters: dict[str, Any] | None = None


class ChatTool(BaseModel):
    """A tool that the client executes."""

    type: str = "function"
    function: ChatFunction | None = None

    def read(self) -> tuple[str, str, Any]:
        """Return name, description and parameters; raise `ApiError` for another type of tool."""
        if self.type != "function" or self.function is None:
            raise bad_request("tools: only function tools are supported")
        return self.function.name, self.function.description or "", self.function.parameters


class StreamOptions(BaseModel):
    """Options of a stream."""

    model_config = ConfigDict(strict=True)

    include_usage: bool | None = None


class ChatRequest(ChatOptions):
    """A request for a completion."""

    model_config = ConfigDict(
        strict=True,  # `true` is no number
        json_schema_extra={"examples": [{"model": "lango", "messages": [{"role": "user", "content": "Hello!"}]}]},
    )

    model: str = ""
    messages: Annotated[list[ChatMessage], Field(min_length=1, max_length=_MAX_MESSAGES), FailFast()]
    stream: bool | None = False
    stream_options: StreamOptions | None = None
    tools: list[ChatTool] | None = None
    functions: list[Any] | None = None
    function_call: Any = None
    user: Any = None
    """The user of the client: together with a conversation id it names a session; see `session_selection`."""
    metadata: dict[str, Any] | None = None

    def file_links(self) -> list[FileLink]:
        """Return where the files of the user's messages are."""
        parts = [part for message in self.messages if message.role == "user" for part in message.file_parts]
        return [part.link for part in parts if part.link is not None]

    def read_conversation(self, limits: ServerLimits, linked: LinkedFiles) -> list[Message]:
        """Return the messages without the client's instructions. Call it in a thread: there may be thousands.

        Raise `ApiError` unless the last one is a readable message of the user, or a result.
        """
        sent = [message for message in self.messages if not message.is_instruction]
        messages = [message.to_message(limits, linked, last=message is sent[-1]) for message in sent]
        check_last(messages)
        return messages

    async def read_turn(self, settings: ServerSettings) -> tuple[list[Tool], ModelOptions]:
        """Return the client's tools and the options of the turn.

        Raise `ClientToolRefused` or `ApiError` for invalid ones.
        """
        instructions = [message.to_instruction() for message in self.messages if message.is_instruction]
        instruction = client_instruction(instructions, settings)
        tools = await read_client_tools([tool.read() for tool in self.tools or ()])
        offered = self.offered_tools([tool.name for tool in tools])
        options = await self.read_options(offered)
        return [tool for tool in tools if tool.name in offered], replace(options, instruction=instruction)

    def check_supported(self) -> None:
        """Raise `ApiError` for features that the agent does not support."""
        self.check_options()
        if (
            self.functions
            or self.function_call
            or any(message.role == "function" or message.function_call for message in self.messages)
        ):
            raise bad_request("functions: not supported; send tools, tool_calls and tool messages instead")
        if any(message.role == "tool" and not message.tool_call_id for message in self.messages):
            raise bad_request("messages: a tool message needs the tool_call_id of the call that it answers")
