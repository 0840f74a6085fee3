"""Fold the events of a turn into the parts of one answer, for clients that can only append to what they were sent."""

from collections.abc import AsyncGenerator, Collection, Iterable, Iterator, Sequence
from contextlib import aclosing
from typing import Any, Protocol

from msgspec import Struct

from lango import events
from lango.events.text import FinalText, LastText, TextOrder, remove_withdrawn
from lango.server.compat.client_view import pause_note
from lango.server.context import AgentUser
from lango.server.errors import ApiError, turn_api_error
from lango.server.json_body import tool_value_text
from lango.server.streaming.turn_streams import TurnRef
from lango.waits import ApprovalWait


class Text(Struct, frozen=True):
    """A piece of the text."""

    text: str


class Thought(Struct, frozen=True):
    """A piece of the model's thoughts."""

    text: str


class Speaker(Struct, frozen=True):
    """Another agent begins to speak."""

    index: int
    name: str


class ExecutedTool(Struct, frozen=True):
    """What is new of a call of the agent's own tool; a client merges these by `index`."""

    change: dict[str, Any]


AnswerPart = Text | Thought | Speaker | ExecutedTool


class AnswerView(Protocol):
    """How a protocol shows an answer: whole, or as the frames of a stream."""

    heartbeat: str | None
    """The frame that is sent when no event came for long, or None for the one of all streams."""

    def body(self, parts: Sequence[AnswerPart], done: events.TurnDone) -> dict[str, Any]:
        """Return the whole answer."""
        ...

    def begin(self) -> str:
        """Return the first frame."""
        ...

    def add(self, part: AnswerPart) -> Iterable[str]:
        """Return the frames of the next part."""
        ...

    def end(self, done: events.TurnDone) -> Iterable[str]:
        """Return the last frames of a turn that did not fail."""
        ...

    def encode_error(self, error: ApiError) -> str:
        """Return the frame of an error, which ends the stream."""
        ...


class TurnAnswer:
    """The answer of one turn."""

    def __init__(
        self, user: AgentUser, turn: TurnRef, client_tools: Collection[str], *, only_json: bool = False
    ) -> None:
        """`only_json`: the answer must be JSON, so text that the model writes before it calls a tool is left out."""
        self.turn = turn
        self._executed: list[dict[str, Any]] = []
        self._unapproved: set[str] = set()
        """The calls that had begun and ask for approval: they did nothing yet."""
        self._turns = user.turns
        # text before a tool call cannot be taken back from a stream
        holds_text = only_json and user.runtime.may_call_tools
        self._final_text = LastText() if holds_text else FinalText()
        self._order = TextOrder()
        self._speaker = user.runtime.root_name
        self._speaker_count = 0
        self._client_tools = client_tools
        self._index_by_call: dict[str, int] = {}
        self._client_calls: dict[str, events.ToolStart] = {}

    @property
    def client_calls(self) -> list[events.ToolStart]:
        """The calls that the client is to run, complete once the turn ended: an invalid one got its result here."""
        return list(self._client_calls.values())

    @property
    def executed(self) -> list[dict[str, Any]]:
        """The calls of the agent's own tools, as far as they are known, without those that wait for approval."""
        return [call for call in self._executed if call["id"] not in self._unapproved]

    async def collect(self) -> tuple[list[AnswerPart], events.TurnDone]:
        """Follow the turn to its end; return its parts and its end. Raise `ApiError` if it failed."""
        async with aclosing(self._turns.follow_answer(self.turn)) as items:
            followed = [item.event async for item in items if item]
        done = followed[-1]
        if isinstance(done, events.TurnError):
            raise turn_api_error(done)
        assert isinstance(done, events.TurnDone), "the events of a turn end with a final one"
        return [part for event in remove_withdrawn(followed) for part in self._parts(event)], done

    async def frames(self, view: AnswerView) -> AsyncGenerator[str | None, None]:
        """Yield the answer as it is generated, and places in the queue, as the frames of a stream."""
        yield view.begin()
        async with aclosing(self._turns.follow_answer(self.turn)) as items:
            async for item in items:
                if item is None:
                    yield view.heartbeat
                    continue
                for part in self._parts(item.event):
                    for frame in view.add(part):
                        yield frame
                match item.event:
                    case events.Queued(place=place):
                        yield f": queued, place {place}\n\n"
                    case events.TurnDone():
                        for frame in view.end(item.event):
                            yield frame
                    case events.TurnError(fatal=True):
                        yield view.encode_error(turn_api_error(item.event))
                    case _:
                        pass

    def _parts(self, event: events.TurnEvent) -> Iterator[AnswerPart]:
        """Yield what an event adds to the answer, except the calls that the client is to run."""
        for ready in self._order.add(event):
            if isinstance(ready, events.TextDelta) and ready.author not in ("", self._speaker):
                self._speaker = ready.author
                yield Speaker(self._speaker_count, ready.author)
                self._speaker_count += 1
            if text := self._final_text.add(ready):
                yield Text(text)
            match ready:
                case events.WaitOpened(wait=ApprovalWait() as wait):
                    self._unapproved.add(wait.call_id)
                    yield Text(pause_note(wait))
                case events.WaitOpened() if note := pause_note(ready.wait):
                    yield Text(note)
                case events.ToolStart() | events.ToolEnd() if change := self._add_call(ready):
                    yield ExecutedTool(change)
                case events.ThoughtDelta():
                    yield Thought(ready.text)
                case _:
                    pass

    def _add_call(self, event: events.ToolStart | events.ToolEnd) -> dict[str, Any]:
        """Add the start or end of a call; return what is new in `executed`."""
        call_id = event.call_id
        if isinstance(event, events.ToolStart) and event.name in self._client_tools:
            self._client_calls[call_id] = event
            return {}
        index = self._index_by_call.setdefault(call_id, len(self._index_by_call))
        change: dict[str, Any] = {"index": index}
        if index == len(self._executed):  # an approved call continues without a start
            change |= {"id": call_id, "type": "function", "name": event.name}
            self._executed.append({})
        if start := event if isinstance(event, events.ToolStart) else self._client_calls.pop(call_id, None):
            change["arguments"] = tool_value_text(start.arguments)
        if isinstance(event, events.ToolEnd):
            change |= {"output": tool_value_text(event.result), "ok": event.ok}
        self._executed[index] |= change
        return change
