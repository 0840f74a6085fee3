"""Translate the events of a turn into AG-UI's events. Imports `ag_ui`, which is optional."""

from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from contextlib import aclosing
from typing import Any, assert_never

from ag_ui import core as agui
from ag_ui.encoder import EventEncoder

from lango import events
from lango.errors import LangoError, TurnCancelled
from lango.server.compat.agui.run_messages import RunMessages
from lango.server.compat.agui.run_state import json_patch
from lango.server.context import ServerContext
from lango.server.errors import ApiError
from lango.server.json_body import tool_value_text
from lango.server.schemas import client_state
from lango.server.security.auth import Caller
from lango.server.streaming.turn_streams import TurnRef
from lango.sessions import SessionRecord
from lango.store.tool_calls.approvals import read_approval_requests
from lango.store.tool_calls.credential_requests import credential_event, read_credential_requests
from lango.store.tool_calls.input_requests import input_event, read_input_requests
from lango.store.tool_calls.long_running import AwaitedResult, read_awaited_results
from lango.threads import run_in_thread

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
    return _encoder.encode(agui.RunErrorEvent(message=str(error), code=error.type))


class RunEvents:
    """One run: the turns that it started, as AG-UI's events, which open and close in order."""

    def __init__(
        self,
        context: ServerContext,
        caller: Caller,
        run_input: agui.RunAgentInput,
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
        self._open_message: tuple[type[events.TextDelta | events.ThoughtDelta], str] | None = None
        self._speaker = ""
        # the run that asked for approval has sent these calls
        self._known_calls = {answer.interrupt_id for answer in run_input.resume or ()}
        self._interrupts: list[agui.Interrupt] = []
        self._is_pending = False
        """Whether the last turn waits for a person."""
        self._awaits_result = False
        """Whether the last turn waits for the result of a long-running tool."""
        self._steps: list[str] = []
        """The nodes of a workflow that run."""
        self._usage: list[agui.TokenUsage] = []
        self._failed = False

    async def frames(self) -> AsyncGenerator[str | None, None]:
        """Yield the frames of the run; None whenever no event came for a heartbeat."""
        thread, run = self._run_input.thread_id, self._run_input.run_id
        yield _encoder.encode(
            agui.RunStartedEvent(thread_id=thread, run_id=run, protocol_version=agui.PROTOCOL_VERSION)
        )
        session = await self._context.get_session(self._caller, thread)
        known = await run_in_thread(client_state, session)  # a large state would hold up the event loop
        self._state = known | self._state
        yield await run_in_thread(_encoder.encode, agui.StateSnapshotEvent(snapshot=self._state))
        for turn in self._turns:
            try:
                async with aclosing(self._turn_events(turn)) as stream:
                    async for event in stream:
                        if isinstance(event, agui.StateDeltaEvent):
                            yield await run_in_thread(_encoder.encode, event)
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
        outcome = agui.RunFinishedInterruptOutcome(interrupts=self._interrupts) if self._interrupts else None
        finished = agui.RunFinishedEvent(thread_id=thread, run_id=run, outcome=outcome, usage=self._usage)
        yield _encoder.encode(finished)

    async def _turn_events(self, turn: TurnRef) -> AsyncGenerator[agui.BaseEvent | None, None]:
        """Yield the events of one turn, with the changes of the state; None whenever no event came for a heartbeat."""
        async with aclosing(self._context.turns.follow(turn)) as items:
            async for item in items:
                if item is None:
                    yield None
                    continue
                ends = events.is_final(item.event)
                for change in await self._state_changes() if ends else ():  # nothing may follow an error
                    yield change
                for agui_event in self._to_agui(item.event):
                    yield agui_event
                if isinstance(item.event, events.ToolEnd | events.NodeProgress):
                    for change in await self._state_changes():
                        yield change

    async def _state_changes(self) -> Sequence[agui.BaseEvent]:
        """Return the event of what changed in the session's state since the last one. A tool's end is stored by now."""
        session = await self._context.get_session(self._caller, self._run_input.thread_id)

        def changes() -> Sequence[agui.BaseEvent]:
            before, self._state = self._state, client_state(session)
            patch = [*json_patch(before, self._state)]
            return [agui.StateDeltaEvent.model_validate({"delta": patch})] if patch else []

        return await run_in_thread(changes)

    async def _earlier_interrupts(self, session: SessionRecord) -> list[agui.Interrupt]:
        """Return the requests that earlier runs left open: approvals, else inputs, else credentials."""
        store = self._context.store
        if approvals := await store.read(read_approval_requests, session):
            return [_interrupt(request.call_id, request.name, request.arguments) for request in approvals]
        if inputs := await store.read(read_input_requests, session):
            return [_input_interrupt(input_event(request, 0)) for request in inputs]
        credentials = await store.read(read_credential_requests, session)
        return [_credential_interrupt(credential_event(request, 0)) for request in credentials]

    def _to_agui(self, event: events.TurnEvent) -> Iterator[agui.BaseEvent]:
        match event:
            case events.Queued() | events.Resumed() | events.ToolProgress():
                yield _notice(event)
            case events.TextDelta() | events.ThoughtDelta():
                yield from self._text(event)
            case events.ToolStart() | events.ToolEnd():
                yield from self._close_message()
                yield from self._tool_result(event) if isinstance(event, events.ToolEnd) else self._tool_call(event)
            case events.ApprovalNeeded():
                yield from self._close_message()
                yield from self._tool_call(event)
                self._interrupts.append(_interrupt(event.call_id, event.name, event.arguments))
            case events.InputNeeded() | events.CredentialNeeded():
                yield from self._close_message()
                yield from self._request(event)
            case events.NodeProgress():
                yield from self._step(event)
            case events.TurnDone() | events.TurnError(fatal=True):
                yield from self._end_turn(event)
            case events.TextWithdrawn():
                yield from self._withdraw(event)
            case events.Accepted() | events.TurnError():
                pass
            case _ as unexpected:
                assert_never(unexpected)

    def _request(self, event: events.InputNeeded | events.CredentialNeeded) -> Iterator[agui.BaseEvent]:
        """Note a request as an interrupt of the run; that of a running tool is none: the run goes on."""
        if isinstance(event, events.CredentialNeeded):
            self._interrupts.append(_credential_interrupt(event))
        elif event.tool_call_id:
            yield _notice(event)
        else:
            self._interrupts.append(_input_interrupt(event))

    def _end_turn(self, event: events.TurnDone | events.TurnError) -> Iterator[agui.BaseEvent]:
        yield from self._close_message()
        while self._steps:
            yield agui.StepFinishedEvent(step_name=self._steps.pop())
        if isinstance(event, events.TurnError):
            yield self._failure(event)
            self._failed = True
        else:
            self._is_pending = event.status in _ASKS
            self._awaits_result = event.status == "waiting_for_result"
            self._usage.append(_usage(event.usage))

    def _step(self, event: events.NodeProgress) -> Iterator[agui.BaseEvent]:
        """Start or finish a step; the protocol refuses a step that is not balanced."""
        if event.status == "started" and event.path not in self._steps:
            self._steps.append(event.path)
            yield agui.StepStartedEvent(step_name=event.path)
        elif event.status != "started" and event.path in self._steps:
            self._steps.remove(event.path)
            yield agui.StepFinishedEvent(step_name=event.path)

    def _text(self, event: events.TextDelta | events.ThoughtDelta) -> Iterator[agui.BaseEvent]:
        kind, text = type(event), event.text
        if not text:
            return
        if self._open_message is None or self._open_message[0] != kind or self._speaker != event.author:
            yield from self._close_message()
            self._open_message, self._speaker = (kind, self._message_id(event)), event.author
            id_ = self._open_message[1]
            if kind is events.TextDelta:
                yield agui.TextMessageStartEvent(message_id=id_, role="assistant", name=event.author or None)
            else:
                yield agui.ReasoningStartEvent(message_id=id_)
                yield agui.ReasoningMessageStartEvent(message_id=id_)
        id_ = self._open_message[1]
        self._messages.add_text(id_, event)
        if kind is events.TextDelta:
            yield agui.TextMessageContentEvent(message_id=id_, delta=text)
        else:
            yield agui.ReasoningMessageContentEvent(message_id=id_, delta=text)

    def _close_message(self) -> Iterator[agui.BaseEvent]:
        """End the message that is open."""
        if self._open_message is None:
            return
        kind, id_ = self._open_message
        if kind is events.TextDelta:
            yield agui.TextMessageEndEvent(message_id=id_)
        else:
            yield agui.ReasoningMessageEndEvent(message_id=id_)
            yield agui.ReasoningEndEvent(message_id=id_)
        self._open_message = None

    def _withdraw(self, event: events.TextWithdrawn) -> Iterator[agui.BaseEvent]:
        """Replace the client's messages by those without the withdrawn text."""
        yield from self._close_message()
        if snapshot := self._messages.withdraw(event):
            yield snapshot

    def _tool_result(self, event: events.ToolEnd) -> Iterator[agui.BaseEvent]:
        id_, content = self._message_id(event), tool_value_text(event.result)
        self._messages.add_result(id_, event.call_id, content)
        yield agui.ToolCallResultEvent(message_id=id_, tool_call_id=event.call_id, content=content, role="tool")

    def _tool_call(self, event: events.ToolStart | events.ApprovalNeeded) -> Iterator[agui.BaseEvent]:
        id_ = event.call_id
        if id_ in self._known_calls:
            return
        self._known_calls.add(id_)
        arguments = tool_value_text(event.arguments)
        self._messages.add_call(id_, event.name, arguments)
        yield agui.ToolCallStartEvent(tool_call_id=id_, tool_call_name=event.name)
        yield agui.ToolCallArgsEvent(tool_call_id=id_, delta=arguments)
        yield agui.ToolCallEndEvent(tool_call_id=id_)

    def _failure(self, event: events.TurnError) -> agui.BaseEvent:
        if event.error == TurnCancelled.__name__:
            thread, run = self._run_input.thread_id, self._run_input.run_id
            return agui.RunFinishedEvent(thread_id=thread, run_id=run, outcome=agui.RunFinishedCancelledOutcome())
        return agui.RunErrorEvent(message=event.message, code=event.error)

    def _message_id(self, event: events.TurnEvent) -> str:
        return f"{self._run_input.thread_id}-{event.id}"


def _notice(event: events.Queued | events.Resumed | events.ToolProgress | events.InputNeeded) -> agui.BaseEvent:
    """Return the event of what AG-UI has no event for, with the fields of ours."""
    match event:
        case events.Queued():
            return agui.CustomEvent(name="lango.queued", value={"place": event.place})
        case events.Resumed():
            return agui.CustomEvent(name="lango.resumed", value={"reason": event.reason, "attempt": event.attempt})
        case events.ToolProgress() | events.InputNeeded():
            return agui.CustomEvent(name=f"lango.{event.type}", value=events.to_json(event))


def _interrupt(call_id: str, name: str, arguments: Mapping[str, Any]) -> agui.Interrupt:
    prompt = f"May {name} run with {tool_value_text(arguments)}?"
    return agui.Interrupt(
        id=call_id, reason="tool_approval", message=prompt, tool_call_id=call_id, response_schema=_APPROVAL_SCHEMA
    )


def _input_interrupt(event: events.InputNeeded) -> agui.Interrupt:
    schema = dict(event.schema) if event.schema is not None else None
    return agui.Interrupt(id=event.call_id, reason="input_needed", message=event.message, response_schema=schema)


def _credential_interrupt(event: events.CredentialNeeded) -> agui.Interrupt:
    """Return the interrupt of a credential request; its message has the address that the user opens."""
    message = f"{event.message or 'a tool needs access to an account of yours'}: {event.auth_url}".removesuffix(": ")
    return agui.Interrupt(
        id=event.call_id, reason="credential_needed", message=message, response_schema=_CREDENTIAL_SCHEMA
    )


def _result_interrupt(call: AwaitedResult) -> agui.Interrupt:
    message = f"{call.name} waits for its result"
    return agui.Interrupt(id=call.call_id, reason="result_needed", message=message, tool_call_id=call.call_id)


def _usage(used: events.Usage) -> agui.TokenUsage:
    return agui.TokenUsage(
        input_tokens=used.input_tokens,
        output_tokens=used.output_tokens,
        total_tokens=used.input_tokens + used.output_tokens,
        cached_input_tokens=used.cached_tokens,
        cache_write_input_tokens=used.cache_write_tokens,
        reasoning_tokens=used.thought_tokens,
    )
