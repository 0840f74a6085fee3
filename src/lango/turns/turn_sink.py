"""Take what happens in a turn under way, in order, and pass it on to the turn's readers.

Everything that readers see of a running agent passes one `TurnSink`: text, starts and ends of tools, what the turn
waits for, progress and errors. Its stages, in order: events that readers have from an earlier run are left out; the
turn adds the event for its readers and its event log; the time limit without events is restarted.

The second run of a turn produces the stored events of the first one again. Readers may also have
text of a model call whose response was never stored: it is withdrawn before the model is called again.
"""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime

from msgspec import Struct
from msgspec.structs import replace

from lango import events
from lango.events import TurnEvent
from lango.sessions import STEERING, StoredEvent, is_steering
from lango.turns.text_blocks import TextBlocks
from lango.turns.time_limits import TimeLimits
from lango.turns.turn_log import TurnLog
from lango.waits import QuestionWait

_Delta = events.TextDelta | events.ThoughtDelta
_Kind = type[events.TextDelta] | type[events.ThoughtDelta]
_Step = tuple[type, str | None]


class _SentBlock(Struct):
    """A block of text that readers have, and how much of it the second run has produced again."""

    author: str
    texts: dict[_Kind, str] = {}
    positions: dict[_Kind, int] = {}
    has_ended: bool = False
    """Its end was emitted: its response is stored."""

    def add(self, event: _Delta) -> None:
        self.texts[type(event)] = self.texts.get(type(event), "") + event.text

    def fits(self, event: _Delta) -> bool:
        """Whether the block may begin with a piece of text."""
        text = self.texts.get(type(event), "")
        return bool(text) and (text.startswith(event.text) or event.text.startswith(text))

    def take(self, event: _Delta) -> str | None:
        """Note that a piece is produced again; return what readers lack of it, or None if it does not continue."""
        kind = type(event)
        text, position = self.texts.get(kind, ""), self.positions.get(kind, 0)
        left = text[position:]
        if left.startswith(event.text):
            self.positions[kind] = position + len(event.text)
            return ""
        if not event.text.startswith(left):
            return None
        rest = event.text[len(left) :]
        self.texts[kind], self.positions[kind] = text + rest, len(text + rest)
        return rest

    @property
    def is_whole(self) -> bool:
        """Whether its text was produced again as a whole; a stored response may lack its thoughts."""
        return self.positions.get(events.TextDelta, 0) == len(self.texts.get(events.TextDelta, ""))


class ResumedEvents:
    """Emits the events of a second run to the readers of a turn."""

    def __init__(self, log: TurnLog, sent: Sequence[events.TurnEvent]) -> None:
        """`sent` are the events that readers may have."""
        self._log = log
        self._unmatched: dict[int, _SentBlock] = {}
        """The blocks that readers have, and that the second run has not produced again."""
        self._matched: dict[int, tuple[int, _SentBlock]] = {}
        """The blocks that the second run produces again: the number that readers know, by the new number."""
        self._own: set[int] = set()
        """The blocks of the second run that readers do not have."""
        self._steps: set[_Step] = set()
        for event in sent:
            self._note(event)

    def _note(self, event: events.TurnEvent) -> None:
        match event:
            case events.TextDelta() | events.ThoughtDelta():
                self._unmatched.setdefault(event.block, _SentBlock(event.author)).add(event)
            case events.TextEnd():
                if event.block in self._unmatched:
                    self._unmatched[event.block].has_ended = True
            case events.TextWithdrawn():
                self._unmatched.pop(event.block, None)
            case _:
                if (step := _step(event)) is not None:
                    self._steps.add(step)

    def emit(self, event: events.TurnEvent) -> None:
        """Emit an event, or the part of it that readers do not have."""
        match event:
            case events.TextDelta() | events.ThoughtDelta():
                self._emit_text(event)
            case events.TextEnd():
                self._end_block(event)
            case events.TextWithdrawn():
                known = self._matched.pop(event.block, None)
                self._log.emit(event if known is None else replace(event, block=known[0]))
            case events.WaitOpened() | events.WaitClosed() if isinstance(event.wait, QuestionWait):
                self._log.emit(event)  # a tool that runs again asks again
            case _ if _step(event) in self._steps:
                pass
            case _:
                self._log.emit(event)

    def _emit_text(self, event: _Delta) -> None:
        if event.block not in self._matched and event.block not in self._own:
            self._begin_block(event)
            event = replace(event, id=self._log.next_id())  # after what was withdrawn
        if event.block in self._own:
            self._log.emit(event)
            return
        number, sent = self._matched[event.block]
        rest = sent.take(event)
        if rest is None:
            self._emit_again(event.block)
            self._log.emit(replace(event, id=self._log.next_id()))
        elif rest:
            self._log.emit(replace(event, text=rest, block=number))

    def _begin_block(self, event: _Delta) -> None:
        """Find the block that readers have of a response, by its first piece."""
        own = [number for number, sent in self._unmatched.items() if sent.author == event.author]
        fitting = [number for number in own if self._unmatched[number].fits(event)]
        # readers may have only the thoughts of a response
        bare = [n for n in own if type(event) not in self._unmatched[n].texts and not self._unmatched[n].has_ended]
        if found := fitting or bare:
            self._matched[event.block] = found[0], self._unmatched.pop(found[0])
            return
        for number in own:
            self._withdraw(number, self._unmatched.pop(number))
        self._own.add(event.block)

    def _end_block(self, event: events.TextEnd) -> None:
        if event.block in self._matched and not self._matched[event.block][1].is_whole:
            self._emit_again(event.block)  # readers have more than the response
        if event.block not in self._matched:
            self._log.emit(replace(event, id=self._log.next_id()))
            return
        number, sent = self._matched.pop(event.block)
        if not sent.has_ended:
            self._log.emit(replace(event, block=number))

    def _emit_again(self, block: int) -> None:
        """Withdraw what readers have of a block; emit what was produced of it under its new number."""
        number, sent = self._matched.pop(block)
        self._own.add(block)
        self._withdraw(number, sent)
        for kind in (events.ThoughtDelta, events.TextDelta):
            if text := sent.texts.get(kind, "")[: sent.positions.get(kind, 0)]:
                self._log.emit(kind(self._log.next_id(), text, sent.author, block))

    def _withdraw(self, number: int, sent: _SentBlock) -> None:
        self._log.emit(events.TextWithdrawn(self._log.next_id(), number, sent.author))

    def begin_model_call(self, author: str) -> None:
        """Withdraw the text of an author that no stored response has: the model is called again."""
        lost = [n for n, sent in self._unmatched.items() if sent.author == author and not sent.has_ended]
        for number in lost:
            self._withdraw(number, self._unmatched.pop(number))


