"""Translate the events of a turn into AG-UI's events. Imports `ag_ui`, which is optional."""

from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from contextlib import aclosing
from typing import Any, assert_never

from ag_ui import core as agui
from ag_ui.encoder import EventEncoder
from msgspec import Struct

from lango import events
from lango.errors import LangoError, TurnCancelled
from lango.events.text import without_withdrawn
from lango.server.compat.agui.run_state import json_patch
from lango.server.compat.wait_answers import question_text
from lango.server.context import AgentUser
from lango.server.errors import ApiError
from lango.server.json_body import tool_value_text
from lango.server.schemas import client_state
from lango.server.streaming.turn_streams import TurnRef
from lango.threads import run_in_thread
from lango.waits import ApprovalWait, InputWait, QuestionWait, ToolResultWait, Wait

_encoder = EventEncoder()
_REASONS = {
    "approval": "tool_approval",
    "input": "input_needed",
    "credential": "credential_needed",
    "long_running_result": "result_needed",
    "timer": "timer",
    "event": "event",
}
"""Why a run ends, by the kind of the wait."""
_SCHEMAS: Mapping[str, Mapping[str, Any]] = {
    "approval": {
        "type": "object",
        "properties": {"approved": {"type": "boolean"}, "grant": {"type": ["object", "null"]}},
        "required": ["approved"],
    },
    "credential": {"type": ["string", "object"]},
}


def encode_error(error: ApiError) -> str:
    """Encode the event that a run failed."""
    return _encoder.encode(agui.RunErrorEvent(message=str(error), code=error.type))


