"""Translate the events of a turn into AG-UI's events. Imports `ag_ui`, which is optional."""

import asyncio
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
    StateDeltaEvent,
    StateSnapshotEvent,
    StepFinishedEvent,
    StepStartedEvent,
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
    CredentialNeeded,
    InputNeeded,
    NodeProgress,
    Queued,
    Resumed,
    TextDelta,
    TextWithdrawn,
    ThoughtDelta,
    ToolEnd,
    ToolProgress,
    ToolStart,
    TurnDone,
    TurnError,
    TurnEvent,
    Usage,
    is_final,
    to_json,
)
from lango.server.compat.agui.run_messages import RunMessages
from lango.server.compat.agui.run_state import json_patch
from lango.server.context import ServerContext
from lango.server.errors import ApiError
from lango.server.json_body import tool_value_text
from lango.server.schemas import client_state
from lango.server.security.auth import Caller
from lango.server.streaming.turn_streams import TurnRef
from lango.store import SessionRecord
from lango.store.tool_calls.approvals import read_approval_requests
from lango.store.tool_calls.credential_requests import credential_event, read_credential_requests
from lango.store.tool_calls.input_requests import input_event, read_input_requests
from lango.store.tool_calls.long_running import AwaitedResult, read_awaited_results

_encoder = EventEncoder()
_ASKS = ("waiting_for_approval", "waiting_for_input", "waiting_for_credential")
_CREDENTIAL_SCHEMA = {"type": ["string", "object"]}
_APPROVAL_SCHEMA = {
    "type": "object",
    "properties": {"approved": {"type": "boolean"}, "grant": {"type": ["object", "null"]}},
    "required": ["approved"],
}


def encode_error(error: ApiError) -> str:
    """Encode the event that a run failed."""
    return _encoder.encode(RunErrorEvent(message=str(error), code=error.type))


class RunEvents:
    """One run: the turns that it started, as AG-UI's events, which open and close in order."""

    def __init__(
        self,
        context: ServerContext,
        caller: Caller,
        run_input: RunAgentInput,
        turns: Sequence[TurnRef],
        state_delta: Mapping[str, Any],
    ) -> None:
        """`state_delta` is what the client changed in the state: a queued turn applies it when it starts."""
        self._context = context
        self._caller = caller
        self._run_input = run_input
        self._turns = turns
        self._messages = RunMessages(run_input.messages)
        self._state: dict[str, Any] = dict(state_delta)
        """The state as the client knows it."""
        self._open_message: tuple[type[TextDelta | ThoughtDelta], str] | None = None
        self._speaker = ""
        # the run that asked for approval has sent these calls
        self._known_calls = {answer.interrupt_id for answer in run_input.resume or ()}
        self._interrupts: list[Interrupt] = []
        self._is_pending = False
        """Whether the last turn waits for a person."""
        self._awaits_result = False
        """Whether the last turn waits for the result of a long-running tool."""
        self._steps: list[str] = []
        """The nodes of a workflow that run."""
        self._usage: list[TokenUsage] = []
        self._failed = False

    async def frames(self) -> AsyncGenerator[str | None, None]:
        """Yield the frames of the run; None whenever no event came for a heartbeat."""
        thread, run = self._run_input.thread_id, self._run_input.run_id
        yield _encoder.encode(RunStartedEvent(thread_id=thread, run_id=run, protocol_version=PROTOCOL_VERSION))
        session = await self._context.get_session(self._caller, thread)
        known = await asyncio.to_thread(client_state, session)  # a large state would hold up the event loop
        self._state = known | self._state
        yield await asyncio.to_thread(_encoder.encode, StateSnapshotEvent(snapshot=self._state))
        for turn in self._turns:
            try:
                async with aclosing(self._turn_events(turn)) as events:
                    async for event in events:
                        if isinstance(event, StateDeltaEvent):
                            yield await asyncio.to_thread(_encoder.encode, event)
                        else:
                            yield None if event is None else _encoder.encode(event)
            except LangoError:
                for agui_event in self._close_message():
                    yield _encoder.encode(agui_event)
                raise
            if self._failed:
                return
        session = await self._context.get_session(self._caller, thread)
        if self._is_pending and not self._interrupts:  # of an earlier run
            self._interrupts = await self._earlier_interrupts(session)
        if self._awaits_result:
            awaited = await self._context.store.read(read_awaited_results, session)
            self._interrupts += [_result_interrupt(call) for call in awaited]
        outcome = RunFinishedInterruptOutcome(interrupts=self._interrupts) if self._interrupts else None
        finished = RunFinishedEvent(thread_id=thread, run_id=run, outcome=outcome, usage=self._usage)
        yield _encoder.encode(finished)

    async def _turn_events(self, turn: TurnRef) -> AsyncGenerator[BaseEvent | None, None]:
        """Yield the events of one turn, with the changes of the state; None whenever no event came for a heartbeat."""
        async with aclosing(self._context.turns.follow(turn)) as items:
            async for item in items:
                if item is None:
                    yield None
                    continue
                ends = is_final(item.event)
                for change in await self._state_changes() if ends else ():  # nothing may follow an error
                    yield change
                for agui_event in self._to_agui(item.event):
                    yield agui_event
                if isinstance(item.event, ToolEnd | NodeProgress):
                    for change in await self._state_changes():
                        yield change

    async def _state_changes(self) -> Sequence[BaseEvent]:
        """Return the event of what changed in the session's state since the last one. A tool's end is stored by now."""
        session = await self._context.get_session(self._caller, self._run_input.thread_id)

        def changes() -> Sequence[BaseEvent]:
            before, self._state = self._state, client_state(session)
            patch = [*json_patch(before, self._state)]
            return [StateDeltaEvent.model_validate({"delta": patch})] if patch else []

        return await asyncio.to_thread(changes)

    async def _earlier_interrupts(self, session: SessionRecord) -> list[Interrupt]:
        """Return the requests that earlier runs left open: approvals, else inputs, else credentials."""
        store = self._context.store
        if approvals := await store.read(read_approval_requests, session):
            return [_interrupt(request.call_id, request.name, request.arguments) for request in approvals]
        if inputs := await store.read(read_input_requests, session):
            return [_input_interrupt(input_event(request, 0)) for request in inputs]
        credentials = await store.read(read_credential_requests, session)
        return [_credential_interrupt(credential_event(request, 0)) for request in credentials]

    def _to_agui(self, event: TurnEvent) -> Iterator[BaseEvent]:
        match event:
            case Queued() | Resumed() | ToolProgress():
                yield _notice(event)
            case TextDelta() | ThoughtDelta():
                yield from self._text(event)
            case ToolStart() | ToolEnd():
                yield from self._close_message()
                yield from self._tool_result(event) if isinstance(event, ToolEnd) else self._tool_call(event)
            case ApprovalNeeded():
                yield from self._close_message()
                yield from self._tool_call(event)
                self._interrupts.append(_interrupt(event.call_id, event.name, event.arguments))
            case InputNeeded() | CredentialNeeded():
                yield from self._close_message()
                yield from self._request(event)
            case NodeProgress():
                yield from self._step(event)
            case TurnDone() | TurnError(fatal=True):
                yield from self._end_turn(event)
            case TextWithdrawn():
                yield from self._withdraw(event)
            case Accepted() | TurnError():
                pass
            case _ as unexpected:
                assert_never(unexpected)

    def _request(self, event: InputNeeded | CredentialNeeded) -> Iterator[BaseEvent]:
        """Note a request as an interrupt of the run; that of a running tool is none: the run goes on."""
        if isinstance(event, CredentialNeeded):
            self._interrupts.append(_credential_interrupt(event))
        elif event.tool_call_id:
            yield _notice(event)
        else:
            self._interrupts.append(_input_interrupt(event))

    def _end_turn(self, event: TurnDone | TurnError) -> Iterator[BaseEvent]:
        yield from self._close_message()
        while self._steps:
            yield StepFinishedEvent(step_name=self._steps.pop())
        if isinstance(event, TurnError):
            yield self._failure(event)
            self._failed = True
        else:
            self._is_pending = event.status in _ASKS
            self._awaits_result = event.status == "waiting_for_result"
            self._usage.append(_usage(event.usage))

    def _step(self, event: NodeProgress) -> Iterator[BaseEvent]:
        """Start or finish a step; the protocol refuses a step that is not balanced."""
        if event.status == "started" and event.path not in self._steps:
            self._steps.append(event.path)
            yield StepStartedEvent(step_name=event.path)
        elif event.status != "started" and event.path in self._steps:
            self._steps.remove(event.path)
            yield StepFinishedEvent(step_name=event.path)

    def _text(self, event: TextDelta | ThoughtDelta) -> Iterator[BaseEvent]:
        kind, text = type(event), event.text
        if not text:
            return
        if self._open_message is None or self._open_message[0] != kind or self._speaker != event.author:
            yield from self._close_message()
            self._open_message, self._speaker = (kind, self._message_id(event)), event.author
            id_ = self._open_message[1]
            if kind is TextDelta:
                yield TextMessageStartEvent(message_id=id_, role="assistant", name=event.author or None)
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

    def _tool_result(self, event: ToolEnd) -> Iterator[BaseEvent]:
        id_, content = self._message_id(event), tool_value_text(event.result)
        self._messages.add_result(id_, event.call_id, content)
        yield ToolCallResultEvent(message_id=id_, tool_call_id=event.call_id, content=content, role="tool")

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


