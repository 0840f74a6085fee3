"""Describe an app to its developer, and call one of its tools by hand: apart from all sessions, within the policy."""

import asyncio
import inspect
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast
from uuid import uuid4

from google.adk.agents import BaseAgent
from google.adk.agents.invocation_context import InvocationContext
from google.adk.artifacts import InMemoryArtifactService
from google.adk.memory import InMemoryMemoryService
from google.adk.sessions import InMemorySessionService, Session
from google.adk.tools import BaseTool, ToolContext
from google.adk.tools.base_toolset import BaseToolset
from google.adk.tools.tool_confirmation import ToolConfirmation
from msgspec.structs import replace

from lango.adk.agents.app_builder import own_instruction
from lango.adk.agents.app_shape import NodeShape, ToolShape, as_adk_tool, declared, shape_of
from lango.adk.agents.tools.adk_tool import FILES, AdkTool, time_limit_s
from lango.adk.agents.tools.tool_names import list_toolset
from lango.adk.agents.tree import agent_in_tool, nodes_below, tools_of, walk_with_agent_tools
from lango.adk.model.request_config import arguments_schema
from lango.development.agent_cards import CallByHand, CallResult, NodeCard, ToolCard
from lango.development.failures import CollectedFailures, failures_collected, log_failure
from lango.errors import ApprovalRequired, ConfigError, InvalidArguments, LangoError, ToolNotFound, ToolRefused
from lango.tools import Effect
from lango.tools.execution import Decision, convert_base_exceptions
from lango.tools.results import error_text, to_result
from lango.tools.schema_checker import SchemaChecker


class AppDescriber:
    """Describes the agents, nodes and tools of one app."""

    def __init__(
        self,
        effect: Callable[[BaseTool], Effect],
        decide: Callable[[BaseTool], Decision],
        model_name: Callable[[Any], str],
    ) -> None:
        self._effect = effect
        self._decide = decide
        self._model_name = model_name

    async def describe(self, root: Any, *, ask_toolsets: bool) -> NodeCard:
        """Describe a tree of agents or nodes. `ask_toolsets`: toolsets list their tools, which starts MCP servers."""
        return await self._node(root, shape_of(root, self._effect), ask_toolsets=ask_toolsets)

    async def _node(self, node: Any, shape: NodeShape, *, ask_toolsets: bool) -> NodeCard:
        instruction = own_instruction(node)
        described = zip(nodes_below(node), shape.children, strict=True)
        owned = zip(tools_of(node), shape.tools, strict=True)
        return NodeCard(
            name=shape.name,
            kind=shape.kind,
            of_class=shape.of_class,
            description=_description(node),
            instruction=instruction if isinstance(instruction, str) else "",
            instruction_from="" if isinstance(instruction, str) else getattr(instruction, "__qualname__", "a function"),
            model=self._model_name(node),
            tools=[await self._tool(as_adk_tool(tool), of_tool, ask_toolsets=ask_toolsets) for tool, of_tool in owned],
            children=[await self._node(below, of_node, ask_toolsets=ask_toolsets) for below, of_node in described],
            edges=shape.edges,
        )

    async def _tool(self, tool: Any, shape: ToolShape, *, ask_toolsets: bool) -> ToolCard:
        if isinstance(tool, BaseToolset):
            return await self._toolset(tool, shape, ask_toolsets=ask_toolsets)
        card = self._plain_tool(tool, shape.name, shape.kind, shape.effect)
        if shape.runs is None:
            return card
        return replace(card, runs=await self._node(agent_in_tool(tool), shape.runs, ask_toolsets=ask_toolsets))

    def _plain_tool(self, tool: Any, name: str, kind: str, effect: Effect) -> ToolCard:
        return ToolCard(
            name=name,
            kind=kind,
            description=_description(tool),
            schema=schema_of(tool) if isinstance(tool, BaseTool) else None,
            decision=self._decide(tool) if isinstance(tool, BaseTool) else "run",
            effect=effect,
        )

    async def _toolset(self, toolset: BaseToolset, shape: ToolShape, *, ask_toolsets: bool) -> ToolCard:
        found: Sequence[BaseTool] | None = ()
        problem = ""
        try:
            found = await list_toolset(toolset) if ask_toolsets else ()
        except LangoError as error:
            problem = str(error)
        if found is None:
            problem = "it lists its tools only in a turn"
        return ToolCard(
            name=shape.name or str(getattr(toolset, "server", "")),  # that of [mcp.<name>]
            kind=shape.kind,
            is_toolset=True,
            tools=[self._plain_tool(tool, tool.name, type(tool).__name__, self._effect(tool)) for tool in found or ()],
            problem=problem,
        )


def schema_of(tool: BaseTool) -> Mapping[str, Any] | None:
    """Return the JSON schema of a tool's arguments, or None if it declares no function."""
    declaration = declared(tool)
    return None if declaration is None else arguments_schema(declaration)


