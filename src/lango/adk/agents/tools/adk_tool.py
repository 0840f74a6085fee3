"""Run a Lango tool in any ADK Runner, and apply the settings to ADK's own tools.

After a crash inside a function it is not known whether it took effect. A tool's function runs again only if it is
marked as `idempotent`, or named in the setting `tools.idempotent`; a node's function runs again unless it is marked as
`once`.
"""

import asyncio
import copy
import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from types import MappingProxyType
from typing import Any, TypeVar, cast

import msgspec
from google.adk.tools.agent_tool import AgentTool
from google.adk.tools.base_tool import BaseTool
from google.adk.tools.load_memory_tool import LoadMemoryTool
from google.adk.tools.tool_context import ToolContext as AdkToolContext
from google.genai import types
from typing_extensions import override

from lango.adk.agents.adk_internals import declaration_of
from lango.adk.agents.tools.progress import emit_progress
from lango.adk.model.request_config import json_schema_of
from lango.adk.turn.step import current_step, tool_context_noted
from lango.adk.turn.turn_run import TurnRun, current_turn
from lango.config import ToolSettings
from lango.messages import Attachment
from lango.tools import DEFAULT_TIMEOUT_S, HOW_TO_READ, Effect, Tool, ToolContext, ToolError, ToolOutcome
from lango.tools.execution import Decision, decide, run_tool

FILES = "lango_files"
"""The key of the parts in a result: ADK takes them out, and sends them to the model next to the result."""


class DeclaredTool(BaseTool):
    """A tool of ADK that is declared as a Lango `Tool`."""

    def __init__(self, tool: Tool, *, long_running: bool) -> None:
        super().__init__(name=tool.name, description=tool.description, is_long_running=long_running)
        self.tool = tool

    @override
    def _get_declaration(self) -> types.FunctionDeclaration:
        return types.FunctionDeclaration(
            name=self.name, description=self.description, parameters_json_schema=self.tool.schema
        )


class AdkTool(DeclaredTool):
    """A Lango `Tool` as ADK's `BaseTool`.

    In a turn of a Lango runtime, the runtime decides which calls run, and its settings limit them. In any other Runner,
    a tool that is not safe requests ADK's confirmation, and a tool without a limit of its own may take 120 s.
    """

    def __init__(self, tool: Tool) -> None:
        super().__init__(tool, long_running=tool.long_running)

    @override
    async def run_async(self, *, args: dict[str, Any], tool_context: AdkToolContext) -> dict[str, Any]:
        arguments = _copy_arguments(args)  # the approved arguments run, even if the caller changes its own copy
        call_id = tool_context.function_call_id or ""
        turn = current_turn.get()
        if turn is not None and not turn.record.is_running(call_id):
            turn = None  # a Runner of the user's own, inside a tool: the runtime did not decide about this call
        if turn is None and (waiting := _confirm_unless_safe(self.tool, arguments, tool_context)) is not None:
            return waiting
        outcome = await self._run(arguments, call_id, tool_context, turn)
        if outcome.pause is not None:
            if turn is None:
                return {"error": f"{self.name} waits only in a turn of Lango's runtime"}
            return cast("dict[str, Any]", outcome.pause)  # the plugin opens the wait
        if turn is not None and outcome.whole is not None:
            await turn.record.store_full_result(call_id, outcome.whole)
        return with_files(outcome.result, attachments_to_parts(outcome.files))

    async def _run(
        self, arguments: dict[str, Any], call_id: str, tool_context: AdkToolContext, turn: TurnRun | None
    ) -> ToolOutcome:
        context = ToolContext(
            session_id=tool_context.session.id,
            user_id=tool_context.session.user_id,
            call_id=call_id,
            state=MappingProxyType(copy.deepcopy(tool_context.state.to_dict())),
            report=functools.partial(emit_progress, turn, call_id, self.tool.name),
        )
        with tool_context_noted(tool_context):
            if turn is None:
                return await run_tool(self.tool, arguments, context, timeout_s=DEFAULT_TIMEOUT_S)
            return await run_tool(
                self.tool,
                arguments,
                context,
                timeout_s=turn.limits.tool_timeout_s,
                how_to_read=HOW_TO_READ.replace("{call_id}", call_id),
                file_limits=turn.limits.files,
            )


def attachments_to_parts(attachments: Iterable[Attachment]) -> list[types.Part]:
    """Convert attachments to parts."""
    return [
        types.Part(inline_data=types.Blob(data=file.data, mime_type=file.mime_type, display_name=file.name))
        for file in attachments
    ]


def with_files(result: Mapping[str, Any], parts: Sequence[types.Part]) -> dict[str, Any]:
    """Return a result with files, as ADK takes them from tools."""
    return {**result, FILES: list(parts)} if parts else dict(result)


