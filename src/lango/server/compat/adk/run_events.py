"""Yield the events of turns as ADK's server sends them: stored ones, with `streaming` after partial ones."""

from collections.abc import AsyncGenerator, Iterable, Sequence
from contextlib import aclosing
from typing import Any

from lango.events import TextDelta, TextWithdrawn, ThoughtDelta, TurnDone, TurnError, TurnEvent
from lango.server.context import AgentUser
from lango.server.streaming.turn_streams import TurnRef

AdkEvent = dict[str, Any]


class RunEvents:
    """The events that turns store, in ADK's form."""

    def __init__(self, user: AgentUser, turns: Sequence[TurnRef], known: Iterable[str] = ()) -> None:
        self._user = user
        self._turns = turns
        self._sent_ids = set(known)

    async def events(self, *, streaming: bool) -> AsyncGenerator[AdkEvent | TurnError | None, None]:
        """Yield ADK's events; None whenever no event came for a heartbeat. A fatal `TurnError` comes last."""
        for turn in self._turns:
            record = await self._user.runtime.turns.read(turn.session, turn.turn)
            invocation_id = record.invocation_id if record else ""
            order = _StreamedOrder() if streaming else None
            async with aclosing(self._user.turns.follow(turn)) as items:
                async for item in items:
                    event = item and item.event
                    if event is None:
                        yield None
                        continue
                    if order is None or order.may_complete_an_event(event):
                        stored = await self._new_events(turn)
                        for one in stored if order is None else order.ready(stored, event):
                            yield one
                    if order is not None and isinstance(event, TextDelta | ThoughtDelta):
                        order.note(event)
                        thought = isinstance(event, ThoughtDelta)
                        yield self._user.runtime.adk_rest.partial_event(
                            event.text, event.author, invocation_id, thought=thought
                        )
                    if isinstance(event, TurnError) and event.fatal:
                        yield event
                        return

    async def _new_events(self, turn: TurnRef) -> list[AdkEvent]:
        """Return the events of a turn that were stored since the last call, without the user's message."""
        new = await self._user.runtime.adk_rest.events_of_turn(
            turn.session, turn.turn, self._sent_ids, with_app_state=self._user.is_operator
        )
        self._sent_ids |= {event["id"] for event in new}
        return new


class _StreamedOrder:
    """Holds stored events back until their text deltas were sent: a fast turn is ahead of its stream."""

    def __init__(self) -> None:
        self._held: list[AdkEvent] = []
        self._author = ""
        self._text = ""

    def may_complete_an_event(self, event: TurnEvent) -> bool:
        """Whether stored events may have to be sent before an event: not between two pieces of one text."""
        return not isinstance(event, TextDelta | ThoughtDelta) or event.author != self._author

    def ready(self, stored: Iterable[AdkEvent], event: TurnEvent) -> list[AdkEvent]:
        """Return the stored events whose text was sent before an event of the turn; at its end all of them."""
        self._held += stored
        ended = isinstance(event, TurnDone) or (isinstance(event, TurnError) and event.fatal)
        ready: list[AdkEvent] = []
        while self._held and (ended or self._was_sent(self._held[0])):
            ready.append(self._held.pop(0))
        if isinstance(event, TextWithdrawn):
            self._author = self._text = ""
        return ready

    def note(self, delta: TextDelta | ThoughtDelta) -> None:
        """Add a piece of text that is sent."""
        if delta.author != self._author:
            self._author, self._text = delta.author, ""
        if isinstance(delta, TextDelta):
            self._text += delta.text

    def _was_sent(self, event: AdkEvent) -> bool:
        parts = event.get("content", {}).get("parts", ())
        text = "".join(part.get("text", "") for part in parts if not part.get("thought"))
        if text and not (event["author"] == self._author and self._text.endswith(text)):
            return False
        if text:
            self._author = self._text = ""
        return True
