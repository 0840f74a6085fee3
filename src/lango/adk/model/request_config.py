"""Read the system prompt, tools, shape of the answer and thinking budget of an ADK request."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal, cast

from google.genai import types
from pydantic import TypeAdapter

from lango.history import count_tokens
from lango.history.tokens import compact_json
from lango.providers.protocol import Request, Thinking, ToolSpec

_LEVELS: Mapping[types.ThinkingLevel | None, Literal["minimal", "low", "medium", "high"]] = {
    types.ThinkingLevel.MINIMAL: "minimal",
    types.ThinkingLevel.LOW: "low",
    types.ThinkingLevel.MEDIUM: "medium",
    types.ThinkingLevel.HIGH: "high",
}
_TOOL_TOKENS = 12  # of a tool's declaration, in addition to its JSON


def system_text(instruction: Any) -> str:
    """Return the text parts of a system instruction, joined by newlines."""
    if instruction is None or isinstance(instruction, str):
        return instruction or ""
    if isinstance(instruction, types.Content):
        return "\n".join(part.text for part in instruction.parts or [] if part.text)
    if isinstance(instruction, types.Part):
        return instruction.text or ""
    texts = (system_text(part) for part in cast("Sequence[Any]", instruction))
    return "\n".join(text for text in texts if text)


def tool_specs(tools: Sequence[Any] | None, choice: types.FunctionCallingConfig | None = None) -> tuple[ToolSpec, ...]:
    """Return the declared tools; if the model must call one of some of them, only these."""
    allowed = choice.allowed_function_names if choice and choice.mode == types.FunctionCallingConfigMode.ANY else None
    declarations = [
        declaration
        for tool in tools or ()
        if isinstance(tool, types.Tool)
        for declaration in tool.function_declarations or ()
        if not allowed or declaration.name in allowed
    ]
    return tuple(
        ToolSpec(declaration.name or "", declaration.description or "", _parameters(declaration))
        for declaration in declarations
    )


def _parameters(declaration: types.FunctionDeclaration) -> Mapping[str, Any]:
    schema = declaration.parameters_json_schema or declaration.parameters
    return json_schema_of(schema) if schema else {"type": "object", "properties": {}}


def response_schema(config: types.GenerateContentConfig) -> Mapping[str, Any] | None:
    """Return the schema that the answer must follow, as JSON schema."""
    schema: Any = config.response_json_schema or config.response_schema
    return None if schema is None else json_schema_of(schema)


def json_schema_of(schema: Any) -> Mapping[str, Any]:
    """Convert a schema of genai, a Python type or a dict to JSON schema."""
    if isinstance(schema, types.Schema):
        return schema.json_schema.model_dump(mode="json", by_alias=True, exclude_none=True)
    if isinstance(schema, dict):
        return cast("dict[str, Any]", schema)
    return TypeAdapter[Any](schema).json_schema()


def calling_config(config: types.GenerateContentConfig) -> types.FunctionCallingConfig | None:
    """Return which tools the model may or must call, if that is set."""
    return config.tool_config.function_calling_config if config.tool_config else None


def tool_choice(config: types.GenerateContentConfig) -> str:
    """Return whether the model may, must or must not call a tool, or the name of the one that it must call."""
    calling = calling_config(config)
    match calling and calling.mode:
        case types.FunctionCallingConfigMode.ANY:
            names = (calling and calling.allowed_function_names) or []
            return names[0] if len(names) == 1 else "required"
        case types.FunctionCallingConfigMode.NONE:
            return "none"
        case _:
            return "auto"


def thinking_config(config: types.GenerateContentConfig) -> Thinking | None:
    """Return the thinking settings of the agent, if it has any."""
    requested = config.thinking_config
    if requested is None:
        return None
    return Thinking(_LEVELS.get(requested.thinking_level), requested.thinking_budget, requested.include_thoughts)


def reserved_tokens(request: Request) -> int:
    """Count the tokens of everything in a request but its messages."""
    declared = [[tool.name, tool.description, tool.parameters] for tool in request.tools]
    tools = count_tokens(compact_json(declared)) + _TOOL_TOKENS * len(declared) if declared else 0
    schema = count_tokens(compact_json(request.response_schema)) if request.response_schema else 0
    return count_tokens(request.system) + tools + schema
