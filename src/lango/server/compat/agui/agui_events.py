"""A turn told in AG-UI's events. Imports `ag_ui`, which is optional: only `agui_routes` imports this."""

import json
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from contextlib import aclosing
from typing import Any

from ag_ui.core import (
    PROTOCOL_VERSION,
    BaseEvent,
    CustomEvent,
    Interrupt,
    ReasoningEndEvent,
    ReasoningMessageContentEvent,
    ReasoningMessageEndEvent,
    ReasoningMessageStartEvent,
    ReasoningStartEvent,
    RunAgentInput,
    RunErrorEvent,
    RunFinishedCancelledOutcome,
    RunFinishedEvent,
    RunFinishedInterruptOutcome,
    RunStartedEvent,
    StateSnapshotEvent,
    TextMessageContentEvent,
    TextMessageEndEvent,
    TextMessageStartEvent,
    TokenUsage,
    ToolCallArgsEvent,
    ToolCallEndEvent,
    ToolCallResultEvent,
    ToolCallStartEvent,
)
from ag_ui.encoder import EventEncoder

from lango.server.context import ServerContext
from lango.server.schemas import SessionWithState
from lango.server.security.auth import Caller
from lango.server.streaming.sse import read
from lango.server.streaming.turn_streams import TurnRef
from lango.store.turns.approvals import read_approval_requests

_encoder = EventEncoder()
_APPROVAL_SCHEMA = {"type": "object", "properties": {"approved": {"type": "boolean"}}, "required": ["approved"]}


def encode_error(error: str, message: str) -> str:
    """Say that a run failed."""
    return _encoder.encode(RunErrorEvent(message=message, code=error))


class RunEvents:
    """One run: the turns that it began, told as events that open and close in order."""

    def __init__(
        self, context: ServerContext, caller: Caller, run_input: RunAgentInput, turns: Sequence[TurnRef]
    ) -> None:
        self._context = context
        self._caller = caller
        self._run_input = run_input
        self._turns = turns
        self._open_message: tuple[str, str] | None = None
        # the calls that were asked about have been told by the run that asked
        self._known_calls = {answer.interrupt_id for answer in run_input.resume or ()}
        self._interrupts: list[Interrupt] = []
        self._approvals_pending = False
        self._usage: list[TokenUsage] = []
        self._failed = False

    async def frames(self) -> AsyncGenerator[str | None, None]:
        """Tell the run; None whenever nothing came for a while."""
        thread, run = self._run_input.thread_id, self._run_input.run_id
        yield _encoder.encode(RunStartedEvent(thread_id=thread, run_id=run, protocol_version=PROTOCOL_VERSION))
        for turn in self._turns:
            async with aclosing(read(self._context.turns.follow(turn))) as events:
                async for event in events:
                    if event is None:
                        yield None
                        continue
                    for agui_event in self._to_agui(event):
                        yield _encoder.encode(agui_event)
            if self._failed:
                return
        session = await self._context.get_session(self._caller, self._run_input.thread_id)
        yield _encoder.encode(StateSnapshotEvent(snapshot=SessionWithState.from_record(session).state))
        if self._approvals_pending and not self._interrupts:  # asked by an earlier run
            requests = await self._context.store.read(read_approval_requests, session)
            self._interrupts = [_interrupt(request.call_id, request.name, request.arguments) for request in requests]
        outcome = RunFinishedInterruptOutcome(interrupts=self._interrupts) if self._interrupts else None
        finished = RunFinishedEvent(thread_id=thread, run_id=run, outcome=outcome, usage=self._usage)
        yield _encoder.encode(finished)

    def _to_agui(self, event: Mapping[str, Any]) -> Iterator[BaseEvent]:
        match event["type"]:
            case "queued":
                yield CustomEvent(name="lango.queued", value={"place": event["place"]})
            case "text_delta" | "thought_delta":
                yield from self._text(event)
            case "tool_start":
                yield from self._close_message()
                yield from self._tool_call(event)
            case "tool_end":
                yield from self._close_message()
                result = json.dumps(event["result"])
                yield ToolCallResultEvent(
                    message_id=self._message_id(event), tool_call_id=event["call_id"], content=result, role="tool"
                )
            case "approval":
                yield from self._close_message()
                yield from self._tool_call(event)
                self._interrupts.append(_interrupt(event["call_id"], event["name"], event["arguments"]))
            case "error" if event["fatal"]:
                yield from self._close_message()
                yield self._failure(event)
                self._failed = True
            case "done":
                yield from self._close_message()
                self._approvals_pending = event["status"] == "waiting_for_approval"
                self._usage.append(_usage(event["usage"]))
            case _:
                pass

    def _text(self, event: Mapping[str, Any]) -> Iterator[BaseEvent]:
        kind, text = event["type"], event["text"]
        if not text:
            return
        if self._open_message is None or self._open_message[0] != kind:
            yield from self._close_message()
            self._open_message = (kind, self._message_id(event))
            id_ = self._open_message[1]
            if kind == "text_delta":
                yield TextMessageStartEvent(message_id=id_, role="assistant")
            else:
                yield ReasoningStartEvent(message_id=id_)
                yield ReasoningMessageStartEvent(message_id=id_)
        id_ = self._open_message[1]
        if kind == "text_delta":
            yield TextMessageContentEvent(message_id=id_, delta=text)
        else:
            yield ReasoningMessageContentEvent(message_id=id_, delta=text)

    def _close_message(self) -> Iterator[BaseEvent]:
        """End the message that is open."""
        match self._open_message:
            case ("text_delta", id_):
                yield TextMessageEndEvent(message_id=id_)
            case (_, id_):
                yield ReasoningMessageEndEvent(message_id=id_)
                yield ReasoningEndEvent(message_id=id_)
            case None:
                pass
        self._open_message = None

    def _tool_call(self, event: Mapping[str, Any]) -> Iterator[BaseEvent]:
        id_ = event["call_id"]
        if id_ in self._known_calls:
            return
        self._known_calls.add(id_)
        yield ToolCallStartEvent(tool_call_id=id_, tool_call_name=event["name"])
        yield ToolCallArgsEvent(tool_call_id=id_, delta=json.dumps(event["arguments"]))
        yield ToolCallEndEvent(tool_call_id=id_)

    def _failure(self, event: Mapping[str, Any]) -> BaseEvent:
        if event["error"] == "TurnCancelled":
            thread, run = self._run_input.thread_id, self._run_input.run_id
            return RunFinishedEvent(thread_id=thread, run_id=run, outcome=RunFinishedCancelledOutcome())
        return RunErrorEvent(message=event["message"], code=event["error"])

    def _message_id(self, event: Mapping[str, Any]) -> str:
        return f"{self._run_input.thread_id}-{event['id']}"


def _interrupt(call_id: str, name: str, arguments: Mapping[str, Any]) -> Interrupt:
    prompt = f"May {name} run with {json.dumps(arguments)}?"
    return Interrupt(
        id=call_id, reason="tool_approval", message=prompt, tool_call_id=call_id, response_schema=_APPROVAL_SCHEMA
    )


def _usage(used: Mapping[str, int]) -> TokenUsage:
    input_tokens, output_tokens = used["input_tokens"], used["output_tokens"]
    cached = used.get("cached_tokens", 0)
    return TokenUsage(
        input_tokens=input_tokens,
        output_tokens=output_tokens,
        total_tokens=input_tokens + output_tokens,
        cached_input_tokens=cached,
    )