def _description(node: Any) -> str:
    """Return what an author wrote of an agent, a tool or a node; of a function, its docstring."""
    function = getattr(node, "_unwrapped_func", None)
    return getattr(node, "description", "") or inspect.getdoc(function) or ""


# -- calls by hand -----------------------------------------------------------------------------------------------------

_log = logging.getLogger("lango.runtime")


async def find_tool(root: Any, agent_name: str, tool_name: str) -> tuple[BaseAgent, BaseTool]:
    """Find a tool of an agent, also in its toolsets. Raise `ToolNotFound`."""
    for agent in walk_with_agent_tools(root):
        for own in tools_of(agent) if agent.name == agent_name else ():
            tool = as_adk_tool(own)
            listed = (await list_toolset(tool) or ()) if isinstance(tool, BaseToolset) else [tool]
            for found in listed:
                if found.name == tool_name:
                    return agent, found
    raise ToolNotFound(f"agent {agent_name!r} has no tool {tool_name!r}")


def check_call(tool: BaseTool, call: CallByHand, decision: Decision) -> None:
    """Raise `ToolRefused`, `InvalidArguments` or `ApprovalRequired` for a call that may not run."""
    if decision == "deny":
        raise ToolRefused(f"{call.tool}: the settings deny this tool: change tools.deny or tools.approval")
    if agent_in_tool(tool) is not None:
        raise ToolRefused(f"{call.tool} runs an agent: send a message instead, so that its steps are recorded")
    schema = schema_of(tool)
    if schema is None:
        raise ToolRefused(f"{call.tool} is run by the provider of the model, not here")
    if isinstance(tool, AdkTool):
        tool.tool.validate(call.arguments)
    elif problems := _check(schema, call.arguments):
        raise InvalidArguments(f"invalid arguments: {'; '.join(problems)}")
    if decision == "ask" and not call.approved:
        raise ApprovalRequired(f"{call.tool} runs only after an approval: send the call with approved = true")


def _check(schema: Mapping[str, Any], arguments: Mapping[str, Any]) -> list[str]:
    try:
        return SchemaChecker(schema).check(dict(arguments))
    except ConfigError:
        return []  # of the user's own tool: the model may send anything, too


async def run_by_hand(
    app_name: str, user_id: str, agent: BaseAgent, tool: BaseTool, call: CallByHand, timeout_s: float
) -> CallResult:
    """Run a tool that `check_call` let pass, with a session, artifacts and a memory that end with the call."""
    call_id, failures, artifacts = f"try-{uuid4()}", CollectedFailures(), InMemoryArtifactService()
    session = Session(id=call_id, app_name=app_name, user_id=user_id, state=dict(call.state))
    invocation = InvocationContext(
        session_service=InMemorySessionService(),
        artifact_service=artifacts,
        memory_service=InMemoryMemoryService(),
        invocation_id=call_id,
        agent=agent,
        session=session,
    )
    # about Lango's own tools the policy has decided; a tool of ADK's may ask by itself
    is_approved = call.approved or isinstance(tool, AdkTool)
    confirmation = ToolConfirmation(confirmed=True) if is_approved else None
    context = ToolContext(invocation, function_call_id=call_id, tool_confirmation=confirmation)
    began = time.monotonic()
    with failures_collected(failures, 0):
        result, files = await _run(tool, dict(call.arguments), context, call_id, time_limit_s(tool, timeout_s))
    duration_s = time.monotonic() - began
    _log.info("user %s called tool %s of agent %s by hand", user_id, tool.name, agent.name)
    actions = context.actions
    asks = (
        "approval" if actions.requested_tool_confirmations else "credential" if actions.requested_auth_configs else ""
    )
    return CallResult(
        ok=not (asks or result.get("error")),
        result=result,
        duration_s=duration_s,
        state=to_result(dict(actions.state_delta)),
        artifacts=await artifacts.list_artifact_keys(app_name=app_name, user_id=user_id, session_id=call_id),
        files=files,
        asks=asks,
        failure=next(iter(failures.take()), None),
    )


async def _run(
    tool: BaseTool, arguments: dict[str, Any], context: ToolContext, call_id: str, limit_s: float | None
) -> tuple[dict[str, Any], int]:
    """Run a tool; return its result without files, and how many these are."""
    limit = asyncio.timeout(limit_s)
    try:
        async with limit:
            found: Any = await convert_base_exceptions(tool.run_async(args=arguments, tool_context=context))
        fields = dict(cast("dict[str, Any]", found)) if isinstance(found, dict) else {"result": found}
        files = fields.pop(FILES, ())
        return to_result(fields), len(files)
    except TimeoutError as error:
        return {"error": f"timed out after {limit_s:g} s" if limit.expired() else error_text(error)}, 0
    except Exception as error:  # noqa: BLE001 - of the user's own code: its developer reads it
        log_failure(f"tool {tool.name} failed in a call by hand", error, call_id)
        return {"error": error_text(error)}, 0
