"""Tools: their definition, their approval policy, their execution, and the built-in ones. Without ADK."""

from lango.errors import InvalidArguments, ToolError
from lango.tools.approval_policy import Decision, decide, fingerprint
from lango.tools.builtin.enabled_tools import BUILTIN_NAMES, HOW_TO_READ, builtin_tools, read_result_tool
from lango.tools.builtin.sandbox import find_sandbox
from lango.tools.builtin.workspace import Workspace
from lango.tools.client_tool_definitions import client_tool
from lango.tools.execution import DEFAULT_TIMEOUT_S, ToolOutcome, run_tool
from lango.tools.tool import RESERVED_PREFIX, Effect, Level, Tool, ToolContext, tool

__all__ = [
    "BUILTIN_NAMES",
    "DEFAULT_TIMEOUT_S",
    "HOW_TO_READ",
    "RESERVED_PREFIX",
    "Decision",
    "Effect",
    "InvalidArguments",
    "Level",
    "Tool",
    "ToolContext",
    "ToolError",
    "ToolOutcome",
    "Workspace",
    "builtin_tools",
    "client_tool",
    "decide",
    "find_sandbox",
    "fingerprint",
    "read_result_tool",
    "run_tool",
    "tool",
]
