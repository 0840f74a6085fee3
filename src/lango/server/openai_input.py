"""What an OpenAI client sends, and what of it this agent cannot do."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from lango.server.errors import Refused

MOST_MESSAGES = 10_000


class ContentPart(BaseModel):
    """A part of a message."""

    type: str
    text: str = ""


class ChatMessage(BaseModel):
    """A message of the conversation."""

    role: Literal["system", "developer", "user", "assistant", "tool", "function"]
    content: str | list[ContentPart] | None = None
    tool_calls: list[Any] | None = None
    function_call: Any = None

    @property
    def text(self) -> str:
        """The text of all parts."""
        if isinstance(self.content, list):
            return "".join(part.text for part in self.content)
        return self.content or ""


class StreamOptions(BaseModel):
    """What a stream tells beside the text."""

    include_usage: bool | None = None


class ChatRequest(BaseModel):
    """A request for a completion; settings that belong to the agent are taken and not read."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"model": "lango", "messages": [{"role": "user", "content": "Hello!"}]}]}
    )

    model: str = ""
    messages: Annotated[list[ChatMessage], Field(min_length=1, max_length=MOST_MESSAGES)]
    stream: bool | None = False
    stream_options: StreamOptions | None = None
    n: int | None = 1
    tools: list[Any] | None = None
    functions: list[Any] | None = None
    response_format: dict[str, Any] | None = None

    def check(self) -> None:
        """Raise `Refused` for what this agent cannot do."""
        if self.tools or self.functions:
            raise _wrong("tools: the agent has tools of its own and runs them here; send none")
        if any(one.role in ("tool", "function") or one.tool_calls or one.function_call for one in self.messages):
            raise _wrong("messages: the agent runs its own tools; send no tool calls and no tool messages")
        if any(part.type != "text" for one in self.messages if isinstance(one.content, list) for part in one.content):
            raise _wrong("messages: only text is understood here")
        if self.messages[-1].role != "user" or not self.messages[-1].text:
            raise _wrong("messages: the last message must be the user's, with a text")
        if (self.n or 1) != 1:
            raise _wrong("n: there is one answer to a message")
        if (self.response_format or {}).get("type", "text") != "text":
            raise _wrong("response_format: the agent answers in text")


def _wrong(message: str) -> Refused:
    return Refused(400, "BadRequest", message)
