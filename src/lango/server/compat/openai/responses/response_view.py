"""Build a response and its stream from the events of its turn: the same numbers each time, in every process."""

import json
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing, suppress
from typing import Any

from lango.errors import EventsGone
from lango.events import Accepted, Queued, TurnDone, TurnError, TurnEvent, Usage, is_final
from lango.events.text import remove_withdrawn
from lango.json_values import convert
from lango.server.compat.openai.completion import finish_reason, openai_error_body
from lango.server.compat.openai.responses.input_items import Approval
from lango.server.compat.openai.responses.output_items import OutputItems, StreamEvent
from lango.server.compat.openai.responses.response_ids import APPROVAL, StoredResponse, approval_request_id
from lango.server.context import AgentUser
from lango.server.errors import ApiError, to_api_error, turn_api_error

_NAMES = {"messages": "input", "response_format": "text.format"}
HIDDEN = "_"
"""The prefix of what is stored with the parameters of a response, and not shown."""
_ERROR_CODES = {429: "rate_limit_exceeded", 400: "invalid_prompt"}
"""OpenAI's codes for a response that failed, by status."""
_INCOMPLETE_REASONS = {"length": "max_output_tokens", "content_filter": "content_filter"}


class ResponseView:
    """A response as the events of its turn so far show it."""

    def __init__(self, user: AgentUser, response: StoredResponse) -> None:
        self._turns = user.turns
        self._stored = user.runtime.turns
        self._response = response
        self._record = response.record
        self._model = user.runtime.app_name
        request = response.record.request
        self._output = OutputItems(
            response.id,
            self._model,
            {tool.name for tool in request.client_tools},
            only_last_text=request.options.shapes_answer and user.runtime.may_call_tools,
            approval_requests=_answered_requests(response),
        )
        self._status = "queued"
        self._usage: Usage | None = None
        self._incomplete: str | None = None
        self._error: dict[str, Any] | None = None
        self._sent = 0
        """How many events of the stream there were."""

    @property
    def body(self) -> dict[str, Any]:
        """The response object."""
        parameters = {name: value for name, value in self._response.parameters.items() if not name.startswith(HIDDEN)}
        ended_at = self._record.ended_at if self._status == "completed" else None
        return {
            "id": self._response.id,
            "object": "response",
            "created_at": int(self._record.created_at),
            "completed_at": None if ended_at is None else int(ended_at),
            "status": self._status,
            "error": self._error,
            "incomplete_details": {"reason": self._incomplete} if self._incomplete else None,
            "model": self._model,
            "output": self._output.items,
            **parameters,
            "usage": None if self._usage is None else response_usage(self._usage),
        }

    # -- reading --------------------------------------------------------------------------------------------------

    async def wait(self) -> None:
        """Read the events of the turn to its end. Raise `ApiError` if the turn failed."""
        async with aclosing(self._turns.follow_answer(self._response.turn_ref)) as items:
            events = [item.event async for item in items if item is not None]
        await self._read_record()
        self._add_all(events)
        if isinstance(failed := events[-1] if events else None, TurnError):
            raise turn_api_error(failed)

    async def read(self) -> None:
        """Read the events of the turn so far."""
        if not self._response.is_open:
            with suppress(ApiError):  # the body says why it failed
                await self.wait()
            return
        events = await self._stored.all_events(self._response.session, self._response.turn)
        await self._read_record()
        self._add_all(events)

    async def frames(self, after: int = -1) -> AsyncGenerator[str | None, None]:
        """Yield the events after a sequence number as frames of a stream; None when none came for a heartbeat."""
        async with aclosing(self.events(after)) as events:
            async for event in events:
                match event:
                    case None:
                        yield None
                    case Queued():
                        yield f": queued, place {event.place}\n\n"
                    case _:
                        yield _frame(event)
        yield "data: [DONE]\n\n"

    async def events(self, after: int = -1) -> AsyncGenerator[StreamEvent | Queued | None, None]:
        """Yield the events after a sequence number; also places in the queue, and None when none came for long."""
        response = self._response
        if after >= 0 and await self._stored.has_joined_texts(response.session, response.turn):
            raise EventsGone("the events of this response are no longer kept: retrieve it without stream")
        async with aclosing(self._turns.follow_answer(response.turn_ref)) as items:
            async for item in items:
                if item is None:
                    yield None
                    continue
                event = item.event
                if isinstance(event, Queued):
                    yield event
                if is_final(event):
                    await self._read_record()
                for streamed in self._add(event):
                    number = self._sent
                    self._sent += 1
                    if number > after:
                        yield streamed | {"sequence_number": number}

    def error_frame(self, error: ApiError) -> str:
        """Encode an error that ends a stream whose turn may continue."""
        return _frame(_error_event(error) | {"sequence_number": self._sent})

    async def _read_record(self) -> None:
        record = await self._stored.read(self._response.session, self._response.turn)
        self._record = record or self._record

    # -- events ---------------------------------------------------------------------------------------------------

    def _add_all(self, events: list[TurnEvent]) -> None:
        """Add events, without text that was withdrawn."""
        for event in remove_withdrawn(events):
            for _ in self._add(event):
                pass

    def _add(self, event: TurnEvent) -> Iterator[StreamEvent]:
        """Add the next event of the turn; yield what it changes."""
        match event:
            case Accepted():
                self._status = "queued" if event.waiting else "in_progress"
                yield self._whole("created")
                yield self._whole(self._status)
                return
            case Queued():
                return
            case _ if self._status == "queued":
                self._status = "in_progress"
                yield self._whole("in_progress")
            case _:
                pass
        yield from self._output.add(event)
        match event:
            case TurnDone():
                self._usage = event.usage
                self._incomplete = _INCOMPLETE_REASONS.get(finish_reason(event))
                self._status = "incomplete" if self._incomplete else "completed"
                yield self._whole(self._status)
            case TurnError(fatal=True):
                error = turn_api_error(event)
                if event.error == "TurnCancelled":
                    self._status = "cancelled"
                else:
                    self._status = "failed"
                    self._error = {"code": _ERROR_CODES.get(error.status, "server_error"), "message": event.message}
                yield _error_event(error)
                yield self._whole("failed")
            case _:
                pass

    def _whole(self, kind: str) -> StreamEvent:
        return {"type": f"response.{kind}", "response": self.body}


