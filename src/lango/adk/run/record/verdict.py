"""Decide from the record of a turn, and from nothing else, how another version of the app continues it.

The decision is made before anything runs, and `lango deploy check` makes the same one. It looks at what the record
names: agents, their branches and order, nodes of workflows, agents inside tools. What only the user's own code decides
is noticed at the step where it differs; see `lango.adk.run.record.replay`.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal

from msgspec import Struct

from lango.adk.agents.app_shape import NodeShape
from lango.adk.events.recorded_run import FROM_CODE, TOOL_SCHEMAS
from lango.messages import Message
from lango.sessions import CONFIRMATION_CALL, StoredEvent
from lango.store.codec.rows import approval_subject
from lango.store.tool_calls.tool_journal import JournalEntry

VerdictKind = Literal["same", "continues at the next model call", "cannot continue"]

_NODE = "node:"
_START = "__START__"
_WITHOUT_NODES = ("sequence", "parallel", "loop")


class Verdict(Struct, frozen=True):
    """How a version of the app continues a turn, and why not as it began."""

    kind: VerdictKind
    why: str = ""


SAME = Verdict("same")
DIVERGED = Verdict("continues at the next model call", "the agents do not follow the record")


def judge(stored: Sequence[StoredEvent], entries: Mapping[str, JournalEntry], root: NodeShape) -> Verdict:
    """Return how an app with this root continues a turn, from the turn's stored messages and journal entries."""
    events = [event for event in stored if event.message is not None and event.message.author != "user"]
    if nodes := _nodes_of_workflow(events, entries):
        verdict = judge_nodes(nodes, root)
        if verdict is SAME and (why := next(_of_another_kind(events, entries, root), "")):
            verdict = Verdict("cannot continue", why)
        if verdict is not SAME or root.kind == "workflow":
            return verdict
    if why := next(_misfits(events, entries, root), ""):
        return Verdict("continues at the next model call", why)
    return SAME


def judge_nodes(paths: Iterable[str], root: NodeShape) -> Verdict:
    """Return how an app with this root continues a workflow that has reached the nodes at these paths."""
    nodes = [_names(path) for path in paths]
    why = _missing_node(nodes, root) or _passed_by(nodes, root)
    return Verdict("cannot continue", why) if why else SAME


def judge_answer(asked_by: StoredEvent, root: NodeShape) -> Verdict:
    """Return how an app with this root continues with the answer to a request, or the result of a call, of a message.

    A call that was approved is asked about again if its tool has another schema.
    """
    assert asked_by.message
    name = asked_by.message.author
    agent = next((node for node in root.walk_session() if node.name == name), None)
    if agent is None and _is_started_by_code(_names(_path(asked_by)), root):
        return SAME
    if agent is None:
        return Verdict("continues at the next model call", f"agent {name!r}, which asked, no longer exists")
    known: Mapping[str, str] = (asked_by.extra or {}).get(TOOL_SCHEMAS) or {}
    tools = {tool.name: tool for tool in agent.tools}
    is_open = any(tool.is_toolset for tool in agent.tools)
    for tool in dict.fromkeys((*known, *_asked_about(asked_by.message))):
        if tool not in tools and (tool in known or not is_open):
            return Verdict("continues at the next model call", f"tool {tool!r} of agent {name!r} no longer exists")
        if tool in known and tools[tool].schema != known[tool]:
            return Verdict(
                "continues at the next model call", f"tool {tool!r} takes other arguments: it is asked again"
            )
    return SAME


def _asked_about(message: Message) -> Iterator[str]:
    """Yield the tools whose calls a message asks a person to approve."""
    for call in message.tool_calls:
        if call.name == CONFIRMATION_CALL and (name := approval_subject(call).get("name")):
            yield str(name)


# -- workflows --------------------------------------------------------------------------------------------------------


