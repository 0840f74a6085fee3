"""Emit the progress of a workflow's nodes, and journal its function nodes like tools.

A function node that finished never runs again after a crash.

ADK has no callback around a node, so `lango.adk.agents.adk_internals` puts `run_journaled` around each function node. A
failed attempt is journaled too, because ADK may retry a node. A node that had started and did not finish runs again, as
ADK's users expect of a node, unless its function is marked with `once`: no model can decide what to do then, so the
turn stops.
"""

import inspect
import sys
import uuid
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from typing import Any, Literal

from google.adk.agents.context import Context
from google.adk.events import Event, RequestInput
from google.genai import types
from msgspec import Struct, json
from pydantic import TypeAdapter

from lango.adk.agents.adk_internals import (
    NodeRun,
    credential_request_of_node,
    is_node_interrupt,
    journal_nodes,
    observe_nodes,
)
from lango.adk.agents.tools.adk_tool import effect_of_node
from lango.adk.agents.tree import node_at
from lango.adk.run.record.replay import require_used_up
from lango.adk.services.credential_secrets import GIVEN, public_actions, requests_credential
from lango.adk.turn.step import current_step, enter_step
from lango.adk.turn.turn_run import TurnRun, current_turn
from lango.development.failures import log_failure, mark_logged
from lango.errors import LangoError, NodeOutcomeUnknown, Unstorable
from lango.events import NodeProgress, output_to_text, to_plain_values
from lango.store.sessions.open_calls import message_at
from lango.store.tool_calls import tool_journal
from lango.store.tool_calls.tool_journal import JournalEntry
from lango.waits.pauses import AwaitedEvent, Sleep

_NODE_STEP = "node:"  # of a function node's id in the tool journal; its path and `#` with the attempt follow
_MAX_SHOWN_CHARACTERS = 10_000  # of a node's output in its progress; the stored event has all of it


def install() -> None:
    """Journal function nodes, and emit the progress of all nodes, from now on, in turns of a runtime only."""
    journal_nodes(run_journaled)
    observe_nodes(run_observed)


async def run_observed(
    name: str, context: Context, node_input: Any, steps: AsyncGenerator[Any, None]
) -> AsyncGenerator[Any, None]:
    """Run a node of a workflow, and emit its start and its end."""
    turn = current_turn.get()
    in_turn = turn is not None and turn.has_session(context)
    output: Any = None
    is_shown = False
    if turn is not None and in_turn:
        turn.record.note_node(context.node_path)
        # ADK passes nested nodes again that ended before the pause that this turn continues
        is_shown = turn.record.earlier_nodes.get(context.node_path) != "ended"
        request_id = credential_request_of_node(context)
        if context.resume_inputs.get(request_id) == GIVEN:  # no longer kept: the user's stored one is used, or it asks
            del context.resume_inputs[request_id]

    def emit(status: Literal["started", "ended", "failed", "waiting"], error: str = "") -> None:
        if turn is not None and is_shown:
            place = context.node_path, status, context.attempt_count
            shown = _shown_value(node_input) if status == "started" else None
            sink = turn.output.sink
            sink.emit(NodeProgress(sink.next_id(), name, *place, input=shown, output=output, error=error))

    emit("started")
    try:
        async with aclosing(steps) as items:
            async for item in items:
                output = _shown_output(item, output)
                yield item
    except Exception as error:
        if is_node_interrupt(error):
            emit("waiting")
        else:
            if turn is not None:
                log_failure(f"node {name} failed in {turn.place}", error, context.node_path)
                await turn.store_failures()
            emit("failed", f"{type(error).__name__}: {error}")
        raise
    emit("waiting" if context.interrupt_ids else "ended")


async def read_nodes_before_pause(turn: TurnRun) -> None:
    """Read which nodes ran before the pause that this turn continues: ADK passes some of them again."""
    if turn.input.continues_invocation:
        await turn.record.read_earlier_nodes(turn.input_event.invocation_id)


class AnsweredNode(Struct, frozen=True):
    """A node that waited for a person's input, and now has it."""

    path: str
    value: Any
    may_run_again: bool
    """The node may run again with the answer. Otherwise the answer is its output."""

    def end(self, turn: TurnRun) -> None:
        """Emit that the node has ended with the answer."""
        name, shown = self.path.rpartition("/")[2].rpartition("@")[0], _clipped(self.value)
        sink = turn.output.sink
        sink.emit(NodeProgress(sink.next_id(), name, self.path, "ended", output=shown))


