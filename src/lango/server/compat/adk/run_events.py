"""Yield the events of turns as ADK's server sends them: stored ones, with `streaming` after partial ones."""

from collections.abc import AsyncGenerator, Iterable, Sequence
from contextlib import aclosing
from typing import Any

from lango.events import Steered, TextDelta, TextEnd, TextWithdrawn, ThoughtDelta, TurnError, TurnEvent, is_final
from lango.events.text import TextOrder
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
        for submitted in self._turns:
            turn = submitted
            invocation_id, after_seq = await self._invocation_id(turn), 0
            order = _StreamedOrder() if streaming else None
            async with aclosing(self._user.turns.follow_answer(submitted)) as items:
                async for item in items:
                    event = item and item.event
                    if event is None:
                        yield None
                        continue
                    if isinstance(event, Steered) and event.turn == submitted.turn:
                        turn, after_seq = TurnRef(turn.session, event.into), event.seq
                        invocation_id = await self._invocation_id(turn)
                    deltas = [] if order is None else order.add(event)
                    for delta in deltas:
                        yield self._user.runtime.adk_rest.partial_event(
                            delta.text, delta.author, invocation_id, thought=isinstance(delta, ThoughtDelta)
                        )
                    if not isinstance(
                        event, TextDelta | ThoughtDelta
                    ):  # no event is stored between two pieces of a text
                        stored = await self._new_events(turn, after_seq)
                        for one in stored if order is None else order.ready(stored, event):
                            yield one
                    if isinstance(event, TurnError) and event.fatal:
                        yield event
                        return

    async def _invocation_id(self, turn: TurnRef) -> str:
        record = await self._user.runtime.turns.read(turn.session, turn.turn)
        return record.invocation_id if record else ""

    async def _new_events(self, turn: TurnRef, after_seq: int) -> list[AdkEvent]:
        """Return the events of a turn that were stored since the last call, without the user's message."""
        new = await self._user.runtime.adk_rest.events_of_turn(
            turn.session, turn.turn, self._sent_ids, after_seq, with_app_state=self._user.is_operator
        )
        self._sent_ids |= {event["id"] for event in new}
        return new


class _StreamedOrder:
    """Holds stored events back until their text deltas were sent: a fast turn is ahead of its stream."""

    def __init__(self) -> None:
        self._order = TextOrder()
        self._held: list[AdkEvent] = []
        self._texts: dict[int, str] = {}
        """The text that was sent of each block."""
        self._complete: list[tuple[str, str]] = []
        """The authors and texts that were sent whole, and whose stored events were not."""
        self._withdrawn: set[str] = set()
        """The authors of a text that was sent and is withdrawn: clients get what replaces it from its stored event."""

    def add(self, event: TurnEvent) -> list[TextDelta | ThoughtDelta]:
        """Add the next event of the turn; return the pieces that can be sent now, one text after the other."""
        pieces: list[TextDelta | ThoughtDelta] = []
        for one in self._order.add(event):
            match one:
                case TextDelta():
                    self._texts[one.block] = self._texts.get(one.block, "") + one.text
                case TextEnd():
                    self._complete.append((one.author, self._texts.pop(one.block, "")))
                    self._withdrawn.discard(one.author)
                case TextWithdrawn() if self._texts.pop(one.block, ""):
                    self._withdrawn.add(one.author)
                case _:
                    pass
            if isinstance(one, TextDelta | ThoughtDelta) and one.author not in self._withdrawn:
                pieces.append(one)
        return pieces

    def ready(self, stored: Iterable[AdkEvent], event: TurnEvent) -> list[AdkEvent]:
        """Return the stored events whose text was sent; at the end of the turn all of them."""
        ready: list[AdkEvent] = []
        waiting: list[AdkEvent] = []
        for one in [*self._held, *stored]:
            is_ready = all(_are_parallel(one, other) for other in waiting) and self._was_sent(one)
            (ready if is_ready or is_final(event) else waiting).append(one)
        self._held = waiting
        return ready

    def _was_sent(self, event: AdkEvent) -> bool:
        parts = event.get("content", {}).get("parts", ())
        text = "".join(part.get("text", "") for part in parts if not part.get("thought"))
        if text and (event["author"], text) not in self._complete:
            return False
        if text:
            self._complete.remove((event["author"], text))
        return True


def _are_parallel(one: AdkEvent, other: AdkEvent) -> bool:
    """Whether two events come from parallel branches, so that neither has to be sent first."""
    branches = one.get("branch") or "", other.get("branch") or ""
    return not (branches[0].startswith(branches[1]) or branches[1].startswith(branches[0]))