def _nodes_of_workflow(events: Sequence[StoredEvent], entries: Mapping[str, JournalEntry]) -> list[str]:
    """Return the paths of the nodes that the record names, in their order, or none if no workflow ran."""
    functions = _functions(entries)
    outputs = [event for event in events if _node_info(event).get("output_for")]
    if not functions and not outputs:
        return []
    # a function has an event once it has ended; the one that has not ended comes last
    return [*dict.fromkeys((*(path for event in events if (path := _path(event))), *functions))]


def _functions(entries: Mapping[str, JournalEntry]) -> list[str]:
    return [key.removeprefix(_NODE).partition("#")[0] for key in entries if key.startswith(_NODE)]


def _of_another_kind(
    events: Sequence[StoredEvent], entries: Mapping[str, JournalEntry], root: NodeShape
) -> Iterator[str]:
    """Say which node of the record was a function and is an agent now, or the other way: its steps are not recorded."""
    functions, agents = _functions(entries), {_path(event) for event in events if is_response(event)}
    for path in (*functions, *agents):
        node: NodeShape | None = root
        for name in _names(path)[1:]:
            node = _node_below(node, name, root) if node is not None else None
        is_agent = path not in functions
        if node is not None and node.kind in (("function",) if is_agent else ("llm", "workflow", *_WITHOUT_NODES)):
            yield f"node {node.name!r}, which the turn has reached, is {'no longer' if is_agent else 'now'} an agent"


def _missing_node(nodes: Sequence[list[str]], root: NodeShape) -> str:
    """Say which node of the record the app no longer has; empty: none that is known."""
    for first, *names in nodes:
        if (root.kind == "workflow" and first != root.name) or root.kind in _WITHOUT_NODES:
            return f"the workflow {first!r} of the turn no longer exists, and {root.name!r} runs in its place"
        node = root
        for name in names:
            if node.kind not in ("workflow", "llm"):
                break  # what a function or an agent of the user's own runs is not known
            found = _node_below(node, name, root)
            if found is None:
                return f"node {name!r} of workflow {node.name!r}, which the turn has reached, no longer exists"
            node = found
    return ""


def _is_started_by_code(names: Sequence[str], root: NodeShape) -> bool:
    """Whether a path leads through a function or an agent of the user's own, which decides what runs below it."""
    node: NodeShape | None = root
    for name in names[1:]:
        if node is None or node.kind not in ("workflow", "llm"):
            break
        node = _node_below(node, name, root)
    else:
        return False
    return node is not None


def _node_below(node: NodeShape, name: str, root: NodeShape) -> NodeShape | None:
    """Return the node of a workflow's graph with a name, or the one that an agent can reach in the tree."""
    inner = node.children if node.kind == "workflow" else root.walk_session()
    return next((below for below in inner if below.name == name), None)


def _passed_by(nodes: Sequence[list[str]], root: NodeShape) -> str:
    """Say which node now comes before one that the turn has reached; empty: none."""
    reached: dict[tuple[str, ...], list[str]] = {}
    for path in nodes:
        for length in range(1, len(path)):
            names = reached.setdefault(tuple(path[:length]), [])
            names += [path[length]] if path[length] not in names else []
    for place, names in reached.items():
        workflow: NodeShape | None = root
        for name in place[1:]:
            workflow = workflow.child(name) if workflow is not None else None
        if workflow is None or workflow.kind != "workflow":
            continue
        for place_of, name in enumerate(names):
            before = [source for source, target, _ in workflow.edges if target == name]
            if before and not any(source == _START or source in names[:place_of] for source in before):
                return f"node {before[0]!r} now comes before node {name!r}, which the turn has reached"
    return ""


# -- agents -----------------------------------------------------------------------------------------------------------


