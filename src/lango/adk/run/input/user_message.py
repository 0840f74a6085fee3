"""Run the callbacks of an app's plugins on the message of the user, which is stored before ADK runs.

ADK calls `on_user_message_callback` before it stores a message, and stores what the plugins return. Here the message is
stored when it is accepted, and ADK skips the callback. So it is called when the run begins, and what it returns
replaces the stored message, once: a turn that is run again finds the replaced one.
"""

from typing import Any

from google.adk.agents.invocation_context import InvocationContext
from google.adk.events import Event
from google.adk.plugins import BasePlugin
from google.genai import types

from lango.adk.events.events_to_rows import complete_event, event_to_entry
from lango.adk.turn.turn_run import TurnRun
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
