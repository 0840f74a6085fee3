"""Read a request of Anthropic's messages, and refuse what the agent does not support.

What would change the answer, and cannot be done here, is refused. Hints that change no answer are accepted and left to
the agent's configuration.
"""

import json
from collections.abc import Collection
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, FailFast, Field

from lango.config import ServerLimits, ServerSettings
from lango.history.tokens import count_tokens
from lango.messages import Message
from lango.server.compat.anthropic.content_blocks import InputMessage, TextBlock, texts_of
from lango.server.compat.carried_history import to_history
from lango.server.compat.chat_turn import check_answer_schema
from lango.server.compat.linked_files import FileLink, LinkedFiles
from lango.server.compat.resent_history import check_last, client_instruction
from lango.server.errors import ApiError, bad_request
from lango.submissions import ModelOptions
from lango.tools import Tool
from lango.tools.client_tool_definitions import read_client_tools

_MAX_MESSAGES = 5_000
NO_THREADS = "thread_unsupported_request"
"""Anthropic's name of the error for a request that names a thread: its SDK then sends the conversation itself."""
_WORDS = frozenset({"auto", "none", "required"})
_EXAMPLE: dict[str, Any] = {"model": "lango", "max_tokens": 1024, "messages": [{"role": "user", "content": "Hello!"}]}


class ClientTool(BaseModel):
    """A tool that the client executes."""

    name: str = ""
    type: str | None = None
    description: str | None = None
    input_schema: dict[str, Any] | None = None

    def read(self) -> tuple[str, str, Any]:
        """Return name, description and parameters; raise `ApiError` for a tool of Anthropic's own."""
        if self.input_schema is None or self.type not in (None, "custom"):
            raise bad_request(
                "tools: only tools with a name and an input_schema are supported, none of Anthropic's own"
            )
        return self.name, self.description or "", self.input_schema


class ToolChoice(BaseModel):
    """Which of the client's tools the model may or must call."""

    model_config = ConfigDict(strict=True)

    type: Literal["auto", "any", "tool", "none"]
    name: str = ""
    disable_parallel_tool_use: bool = False

    def forced(self, tools: Collection[str]) -> str:
        """Return the tool choice of the turn. Without a call that is forced, the agent's own tools stay its own."""
        if self.type in ("auto", "none"):
            return "auto"
        if not tools or (self.type == "tool" and (self.name not in tools or self.name in _WORDS)):
            raise bad_request("tool_choice: only a tool in tools can be forced")
        return "required" if self.type == "any" else self.name


class AnswerFormat(BaseModel):
    """The JSON schema of the answer."""

    model_config = ConfigDict(populate_by_name=True)

    type: Literal["json_schema"]
    json_schema: dict[str, Any] = Field(alias="schema")


class OutputConfig(BaseModel):
    """The shape of the answer; its effort is left to the agent."""

    format: AnswerFormat | None = None


class Thinking(BaseModel):
    """Whether the answer shows the model's thoughts; how much it thinks is left to the agent."""

    type: str
    display: str | None = None


class TokenCountRequest(BaseModel):
    """A conversation whose tokens are counted."""

    model_config = ConfigDict(
        strict=True,  # `true` is no number
        json_schema_extra={"examples": [{name: _EXAMPLE[name] for name in ("model", "messages")}]},
    )

    model: str = ""
    messages: Annotated[list[InputMessage], Field(min_length=1, max_length=_MAX_MESSAGES), FailFast()]
    system: str | list[TextBlock] | None = None
    tools: list[ClientTool] | None = None

    def file_links(self) -> list[FileLink]:
        """Return where the files of the user's messages are."""
        return [link for message in self.messages for link in message.file_links]

    def read_conversation(self, limits: ServerLimits, linked: LinkedFiles) -> list[Message]:
        """Return the messages without the client's instructions. Call it in a thread: there may be thousands.

        Raise `ApiError` unless the last one is a readable message of the user, or a result.
        """
        sent = [message for message in self.messages if message.role != "system"]
        messages = [one for message in sent for one in message.to_messages(limits, linked, last=message is sent[-1])]
        check_last(messages)
        return messages

    @property
    def instructions(self) -> list[str]:
        """The client's instructions, in order."""
        later = [message.to_instruction() for message in self.messages if message.role == "system"]
        return [*texts_of(self.system), *later]

    def count_tokens(self, limits: ServerLimits, linked: LinkedFiles) -> int:
        """Count the tokens of the request. Call it in a thread."""
        tools = [json.dumps(tool.read()) for tool in self.tools or ()]
        return count_tokens(to_history(self.read_conversation(limits, linked))) + sum(
            map(count_tokens, self.instructions + tools)
        )


class MessageRequest(TokenCountRequest):
    """A request for a message."""

    model_config = ConfigDict(strict=True, json_schema_extra={"examples": [_EXAMPLE]})

    max_tokens: Annotated[int, Field(ge=1)]
    stream: bool | None = False
    tool_choice: ToolChoice | None = None
    output_config: OutputConfig | None = None
    thinking: Thinking | None = None
    temperature: Annotated[float, Field(ge=0, le=1)] | None = None
    top_p: Annotated[float, Field(ge=0, le=1)] | None = None
    top_k: int | None = None
    stop_sequences: Annotated[list[str], Field(max_length=16)] | None = None
    container: Any = None
    mcp_servers: list[Any] | None = None
    compaction: Any = None
    thread: Any = None

    @property
    def shows_thoughts(self) -> bool:
        """Whether the client asked for the model's thoughts."""
        return self.thinking is not None and self.thinking.type != "disabled" and self.thinking.display != "omitted"

    def check_supported(self) -> None:
        """Raise `ApiError` for parameters that cannot be followed here."""
        for name in ("top_k", "container", "mcp_servers", "compaction"):
            if getattr(self, name):
                raise bad_request(f"{name}: not supported; leave it out")
        if self.thread is not None:
            message = "thread: not supported; send the conversation, or name its session in X-Session-Id"
            raise ApiError(400, NO_THREADS, message)

    async def read_turn(self, settings: ServerSettings) -> tuple[list[Tool], ModelOptions]:
        """Return the client's tools that the model may call, and the options of the turn.

        Raise `ClientToolRefused` or `ApiError` for invalid ones.
        """
        instruction = client_instruction(self.instructions, settings)
        tools = await read_client_tools([tool.read() for tool in self.tools or ()])
        choice = self.tool_choice or ToolChoice(type="auto")
        schema = self.output_config and self.output_config.format and self.output_config.format.json_schema
        if schema is not None:
            await check_answer_schema("output_config", schema)
        options = ModelOptions(
            tool_choice=choice.forced([tool.name for tool in tools]),
            response_schema=schema,
            temperature=self.temperature,
            top_p=self.top_p,
            max_tokens=self.max_tokens,
            stop=tuple(stop for stop in self.stop_sequences or () if stop),
            instruction=instruction,
            parallel_tool_calls=not choice.disable_parallel_tool_use,
        )
        return [] if choice.type == "none" else tools, options
