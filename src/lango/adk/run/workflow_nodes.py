"""Journal the function nodes of a workflow like tools, so that a finished one never runs again after a crash.

ADK has no callback around a node, so `lango.adk.agents.adk_internals` puts `run_journaled` around each function node. A
failed attempt is journaled too, because ADK may retry a node. A node that had started and did not finish runs again, as
ADK's users expect of a node, unless its function is marked with `once`: no model can decide what to do then, so the
turn stops.
"""

import inspect
import sys
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import Any, TypeVar

from google.adk.agents.context import Context
from google.adk.events import Event, RequestInput
from msgspec import json

from lango.adk.agents.adk_internals import NodeRun, journal_nodes
from lango.adk.run.replay import nested_step_id
from lango.adk.run.turn_state import TurnState, current_state
from lango.errors import LangoError, NodeOutcomeUnknown, Unstorable
from lango.store.turns import tool_journal
from lango.store.turns.tool_journal import Effect, TurnEntry

_EFFECT = "lango_effect"
F = TypeVar("F", bound=Callable[..., Any])


def once(function: F) -> F:
    """Mark the function of a workflow's node: it must never run twice, even if it is not known whether it ended."""
    setattr(function, _EFFECT, "once")
    return function


def install() -> None:
    """Journal function nodes from now on, in turns of a runtime only."""
    journal_nodes(run_journaled)


async def run_journaled(
    function: Callable[..., Any], name: str, run: NodeRun, context: Context, node_input: Any
) -> AsyncGenerator[Any, None]:
    """Run a function node, or yield again what it yielded in an earlier run of this turn."""
    state = current_state()
    steps = run(ctx=context, node_input=node_input)
    if state is not None:
        steps = _run_in_turn(state, function, name, steps, context)
    async with aclosing(steps) as items:
        async for item in items:
            yield item


async def _run_in_turn(
    state: TurnState, function: Callable[..., Any], name: str, steps: AsyncGenerator[Any, None], context: Context
) -> AsyncGenerator[Any, None]:
    step_id = nested_step_id(f"node:{context.node_path}#{context.attempt_count}")
    entry = state.recorded.entry(step_id) if state.recorded is not None else None
    failure = _recorded_failure(entry)
    if entry is not None and entry.status == "finished" and (failure or "failure" not in entry.result):
        for item in _recorded_items(entry, context):
            yield item
        if failure is not None:
            raise failure
        return
    await _start(state, step_id, name, function, entry)
    yielded: list[Any] = []
    kept_back: list[Any] = []
    is_generator = inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function)
    try:
        async with aclosing(steps) as items:
            async for item in items:
                yielded.append(_to_json(item))
                if is_generator:
                    yield item
                else:
                    kept_back.append(item)
    except LangoError:
        raise  # of the store or a provider: the node runs again
    except Exception as error:
        await _finish(state, step_id, {"items": yielded, "route": None, "failure": _failure_to_json(error)})
        raise
    result = {"items": yielded, "route": context.route}
    if not any("output" in item.get("event", ()) for item in yielded):
        result["output"] = context.output
    await _finish(state, step_id, result)
    for item in kept_back:  # journaled before ADK stores it
        yield item


async def _finish(state: TurnState, step_id: str, result: dict[str, Any]) -> None:
    try:
        await state.store.write(tool_journal.record_result, state.turn, step_id, result, time.time())
    except Unstorable:
        return  # what it yielded cannot be stored: after a crash it runs again


async def _start(
    state: TurnState, step_id: str, name: str, function: Callable[..., Any], entry: TurnEntry | None
) -> None:
    effect: Effect = getattr(function, _EFFECT, "idempotent")
    if entry is not None and entry.status == "started" and effect == "once":
        raise NodeOutcomeUnknown(
            f"node {name!r} had started when its process died, and is marked to run at most once: find out whether it "
            "took effect, then send the message again"
        )
    await state.step_gate.enter()
    state.step_gate.leave()  # it may run further nodes, which pass the gate themselves
    await state.store.write(tool_journal.record_intent, state.turn, step_id, name, effect, "", time.time())
    await state.store.write(tool_journal.record_start, state.turn, step_id, time.time())


def _failure_to_json(error: Exception) -> dict[str, str]:
    return {"module": type(error).__module__, "type": type(error).__qualname__, "message": str(error)}


def _recorded_failure(entry: TurnEntry | None) -> Exception | None:
    """Return the error that a node raised in an earlier run, of the same class: ADK retries only some classes.

    None: it raised none, or its class is not known here.
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
        return {"event": json.decode(item.model_dump_json(exclude_defaults=True))}
    if isinstance(item, RequestInput):
        return {"input": json.decode(item.model_dump_json(exclude_defaults=True))}
    return {"value": item}


def _recorded_items(entry: TurnEntry, context: Context) -> list[Any]:
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