def _copy_arguments(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Copy arguments deeply; if they are JSON, as a model's are, at a tenth of the cost."""
    try:
        return msgspec.to_builtins(arguments, builtin_types=(bytes, bytearray))
    except (TypeError, ValueError, RecursionError):
        return copy.deepcopy(dict(arguments))


def _confirm_unless_safe(
    tool: Tool, arguments: Mapping[str, Any], tool_context: AdkToolContext
) -> dict[str, Any] | None:
    """Return the result of a call that waits for ADK's confirmation or was refused, or None if it runs.

    A call that cannot run needs no confirmation: the model reads what is wrong with its arguments.
    """
    if tool.level == "safe" or not tool.fits(arguments):
        return None
    confirmation = tool_context.tool_confirmation
    if confirmation is None:
        tool_context.request_confirmation(
            hint=f"May {tool.name} run?", payload={"tool": tool.name, "arguments": dict(arguments)}
        )
        # otherwise ADK calls the model again at once, which calls the tool again
        tool_context.actions.skip_summarization = True
        return {"error": f"not run yet: {tool.name} is waiting for approval"}
    return None if confirmation.confirmed else {"error": f"not run: {tool.name} was not approved"}


def tool_from_adk(
    inner: BaseTool,
    read_result: Callable[[dict[str, Any]], Any] | None = None,
    during_call: Callable[[AdkToolContext], AbstractContextManager[None]] | None = None,
) -> Tool:
    """Convert an ADK tool to a `Tool`, so that approvals, limits and checked results apply to it.

    Its effects are unknown, so it needs approval and is never repeated. It runs only in an `AdkTool`, which gives it
    ADK's context. `read_result` converts what it returns, in a thread; `during_call` is entered around each call.
    """

    async def handler(arguments: dict[str, Any], /) -> Any:
        context = current_step().tool_context
        assert context is not None
        with nullcontext() if during_call is None else during_call(context):
            result: Any = await inner.run_async(args=arguments, tool_context=context)
        if not isinstance(result, dict):
            return result
        fields = cast("dict[str, Any]", result)
        if fields.get("isError") or fields.keys() == {"error"}:
            raise ToolError(_error_text(fields))
        return fields if read_result is None else await asyncio.to_thread(read_result, fields)

    declaration = declaration_of(inner)
    schema: Any = declaration and (declaration.parameters_json_schema or declaration.parameters)
    parameters = json_schema_of(schema) if schema else None
    return Tool(inner.name, inner.description, parameters, handler, level="dangerous", effect="once")


def _error_text(result: dict[str, Any]) -> str:
    if "error" in result:
        return str(result["error"])
    blocks = cast("list[dict[str, Any]]", result.get("content") or [])
    return "\n".join(str(block["text"]) for block in blocks if block.get("text")) or "the tool reported an error"


def decision_for(tool: BaseTool, settings: ToolSettings) -> Decision:
    """Decide whether a tool may run. An ADK tool in a user's own agent has no level: it counts as safe."""
    return decide(tool.name, tool.tool.level if isinstance(tool, AdkTool) else "safe", settings)


def needs_approval(tool: BaseTool) -> bool:
    """Whether a tool is one that the policy may ask about."""
    return isinstance(tool, AdkTool) and tool.tool.level != "safe"


def time_limit_s(tool: BaseTool, default_s: float) -> float | None:
    """Return the time limit of a tool, or None for an agent that is a tool: it may take as long as the turn."""
    if isinstance(tool, AdkTool):
        return tool.tool.timeout_s or default_s
    return None if isinstance(tool, AgentTool) else default_s


# -- effects -----------------------------------------------------------------------------------------------------------

_EFFECT = "lango_effect"
F = TypeVar("F", bound=Callable[..., Any])


def once(function: F) -> F:
    """Mark the function of a workflow's node or of a tool: it must never run twice."""
    setattr(function, _EFFECT, "once")
    return function


def idempotent(function: F) -> F:
    """Mark the function of a tool or of a workflow's node: after a crash inside of it, it may run again."""
    setattr(function, _EFFECT, "idempotent")
    return function


def effect_of_node(function: Callable[..., Any]) -> Effect:
    """Return what a second run of a node's function would do: as ADK's users expect of a node, it may run again."""
    return getattr(function, _EFFECT, "idempotent")


def effect_of_tool(tool: BaseTool, settings: ToolSettings) -> Effect:
    """Return what a second run of a tool would do; of an ADK tool without a mark the worst is assumed."""
    if isinstance(tool, AdkTool) and tool.tool.effect != "once":
        return tool.tool.effect
    if tool.name in settings.idempotent:
        return "idempotent"
    if isinstance(tool, AdkTool):
        return tool.tool.effect
    return getattr(getattr(tool, "func", None), _EFFECT, "none" if isinstance(tool, LoadMemoryTool) else "once")