class RunEvents:
    """One run: the turns that it started, as AG-UI's events, which open and close in order."""

    def __init__(
        self, user: AgentUser, run_input: agui.RunAgentInput, turns: Sequence[TurnRef], state_delta: Mapping[str, Any]
    ) -> None:
        """`state_delta` is what the client changed in the state: a queued turn applies it when it starts."""
        self._user = user
        self._run_input = run_input
        self._turns = turns
        self._messages = RunMessages(run_input.messages)
        self._state: dict[str, Any] = dict(state_delta)
        """The state as the client knows it."""
        self._open: dict[int, tuple[type[events.TextDelta | events.ThoughtDelta], str]] = {}
        """The kind and id of the message that each block writes: parallel agents write at once."""
        # the run that asked for approval has sent these calls
        self._known_calls = {answer.interrupt_id for answer in run_input.resume or ()}
        self._interrupts: list[agui.Interrupt] = []
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
        session = await self._user.get_session(thread)
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
                for agui_event in self._close_messages():
                    yield _encoder.encode(agui_event)
                raise
            if self._failed:
                return
        outcome = agui.RunFinishedInterruptOutcome(interrupts=self._interrupts) if self._interrupts else None
        finished = agui.RunFinishedEvent(thread_id=thread, run_id=run, outcome=outcome, usage=self._usage)
        yield _encoder.encode(finished)

    async def _turn_events(self, turn: TurnRef) -> AsyncGenerator[agui.BaseEvent | None, None]:
        """Yield the events of one turn, with the changes of the state; None whenever no event came for a heartbeat."""
        async with aclosing(self._user.turns.follow_answer(turn)) as items:
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
        session = await self._user.get_session(self._run_input.thread_id)

        def changes() -> Sequence[agui.BaseEvent]:
            before, self._state = self._state, client_state(session)
            patch = [*json_patch(before, self._state)]
            return [agui.StateDeltaEvent.model_validate({"delta": patch})] if patch else []

        return await run_in_thread(changes)

    def _to_agui(self, event: events.TurnEvent) -> Iterator[agui.BaseEvent]:
        match event:
            case events.Queued() | events.Resumed() | events.ToolProgress() | events.ArtifactSaved() | events.Steered():
                yield _custom_event(event)
            case events.TextDelta() | events.ThoughtDelta():
                yield from self._text(event)
            case events.ToolStart():
                yield from self._tool_call(event.call_id, event.name, event.arguments)
            case events.ToolEnd():
                yield from self._tool_result(event)
            case events.WaitOpened():
                yield from self._wait(event)
            case events.NodeProgress():
                yield from self._step(event)
            case events.TurnDone() | events.TurnError(fatal=True):
                yield from self._end_turn(event)
            case events.TextEnd() | events.TextWithdrawn():
                yield from self._end_text(event)
            case events.Accepted() | events.TurnError() | events.WaitClosed():
                pass
            case _ as unexpected:
                assert_never(unexpected)

    def _wait(self, event: events.WaitOpened) -> Iterator[agui.BaseEvent]:
        """Show the call that waits for approval, and what a running tool asks: the run continues."""
        match event.wait:
            case ApprovalWait() as wait:
                yield from self._tool_call(wait.call_id, wait.tool, wait.arguments)
            case QuestionWait():
                yield _custom_event(event)
            case _:
                pass

    def _end_turn(self, event: events.TurnDone | events.TurnError) -> Iterator[agui.BaseEvent]:
        yield from self._close_messages()
        while self._steps:
            yield agui.StepFinishedEvent(step_name=self._steps.pop())
        if isinstance(event, events.TurnError):
            yield self._failure(event)
            self._failed = True
        else:
            self._interrupts = [interrupt for wait in event.waits if (interrupt := _interrupt(wait)) is not None]
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
        if event.block not in self._open or self._open[event.block][0] != kind:
            yield from self._close_message(event.block)
            id_ = self._message_id(event)
            self._open[event.block] = kind, id_
            if kind is events.TextDelta:
                yield agui.TextMessageStartEvent(message_id=id_, role="assistant", name=event.author or None)
            else:
                yield agui.ReasoningStartEvent(message_id=id_)
                yield agui.ReasoningMessageStartEvent(message_id=id_)
        id_ = self._open[event.block][1]
        self._messages.add_text(id_, event)
        if kind is events.TextDelta:
            yield agui.TextMessageContentEvent(message_id=id_, delta=text)
        else:
            yield agui.ReasoningMessageContentEvent(message_id=id_, delta=text)

    def _close_messages(self) -> Iterator[agui.BaseEvent]:
        for block in list(self._open):
            yield from self._close_message(block)

    def _close_message(self, block: int) -> Iterator[agui.BaseEvent]:
        """End the message that a block writes, if it is open."""
        if block not in self._open:
            return
        kind, id_ = self._open.pop(block)
        if kind is events.TextDelta:
            yield agui.TextMessageEndEvent(message_id=id_)
        else:
            yield agui.ReasoningMessageEndEvent(message_id=id_)
            yield agui.ReasoningEndEvent(message_id=id_)

    def _end_text(self, event: events.TextEnd | events.TextWithdrawn) -> Iterator[agui.BaseEvent]:
        """End the message of a block; replace the client's messages by those without it, if it is withdrawn."""
        yield from self._close_message(event.block)
        if isinstance(event, events.TextWithdrawn) and (snapshot := self._messages.withdraw(event)):
            yield snapshot

    def _tool_result(self, event: events.ToolEnd) -> Iterator[agui.BaseEvent]:
        id_, content = self._message_id(event), tool_value_text(event.result)
        self._messages.add_result(id_, event.call_id, content)
        yield agui.ToolCallResultEvent(message_id=id_, tool_call_id=event.call_id, content=content, role="tool")

    def _tool_call(self, id_: str, name: str, given: Mapping[str, Any]) -> Iterator[agui.BaseEvent]:
        if id_ in self._known_calls:
            return
        self._known_calls.add(id_)
        arguments = tool_value_text(given)
        self._messages.add_call(id_, name, arguments)
        yield agui.ToolCallStartEvent(tool_call_id=id_, tool_call_name=name)
        yield agui.ToolCallArgsEvent(tool_call_id=id_, delta=arguments)
        yield agui.ToolCallEndEvent(tool_call_id=id_)

    def _failure(self, event: events.TurnError) -> agui.BaseEvent:
        if event.error == TurnCancelled.__name__:
            thread, run = self._run_input.thread_id, self._run_input.run_id
            return agui.RunFinishedEvent(thread_id=thread, run_id=run, outcome=agui.RunFinishedCancelledOutcome())
        return agui.RunErrorEvent(message=event.message, code=event.error)

    def _message_id(self, event: events.TurnEvent) -> str:
        return f"{self._run_input.thread_id}-{event.id}"


