"""Read what a chat request sets for the model: the shape of the answer, the tools it may or must call, sampling.

What would change the answer, and cannot be done here, is refused. Hints that change no answer are accepted and left to
the agent's configuration.
"""

from collections.abc import Collection, Mapping
from typing import Annotated, Any, Literal, cast

from pydantic import BaseModel, ConfigDict, Field

from lango.json_values import as_object
from lango.server.compat.chat_turn import check_answer_schema
from lango.server.errors import bad_request
from lango.submissions import ModelOptions

_NAME = r"^[a-zA-Z0-9_-]{1,64}$"
_WORDS = ("auto", "none", "required")


class AnswerSchema(BaseModel):
    """The JSON schema of an answer."""

    model_config = ConfigDict(populate_by_name=True, strict=True)

    name: str = Field(pattern=_NAME)
    description: str | None = None
    json_schema: dict[str, Any] | None = Field(default=None, alias="schema")
    strict: bool | None = None
    """Accepted: an answer is held to the schema wherever the provider can, whether it is strict or not."""


class ResponseFormat(BaseModel):
    """The shape of the answer: `text`, `json_object` or `json_schema`."""

    type: Literal["text", "json_object", "json_schema"]
    json_schema: AnswerSchema | None = None


class ChatOptions(BaseModel):
    """The parameters of a chat request that are about the model."""

    response_format: ResponseFormat | None = None
    tool_choice: Any = None
    parallel_tool_calls: bool | None = None
    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    top_p: Annotated[float, Field(ge=0, le=1)] | None = None
    max_completion_tokens: Annotated[int, Field(ge=1)] | None = None
    max_tokens: Annotated[int, Field(ge=1)] | None = None
    stop: str | Annotated[list[str], Field(max_length=16)] | None = None
    n: int | None = 1
    logprobs: bool | None = None
    top_logprobs: int | None = None
    logit_bias: dict[str, Any] | None = None
    frequency_penalty: float | None = None
    presence_penalty: float | None = None
    modalities: list[str] | None = None
    audio: Any = None
    web_search_options: Any = None
    moderation: Any = None

    def check_options(self) -> None:
        """Raise `ApiError` for parameters that cannot be followed here."""
        if (self.n or 1) != 1:
            raise bad_request("n: only one answer is supported; leave n out, or send 1")
        if self.logprobs or self.top_logprobs:
            raise bad_request("logprobs: not supported; leave it out")
        for name in ("logit_bias", "frequency_penalty", "presence_penalty"):
            if getattr(self, name):
                raise bad_request(f"{name}: not supported; leave it out")
        if self.audio or set(self.modalities or ("text",)) != {"text"}:
            raise bad_request("modalities: the agent answers in text only; leave modalities and audio out")
        if self.web_search_options is not None:
            raise bad_request("web_search_options: not supported, the agent searches with its own tools; leave it out")
        if self.moderation is not None:
            raise bad_request("moderation: not supported; leave it out")

    async def read_options(self, tools: Collection[str]) -> ModelOptions:
        """Return the options of the turn; `tools` are the names of the client's tools that are offered."""
        shape = self.response_format or ResponseFormat(type="text")
        schema = await _read_schema(shape)
        stops = [self.stop] if isinstance(self.stop, str) else self.stop or []
        return ModelOptions(
            tool_choice=self._forced(tools),
            response_schema=schema,
            json_object=shape.type != "text" and schema is None,
            temperature=self.temperature,
            top_p=self.top_p,
            max_tokens=self.max_completion_tokens or self.max_tokens,
            stop=tuple(stop for stop in stops if stop),
            parallel_tool_calls=self.parallel_tool_calls is not False,
        )

    def offered_tools(self, names: Collection[str]) -> set[str]:
        """Return which of the client's tools the model may call."""
        if self.tool_choice == "none":
            return set()
        if (allowed := self._member("allowed_tools")) is None:
            return {*names}
        listed = cast("list[Any]", allowed["tools"]) if isinstance(allowed.get("tools"), list) else []
        chosen = {_function_name(tool) for tool in listed}
        if not chosen or not chosen <= {*names}:
            raise bad_request("tool_choice: allowed_tools must name functions in tools")
        return chosen

    def _forced(self, tools: Collection[str]) -> str:
        """Return the tool choice of the turn. Without a call that is forced, the agent's own tools stay its own."""
        choice = self.tool_choice
        if (allowed := self._member("allowed_tools")) is not None:
            choice = allowed.get("mode", "auto")
        if choice in (None, "auto", "none"):
            return "auto"
        name = "required" if choice == "required" else _function_name(choice)
        if not name:
            raise bad_request(
                "tool_choice: send auto, none, required, the name of a function in tools, or allowed_tools"
            )
        if not tools or (name != "required" and name not in tools) or (choice != "required" and name in _WORDS):
            raise bad_request("tool_choice: only a function in tools can be forced")
        return name

    def _member(self, kind: str) -> Mapping[str, Any] | None:
        """Return the body of a tool choice of this kind, or None if it is of another kind."""
        choice = as_object(self.tool_choice)
        return as_object(choice.get(kind)) if choice.get("type") == kind else None


async def _read_schema(shape: ResponseFormat) -> dict[str, Any] | None:
    """Return the schema of the answer, with its name and description, or None if there is none."""
    if shape.type != "json_schema":
        return None
    if shape.json_schema is None:
        raise bad_request("response_format: json_schema needs a name and a schema")
    if (schema := shape.json_schema.json_schema) is None:
        return None
    await check_answer_schema("response_format", schema)
    about = {"title": shape.json_schema.name, "description": shape.json_schema.description}
    return {name: text for name, text in about.items() if text} | schema


def _function_name(choice: Any) -> str:
    """Return the name in `{"type": "function", "function": {"name": ...}}`, or an empty text."""
    body = as_object(choice)
    name = as_object(body.get("function")).get("name") if body.get("type") == "function" else None
    return name if isinstance(name, str) else ""
