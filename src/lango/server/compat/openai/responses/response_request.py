"""Parse a request for a response, and refuse what the agent does not support.

Hints that change no answer are accepted and left to the agent's configuration, as in chat completions: `reasoning`,
`text.verbosity`, `truncation`, `service_tier`, `prompt_cache_key` and the like. The response shows what holds.
"""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, FailFast, Field

from lango.server.compat.openai.chat_options import AnswerSchema, ChatOptions, ResponseFormat
from lango.server.compat.openai.responses.input_items import MAX_ITEMS, InputItem
from lango.server.errors import bad_request
from lango.submissions import ModelOptions
from lango.tools import Tool
from lango.tools.client_tool_definitions import read_client_tools

_NOT_SUPPORTED = {
    "access_programs": "this server grants no programs access",
    "context_management": "the server fits the history to the model itself",
    "image": "the agent generates no images",
    "max_tool_calls": "the limit is agent.max_turns in the server's configuration",
    "moderation": "this server does not moderate answers",
    "prompt": "this server stores no prompts; send instructions and input",
    "top_logprobs": "the agent returns no log probabilities",
}
_IGNORED_INCLUDES = (
    "reasoning.encrypted_content",
    "message.input_image.image_url",
    "file_search_call.results",
    "web_search_call.action.sources",
    "web_search_call.results",
    "code_interpreter_call.outputs",
    "computer_call_output.output.image_url",
)
"""What these would add is part of no answer of the agent, or, as a thought's signature, stays in its session."""


class FunctionTool(BaseModel):
    """A tool that the client runs; or `mcp` with the agent's name as `server_label`, for the agent's own tools."""

    type: str = "function"
    server_label: str | None = None
    name: str = ""
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None

    def is_of_agent(self, agent_name: str) -> bool:
        """Whether it stands for the agent's own tools, as some clients need it to pass on approval requests."""
        return self.type == "mcp" and self.server_label == agent_name

    def shown(self) -> dict[str, Any]:
        """Return it as the response shows it."""
        if self.type == "mcp":
            return {"type": "mcp", "server_label": self.server_label, "require_approval": "always"}
        return self.model_dump(exclude={"server_label"})


class TextFormat(BaseModel):
    """The shape of the answer: `text`, `json_object`, or `json_schema` with its schema."""

    model_config = ConfigDict(populate_by_name=True)

    type: Literal["text", "json_object", "json_schema"] = "text"
    name: str = Field(default="answer", pattern=r"^[a-zA-Z0-9_-]{1,64}$")
    description: str | None = None
    json_schema: dict[str, Any] | None = Field(default=None, alias="schema")
    strict: bool | None = None


class TextOptions(BaseModel):
    """Options of the answer's text."""

    format: TextFormat | None = None
    verbosity: str | None = None


class ReasoningOptions(BaseModel):
    """Options of the model's thoughts, which are configured at the server; a summary is all that it shows of them."""

    effort: str | None = None
    summary: str | None = None
    generate_summary: str | None = None


class ConversationReference(BaseModel):
    """The session that the response belongs to."""

    id: str


class ResponseStreamOptions(BaseModel):
    """Options of a stream; nothing is padded here."""

    include_obfuscation: bool | None = None


def _as_items(given: Any) -> Any:
    """Read a text as a message of the user."""
    if isinstance(given, str):
        return [{"role": "user", "content": given}] if given else []
    return [] if given is None else given


Input = Annotated[
    list[InputItem],
    Field(max_length=MAX_ITEMS),
    FailFast(),
    BeforeValidator(_as_items, json_schema_input_type=str | list[InputItem] | None),
]
"""Items, or a text, which is a message of the user."""


Metadata = Annotated[
    dict[Annotated[str, Field(max_length=64)], Annotated[str, Field(max_length=512)]], Field(max_length=16)
]
"""Texts that a client keeps with a response or a conversation."""


class Hints(BaseModel):
    """What changes no answer here: it is accepted and left to the agent's configuration."""

    prompt_cache_key: str | None = None
    prompt_cache_options: dict[str, Any] | None = None
    prompt_cache_retention: str | None = None
    service_tier: str | None = None


class UnsupportedParameters(BaseModel):
    """What is refused if it is set: see `_NOT_SUPPORTED`."""

    access_programs: Any = None
    context_management: Any = None
    image: Any = None
    max_tool_calls: Any = None
    moderation: Any = None
    prompt: Any = None
    top_logprobs: Any = None


