"""Call one tool by hand, as its developer asks: apart from all sessions, and within the approval policy."""

import asyncio
import logging
import time
from collections.abc import Mapping
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

from lango.adk.agents.app_shape import as_adk_tool
from lango.adk.agents.app_structure import arguments_schema
from lango.adk.agents.tools.adk_tool import FILES, AdkTool, time_limit_s
from lango.adk.agents.tools.tool_names import list_toolset
from lango.adk.agents.tree import agent_in_tool, tools_of, walk_with_agent_tools
from lango.agent_cards import CallByHand, CallResult
from lango.errors import ApprovalRequired, ConfigError, InvalidArguments, ToolNotFound, ToolRefused
from lango.failures import CollectedFailures, failures_collected, log_failure
from lango.tools.execution import Decision, convert_base_exceptions
from lango.tools.results import error_text, to_result
from lango.tools.schema_checker import SchemaChecker

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
    schema = arguments_schema(tool)
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
