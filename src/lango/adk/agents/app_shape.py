"""Describe what of an app decides whether a turn of it can be replayed: its agents, nodes and tools.

Names, classes, the order of sub-agents, the edges of workflows, and the schemas and effects of tools belong to the
shape. Instructions, models and descriptions do not: with another of them, a turn continues as it is.
"""

import hashlib
import inspect
from collections.abc import Callable, Iterator, Mapping
from typing import Any, cast

from google.adk.agents import BaseAgent, LlmAgent
from google.adk.tools import BaseTool, FunctionTool
from google.adk.tools.agent_tool import AgentTool
from google.adk.tools.base_toolset import BaseToolset
from google.genai.types import FunctionDeclaration
from msgspec import Struct, json, to_builtins

from lango.adk.agents.adk_internals import declaration_of
from lango.adk.agents.tools.adk_tool import effect_of_node
from lango.adk.agents.tree import agent_in_tool, nodes_below, tools_of
from lango.development.agent_cards import NodeKind
from lango.tools import Effect

_KINDS: Mapping[str, NodeKind] = {
    "SequentialAgent": "sequence",
    "ParallelAgent": "parallel",
    "LoopAgent": "loop",
}
_FINGERPRINT_BYTES = 8
_DESCRIPTIONS = ("description", "title")


class ToolShape(Struct, frozen=True):
    """What decides whether a recorded call of a tool still fits it."""

    name: str
    kind: str
    schema: str
    """A digest of the schema of its arguments, without descriptions."""
    effect: Effect
    runs: "NodeShape | None" = None
    """The agent or node that it runs."""
    is_toolset: bool = False
    """It has tools that are not known here."""
    has_own_session: bool = False
    """What it runs leaves no events in the session of the turn."""


class NodeShape(Struct, frozen=True):
    """An agent, or a node of a workflow, with what is below it."""

    name: str
    kind: NodeKind
    of_class: str
    """The name of its class; of the user's own, with the module."""
    tools: tuple[ToolShape, ...] = ()
    children: "tuple[NodeShape, ...]" = ()
    """Its sub-agents, or the nodes of its graph."""
    edges: tuple[tuple[str, str, str], ...] = ()
    """From which node of its graph to which, and on which route."""
    effect: Effect = "none"
    """Of a function."""

    def walk(self) -> "Iterator[NodeShape]":
        """Yield this node and all below it, also those that tools run."""
        yield self
        for below in (*self.children, *(tool.runs for tool in self.tools if tool.runs is not None)):
            yield from below.walk()

    def walk_session(self) -> "Iterator[NodeShape]":
        """Yield this node and all below it whose events are in the session of the turn."""
        yield self
        in_tools = (tool.runs for tool in self.tools if tool.runs is not None and not tool.has_own_session)
        for below in (*self.children, *in_tools):
            yield from below.walk_session()

    def tool_schema(self, agent: str, tool: str) -> str | None:
        """Return the digest of the schema of an agent's tool, or None if it is not known, as for a toolset."""
        tools = (own for node in self.walk() if node.name == agent for own in node.tools)
        return next((own.schema for own in tools if own.name == tool), None)

    def child(self, name: str) -> "NodeShape | None":
        """Return the node of that name in its graph."""
        return next((node for node in self.children if node.name == name), None)

    @property
    def fingerprint(self) -> str:
        """The version of an app with this root, if it has no other: equal shapes have the same one."""
        return hashlib.sha256(json.encode(to_builtins(self))).hexdigest()[: 2 * _FINGERPRINT_BYTES]


class AppVersion(Struct, frozen=True):
    """The version of an app that this process runs."""

    name: str
    """That of the settings, or else the fingerprint of the shape."""
    shape: NodeShape


def shape_of(root: Any, effect_of_tool: Callable[[BaseTool], Effect]) -> NodeShape:
    """Describe a tree of agents or nodes. Toolsets are not asked for their tools."""
    graph: Any = getattr(root, "graph", None)
    kind = kind_of(root)
    return NodeShape(
        name=root.name,
        kind=kind,
        of_class=_class_name(root),
        tools=tuple(_tool_shape(tool, effect_of_tool) for tool in tools_of(root)),
        children=tuple(shape_of(node, effect_of_tool) for node in nodes_below(root)),
        edges=tuple(
            sorted(
                (edge.from_node.name, edge.to_node.name, "" if edge.route is None else str(edge.route))
                for edge in graph.edges
            )
            if graph
            else ()
        ),
        effect=effect_of_node(getattr(root, "_unwrapped_func", root)) if kind == "function" else "none",
    )


def kind_of(node: Any) -> NodeKind:
    """Return the kind of an agent or a node."""
    if getattr(node, "graph", None):
        return "workflow"
    if isinstance(node, LlmAgent):
        return "llm"
    if isinstance(node, BaseAgent):
        return _KINDS.get(type(node).__name__, "other") if type(node).__module__.startswith("google.adk.") else "other"
    return "function" if type(node).__name__ == "FunctionNode" else "other"


def _class_name(thing: object) -> str:
    kind = type(thing)
    return (
        kind.__name__ if kind.__module__.startswith(("google.adk.", "lango.")) else f"{kind.__module__}.{kind.__name__}"
    )


def _tool_shape(tool: Any, effect_of_tool: Callable[[BaseTool], Effect]) -> ToolShape:
    if isinstance(tool, BaseToolset):
        return ToolShape(
            str(getattr(tool, "tool_name_prefix", None) or ""), _class_name(tool), "", "none", is_toolset=True
        )
    tool = as_adk_tool(tool)
    runs = agent_in_tool(tool)
    return ToolShape(
        name=getattr(tool, "name", ""),
        kind=_class_name(tool),
        schema=schema_digest(tool) if isinstance(tool, BaseTool) else "",
        effect=effect_of_tool(tool) if isinstance(tool, BaseTool) else "once",
        runs=shape_of(runs, effect_of_tool) if runs is not None else None,
        has_own_session=isinstance(tool, AgentTool),
    )


def as_adk_tool(tool: Any) -> Any:
    """Return a function of an agent as the tool that ADK makes of it, and anything else as it is."""
    return FunctionTool(tool) if not isinstance(tool, BaseTool) and inspect.isroutine(tool) else tool


def declared(tool: BaseTool) -> FunctionDeclaration | None:
    """Return what the model reads of a tool, or None if it declares nothing now."""
    try:
        return declaration_of(tool)
    except Exception:  # noqa: BLE001 - of the user's own tool; it fails again where the model is offered it
        return None


def schema_digest(tool: BaseTool) -> str:
    """Return a digest of the schema of a tool's arguments, without descriptions, or "" if it declares none now."""
    declaration = declared(tool)
    if declaration is None:
        return ""
    schema: Any = declaration.parameters_json_schema
    if schema is None and declaration.parameters is not None:
        schema = declaration.parameters.model_dump(mode="json", exclude_none=True)
    digest = hashlib.sha256(json.encode(_without_descriptions(schema or {}), order="deterministic"))
    return digest.hexdigest()[: 2 * _FINGERPRINT_BYTES]


def _without_descriptions(schema: Any, *, are_names: bool = False) -> Any:
    """Remove the descriptions from a schema. `are_names`: the keys name properties, and are not keywords."""
    if isinstance(schema, list):
        return [_without_descriptions(item) for item in cast("list[Any]", schema)]
    if not isinstance(schema, dict):
        return schema
    return {
        key: _without_descriptions(value, are_names=not are_names and key in ("properties", "$defs"))
        for key, value in cast("dict[str, Any]", schema).items()
        if are_names or key not in _DESCRIPTIONS
    }