def _custom_event(event: events.TurnEvent) -> agui.BaseEvent:
    """Return the event of what AG-UI has no event for, with the fields of ours."""
    fields = {"place": event.place} if isinstance(event, events.Queued) else events.to_json(event)
    return agui.CustomEvent(name=f"lango.{event.type}", value=fields)


def _interrupt(wait: Wait) -> agui.Interrupt | None:
    """Return what ends a run because of a wait, or None if the client knows the wait by its call."""
    reason = _REASONS.get(wait.kind)
    if reason is None:
        return None
    schema = wait.schema if isinstance(wait, InputWait) else _SCHEMAS.get(wait.kind)
    call_id = wait.call_id if isinstance(wait, ApprovalWait | ToolResultWait) else None
    return agui.Interrupt(
        id=call_id or wait.id,
        reason=reason,
        message=question_text(wait),
        response_schema=None if schema is None else dict(schema),
        tool_call_id=call_id,
    )


def _usage(used: events.Usage) -> agui.TokenUsage:
    return agui.TokenUsage(
        input_tokens=used.input_tokens,
        output_tokens=used.output_tokens,
        total_tokens=used.input_tokens + used.output_tokens,
        cached_input_tokens=used.cached_tokens,
        cache_write_input_tokens=used.cache_write_tokens,
        reasoning_tokens=used.thought_tokens,
    )


class _StreamedMessage(Struct):
    """A message that is made of pieces of text, or of thoughts."""

    id: str
    is_thought: bool
    pieces: list[events.TextDelta | events.ThoughtDelta]

    def to_message(self) -> agui.AssistantMessage | agui.ReasoningMessage:
        content = "".join(piece.text for piece in self.pieces)
        if self.is_thought:
            return agui.ReasoningMessage(id=self.id, content=content)
        return agui.AssistantMessage(
            id=self.id, content=content, name=(self.pieces[0].author if self.pieces else "") or None
        )


class RunMessages:
    """The messages of a client: those that it sent, and those that the events of the run made."""

    def __init__(self, sent: Sequence[agui.Message]) -> None:
        self._messages: list[agui.Message | _StreamedMessage] = list(sent)

    def add_text(self, message_id: str, event: events.TextDelta | events.ThoughtDelta) -> None:
        """Add a piece to the message with this id, or make it."""
        streamed = (one for one in reversed(self._messages) if isinstance(one, _StreamedMessage))
        if (message := next((one for one in streamed if one.id == message_id), None)) is not None:
            message.pieces.append(event)
        else:
            self._messages.append(_StreamedMessage(message_id, isinstance(event, events.ThoughtDelta), [event]))

    def add_call(self, call_id: str, name: str, arguments: str) -> None:
        """Add a tool call, which a client keeps in a message with the id of the call."""
        call = agui.ToolCall(id=call_id, function=agui.FunctionCall(name=name, arguments=arguments))
        self._messages.append(agui.AssistantMessage(id=call_id, tool_calls=[call]))

    def add_result(self, message_id: str, call_id: str, content: str) -> None:
        """Add the result of a tool call."""
        self._messages.append(agui.ToolMessage(id=message_id, tool_call_id=call_id, content=content))

    def withdraw(self, withdrawal: events.TextWithdrawn) -> agui.MessagesSnapshotEvent | None:
        """Remove withdrawn text; return the event that replaces the messages of the client, if any changed."""
        changed = False
        for message in self._messages:
            if isinstance(message, _StreamedMessage):
                kept = without_withdrawn(message.pieces, withdrawal)
                changed = changed or len(kept) < len(message.pieces)
                message.pieces = kept
        if not changed:
            return None
        # a client keeps the reasoning that a snapshot does not have: it is replaced by an empty message
        return agui.MessagesSnapshotEvent(
            messages=[
                one.to_message() if isinstance(one, _StreamedMessage) else one
                for one in self._messages
                if not isinstance(one, _StreamedMessage) or one.pieces or one.is_thought
            ]
        )
