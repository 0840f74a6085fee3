"""Check models, an agent and its MCP servers as a turn would use them, without running one."""

from collections.abc import Mapping, Sequence

from msgspec import Struct

from lango.adk.agents.app_builder import build_app
from lango.adk.agents.app_checks import TreeProblem, check_tree
from lango.adk.agents.model_registry import ModelRegistry, named_models
from lango.adk.agents.tools.mcp.toolset import mcp_toolsets
from lango.adk.run.plugin import RuntimePlugin
from lango.config import Settings
from lango.runtime.opening import protected_files
from lango.store.credentials.secret_box import SecretBox
from lango.testing import ScriptedProvider
from lango.tools import builtin_tools

__all__ = ["CheckedAgent", "ModelRegistry", "check_agent", "check_mcp_server"]

_MCP_TIMEOUT_S = 30.0


class CheckedAgent(Struct, frozen=True):
    """An agent that can be built, and what would fail in its tree."""

    name: str
    tools: int
    """How many built-in tools it has."""
    models: Mapping[str, str] = {}
    """The models that the agents of a module name, each with the first agent that names it."""
    problems: Sequence[TreeProblem] = ()


async def check_agent(settings: Settings, *, contact: bool) -> CheckedAgent:
    """Build the agent as a turn would, with its tools; with `contact`, ask its toolsets, too. Raise `LangoError`."""
    tools = builtin_tools(settings.tools, protected=protected_files(settings))
    registry = ModelRegistry(settings, ScriptedProvider([]))
    app = build_app(settings, registry, tools, RuntimePlugin())
    if not settings.agent.module:
        return CheckedAgent(settings.app_name, len(tools))
    try:
        models: dict[str, str] = {}
        for agent, model, is_lango in named_models(app.root_agent, settings):
            if is_lango:
                models.setdefault(model, agent.name)
        problems = await check_tree(app.root_agent, settings, contact=contact)
    finally:
        await registry.close()  # the agents are free for a check of all of them
    return CheckedAgent(app.root_agent.name if app.root_agent else app.name, len(tools), models, problems)


async def check_mcp_server(settings: Settings, name: str, *, contact: bool) -> str:
    """Check that an MCP server starts or answers; return a sentence about its tools. Raise `LangoError`."""
    [toolset] = mcp_toolsets({name: settings.mcp[name]}, timeout_s=_MCP_TIMEOUT_S)
    if settings.mcp[name].oauth is not None:
        SecretBox.from_environment().check()
        return "is configured; each user signs in, so its tools are not listed here"
    if not contact:
        return "is configured; not contacted"
    try:
        tools = await toolset.get_tools()
        left_out = [f"; cannot be offered: {reason}" for reason in toolset.unusable.values()]
        return f"answers with {len(tools)} tools{''.join(left_out)}"
    finally:
        await toolset.close()
