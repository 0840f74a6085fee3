"""Build the trace of a turn from its stored rows: agents, their model calls, and the tools that these called.

A pure function. The turn's row has its model calls, once it has ended; those of a running turn come from memory. Where
neither has a call (its process died), the call follows from the message with its response, and its times are estimates.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from lango.events import NodeProgress, Usage
from lango.messages import ToolCall
from lango.runtime.trace.steps import (
    Attempt,
    NodeValues,
    Step,
    StepStatus,
    TurnTrace,
    UnmatchedResponses,
    author_of,
    branch_of,
    is_from_code,
    is_response,
    message_step,
    nesting_depths,
    previous_times,
)
from lango.sessions import StoredEvent
from lango.store.codec.records import call_key
from lango.store.sessions.developer_log import ModelRequest
from lango.store.turns.turn_usage import ToolUse, TurnUsage

Price = Callable[[str, int, int, int], float | None]
"""Returns the cost of a model's input, output and cached tokens in US dollars, or None if it is not known."""

_MODEL_STEP = re.compile(r"(?:(?P<outer>.*)/)?(?P<agent>[^/]*)@(?P<branch>[^/]*)#\d+", re.DOTALL)
_CODE = re.compile(r"(?:.*/)?code:(?P<agent>[^/]*)@(?P<branch>[^/]*)/\d+", re.DOTALL)
_NODE = "node:"
_NODE_STATUS: Mapping[str, StepStatus] = {"ended": "done", "failed": "failed", "waiting": "waiting"}
_CLOCK_TOLERANCE_S = 0.05


def _unknown_price(*_: object) -> None:
    return None


def turn_trace(
    row: TurnUsage,
    messages: Sequence[StoredEvent],
    requests: Iterable[ModelRequest] = (),
    running_calls: Sequence[Mapping[str, Any]] = (),
    price: Price = _unknown_price,
    nodes: Iterable[NodeProgress] = (),
) -> TurnTrace:
    """Build the trace of a turn from its row, its messages, and the requests that were kept.

    `running_calls` are the model calls so far of a turn that runs in this process.
    """
    calls: Sequence[Mapping[str, Any]] = row.result.calls or running_calls
    tree = _Tree(row, messages)
    tree.add_model_calls(calls)
    tree.add_tools()
    tree.add_node_values(nodes)
    tree.add_requests(list(requests))
    tree.add_failures(calls)
    for step in tree.model_steps:
        used = step.usage
        cost_usd = price(step.model, used.input_tokens, used.output_tokens, used.cached_tokens)
        step.usage = replace(used, cost_usd=cost_usd)
    error = row.result.error
    return TurnTrace(
        turn=row.turn,
        status=row.status,
        started_at=row.started_at,
        duration_s=None if row.ended_at is None else max(0.0, row.ended_at - row.started_at),
        first_seq=row.first_seq,
        last_seq=row.last_seq,
        is_rewound=row.is_rewound,
        error=f"{error.type}: {error.message}" if error else "",
        usage=row.usage,
        resumptions=row.resumptions,
        begun_version=row.begun_version,
        version=row.version,
        steps=tree.grouped(),
    )


