"""Read the system prompt, tools, form of the answer and thinking budget of an ADK request, and set what a turn asks."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, cast

from google.adk.agents import LlmAgent
from google.adk.models.llm_request import LlmRequest
from google.adk.models.llm_response import LlmResponse
from google.genai import types
from pydantic import TypeAdapter

from lango.errors import ModelOptionsRefused
from lango.history import count_tokens
from lango.history.tokens import compact_json
from lango.providers.protocol import Request, Thinking, ToolSpec
from lango.submissions import ModelOptions

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
        ToolSpec(declaration.name or "", declaration.description or "", arguments_schema(declaration))
        for declaration in declarations
    )


def arguments_schema(declaration: types.FunctionDeclaration) -> Mapping[str, Any]:
    """Return the JSON schema of a tool's arguments."""
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


# -- what a request sets for its turn ----------------------------------------------------------------------------------

_CLIENT_INSTRUCTION_HEAD = (
    "The client that sent this request added these instructions. Follow them unless they contradict those above:"
)
_CALLING = types.FunctionCallingConfigMode


def check_options(options: ModelOptions, root: Any, agents: Iterable[Any]) -> None:
    """Raise `ModelOptionsRefused` for an answer of a given shape, or a forced call, that the agents cannot follow.

    In a workflow no agent answers alone: its first steps would have to give the answer, or make the call, of the last.
    """
    forces_call = options.tool_choice not in ("auto", "none")
    if not isinstance(root, LlmAgent) and (options.shapes_answer or forces_call):
        what = "give an answer of a given shape" if options.shapes_answer else "be made to call a tool"
        raise ModelOptionsRefused(f"the agent {root.name} is a workflow, and cannot {what}: leave this option out")
    with_schema = [agent.name for agent in agents if getattr(agent, "output_schema", None)]
    if options.shapes_answer and with_schema:
        raise ModelOptionsRefused(
            f"the agent {with_schema[0]} has an output schema of its own: remove the response schema from the request"
        )


def append_client_instruction(request: LlmRequest, instruction: str) -> None:
    """Append the client's instruction to that of the agent, marked as the client's."""
    if instruction:
        request.append_instructions([f"{_CLIENT_INSTRUCTION_HEAD}\n\n{instruction}"])


def apply_options(
    request: LlmRequest, options: ModelOptions, client_tools: Iterable[str], *, is_first_call: bool
) -> None:
    """Set the options of a turn in a model call. Raise `ModelOptionsRefused` if the tool to call does not exist.

    A call is forced only in the first model call of a turn: in each one, it would never end. That answer is a call, so
    it needs no schema.
    """
    config = request.config
    if options.temperature is not None:
        config.temperature = options.temperature
    if options.top_p is not None:
        config.top_p = options.top_p
    if options.max_tokens is not None:
        config.max_output_tokens = options.max_tokens
    if options.stop:
        config.stop_sequences = list(options.stop)
    if options.tool_choice == "none" and request.tools_dict:
        config.tool_config = _tool_config(_CALLING.NONE)
    elif options.tool_choice not in ("auto", "none") and is_first_call:
        config.tool_config = _tool_config(_CALLING.ANY, _forced_tools(request, options.tool_choice, client_tools))
        return
    if options.shapes_answer:
        config.response_mime_type = "application/json"
        config.response_json_schema = options.response_schema and dict(options.response_schema)


def keep_first_call(response: LlmResponse) -> None:
    """Remove all calls but the first from a response; the model can make the others later."""
    parts = (response.content and response.content.parts) or []
    calls = [part for part in parts if part.function_call]
    if response.content and len(calls) > 1:
        response.content.parts = [part for part in parts if not part.function_call or part is calls[0]]


def _forced_tools(request: LlmRequest, choice: str, client_tools: Iterable[str]) -> list[str]:
    """Return the tools of which the model must call one: the named one, any of the client's, or any tool."""
    names = [name for name in client_tools if name in request.tools_dict] if choice == "required" else [choice]
    if (choice != "required" and choice not in request.tools_dict) or not request.tools_dict:
        there_are = ", ".join(sorted(request.tools_dict)) or "none"
        raise ModelOptionsRefused(f"tool_choice: the request has no such tool; it has: {there_are}")
    return names or sorted(request.tools_dict)


def _tool_config(mode: types.FunctionCallingConfigMode, names: list[str] | None = None) -> types.ToolConfig:
    calling = types.FunctionCallingConfig(mode=mode, allowed_function_names=names)
    return types.ToolConfig(function_calling_config=calling)
