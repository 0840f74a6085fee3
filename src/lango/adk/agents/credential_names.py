"""Find the names under which the tools of an app look for credentials in the state."""

from collections.abc import Iterator
from typing import Any

from google.adk.auth.auth_tool import AuthConfig
from google.adk.tools.agent_tool import AgentTool

from lango.adk.agents.adk_internals import node_of_tool
from lango.adk.agents.tree import tools_of

_LEVELS = 2  # a tool has a manager of credentials, which has their configuration
_NAMES = ("credential_key", "_credential_key", "external_access_token_key", "_token_cache_key")


def credential_names(root: Any) -> frozenset[str]:
    """Return the names of the credentials of all tools, toolsets and nodes below a root.

    Configurations that a tool makes while it runs are not known: their default names are reserved in any case.
    """
    names = (getattr(held, name, None) for owner in _walk(root) for held in _held(owner) for name in _NAMES)
    return frozenset(name for name in names if isinstance(name, str) and name)


def _walk(root: Any) -> Iterator[Any]:
    """Yield the agents, nodes, tools and toolsets below a root, each once."""
    pending, visited = [root], dict[int, Any]()
    while pending:
        node = pending.pop()
        if node is None or id(node) in visited:
            continue
        visited[id(node)] = node
        yield node
        graph: Any = getattr(node, "graph", None)
        inner = node.agent if isinstance(node, AgentTool) else node_of_tool(node)
        pending += [*getattr(node, "sub_agents", ()), *(graph.nodes if graph else ()), *tools_of(node), inner]


def _held(owner: Any, levels: int = _LEVELS) -> Iterator[Any]:
    """Yield an object, and the configurations of credentials that it holds."""
    yield owner
    members: dict[str, Any] = {**getattr(owner, "__dict__", {}), **(getattr(owner, "__pydantic_private__", None) or {})}
    for value in members.values() if levels else ():
        if isinstance(value, AuthConfig):
            yield value
        elif "redential" in type(value).__name__:  # ADK's managers and configurations of credentials
            yield from _held(value, levels - 1)