class _Tree:
    """The steps of a turn while its trace is built."""

    def __init__(self, row: TurnUsage, messages: Sequence[StoredEvent]) -> None:
        self._row = row
        self._is_open = row.status in ("queued", "running")
        self._responses = [event for event in messages if is_response(event)]
        self._others = [event for event in messages if is_from_code(event)]
        self._previous = previous_times(messages, row.started_at)
        self._results = {
            call_key(call.id): event
            for event in messages
            if event.message and event.message.role == "tool"
            for call in event.message.tool_calls
        }
        self.model_steps: list[Step] = []
        self._tools: dict[str, Step] = {}
        self._parents: dict[str, str] = {}  # of a model call or tool inside a tool: the key of that tool's call
        self._uses: Counter[str] = Counter()

    # -- model calls ---------------------------------------------------------------------------------------------------

    def add_model_calls(self, calls: Sequence[Mapping[str, Any]]) -> None:
        """Add the model calls, each with the message of its response, then the responses whose calls are not known."""
        by_seq = {event.seq: event for event in self._responses}
        matched = {call["seq"]: by_seq.pop(call["seq"]) for call in calls if call.get("seq") in by_seq}
        left = UnmatchedResponses(by_seq.values())
        for call in calls:
            event = matched.get(call.get("seq"))
            if event is None and not call.get("inside") and not call.get("failed") and not call.get("running"):
                event = left.take_first(call.get("agent", ""), call.get("branch", "")) or self._take_from_code(call)
            self._add_model_call(call, event)
        numbers: dict[str, int] = {}
        for event in self._responses:
            place = f"{author_of(event)}@{branch_of(event)}"
            numbers[place] = numbers.get(place, 0) + 1
            if event.seq in left.seqs:
                self._add_response(f"{place}#{numbers[place]}", event)

    def _take_from_code(self, call: Mapping[str, Any]) -> StoredEvent | None:
        """Take the response that was stored as made by code: ADK gave it another branch than its model call.

        It does so to an agent after a `ParallelAgent`.
        """
        responses = (event for event in self._others if author_of(event) == call.get("agent") and branch_of(event))
        event = next(responses, None)
        if event is not None:
            self._others.remove(event)
        return event

    def _add_model_call(
        self, call: Mapping[str, Any], event: StoredEvent | None, *, is_estimated: bool = False
    ) -> Step:
        """Add a model call as the turn's row has it, or as its response, the journal or its request show it."""
        agent, branch = call.get("agent", ""), call.get("branch", "")
        step_id = self._unique_id(call.get("step") or f"{agent}@{branch}#{len(self.model_steps) + 1}")
        is_running = bool(call.get("running")) and self._is_open
        failed = call.get("failed") or (call.get("running") and not self._is_open)
        step = Step(
            id=step_id,
            kind="model_call",
            name=call.get("model") or "model",
            status="running" if is_running else "failed" if failed else "done",
            started_at=call.get("started_at", self._row.started_at),
            duration_s=None if is_running else call.get("duration_s"),
            is_estimated=is_estimated or bool(call.get("replayed") and event),
            is_replayed=bool(call.get("replayed")),
            agent=agent,
            branch=branch or (branch_of(event) if event else ""),
            seq=event.seq if event else None,
            model=call.get("model", ""),
            usage=Usage(call.get("input_tokens", 0), call.get("output_tokens", 0), call.get("cached_tokens", 0)),
        )
        if event is not None and (step.is_replayed or is_estimated):
            step.started_at = self._previous[event.seq]
            step.duration_s = max(0.0, event.created_at - step.started_at)
        self.model_steps.append(step)
        if inside := call.get("inside"):
            self._parents[step.id] = call_key(inside)
        for made in event.message.tool_calls if event and event.message else ():
            self._add_call(step, made)
        for call_id in call.get("made", ()):  # of a call inside a tool, whose messages are not stored
            self._parents[call_key(call_id)] = step.id
        return step

    def _add_response(self, step_id: str, event: StoredEvent) -> None:
        """Add a model call that only its response shows."""
        extra = event.extra or {}
        usage: Mapping[str, Any] = extra.get("usage_metadata") or {}
        shown = {
            "step": step_id,
            "model": extra.get("model_version") or "",
            "failed": extra.get("error_code"),
            "agent": author_of(event),
            "input_tokens": usage.get("prompt_token_count") or 0,
            "output_tokens": (usage.get("candidates_token_count") or 0) + (usage.get("thoughts_token_count") or 0),
            "cached_tokens": usage.get("cached_content_token_count") or 0,
        }
        self._add_model_call(shown, event, is_estimated=True)

    def _unique_id(self, step_id: str) -> str:
        self._uses[step_id] += 1
        return step_id if self._uses[step_id] == 1 else f"{step_id}.{self._uses[step_id]}"

    # -- tools ---------------------------------------------------------------------------------------------------------

    def _add_call(self, parent: Step, call: ToolCall) -> None:
        """Add a tool call as its message shows it; the journal may know more."""
        key = call_key(call.id)
        if key in self._tools:  # a model that repeats an id within a turn
            return
        result, waiting = self._results.get(key), self._row.waiting_calls
        step = Step(
            id=f"tool:{key}",
            kind="tool",
            name=call.name,
            status="done" if result else "running" if self._is_open else "waiting" if key in waiting else "not_run",
            started_at=parent.ended_at,
            duration_s=max(0.0, result.created_at - parent.ended_at) if result else None,
            is_estimated=True,
            agent=parent.agent,
            branch=parent.branch,
            call_id=call.id,
            seq=parent.seq,
            result_seq=result.seq if result else None,
        )
        self._tools[key] = step
        self._parents[key] = parent.id

    def add_tools(self) -> None:
        """Add what the journal has: times, tools inside tools, nodes of workflows."""
        steps = {call_key(step.id): step for step in self.model_steps}
        for row in self._row.tools:
            key = call_key(row.call_id)
            if row.started_at is None and (key in steps or _MODEL_STEP.fullmatch(row.call_id)):
                if key not in steps:
                    self._add_nested_response(row)
                continue
            step = self._tools.get(key) or self._new_tool(key, row)
            step.status = "done" if row.status == "finished" else row.status
            step.approved_by = row.approved_by
            if row.started_at is not None:
                step.is_estimated = False
                step.started_at = row.started_at
                step.duration_s = max(0.0, row.finished_at - row.started_at) if row.finished_at is not None else None

    def add_node_values(self, nodes: Iterable[NodeProgress]) -> None:
        """Add what the nodes of workflows got and put out."""
        steps = {step.call_id.rpartition(_NODE)[2]: step for step in self._tools.values() if step.kind == "node"}
        agents = {step.agent for step in self.model_steps}
        for node in nodes:
            step = steps.get(f"{node.path}#{node.attempt}")
            if step is None and node.name in agents:
                continue
            if step is None:
                step = steps[f"{node.path}#{node.attempt}"] = self._new_node(node)
            values = step.node = step.node or NodeValues()
            if node.status == "started":
                values.input = node.input
                continue
            values.output, values.error = node.output, node.error
            if step.is_estimated or node.status == "waiting":
                step.status = _NODE_STATUS[node.status] if self._row.status != "done" else "done"

    def _new_node(self, node: NodeProgress) -> Step:
        """Add a node that the journal does not have, as one that joins branches or is a workflow."""
        key = f"{_NODE}{node.path}#{node.attempt}"
        started_at = max((step.ended_at for step in self._tools.values()), default=self._row.started_at)
        status: StepStatus = "running" if self._is_open else "done"
        step = Step(
            id=f"tool:{key}", kind="node", name=node.name, status=status, started_at=started_at, is_estimated=True
        )
        self._tools[key] = step
        return step

    def _new_tool(self, key: str, row: ToolUse) -> Step:
        result = self._results.get(key)
        outer, node, _ = row.call_id.rpartition(_NODE)
        step = Step(
            id=f"tool:{key}",
            kind="node" if node else "tool",
            name=row.name,
            started_at=row.started_at or row.intended_at,
            agent=author_of(result) if result else "",
            branch=branch_of(result) if result else "",
            call_id=row.call_id,
            result_seq=result.seq if result else None,
        )
        if code := _CODE.fullmatch(row.call_id):
            step.agent, step.branch = code["agent"], code["branch"]
        if node and outer:
            self._parents[key] = self._key_of_outer(outer.rstrip("/"))
        self._tools[key] = step
        return step

    def _add_nested_response(self, row: ToolUse) -> None:
        """Add a model call inside a tool that only the journal shows."""
        shown = {"step": row.call_id, "started_at": row.finished_at or row.intended_at, "duration_s": 0.0}
        self._add_model_call(shown | self._place_of_step(row.call_id), None, is_estimated=True)

    def _place_of_step(self, step_id: str) -> dict[str, str]:
        """Return the agent and the branch that the id of a model call names, and the call that it is inside of."""
        match = _MODEL_STEP.fullmatch(step_id)
        if match is None:
            return {}
        inside = self._key_of_outer(match["outer"]) if match["outer"] else ""
        return {"agent": match["agent"], "branch": match["branch"], "inside": inside}

    def _key_of_outer(self, outer: str) -> str:
        """Return the key of the call that the ids before a step end with: the ids themselves may have slashes."""
        names = outer.split("/")
        ends = ("/".join(names[at:]) for at in range(len(names)))
        return next((key for end in ends if (key := call_key(end)) in self._tools), call_key(outer))

    # -- requests ------------------------------------------------------------------------------------------------------

    def add_requests(self, requests: Sequence[ModelRequest]) -> None:
        """Add the requests that were kept to their model calls; a call that only they show is added, too."""
        by_step: dict[str, list[Step]] = {}
        for step in self.model_steps:
            by_step.setdefault(re.sub(r"(#\d+)\.\d+$", r"\1", step.id), []).append(step)
        for request in requests:
            steps = by_step.setdefault(request.step, [])
            if not steps:
                steps.append(self._call_of_request(request))
            begun = [s for s in steps if s.started_at <= request.started_at + _CLOCK_TOLERANCE_S]
            (begun[-1] if begun else steps[0]).attempts.append(
                Attempt(
                    request.provider,
                    request.model,
                    request.started_at,
                    request.duration_s,
                    request.error,
                    request.status,
                    request.id,
                    request.size,
                )
            )

    def _call_of_request(self, request: ModelRequest) -> Step:
        shown = {
            "step": request.step,
            "model": request.model,
            "started_at": request.started_at,
            "duration_s": request.duration_s,
            "failed": request.error,
        }
        step = self._add_model_call(shown | self._place_of_step(request.step), None, is_estimated=True)
        step.status = "failed" if request.error else "unknown"
        return step

    def add_failures(self, calls: Sequence[Mapping[str, Any]]) -> None:
        """Add the attempts that failed, where no requests are kept."""
        for step, call in zip(self.model_steps, calls, strict=False):
            if not step.attempts:
                step.attempts = [Attempt(**failure) for failure in call.get("attempts") or ()]

    # -- the tree ------------------------------------------------------------------------------------------------------

    def grouped(self) -> list[Step]:
        """Put each step below the one that caused it, and group them by agents."""
        by_id = {step.id: step for step in self.model_steps}
        depths = nesting_depths(self._parents, [*self._tools, *by_id])
        top: list[Step] = []
        inside: dict[str, list[Step]] = {}
        for key, step in [*self._tools.items(), *by_id.items()]:
            parent = self._parents.get(key, "") if depths[key] else ""
            if parent in by_id:
                by_id[parent].steps.append(step)
            elif parent in self._tools:
                inside.setdefault(parent, []).append(step)
            else:
                top.append(step)
        for key, steps in inside.items():
            self._tools[key].steps = _by_agent(steps, f"{self._tools[key].id}/")
        for step in self.model_steps:
            step.steps.sort(key=_by_start)
        turn_waits = self._row.status == "waiting"
        return _by_agent([*top, *(message_step(event, turn_waits=turn_waits) for event in self._others)], "")


