"""Store the requests to models for the trace of a turn, where the settings say so."""

import asyncio
import logging
from typing import Any

from google.adk.models.llm_request import LlmRequest
from msgspec import json

from lango.adk.turn.model_calls import ModelCallStats
from lango.adk.turn.turn_run import TurnRun
from lango.errors import StoreError
from lango.providers.call_log import Exchange, body_to_json_text, bounded_json_text
from lango.safe_text import redact_json
from lango.store.sessions.developer_log import ModelRequest

_log = logging.getLogger("lango.runtime")
_LARGE_BYTES = 20_000
"""From this size on, bodies are converted in a thread."""


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


async def store_requests(turn: TurnRun) -> None:
    """Store the requests that have ended since the last time. A failure is logged: a trace must not fail a turn."""
    kept = turn.app.kept_requests
    if not kept.settings.requests:
        return
    ended: list[tuple[str, Exchange]] = []
    for call in turn.output.model_calls.calls:
        exchanges = call.log.exchanges or []
        ended += [(call.step, exchange) for exchange in exchanges if exchange.duration_s is not None]
        exchanges[:] = [exchange for exchange in exchanges if exchange.duration_s is None]
    if not ended:
        return
    size = sum(len(one.request) + len(one.response) for _, one in ended)
    if size > _LARGE_BYTES:
        new = await asyncio.to_thread(_to_rows, ended, kept.settings.max_request_bytes)
    else:
        new = _to_rows(ended, kept.settings.max_request_bytes)
    try:
        await kept.add(turn.record.lease, new)
    except StoreError as error:
        _log.warning("turn %s: %d requests could not be kept: %s", turn.record.lease.turn, len(new), error)


async def store_last_requests(turn: TurnRun) -> None:
    """Store the requests of a turn that ends, also those of calls that were stopped."""
    for call in turn.output.model_calls.calls:
        for exchange in call.log.exchanges or ():
            exchange.end("the call was stopped")
    await store_requests(turn)


def _to_rows(ended: list[tuple[str, Exchange]], max_bytes: int) -> list[ModelRequest]:
    return [
        ModelRequest(
            step=step,
            provider=exchange.provider,
            model=exchange.model,
            url=exchange.url,
            started_at=exchange.started_at,
            duration_s=exchange.duration_s,
            status=exchange.status,
            error=exchange.error,
            request=body_to_json_text(exchange.request, "application/json", max_bytes),
            response=_response_text(exchange, max_bytes),
        )
        for step, exchange in ended
    ]


def _response_text(exchange: Exchange, max_bytes: int) -> str:
    """Return the response as it came, and merged, each within half of the bound."""
    answer = bounded_json_text(redact_json(exchange.answer.to_json()), max_bytes // 2)
    raw = body_to_json_text(bytes(exchange.response), exchange.response_type, max_bytes // 2)
    return f'{{"answer":{answer},"raw":{raw}}}'
