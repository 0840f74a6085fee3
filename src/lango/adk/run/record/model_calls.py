"""Note each model call of a turn for its trace, and store its requests where the settings say so."""

import asyncio
import logging
import time
from typing import Any

from google.adk.agents.callback_context import CallbackContext
from google.adk.models.llm_request import LlmRequest
from google.adk.models.llm_response import LlmResponse
from msgspec import json

from lango.adk.run.model_call_stats import ModelCallStats
from lango.adk.run.record.replay import outer_call
from lango.adk.run.turn_state import TurnState
from lango.errors import StoreError
from lango.providers.call_log import CallLog, Exchange, current_call_log
from lango.providers.wire_json import body_to_json_text
from lango.store.turns.model_requests import NewRequest, add_requests

_log = logging.getLogger("lango.runtime")
_LARGE_BYTES = 20_000
"""From this size on, bodies are converted in a thread."""


def note_model_call(
    state: TurnState, context: CallbackContext, request: LlmRequest, step: str, *, nested: bool
) -> ModelCallStats:
    """Note that a model call begins. Its provider notes the attempts that fail, and what it sends."""
    call = ModelCallStats(request.model or "", context.agent_name, step=step, branch=context.branch or "")
    if nested:
        call.inside = outer_call()
    if state.trace.requests:
        call.log = CallLog(exchanges=[])
    current_call_log.set(call.log)
    state.model_call_stats.append(call)
    state.calls_by_agent[_caller(context)] = call
    return call


def note_response(state: TurnState, context: CallbackContext, response: LlmResponse) -> None:
    """Note the end of a model call."""
    if (call := state.calls_by_agent.get(_caller(context))) is None:
        return
    call.end(response.model_version, response.usage_metadata)
    exchange = call.log.exchanges[-1] if call.log.exchanges else None
    if exchange is not None and exchange.duration_s is None:  # of one of ADK's own models
        exchange.duration_s = call.duration_s
        exchange.add_response(response.model_dump_json(exclude_none=True).encode())


def note_made_calls(state: TurnState, context: CallbackContext, call_ids: list[str]) -> None:
    """Note the calls that a model inside a tool made."""
    if (call := state.calls_by_agent.get(_caller(context))) is not None:
        call.made = call_ids


def keep_adk_request(call: ModelCallStats, request: LlmRequest) -> None:
    """Keep the request to one of ADK's own models as ADK has it: what it sends cannot be seen."""
    if call.log.exchanges is None:
        return
    exchange = Exchange("adk", request.model or "", response_type="application/json")
    try:
        body: dict[str, Any] = request.model_dump(
            mode="json", exclude_none=True, include={"model", "contents", "config"}
        )
    except ValueError as error:  # a tool of the user's own that has no JSON form
        body = {"model": request.model, "error": f"the request has no JSON form: {error}"}
    exchange.request = json.encode(body)
    call.log.exchanges.append(exchange)


async def store_requests(state: TurnState) -> None:
    """Store the requests that have ended since the last time. A failure is logged: a trace must not fail a turn."""
    settings = state.trace
    if not settings.requests:
        return
    ended: list[tuple[str, Exchange]] = []
    for call in state.model_call_stats:
        exchanges = call.log.exchanges or []
        ended += [(call.step, exchange) for exchange in exchanges if exchange.duration_s is not None]
        exchanges[:] = [exchange for exchange in exchanges if exchange.duration_s is None]
    if not ended:
        return
    size = sum(len(exchange.request) + len(exchange.response) for _, exchange in ended)
    if size > _LARGE_BYTES:
        new = await asyncio.to_thread(_to_rows, ended, settings.max_request_bytes)
    else:
        new = _to_rows(ended, settings.max_request_bytes)
    try:
        await state.store.write(add_requests, state.turn, new, settings.max_session_bytes)
    except StoreError as error:
        _log.warning("turn %s: %d requests could not be kept: %s", state.turn.turn, len(new), error)


async def store_last_requests(state: TurnState) -> None:
    """Store the requests of a turn that ends, also those of calls that were stopped."""
    for call in state.model_call_stats:
        for exchange in call.log.exchanges or ():
            if exchange.duration_s is None:
                exchange.duration_s = max(0.0, time.time() - exchange.started_at)
                exchange.error = exchange.error or "the call was stopped"
    await store_requests(state)


def _to_rows(ended: list[tuple[str, Exchange]], max_bytes: int) -> list[NewRequest]:
    return [
        NewRequest(
            step=step,
            provider=exchange.provider,
            model=exchange.model,
            url=exchange.url,
            started_at=exchange.started_at,
            duration_s=exchange.duration_s,
            status=exchange.status,
            error=exchange.error,
            request=body_to_json_text(exchange.request, "application/json", max_bytes),
            response=body_to_json_text(bytes(exchange.response), exchange.response_type, max_bytes),
        )
        for step, exchange in ended
    ]


def _caller(context: CallbackContext) -> tuple[str, ...]:
    return context.session.id, context.branch or "", context.agent_name
