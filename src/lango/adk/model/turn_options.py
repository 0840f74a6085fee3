"""Apply what a request sets for its turn to the model calls of the turn."""

from collections.abc import Iterable
from typing import Any

from google.adk.agents import LlmAgent
from google.adk.models.llm_request import LlmRequest
from google.adk.models.llm_response import LlmResponse
from google.genai import types

from lango.errors import ModelOptionsRefused
from lango.submissions import ModelOptions

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
    """Return the tools of which the model must call one: the named one, or any of the client's, or any at all."""
    names = [name for name in client_tools if name in request.tools_dict] if choice == "required" else [choice]
    if (choice != "required" and choice not in request.tools_dict) or not request.tools_dict:
        there_are = ", ".join(sorted(request.tools_dict)) or "none"
        raise ModelOptionsRefused(f"tool_choice: the request has no such tool; it has: {there_are}")
    return names or sorted(request.tools_dict)


def _tool_config(mode: types.FunctionCallingConfigMode, names: list[str] | None = None) -> types.ToolConfig:
    calling = types.FunctionCallingConfig(mode=mode, allowed_function_names=names)
    return types.ToolConfig(function_calling_config=calling)
