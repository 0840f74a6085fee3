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

from lango.server.context import Served
from lango.server.schemas import SessionWithState
from lango.server.security.auth import Caller
from lango.server.streaming.sse import read
from lango.server.streaming.turn_streams import TurnOf

_encoder = EventEncoder()
_ANSWER = {"type": "object", "properties": {"approved": {"type": "boolean"}}, "required": ["approved"]}


def failed(error: str, message: str) -> str:
    """Say that a run failed."""
    return _encoder.encode(RunErrorEvent(message=message, code=error))


class Run:
    """One run: the turns that it began, told as events that open and close in order."""

    def __init__(self, here: Served, user: Caller, asked: RunAgentInput, turns: Sequence[TurnOf]) -> None:
        self._here = here
        self._user = user
        self._asked = asked
        self._turns = turns
        self._open: tuple[str, str] | None = None
        # the calls that were asked about have been told by the run that asked
        self._known = {one.interrupt_id for one in asked.resume or ()}
        self._interrupts: list[Interrupt] = []
        self._questions_wait = False
        self._usage: list[TokenUsage] = []
        self._over = False

    async def frames(self) -> AsyncGenerator[str | None, None]:
        """Tell the run; None whenever nothing came for a while."""
        thread, run = self._asked.thread_id, self._asked.run_id
        yield _encoder.encode(RunStartedEvent(thread_id=thread, run_id=run, protocol_version=PROTOCOL_VERSION))
        for turn in self._turns:
            async with aclosing(read(self._here.turns.follow(turn))) as events:
                async for event in events:
                    if event is None:
                        yield None
                        continue
                    for said in self._told(event):
                        yield _encoder.encode(said)
            if self._over:
                return
        session = await self._here.session(self._user, self._asked.thread_id)
        yield _encoder.encode(StateSnapshotEvent(snapshot=SessionWithState.of(session).state))
        if self._questions_wait and not self._interrupts:  # asked by an earlier run
            waiting = await self._here.store.open_questions(session)
            self._interrupts = [_interrupt(one.call_id, one.name, one.arguments) for one in waiting]
        outcome = RunFinishedInterruptOutcome(interrupts=self._interrupts) if self._interrupts else None
        finished = RunFinishedEvent(thread_id=thread, run_id=run, outcome=outcome, usage=self._usage)
        yield _encoder.encode(finished)

    def _told(self, event: Mapping[str, Any]) -> Iterator[BaseEvent]:
        match event["type"]:
            case "queued":
                yield CustomEvent(name="lango.queued", value={"place": event["place"]})
            case "text_delta" | "thought_delta":
                yield from self._say(event)
            case "tool_start":
                yield from self._close()
                yield from self._call(event)
            case "tool_end":
                yield from self._close()
                result = json.dumps(event["result"])
                yield ToolCallResultEvent(
                    message_id=self._id(event), tool_call_id=event["call_id"], content=result, role="tool"
                )
            case "approval":
                yield from self._close()
                yield from self._call(event)
                self._interrupts.append(_interrupt(event["call_id"], event["name"], event["arguments"]))
            case "error" if event["fatal"]:
                yield from self._close()
                yield self._failure(event)
                self._over = True
            case "done":
                yield from self._close()
                self._questions_wait = event["status"] == "waiting_for_approval"
                self._usage.append(_usage(event["usage"]))
            case _:
                pass

    def _say(self, event: Mapping[str, Any]) -> Iterator[BaseEvent]:
        kind, text = event["type"], event["text"]
        if not text:
            return
        if self._open is None or self._open[0] != kind:
            yield from self._close()
            self._open = (kind, self._id(event))
            id_ = self._open[1]
            if kind == "text_delta":
                yield TextMessageStartEvent(message_id=id_, role="assistant")
            else:
                yield ReasoningStartEvent(message_id=id_)
                yield ReasoningMessageStartEvent(message_id=id_)
        id_ = self._open[1]
        if kind == "text_delta":
            yield TextMessageContentEvent(message_id=id_, delta=text)
        else:
            yield ReasoningMessageContentEvent(message_id=id_, delta=text)

    def _close(self) -> Iterator[BaseEvent]:
        """End the message that is open."""
        match self._open:
            case ("text_delta", id_):
                yield TextMessageEndEvent(message_id=id_)
            case (_, id_):
                yield ReasoningMessageEndEvent(message_id=id_)
                yield ReasoningEndEvent(message_id=id_)
            case None:
                pass
        self._open = None

    def _call(self, event: Mapping[str, Any]) -> Iterator[BaseEvent]:
        id_ = event["call_id"]
        if id_ in self._known:
            return
        self._known.add(id_)
        yield ToolCallStartEvent(tool_call_id=id_, tool_call_name=event["name"])
        yield ToolCallArgsEvent(tool_call_id=id_, delta=json.dumps(event["arguments"]))
        yield ToolCallEndEvent(tool_call_id=id_)

    def _failure(self, event: Mapping[str, Any]) -> BaseEvent:
        if event["error"] == "TurnCancelled":
            thread, run = self._asked.thread_id, self._asked.run_id
            return RunFinishedEvent(thread_id=thread, run_id=run, outcome=RunFinishedCancelledOutcome())
        return RunErrorEvent(message=event["message"], code=event["error"])

    def _id(self, event: Mapping[str, Any]) -> str:
        return f"{self._asked.thread_id}-{event['id']}"


def _interrupt(call_id: str, name: str, arguments: Mapping[str, Any]) -> Interrupt:
    question = f"May {name} run with {json.dumps(arguments)}?"
    return Interrupt(
        id=call_id, reason="tool_approval", message=question, tool_call_id=call_id, response_schema=_ANSWER
    )


def _usage(used: Mapping[str, int]) -> TokenUsage:
    given, made = used["input_tokens"], used["output_tokens"]
    cached = used.get("cached_tokens", 0)
    return TokenUsage(input_tokens=given, output_tokens=made, total_tokens=given + made, cached_input_tokens=cached)
