"""Describe an app to its developer: the agents, nodes and tools of its shape, with what their authors wrote of them."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from google.adk.tools import BaseTool
from google.adk.tools.base_toolset import BaseToolset
from msgspec.structs import replace

from lango.adk.agents.app_builder import own_instruction
from lango.adk.agents.app_shape import NodeShape, ToolShape, as_adk_tool, declared, shape_of
from lango.adk.agents.tools.tool_names import list_toolset
from lango.adk.agents.tree import agent_in_tool, nodes_below, tools_of
from lango.adk.model.request_config import json_schema_of
from lango.agent_cards import NodeCard, ToolCard
from lango.errors import LangoError
from lango.tools import Effect
from lango.tools.execution import Decision


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
            schema=arguments_schema(tool) if isinstance(tool, BaseTool) else None,
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


def arguments_schema(tool: BaseTool) -> Mapping[str, Any] | None:
    """Return the JSON schema of a tool's arguments, or None if it declares no function."""
    declaration = declared(tool)
    if declaration is None:
        return None
    schema: Any = declaration.parameters_json_schema or declaration.parameters
    return json_schema_of(schema) if schema else {"type": "object", "properties": {}}


def _description(node: Any) -> str:
    """Return what an author wrote of an agent, a tool or a node; of a function, its docstring."""
    function = getattr(node, "_unwrapped_func", None)
    return getattr(node, "description", "") or inspect.getdoc(function) or ""
