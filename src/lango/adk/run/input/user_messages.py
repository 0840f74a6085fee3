"""Bring the messages of the user into a run: the one that begins the turn, and those that steer it.

ADK calls `on_user_message_callback` before it stores a message, and stores what the plugins return. Here the message is
stored when it is accepted, and ADK skips the callback. So it is called when the run begins, and what it returns
replaces the stored message, once: a turn that is run again finds the replaced one.

A message that steers the turn is taken in by the first model call of the turn's own session after it came, except by
agents that read no history. In a turn that is run again, the messages of the first run are shown before the same model
calls.
"""

from typing import Any

from google.adk.agents.callback_context import CallbackContext
from google.adk.agents.invocation_context import InvocationContext
from google.adk.events import Event
from google.adk.models.llm_request import LlmRequest
from google.adk.plugins import BasePlugin
from google.genai import types

from lango.adk.events.events_to_rows import complete_event, event_to_entry
from lango.adk.events.recorded_run import SteeringMessage
from lango.adk.model.quoted_memory import gets_history
from lango.adk.services.session_service import SqlSessionService
from lango.adk.services.stored_session import SteeringContent, show_steering
from lango.adk.turn.turn_run import TurnRun
from lango.events import Steered
from lango.store.turns.submit import read_changed_input, replace_input


async def prepare_user_message(turn: TurnRun, context: InvocationContext) -> None:
    """Load the files of the turn's message for code that reads them, and run the plugins' callbacks on it."""
    event = _input_event(turn, context)
    if event is None or event.content is None:
        return
    content = event.content
    loaded = [content]
    await turn.app.load_files(loaded)
    content.parts = loaded[0].parts  # in place: ADK has passed the content on already
    context.user_content = content
    if not _has_callback(context):
        return
    record = turn.record
    if record.is_rerun and (known := await record.store.read(read_changed_input, record.lease)) is not None:
        context.session.state.update(known)
        return
    before = dict(context.session.state)
    changed = await context.plugin_manager.run_on_user_message_callback(
        invocation_context=context, user_message=content
    )
    if changed is not None:
        await _replace(turn, context, event, changed, before)


def _input_event(turn: TurnRun, context: InvocationContext) -> Event | None:
    """Return the event of the turn's message, or None if the turn continues after a pause or runs another one."""
    if context.invocation_id != turn.input_event.invocation_id:
        return None
    for event in reversed(context.session.events):
        if event.id == turn.input_event.id:
            return event if event.author == "user" and not event.get_function_responses() else None
    return None


def _has_callback(context: InvocationContext) -> bool:
    return any(
        type(plugin).on_user_message_callback is not BasePlugin.on_user_message_callback
        for plugin in context.plugin_manager.plugins
    )


async def _replace(
    turn: TurnRun, context: InvocationContext, event: Event, changed: types.Content, before: dict[str, Any]
) -> None:
    assert event.content
    event.content.parts = changed.parts
    context.user_content = event.content
    complete_event(event, None)
    now = context.session.state
    # plugins pass on values to their later callbacks in the session object, which is not stored
    state_delta = {name: value for name, value in now.items() if name not in before or before[name] != value}
    await turn.record.store.write_long(replace_input, turn.record.lease, event_to_entry(event), state_delta)


# -- messages that steer the turn --------------------------------------------------------------------------------------


def show_recorded_messages(turn: TurnRun, context: CallbackContext, request: LlmRequest) -> None:
    """Show the messages that the first run took in before this model call, in the session and in the request."""
    if not turn.has_session(context):
        return
    for message in turn.record.earlier_run.take_steering(context.agent_name, context.branch or ""):
        show_steering(context.session, message.event)
        _show(turn, message, request)


async def take_new_messages(turn: TurnRun, context: CallbackContext, request: LlmRequest) -> None:
    """Store the messages that came for the turn, and show them in the session and in the request."""
    if not turn.has_session(context) or not gets_history(context) or _has_single_turn(context):
        return
    inner = context.get_invocation_context()
    scope: str | None = getattr(inner, "isolation_scope", None)
    # without a scope, all branches read it
    place = {"isolation_scope": scope, **({"branch": inner.branch} if inner.branch else {})} if scope else {}
    service = inner.session_service
    assert isinstance(service, SqlSessionService)
    for message in await service.take_steering(turn, context.session, inner.invocation_id, place):
        _show(turn, message, request)


def _show(turn: TurnRun, message: SteeringMessage, request: LlmRequest) -> None:
    parts = (message.event.content and message.event.content.parts) or []
    request.contents.append(SteeringContent(role="user", parts=[*parts]))
    sink, text = turn.output.sink, "".join(part.text or "" for part in parts)
    sink.emit(Steered(sink.next_id(), message.turn, turn.record.lease.turn, message.seq, text))


def _has_single_turn(context: CallbackContext) -> bool:
    agent: Any = context.get_invocation_context().agent
    return str(getattr(agent, "mode", "")) == "single_turn"
