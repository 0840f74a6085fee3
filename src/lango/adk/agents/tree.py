"""Walk the agents of an app; find the agents whose answer ends a turn, and those that an agent may transfer to."""

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any

from google.adk.agents import (
    BaseAgent,
    LlmAgent,
    SequentialAgent,  # pyright: ignore[reportDeprecated]
)
from google.adk.apps import App
from google.adk.events import Event
from google.adk.tools.agent_tool import AgentTool

from lango.adk.agents.adk_internals import node_of_tool
from lango.adk.model.provider_llm import ProviderLlm
from lango.sessions import CORRECTION, INPUT_CALL

_START = "__START__"


def walk_agents(root: Any) -> Iterator[BaseAgent]:
    """Walk the agents of an app: the root, all agents below it, and those in the graph of a workflow."""
    pending, visited = [root], set[int]()
    while pending:
        node = pending.pop(0)
        if id(node) not in visited:
            visited.add(id(node))
            if isinstance(node, BaseAgent):
                yield node
            pending[:0] = nodes_below(node)


def nodes_below(node: Any) -> list[Any]:
    """Return the sub-agents of an agent, or the nodes in the graph of a workflow, without its start."""
    graph: Any = getattr(node, "graph", None)
    inner = [one for one in graph.nodes if one.name != _START] if graph else []
    return [*getattr(node, "sub_agents", ()), *inner]


def node_at(root: Any, path: str) -> Any:
    """Return the node of a workflow at a path, or None if it was made while the workflow ran."""
    node = root
    for step in path.split("/")[1:]:
        graph: Any = getattr(node, "graph", None)
        name = step.rpartition("@")[0]
        node = next((inner for inner in graph.nodes if inner.name == name), None) if graph else None
    return node


def tools_of(agent: Any) -> Sequence[Any]:
    """Return the tools of an agent; kinds of agents without tools have none."""
    return getattr(agent, "tools", ())


def agent_in_tool(tool: Any) -> Any:
    """Return the agent or node that a tool runs, or None."""
    return tool.agent if isinstance(tool, AgentTool) else node_of_tool(tool)


def walk_with_agent_tools(root: Any) -> Iterator[BaseAgent]:
    """Walk the agents of an app, including those that are tools of others, or nodes of a workflow that is a tool."""
    for agent in walk_agents(root):
        yield agent
        for tool in tools_of(agent):
            inner = agent_in_tool(tool)
            if inner is not None:
                yield from walk_with_agent_tools(inner)


def is_copyable(root: Any) -> bool:
    """Whether ADK can clone this tree: it copies its own agent classes, but no graph and no agent in a tool."""
    agents = [*walk_agents(root)]
    is_whole = getattr(root, "parent_agent", None) is None and len(agents) == len([*walk_with_agent_tools(root)])
    return is_whole and has_only_adk_agents(root) and not any(getattr(agent, "graph", None) for agent in agents)


def has_only_adk_agents(root: Any) -> bool:
    """Whether an app consists of ADK's own kinds of agents, without workflows and agents of the user's own."""
    agents = [*walk_with_agent_tools(root)]
    return isinstance(root, BaseAgent) and all(type(agent).__module__.startswith("google.adk.") for agent in agents)


def may_request_input(root: Any) -> bool:
    """Whether a workflow, an agent of the user's own or ADK's own tool may ask a person for input."""
    if not has_only_adk_agents(root):
        return True
    tools = [tool for agent in walk_with_agent_tools(root) for tool in tools_of(agent)]
    return INPUT_CALL in names_of(tools) or any(node_of_tool(tool) is not None for tool in tools)


def names_of(tools: Iterable[Any]) -> set[str]:
    """Return the names of tools, which may be plain functions."""
    return {getattr(tool, "name", "") or getattr(tool, "__name__", "") for tool in tools}


def final_answer_agents(app: App) -> frozenset[str]:
    """Return the names of the agents whose final answer ends the turn, because nothing follows it."""
    has_only_our_plugin = len(app.plugins) == 1
    return frozenset(_last_speakers(app.root_agent)) if has_only_our_plugin else frozenset()