def _notice(event: Queued | Resumed | ToolProgress | InputNeeded) -> BaseEvent:
    """Return the event of what AG-UI has no event for, with the fields of ours."""
    match event:
        case Queued():
            return CustomEvent(name="lango.queued", value={"place": event.place})
        case Resumed():
            return CustomEvent(name="lango.resumed", value={"reason": event.reason, "attempt": event.attempt})
        case ToolProgress() | InputNeeded():
            return CustomEvent(name=f"lango.{event.type}", value=to_json(event))


def _interrupt(call_id: str, name: str, arguments: Mapping[str, Any]) -> Interrupt:
    prompt = f"May {name} run with {tool_value_text(arguments)}?"
    return Interrupt(
        id=call_id, reason="tool_approval", message=prompt, tool_call_id=call_id, response_schema=_APPROVAL_SCHEMA
    )


def _input_interrupt(event: InputNeeded) -> Interrupt:
    schema = dict(event.schema) if event.schema is not None else None
    return Interrupt(id=event.call_id, reason="input_needed", message=event.message, response_schema=schema)


def _credential_interrupt(event: CredentialNeeded) -> Interrupt:
    """Return the interrupt of a credential request; its message has the address that the user opens."""
    message = f"{event.message or 'a tool needs access to an account of yours'}: {event.auth_url}".removesuffix(": ")
    return Interrupt(id=event.call_id, reason="credential_needed", message=message, response_schema=_CREDENTIAL_SCHEMA)


def _result_interrupt(call: AwaitedResult) -> Interrupt:
    message = f"{call.name} waits for its result"
    return Interrupt(id=call.call_id, reason="result_needed", message=message, tool_call_id=call.call_id)


def _usage(used: Usage) -> TokenUsage:
    return TokenUsage(
        input_tokens=used.input_tokens,
        output_tokens=used.output_tokens,
        total_tokens=used.input_tokens + used.output_tokens,
        cached_input_tokens=used.cached_tokens,
        reasoning_tokens=used.thought_tokens,
    )
