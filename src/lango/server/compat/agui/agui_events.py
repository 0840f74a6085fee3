"""Translate the events of a turn into AG-UI's events. Imports `ag_ui`, which is optional."""

from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from contextlib import aclosing
from typing import Any, assert_never

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

from lango.errors import LangoError, TurnCancelled
from lango.events import (
    Accepted,
    ApprovalNeeded,
    Queued,
    Resumed,
    TextDelta,
    TextWithdrawn,
    ThoughtDelta,
    ToolEnd,
    ToolStart,
    TurnDone,
    TurnError,
    TurnEvent,
    Usage,
)
from lango.server.compat.agui.run_messages import RunMessages
from lango.server.context import ServerContext
from lango.server.errors import ApiError
from lango.server.json_body import tool_value_text
from lango.server.schemas import SessionWithState
from lango.server.security.auth import Caller
from lango.server.streaming.turn_streams import TurnRef
from lango.store.turns.approvals import read_approval_requests

_encoder = EventEncoder()
_APPROVAL_SCHEMA = {"type": "object", "properties": {"approved": {"type": "boolean"}}, "required": ["approved"]}


def encode_error(error: ApiError) -> str:
    """Encode the event that a run failed."""
    return _encoder.encode(RunErrorEvent(message=str(error), code=error.type))