def events_of_record(log: TurnLog) -> list[events.TurnEvent]:
    """Return the events that readers have of what a turn's record holds: those since its last update."""
    updates = [
        n for n, event in enumerate(log.events) if isinstance(event, events.Resumed) and event.reason == "update"
    ]
    return log.events[updates[-1] :] if updates else log.events


def end_record(log: TurnLog, stored: Sequence[StoredEvent], attempts: int) -> None:
    """Emit what readers lack of the stored messages of a turn, and that it continues from its history from now on.

    Text of a response that was never stored is withdrawn.
    """
    sent = events_of_record(log)
    resumed = ResumedEvents(log, sent)
    started = {event.call_id for event in sent if isinstance(event, events.ToolStart)}
    for event in stored:
        if (message := event.message) is None:
            continue
        if is_steering(event.extra):
            accepted_as: int = (event.extra or {})[STEERING]
            resumed.emit(events.Steered(log.next_id(), accepted_as, log.turn, event.seq, message.content))
        if message.role == "assistant" and message.content:
            block = log.next_block()
            resumed.emit(events.TextDelta(log.next_id(), message.content, message.author, block))
            resumed.emit(events.TextEnd(log.next_id(), block, message.author))
        for call in message.tool_calls:
            if call.output is not None and call.id in started:
                is_ok = not call.output.get("error")
                resumed.emit(events.ToolEnd(log.next_id(), call.id, call.name, is_ok, call.output, None))
    for author in {event.author for event in sent if isinstance(event, _Delta)}:
        resumed.begin_model_call(author)
    log.emit(events.Resumed(log.next_id(), "update", attempts, datetime.now(UTC)))


def _step(event: events.TurnEvent) -> _Step | None:
    """Return what identifies an event in every run of its turn, or None if it is emitted each time."""
    match event:
        case events.ToolStart() | events.ToolEnd():
            return type(event), event.call_id
        case events.TurnError() if not event.fatal:
            return type(event), event.call_id
        case events.WaitOpened() | events.WaitClosed():
            return type(event), event.wait.id
        case events.Steered():
            return type(event), str(event.turn)
        case events.ArtifactSaved():
            return type(event), f"{event.name}#{event.version}"
        case events.NodeProgress():
            return type(event), f"{event.path}#{event.attempt} {event.status}"
        case _:
            return None


class TurnSink:
    """Where the engine hands the events of one run of a turn."""

    def __init__(self, log: TurnLog, limits: TimeLimits, *, is_resumed: bool, on_event: Callable[[], None]) -> None:
        """`is_resumed`: an earlier run was interrupted, and readers have its events. Each event calls `on_event`."""
        self._next = ResumedEvents(log, events_of_record(log)) if is_resumed else log
        self._on_event = on_event
        self.next_id = log.next_id
        self.limits = limits
        self.blocks = TextBlocks(log.next_id, log.next_block)

    def emit(self, event: TurnEvent) -> None:
        """Pass on the next event of the turn, with an id from `next_id`."""
        self._on_event()
        self._next.emit(event)
        self.limits.note_event(event)

    def begin_model_call(self, agent: str, branch: str) -> None:
        """Withdraw the text of an agent that no stored response has: its model is called again."""
        if (failed := self.blocks.take_failed(agent, branch)) is not None:
            self.emit(failed)
        if isinstance(self._next, ResumedEvents):
            self._next.begin_model_call(agent)