def _by_start(step: Step) -> tuple[float, int, str]:
    return step.started_at, step.seq or 0, step.id


def _by_agent(steps: Iterable[Step], prefix: str) -> list[Step]:
    """Group steps by the agent that made them; an agent that runs again after another one is a new group."""
    groups: list[Step] = []
    current: dict[str, Step] = {}
    for step in sorted(steps, key=_by_start):
        if step.kind in ("node", "agent") or not step.agent:
            groups.append(step)
            continue
        group = current.get(step.branch)
        if group is None or group.name != step.agent:
            group = Step(
                id=f"{prefix}agent:{step.agent}@{step.branch}#{len(groups) + 1}",
                kind="agent",
                name=step.agent,
                started_at=step.started_at,
                agent=step.agent,
                branch=step.branch,
            )
            current[step.branch] = group
            groups.append(group)
        group.steps.append(step)
    of_nodes: defaultdict[str, dict[str, StepStatus]] = defaultdict(dict)
    for step in groups:
        if step.kind == "node":
            of_nodes[step.workflow][step.call_id.rpartition("#")[0]] = step.status  # the last attempt counts
    for group in groups:
        if group.kind == "agent":
            _sum_up(group, {*of_nodes[group.name].values()})
    return groups


def _sum_up(group: Step, of_nodes: set[StepStatus]) -> None:
    """Set the status and the end of an agent by its steps, and that of a workflow also by its nodes."""
    inner = [*group.steps, *(tool for step in group.steps for tool in step.steps)]
    statuses = of_nodes | {step.status for step in inner}
    group.started_at = min(step.started_at for step in inner)
    group.is_estimated = any(step.is_estimated for step in group.steps)
    if "running" in statuses:
        group.status = "running"
        return
    ended: StepStatus = "failed" if "failed" in {group.steps[-1].status, *of_nodes} else "done"
    group.status = "waiting" if "waiting" in statuses else ended
    group.duration_s = max(0.0, max(step.ended_at for step in inner) - group.started_at)
