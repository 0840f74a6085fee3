"""Take the messages that steer a turn into it, before a model call.

A message is taken in by the first model call of the turn's own session after it came, except by agents that read no
history. In a turn that is run again, the messages of the first run are shown before the same model calls.
"""

from typing import Any

from google.adk.agents.callback_context import CallbackContext
from google.adk.models.llm_request import LlmRequest

from lango.adk.events.recorded_run import SteeringMessage
from lango.adk.model.quoted_memory import gets_history
from lango.adk.services.session_service import SqlSessionService
from lango.adk.services.stored_session import SteeringContent, show_steering
from lango.adk.turn.turn_run import TurnRun
from lango.events import Steered


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
