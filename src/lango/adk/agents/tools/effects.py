"""Mark what a second run of an ADK function would do: of a tool's function, or of a workflow's node.

After a crash inside a function it is not known whether it took effect. A tool's function runs again only if it is
marked as `idempotent`, or named in the setting `tools.idempotent`; a node's function runs again unless it is marked as
`once`.
"""

from collections.abc import Callable
from typing import Any, TypeVar

from google.adk.tools.base_tool import BaseTool
from google.adk.tools.load_memory_tool import LoadMemoryTool

from lango.adk.agents.tools.adk_tool import AdkTool
from lango.config import ToolSettings
from lango.tools import Effect

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
