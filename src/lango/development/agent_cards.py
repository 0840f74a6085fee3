"""An app as its developer sees it: its agents, nodes and tools, and what a tool did in a call by hand."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from msgspec import Struct

from lango.development.failures import Failure

NodeKind = Literal["llm", "sequence", "parallel", "loop", "workflow", "function", "other"]


class ToolCard(Struct, frozen=True, kw_only=True):
    """A tool of an agent, or a toolset."""

    name: str
    kind: str
    """The name of its class; of the user's own, with the module."""
    description: str = ""
    schema: Mapping[str, Any] | None = None
    """The JSON schema of its arguments, or null if it declares no function."""
    decision: Literal["run", "ask", "deny"] = "run"
    """Whether the settings let it run, let it run after an approval, or deny it."""
    effect: Literal["none", "idempotent", "once"] = "once"
    """What a second run with the same arguments would do."""
    is_toolset: bool = False
    tools: "Sequence[ToolCard]" = ()
    """The tools of a toolset that was asked for them."""
    problem: str = ""
    """Why a toolset did not list its tools."""
    runs: "NodeCard | None" = None
    """The agent or node that it runs."""


class NodeCard(Struct, frozen=True, kw_only=True):
    """An agent, or a node of a workflow, with what is below it."""

    name: str
    kind: NodeKind
    of_class: str
    """The name of its class; of the user's own, with the module."""
    description: str = ""
    instruction: str = ""
    """Empty for those who may not read it, and if a function makes it."""
    instruction_from: str = ""
    """The name of the function that makes the instruction."""
    model: str = ""
    tools: Sequence[ToolCard] = ()
    children: "Sequence[NodeCard]" = ()
    """Its sub-agents, or the nodes of its graph."""
    edges: Sequence[tuple[str, str, str]] = ()
    """From which node of its graph to which, and on which route."""


class CallByHand(Struct, frozen=True):
    """A call of a tool that its developer asks for."""

    agent: str
    tool: str
    arguments: Mapping[str, Any] = {}
    state: Mapping[str, Any] = {}
    """The state that the tool finds."""
    approved: bool = False
    """The developer approved exactly this call."""


class CallResult(Struct, frozen=True):
    """What a tool did in a call by hand. None of it is stored."""

    ok: bool
    result: Mapping[str, Any]
    """What the model would read."""
    duration_s: float
    state: Mapping[str, Any]
    """What the tool changed in the state."""
    artifacts: Sequence[str]
    """The names of the artifacts that it saved."""
    files: int
    """How many pictures and other files the result has."""
    asks: Literal["", "approval", "credential"]
    """What the tool itself asked the user for, instead of running to its end."""
    failure: Failure | None
    """Where the tool raised an error."""
