"""Reach into ADK where it has no public name: the only module that does.

ADK 2.13 offers no other way for any of these. A contract test fails when one of them is gone.
"""

import functools
import importlib
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any

from google.adk.tools import BaseTool, ToolContext
from google.genai import types

_JOURNALED_MARK = "_lango_journaled"
_OPTIONAL_MODULE = "google.adk.agents.remote_a2a_agent"


def declaration_of(tool: BaseTool) -> types.FunctionDeclaration | None:
    """Return what the model reads of an ADK tool. ADK calls the method only while it builds a request."""
    return tool._get_declaration()  # noqa: SLF001 # pyright: ignore[reportPrivateUsage]


def defers_response(tool: BaseTool) -> bool:
    """Whether the result of a tool that returned nothing comes later, as ADK itself decides it."""
    return tool.is_long_running or tool._defers_response  # noqa: SLF001 # pyright: ignore[reportPrivateUsage]


def is_node_tool(tool: BaseTool) -> bool:
    """Whether a tool runs a node of a workflow. If ADK has not imported the class, there is no such tool."""
    module = sys.modules.get("google.adk.tools._node_tool")
    return module is not None and isinstance(tool, module.NodeTool)


NodeRun = Callable[..., "AsyncGenerator[Any, None]"]
"""Runs a node: takes its context and its input, and yields what the node yields."""
JournaledRun = Callable[[Callable[..., Any], str, NodeRun, Any, Any], "AsyncGenerator[Any, None]"]


def journal_nodes(run_journaled: JournaledRun) -> None:
    """Put a function around the run of every function node. It gets the node's function, its name and its own run.

    A plugin cannot do it: ADK calls none around a node. A subclass cannot do it either: ADK makes the nodes itself.
    """
    from google.adk.workflow import FunctionNode

    if "_run_impl" not in vars(FunctionNode) or hasattr(vars(FunctionNode)["_run_impl"], _JOURNALED_MARK):
        return
    run = vars(FunctionNode)["_run_impl"]

    def journaled(node: Any, *, ctx: Any, node_input: Any) -> "AsyncGenerator[Any, None]":
        return run_journaled(node._unwrapped_func, node.name, functools.partial(run, node), ctx, node_input)  # noqa: SLF001

    setattr(journaled, _JOURNALED_MARK, True)
    FunctionNode._run_impl = journaled  # noqa: SLF001 # pyright: ignore


def tool_node_path(context: ToolContext) -> str | None:
    """Return the path of the node that runs a tool without an agent; ADK gives its call another id in each run."""
    node: Any = getattr(context, "_node", None)
    return context.node_path if type(node).__name__ == "_ToolNode" else None


def has_replaced_run(tool: BaseTool) -> bool:
    """Whether `replace_run` was called for this tool."""
    return "run_async" in vars(tool)


def replace_run(tool: BaseTool, run: Callable[..., Awaitable[Any]]) -> None:
    """Replace the function that runs a user's own tool object.

    A subclass cannot do it: the user made the object, and ADK dispatches on its class. A result of the plugin's
    `before_tool_callback` cannot do it either: it would skip the callbacks of the agent.
    """
    vars(tool)["run_async"] = run


def preload_adk() -> None:
    """Import what ADK imports in its first run, which would block the event loop for a second and a half.

    ADK tries to import an optional module in every turn. If its package is missing, it is marked so: trying is slow.
    """
    importlib.import_module("google.adk.workflow").Workflow  # noqa: B018 - an attribute that imports
    try:
        importlib.import_module(_OPTIONAL_MODULE)
    except ImportError:
        vars(sys)["modules"][_OPTIONAL_MODULE] = None