def _answered_requests(response: StoredResponse) -> dict[str, str]:
    """Return the id of the approval request that a response answers, by its call."""
    given = response.parameters.get(APPROVAL)
    if given is None:
        return {}
    answer = convert(given, Approval)
    return {answer.call_id: approval_request_id(answer.response_id, answer.call_id)}


def response_error_body(error: ApiError) -> dict[str, Any]:
    """Return the body of an error, with the names that parameters of chat completions have here."""
    message = str(error)
    for chat_name, name in _NAMES.items():
        if message.startswith(f"{chat_name}: "):
            message = name + message.removeprefix(chat_name)
    return openai_error_body(ApiError(error.status, error.type, message))


def _error_event(error: ApiError) -> StreamEvent:
    """Return the event of an error: with its parts beside it, and in `error`, for clients that look for either."""
    fields = openai_error_body(to_api_error(error))["error"]
    return {"type": "error", "code": fields["code"], "message": fields["message"], "param": None, "error": fields}


def _frame(event: StreamEvent) -> str:
    return f"event: {event['type']}\ndata: {json.dumps(event)}\n\n"


def response_usage(used: Usage) -> dict[str, Any]:
    """Return usage as a response has it."""
    return {
        "input_tokens": used.input_tokens,
        "input_tokens_details": {
            "cached_tokens": used.cached_tokens,
            "cache_write_tokens": used.cache_write_tokens,
        },
        "output_tokens": used.output_tokens,
        "output_tokens_details": {"reasoning_tokens": used.thought_tokens},
        "total_tokens": used.input_tokens + used.output_tokens,
    }
