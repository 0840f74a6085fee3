"""List the agents of the server, describe their agents, nodes and tools, and call one tool by hand."""

from typing import Annotated, Any

from fastapi import Path, Query
from msgspec.structs import replace
from pydantic import BaseModel, ConfigDict, Field

from lango.development.agent_cards import CallByHand, CallResult, NodeCard
from lango.server.context import AgentUser, CurrentUser, ServerContext
from lango.server.schemas import COMMON_ERRORS, RequestBody, error_responses
from lango.server.security.auth import AuthenticatedRouter

router = AuthenticatedRouter("/v1", responses=COMMON_ERRORS)

_CALL_ERRORS = error_responses(
    {
        403: "Only the users in the setting `server.operators` may call it, or the tool may not be called by hand.",
        409: "It runs only after an approval.",
        422: "The arguments do not match the tool's schema; the message says which.",
    }
)

AgentName = Annotated[str, Path(max_length=200, examples=["lango"])]


class AgentView(BaseModel):
    """An agent: `name` is its app's name, to which its sessions belong."""

    name: str
    description: str
    model: str
    """The model of the root agent; empty if it has none, as a workflow."""
    error: str = ""
    """Why the agent cannot run until its files are fixed; empty: it runs."""


class AgentList(BaseModel):
    """The agents. The first one answers requests that name none."""

    agents: list[AgentView]


@router.get("/agents", tags=["agents"])
async def list_agents(user: CurrentUser) -> AgentList:
    """List the agents, the first one first: it answers requests that name none."""
    agents = [_view(one) for one in user.context.agents.contexts.values()]
    broken = user.context.agents.broken.items()
    return AgentList(
        agents=agents + [AgentView(name=name, description="", model="", error=error) for name, error in broken]
    )


def _view(context: ServerContext) -> AgentView:
    runtime = context.runtime
    return AgentView(name=runtime.app_name, description=runtime.description, model=runtime.model_name)


@router.get("/agents/{name}", tags=["agents"])
async def describe_agent(
    name: AgentName,
    user: CurrentUser,
    toolsets: Annotated[bool, Query(description="Ask toolsets for their tools, which starts MCP servers.")] = False,
) -> NodeCard:
    """Describe the agents, nodes and tools of an agent. Only operators read instructions, and may ask toolsets."""
    named = AgentUser(user.context.agents.named(name), user.caller)
    card = await named.runtime.describe_agents(ask_toolsets=toolsets and named.is_operator)
    return card if named.is_operator else _without_instructions(card)


def _without_instructions(card: NodeCard) -> NodeCard:
    tools = [replace(tool, runs=tool.runs and _without_instructions(tool.runs)) for tool in card.tools]
    children = [_without_instructions(child) for child in card.children]
    return replace(card, instruction="", instruction_from="", tools=tools, children=children)


class ToolCallByHand(RequestBody):
    """A call of a tool by its developer."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"agent": "lango", "tool": "read_file", "arguments": {"path": "a.txt"}}]}
    )

    agent: str
    """The agent that has the tool: the root agent, or one below it."""
    tool: str
    arguments: dict[str, Any] = Field(default_factory=dict)
    state: dict[str, Any] = Field(default_factory=dict)
    """The state that the tool finds."""
    approved: bool = False
    """Approve exactly this call, if the tool needs an approval."""


@router.post("/agents/{name}/tool-calls", tags=["agents"], responses=_CALL_ERRORS)
async def call_tool(name: AgentName, body: ToolCallByHand, user: CurrentUser) -> CallResult:
    """Call one tool by hand, for operators: apart from all sessions, within the approval policy; nothing is stored.

    What the tool does outside of Lango, it does.
    """
    user.require_operator("call it", "a tool runs with the rights of the server")
    named = AgentUser(user.context.agents.named(name), user.caller)
    call = CallByHand(body.agent, body.tool, body.arguments, body.state, body.approved)
    return await named.runtime.call_tool_by_hand(call, user_id=named.id)


class ToolList(BaseModel):
    """The tools of all agents of this server."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"tools": ["read_file"], "complete": True, "unusable": []}]}
    )

    tools: list[str]
    """Their names, in order."""
    complete: bool
    """Whether a turn can have no others."""
    unusable: list[str]
    """Tools of MCP servers that cannot be offered, each with its reason, and servers that do not answer."""


@router.get("/tools", tags=["tools"])
async def list_tools(user: CurrentUser) -> ToolList:
    """List the names of the tools; MCP servers are asked for theirs."""
    found = await user.runtime.tool_names(ask_toolsets=True, require_all=False)
    return ToolList(tools=sorted(found.names), complete=found.complete, unusable=[*found.failures, *found.unusable])