async def answered_node(root: Any, turn: TurnRun) -> AnsweredNode | None:
    """Return the node whose input request this turn answers, or None if there is none or it waits for more."""
    answer = turn.input.answer if turn.input.answered_kind == "input" else None
    stored = await turn.record.store.read(message_at, turn.record.lease.session_key, answer.seq) if answer else None
    extra: Mapping[str, Any] = (stored.extra if stored else None) or {}
    path: str = extra.get("node_info", {}).get("path", "")
    if answer is None or path not in turn.record.earlier_nodes:
        return None
    [value] = [
        _answered_value(result.response)
        for result in turn.input_event.get_function_responses()
        if result.id == answer.call_id
    ]
    node = node_at(root, path)
    return AnsweredNode(path, value, node is None or node.rerun_on_resume)


def _answered_value(output: Mapping[str, Any] | None) -> Any:
    """Return the value in the stored answer to an input request."""
    members = dict(output or {})
    return members["result"] if members.keys() == {"result"} else members


def _clipped(output: Any) -> Any:
    """Return an output as readers see it: as the beginning of its text if it is long."""
    text = "" if output is None else output_to_text(output)
    return output if len(text) <= _MAX_SHOWN_CHARACTERS else f"{text[:_MAX_SHOWN_CHARACTERS]}…"


def _shown_output(event: Event, earlier: Any) -> Any:
    """Return the output that readers see of a node; the text of an agent is not repeated."""
    if event.partial or event.output is None or event.content is not None:
        return earlier
    shown = _shown_value(event.output)
    return earlier if shown is None else shown


def _shown_value(value: Any) -> Any:
    """Return an input or output as readers see it, or None if it has no JSON form."""
    if isinstance(value, types.Content):  # a message: its text
        value = "".join(part.text or "" for part in value.parts or ())
    try:
        return _clipped(to_plain_values(value))
    except Unstorable:
        return None


async def run_journaled(
    function: Callable[..., Any], name: str, run: NodeRun, context: Context, node_input: Any
) -> AsyncGenerator[Any, None]:
    """Run a function node, or yield again what it yielded in an earlier run of this turn."""
    turn = current_turn.get()
    steps = run(ctx=context, node_input=node_input)
    if turn is not None:
        steps = _run_in_turn(turn, function, name, steps, context)
    async with aclosing(steps) as items:
        async for item in items:
            yield item
    if turn is not None:
        turn.record.earlier_run.end(current_step().inner_id(f"{_NODE_STEP}{context.node_path}"))


async def _run_in_turn(
    turn: TurnRun, function: Callable[..., Any], name: str, steps: AsyncGenerator[Any, None], context: Context
) -> AsyncGenerator[Any, None]:
    step_id = current_step().inner_id(f"{_NODE_STEP}{context.node_path}#{context.attempt_count}")
    entry = await _recorded_entry(turn, step_id)
    failure = _recorded_failure(entry)
    if entry is not None and entry.status == "finished" and (failure or "failure" not in entry.result):
        for item in _recorded_items(entry, context):
            yield item
        if failure is not None:
            mark_logged(failure)
            raise failure
        return
    await _start(turn, step_id, name, context.branch or "", function, entry)
    yielded: list[Any] = []
    kept_back: list[Any] = []
    is_generator = inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function)
    enter_step(step_id)
    try:
        async with aclosing(steps) as items:
            async for found in items:
                item = _call_of_pause(found)
                yielded.append(_to_json(item))
                if is_generator and not requests_credential(item):
                    yield item
                else:
                    kept_back.append(item)
    except LangoError:
        raise  # of the store or a provider: the node runs again
    except Exception as error:
        failed = {"module": type(error).__module__, "type": type(error).__qualname__, "message": str(error)}
        await _finish(turn, step_id, {"failure": failed, "items": yielded, "route": None})
        raise
    finally:
        enter_step("")
    result = {"items": yielded, "route": context.route}
    if not any("output" in item.get("event", ()) for item in yielded):
        result["output"] = context.output
    asks = any(map(requests_credential, kept_back))
    await _finish(turn, step_id, None if asks else result)
    for item in kept_back:  # journaled before ADK stores it
        yield item