class ModelParameters(BaseModel):
    """The parameters of a response that are about the model."""

    tools: list[FunctionTool] | None = None
    tool_choice: str | dict[str, Any] | None = None
    parallel_tool_calls: bool | None = None
    text: TextOptions | None = None
    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    top_p: Annotated[float, Field(ge=0, le=1)] | None = None
    max_output_tokens: Annotated[int, Field(ge=1)] | None = None
    reasoning: ReasoningOptions | None = None

    async def read_turn(self, agent_name: str) -> tuple[list[Tool], ModelOptions]:
        """Return the client's tools and the options of the turn.

        Raise `ClientToolRefused` or `ApiError` for invalid ones.
        """
        functions = [tool for tool in self.tools or () if not tool.is_of_agent(agent_name)]
        for tool in functions:
            if tool.type != "function":
                raise bad_request(
                    f"tools: {tool.type!r} is not supported; the agent has its own tools, and yours are functions"
                )
        tools = await read_client_tools([(tool.name, tool.description or "", tool.parameters) for tool in functions])
        chat = self._as_chat_options()
        offered = chat.offered_tools([tool.name for tool in tools])
        return [tool for tool in tools if tool.name in offered], await chat.read_options(offered)

    def _as_chat_options(self) -> ChatOptions:
        """Return the parameters about the model as chat completions have them."""
        form = (self.text and self.text.format) or TextFormat()
        schema = AnswerSchema(name=form.name, description=form.description, schema=form.json_schema)
        return ChatOptions(
            response_format=ResponseFormat(type=form.type, json_schema=schema if form.type == "json_schema" else None),
            tool_choice=_chat_tool_choice(self.tool_choice),
            parallel_tool_calls=self.parallel_tool_calls,
            temperature=self.temperature,
            top_p=self.top_p,
            max_completion_tokens=self.max_output_tokens,
        )

    def _shown_format(self) -> dict[str, Any]:
        form = (self.text and self.text.format) or TextFormat()
        return form.model_dump(by_alias=True) if form.type == "json_schema" else {"type": form.type}


class ResponseRequest(ModelParameters, Hints, UnsupportedParameters):
    """A request for a response of the agent; see the reference of `POST /v1/responses`."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [{"model": "lango", "input": "Hello!"}]})

    model: str = ""
    input: Input = []
    instructions: str | None = None
    previous_response_id: str | None = None
    conversation: str | ConversationReference | None = None
    include: list[str] | None = None
    metadata: Metadata | None = None
    store: bool | None = None
    background: bool | None = None
    stream: bool | None = None
    stream_options: ResponseStreamOptions | None = None
    truncation: Literal["auto", "disabled"] | None = None
    user: str | None = None
    safety_identifier: str | None = None

    @property
    def conversation_id(self) -> str | None:
        """The id of the session that the request names."""
        return self.conversation.id if isinstance(self.conversation, ConversationReference) else self.conversation

    def check_supported(self) -> None:
        """Raise `ApiError` for features that the agent does not support."""
        for name, why in _NOT_SUPPORTED.items():
            if getattr(self, name):  # `top_logprobs: 0` asks for none
                raise bad_request(f"{name}: not supported, {why}")
        if not self.input:
            raise bad_request("input: there is nothing to answer; send a text or a list of items")
        if self.previous_response_id is not None and self.conversation is not None:
            raise bad_request("conversation: cannot be combined with previous_response_id")
        if self.background and self.store is False:
            raise bad_request("background: a background response must be stored; leave store out, or set it to true")
        for name in self.include or ():
            if name not in _IGNORED_INCLUDES:
                raise bad_request(f"include: {name!r} is not supported")

    def parameters(self) -> dict[str, Any]:
        """Return the parameters that the response shows, with those that were left out as they are by default."""
        return {
            "instructions": self.instructions,
            "max_output_tokens": self.max_output_tokens,
            "max_tool_calls": None,
            "parallel_tool_calls": self.parallel_tool_calls is not False,
            "previous_response_id": self.previous_response_id,
            "conversation": None if self.conversation is None else {"id": self.conversation_id},
            "reasoning": {"effort": None, "summary": self.reasoning.summary if self.reasoning else None},
            "background": bool(self.background),
            "store": self.store is not False,
            "temperature": 1.0 if self.temperature is None else self.temperature,
            "text": {"format": self._shown_format(), "verbosity": "medium"},
            "tool_choice": "auto" if self.tool_choice is None else self.tool_choice,
            "tools": [tool.shown() for tool in self.tools or ()],
            "top_p": 1.0 if self.top_p is None else self.top_p,
            "top_logprobs": 0,
            "presence_penalty": 0.0,
            "frequency_penalty": 0.0,
            "truncation": "auto",
            "service_tier": "default",
            "user": self.user,
            "safety_identifier": self.safety_identifier,
            "prompt_cache_key": self.prompt_cache_key,
            "metadata": self.metadata or {},
        }


def _chat_tool_choice(choice: Any) -> Any:
    """Return a tool choice as chat completions have it: there, a function's name is one level deeper."""
    match choice:
        case {"type": "function", "name": name}:
            return {"type": "function", "function": {"name": name}}
        case {"type": "allowed_tools", "tools": [*tools]}:
            allowed = {"mode": choice.get("mode", "auto"), "tools": [_chat_tool_choice(tool) for tool in tools]}
            return {"type": "allowed_tools", "allowed_tools": allowed}
        case _:
            return choice
