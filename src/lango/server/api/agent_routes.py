"""List the agents of the server and their tools."""

from pydantic import BaseModel, ConfigDict

from lango.server.context import CurrentUser, ServerContext
from lango.server.schemas import COMMON_ERRORS
from lango.server.security.auth import AuthenticatedRouter

router = AuthenticatedRouter("/v1", responses=COMMON_ERRORS)


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
    description = runtime.describe_agents()["description"] or ""
    return AgentView(name=runtime.app_name, description=description, model=runtime.model_name)


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