def _call_of_pause(item: Any) -> Any:
    """Return the event of the call by which a node waits, or the item itself if it is not a pause."""
    event = item if isinstance(item, Event) else None
    pause = event.output if event is not None else item
    if not isinstance(pause, Sleep | AwaitedEvent):
        return item
    call = types.FunctionCall(id=pause.id or f"wait-{uuid.uuid4().hex}", name=pause.call, args=pause.arguments)
    content = types.Content(role="model", parts=[types.Part(function_call=call)])
    waiting = Event(content=content, long_running_tool_ids={call.id or ""})
    if event is not None:
        waiting.actions = event.actions
    return waiting


async def _recorded_entry(turn: TurnRun, step_id: str) -> JournalEntry | None:
    """Return what the journal has about a run of a node, in this turn or before the pause that it continues.

    Of runs before the pause ADK knows all but those that ended without putting anything out: it would run them again.
    """
    entry = turn.record.earlier_run.entry(step_id)
    if entry is not None or not turn.input.continues_invocation:
        return entry
    invocation_id = turn.input_event.invocation_id
    earlier = await turn.record.store.read(tool_journal.read_earlier_step, turn.record.lease, step_id, invocation_id)
    is_silent = earlier is not None and earlier.result == {"items": [], "route": None, "output": None}
    return earlier if is_silent else None


async def _finish(turn: TurnRun, step_id: str, result: dict[str, Any] | None) -> None:
    """Journal what a node yielded, or with None that ADK requested a credential first, and it has not run yet."""
    if result is None:
        await turn.record.finish(step_id, None, "unknown")
        return
    try:
        await turn.record.finish(step_id, result)
    except Unstorable:
        return  # what it yielded cannot be stored: after a crash it runs again


async def _start(
    turn: TurnRun, step_id: str, name: str, branch: str, function: Callable[..., Any], entry: JournalEntry | None
) -> None:
    effect = effect_of_node(function)
    if entry is not None and entry.status == "started" and effect == "once":
        raise NodeOutcomeUnknown(
            f"node {name!r} had started when its process died, and is marked to run at most once: find out whether it "
            "took effect, then send the message again"
        )
    if entry is None:  # the record may have nodes that a known one ran
        await require_used_up(turn, f"node {name!r}", branch, node=step_id.rpartition("#")[0])
    await turn.limits.step_gate.enter()
    turn.limits.step_gate.leave()  # it may run further nodes, which pass the gate themselves
    await turn.record.intend(step_id, name, effect, "")
    await turn.record.start(step_id)


def _recorded_failure(entry: JournalEntry | None) -> Exception | None:
    """Return the error that a node raised in an earlier run, of the same class: ADK retries only some classes.

    Return None if it raised none, or its class is not known here.
    """
    result: dict[str, Any] = (entry.result if entry is not None else None) or {}
    members: dict[str, str] | None = result.get("failure")
    if members is None:
        return None
    found: Any = sys.modules.get(members["module"])
    for name in members["type"].split("."):
        found = getattr(found, name, None)
    if not (isinstance(found, type) and issubclass(found, Exception)):
        return None
    return found.__new__(found, members["message"])


def _to_json(item: Any) -> Any:
    if isinstance(item, Event):
        item = item.model_copy(update={"actions": public_actions(item.actions)})
        return {"event": json.decode(item.model_dump_json(exclude_defaults=True))}
    if isinstance(item, RequestInput):
        schema: Any = item.response_schema
        if schema is not None and not isinstance(schema, dict):  # a Python type: the event has its JSON schema
            item = item.model_copy(update={"response_schema": TypeAdapter[Any](schema).json_schema()})
        return {"input": json.decode(item.model_dump_json(exclude_defaults=True))}
    return {"value": item}


def _recorded_items(entry: JournalEntry, context: Context) -> list[Any]:
    if entry.result["route"] is not None:
        context.route = entry.result["route"]
    if entry.result.get("output") is not None:
        context.output = entry.result["output"]
    return [_from_json(item) for item in entry.result["items"]]


def _from_json(item: dict[str, Any]) -> Any:
    if "event" in item:
        return Event.model_validate_json(json.encode(item["event"]))
    if "input" in item:
        return RequestInput.model_validate_json(json.encode(item["input"]))
    return item["value"]