class RunEvents:
    """One run: the turns that it started, as AG-UI's events, which open and close in order."""

    def __init__(
        self, context: ServerContext, caller: Caller, run_input: RunAgentInput, turns: Sequence[TurnRef]
    ) -> None:
        self._context = context
        self._caller = caller
        self._run_input = run_input
        self._turns = turns
        self._messages = RunMessages(run_input.messages)
        self._open_message: tuple[type[TextDelta | ThoughtDelta], str] | None = None
        # the run that asked for approval has sent these calls
        self._known_calls = {answer.interrupt_id for answer in run_input.resume or ()}
        self._interrupts: list[Interrupt] = []
        self._approvals_pending = False
        self._usage: list[TokenUsage] = []
        self._failed = False

    async def frames(self) -> AsyncGenerator[str | None, None]:
        """Yield the frames of the run; None whenever no event came for a heartbeat."""
        thread, run = self._run_input.thread_id, self._run_input.run_id
        yield _encoder.encode(RunStartedEvent(thread_id=thread, run_id=run, protocol_version=PROTOCOL_VERSION))
        for turn in self._turns:
            try:
                async with aclosing(self._context.turns.follow(turn)) as items:
                    async for item in items:
                        if item is None:
                            yield None
                            continue
                        for agui_event in self._to_agui(item.event):
                            yield _encoder.encode(agui_event)
            except LangoError:
                for agui_event in self._close_message():
                    yield _encoder.encode(agui_event)
                raise
            if self._failed:
                return
        session = await self._context.get_session(self._caller, self._run_input.thread_id)
        yield _encoder.encode(StateSnapshotEvent(snapshot=SessionWithState.from_record(session).state))
        if self._approvals_pending and not self._interrupts:  # of an earlier run
            requests = await self._context.store.read(read_approval_requests, session)
            self._interrupts = [_interrupt(request.call_id, request.name, request.arguments) for request in requests]
        outcome = RunFinishedInterruptOutcome(interrupts=self._interrupts) if self._interrupts else None
        finished = RunFinishedEvent(thread_id=thread, run_id=run, outcome=outcome, usage=self._usage)
        yield _encoder.encode(finished)

    def _to_agui(self, event: TurnEvent) -> Iterator[BaseEvent]:
        match event:
            case Queued() | Resumed():
                yield _notice(event)
            case TextDelta() | ThoughtDelta():
                yield from self._text(event)
            case ToolStart():
                yield from self._close_message()
                yield from self._tool_call(event)
            case ToolEnd():
                yield from self._close_message()
                yield self._tool_result(event)
            case ApprovalNeeded():
                yield from self._close_message()
                yield from self._tool_call(event)
                self._interrupts.append(_interrupt(event.call_id, event.name, event.arguments))
            case TurnError(fatal=True):
                yield from self._close_message()
                yield self._failure(event)
                self._failed = True
            case TurnDone():
                yield from self._close_message()
                self._approvals_pending = event.status == "waiting_for_approval"
                self._usage.append(_usage(event.usage))
            case TextWithdrawn():
                yield from self._withdraw(event)
            case Accepted() | TurnError():
                pass
            case _ as unexpected:
                assert_never(unexpected)

    def _text(self, event: TextDelta | ThoughtDelta) -> Iterator[BaseEvent]:
        kind, text = type(event), event.text
        if not text:
            return
        if self._open_message is None or self._open_message[0] != kind:
            yield from self._close_message()
            self._open_message = (kind, self._message_id(event))
            id_ = self._open_message[1]
            if kind is TextDelta:
                yield TextMessageStartEvent(message_id=id_, role="assistant")
            else:
                yield ReasoningStartEvent(message_id=id_)
                yield ReasoningMessageStartEvent(message_id=id_)
        id_ = self._open_message[1]
        self._messages.add_text(id_, event)
        if kind is TextDelta:
            yield TextMessageContentEvent(message_id=id_, delta=text)
        else:
            yield ReasoningMessageContentEvent(message_id=id_, delta=text)

    def _close_message(self) -> Iterator[BaseEvent]:
        """End the message that is open."""
        if self._open_message is None:
            return
        kind, id_ = self._open_message
        if kind is TextDelta:
            yield TextMessageEndEvent(message_id=id_)
        else:
            yield ReasoningMessageEndEvent(message_id=id_)
            yield ReasoningEndEvent(message_id=id_)
        self._open_message = None

    def _withdraw(self, event: TextWithdrawn) -> Iterator[BaseEvent]:
        """Replace the client's messages by those without the withdrawn text."""
        yield from self._close_message()
        if snapshot := self._messages.withdraw(event):
            yield snapshot

    def _tool_result(self, event: ToolEnd) -> BaseEvent:
        id_, content = self._message_id(event), tool_value_text(event.result)
        self._messages.add_result(id_, event.call_id, content)
        return ToolCallResultEvent(message_id=id_, tool_call_id=event.call_id, content=content, role="tool")

    def _tool_call(self, event: ToolStart | ApprovalNeeded) -> Iterator[BaseEvent]:
        id_ = event.call_id
        if id_ in self._known_calls:
            return
        self._known_calls.add(id_)
        arguments = tool_value_text(event.arguments)
        self._messages.add_call(id_, event.name, arguments)
        yield ToolCallStartEvent(tool_call_id=id_, tool_call_name=event.name)
        yield ToolCallArgsEvent(tool_call_id=id_, delta=arguments)
        yield ToolCallEndEvent(tool_call_id=id_)

    def _failure(self, event: TurnError) -> BaseEvent:
        if event.error == TurnCancelled.__name__:
            thread, run = self._run_input.thread_id, self._run_input.run_id
            return RunFinishedEvent(thread_id=thread, run_id=run, outcome=RunFinishedCancelledOutcome())
        return RunErrorEvent(message=event.message, code=event.error)

    def _message_id(self, event: TurnEvent) -> str:
        return f"{self._run_input.thread_id}-{event.id}"


def _notice(event: Queued | Resumed) -> BaseEvent:
    if isinstance(event, Queued):
        return CustomEvent(name="lango.queued", value={"place": event.place})
    return CustomEvent(name="lango.resumed", value={"reason": event.reason, "attempt": event.attempt})


def _interrupt(call_id: str, name: str, arguments: Mapping[str, Any]) -> Interrupt:
    prompt = f"May {name} run with {tool_value_text(arguments)}?"
    return Interrupt(
        id=call_id, reason="tool_approval", message=prompt, tool_call_id=call_id, response_schema=_APPROVAL_SCHEMA
    )


def _usage(used: Usage) -> TokenUsage:
    return TokenUsage(
        input_tokens=used.input_tokens,
        output_tokens=used.output_tokens,
        total_tokens=used.input_tokens + used.output_tokens,
        cached_input_tokens=used.cached_tokens,
    )