def _misfits(events: Sequence[StoredEvent], entries: Mapping[str, JournalEntry], root: NodeShape) -> Iterator[str]:
    """Say how the record does not fit the agents."""
    places = {node.name: node for node in root.walk_session()}
    has_paths = root.kind in ("llm", "workflow")
    branches = dict(_branches(root, "", is_known=True))
    for event in events:
        assert event.message
        name = event.message.author
        if name not in places:
            yield f"agent {name!r} no longer exists"
        elif is_response(event) and places[name].kind not in ("llm", "other"):
            yield f"agent {name!r} is no longer one that calls a model"
        elif bool(_path(event)) != has_paths or (_path(event) and not _leads_to(_names(_path(event)), root)):
            yield f"agent {name!r} is called from another place"
        elif branches.get(name) not in (None, (event.extra or {}).get("branch") or ""):
            yield f"agent {name!r} runs in another branch"
    authors = [event.message.author for event in events if event.message]
    for node in root.walk():
        if node.kind in ("sequence", "loop"):
            yield from _order_misfits(node, authors)
    yield from _tool_misfits(entries, root)


def _leads_to(names: Sequence[str], root: NodeShape) -> bool:
    """Whether a path of agents begins at the root, or at one that answered last, and leads on to agents of the tree."""
    if root.kind == "workflow":
        return names[0] == root.name
    agents = {node.name for node in root.walk_session()}
    return all(name in agents for name in names)


def _branches(node: NodeShape, branch: str, *, is_known: bool) -> Iterator[tuple[str, str | None]]:
    """Yield in which branch each agent runs, or None if that is decided while it runs."""
    yield node.name, branch if is_known else None
    for child in node.children:
        inner = f"{branch}." * bool(branch) + f"{node.name}.{child.name}" if node.kind == "parallel" else branch
        yield from _branches(child, inner, is_known=is_known and node.kind not in ("other", "workflow"))


def _order_misfits(node: NodeShape, authors: Sequence[str]) -> Iterator[str]:
    """Say which agent of a sequence comes before one that the turn has reached, or after one that follows now."""
    first = [
        min((authors.index(inner.name) for inner in child.walk() if inner.name in authors), default=None)
        for child in node.children
    ]
    for number, child in enumerate(node.children):
        later = [place for place in first[number + 1 :] if place is not None]
        at = first[number]
        if later and at is None and child.kind != "other":
            yield f"agent {child.name!r} now comes before one that has run"
        elif later and at is not None and min(later) < at:
            yield f"agent {child.name!r} now comes before one that ran first"


def _tool_misfits(entries: Mapping[str, JournalEntry], root: NodeShape) -> Iterator[str]:
    """Say which agents inside a call that has not ended no longer exist there."""
    tools = {tool.name: tool for node in root.walk() for tool in node.tools if tool.runs is not None}
    for key in entries:
        call_id, slash, inner = key.partition("/")
        call = entries.get(call_id)
        if not slash or call is None or call.status == "finished" or "@" not in inner:
            continue
        name, tool = inner.rpartition("/")[2].partition("@")[0], tools.get(call.name)
        inside = tool.runs if tool is not None else None
        if inside is None or name not in {node.name for node in inside.walk()}:
            yield f"agent {name!r}, which runs inside of {call.name!r}, no longer exists"
        elif inside.kind == "llm" and inside.name != name and "/" not in inner and not _transfers(inside, name):
            yield f"agent {name!r} is called from another place"


def _transfers(agent: NodeShape, name: str) -> bool:
    return any(below.name == name for child in agent.children for below in child.walk())


def is_response(event: StoredEvent) -> bool:
    """Whether a stored event is the response to a model call."""
    return bool(event.message and event.message.role == "assistant") and not (event.extra or {}).get(FROM_CODE)


def _node_info(event: StoredEvent) -> Mapping[str, Any]:
    return (event.extra or {}).get("node_info") or {}


def _path(event: StoredEvent) -> str:
    return _node_info(event).get("path") or ""


def _names(path: str) -> list[str]:
    return [step.rpartition("@")[0] or step for step in path.split("/")]
