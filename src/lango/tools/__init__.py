"""Tools: their definition, their approval policy, their execution, and the built-in ones. Without ADK."""

from lango.errors import InvalidArguments, ToolError
from lango.tools.builtin.enabled_tools import HOW_TO_READ, builtin_tools
from lango.tools.client_tool_definitions import client_tool
from lango.tools.execution import DEFAULT_TIMEOUT_S, ToolOutcome, run_tool
from lango.tools.tool import Effect, Level, Tool, ToolContext, tool

__all__ = [
    "DEFAULT_TIMEOUT_S",
    "HOW_TO_READ",
    "Effect",
    "InvalidArguments",
    "Level",
    "Tool",
    "ToolContext",
    "ToolError",
    "ToolOutcome",
    "builtin_tools",
    "client_tool",
    "run_tool",
    "tool",
]