def _last_speakers(agent: Any) -> Iterator[str]:
    """Yield the agents that may speak last in a run of an agent, or of any other node of a workflow."""
    if getattr(agent, "after_agent_callback", None):
        return
    if type(agent) is SequentialAgent and agent.sub_agents:  # pyright: ignore[reportDeprecated]
        yield from _last_speakers(agent.sub_agents[-1])
    elif isinstance(agent, LlmAgent) and agent.mode in (None, "chat"):
        if agents_with_direct_text([agent]) and isinstance(agent.model, ProviderLlm):
            yield agent.name
        for transferred_to in agent.sub_agents:
            yield from _last_speakers(transferred_to)


def agents_with_direct_text(agents: Iterable[BaseAgent]) -> frozenset[str]:
    """Return the names of the agents whose text nothing in ADK can change: it goes to the readers without ADK.

    A partial event costs ADK about 0.6 ms, more than all other work on it: two hundred streams of twenty pieces a
    second would need more than two cores. So ADK only gets the final answer of these agents.
    """
    return frozenset(
        agent.name
        for agent in agents
        if type(agent) is LlmAgent
        and agent.mode in (None, "chat")
        and not (agent.after_model_callback or agent.planner or agent.code_executor or agent.output_schema)
    )


def is_final_answer(event: Event, agent_names: Collection[str]) -> bool:
    """Whether an event is the final text answer of one of these agents."""
    parts = (event.content and event.content.parts) or []
    return (
        event.author in agent_names
        and event.finish_reason is not None
        and not (event.error_code or event.long_running_tool_ids or event.get_function_responses())
        and event.is_final_response()
        and any(part.text and not part.text.isspace() and not part.thought for part in parts)
    )


# -- transfers ---------------------------------------------------------------------------------------------------------

TRANSFER_TOOL = "transfer_to_agent"

# every message of ADK 2.13 for it; a contract test fails when ADK changes one
_WORDINGS = (
    re.compile(r"^Transfer target agent '(?P<name>.*)' not found\."),
    re.compile(r"^Agent (?P<name>.*) not found in the agent tree\."),
    re.compile(r"^Agent '(?P<name>.*)' (?:not found|cannot transfer to itself)\."),
    re.compile(r"^Agent .* is not allowed to transfer to agent (?P<name>.*)\.$"),
    re.compile(r"^Cannot transfer from '.*' to (?:unrelated|parent|peer) agent '(?P<name>.*)'[.:]"),
)


def missing_transfer_target(error: BaseException) -> str | None:
    """Return the name of the agent that ADK could not find; None for any other error."""
    if isinstance(error, ValueError):
        for wording in _WORDINGS:
            if found := wording.match(str(error)):
                return found["name"]
    return None


def missing_approved_tool(error: BaseException) -> str | None:
    """Return the name of the tool that ADK could not find for a call that was approved; None for any other error."""
    found = re.fullmatch(r"Tool '(.*)' is not registered\.", str(error)) if isinstance(error, ValueError) else None
    return found[1] if found else None


def transfer_correction(name: str, valid: Sequence[str]) -> str:
    """Return the message that asks the model to transfer to an existing agent."""
    return (
        f'{CORRECTION}{name}" does not exist. Valid agents: {", ".join(valid)}. '
        "Please retry using one of the valid agent names listed above.]"
    )


def transfer_targets(root: Any, name: str) -> list[str]:
    """Return the agents that ADK offers an agent for transfers: its children, its parent and its siblings."""
    for agent in walk_agents(root):
        if agent.name == name and isinstance(agent, LlmAgent):
            near = [*agent.sub_agents]
            parent = agent.parent_agent
            if isinstance(parent, LlmAgent):
                near += [] if agent.disallow_transfer_to_parent else [parent]
                near += [] if agent.disallow_transfer_to_peers else parent.sub_agents
            others = [target for target in near if target.name != name]
            # ADK calls agents of these modes as tools
            tools = [target for target in others if getattr(target, "mode", None) in ("task", "single_turn")]
            return [target.name for target in others if target is parent or target not in tools]
    return []
