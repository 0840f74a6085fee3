"""Emit the events of a resumed turn, without those that its readers have already.

The second run produces the events of the first one again, as far as they are stored. Readers may also have text of a
model call whose response was never stored: it is withdrawn before the model is called again.
"""

from collections.abc import Sequence
from datetime import UTC, datetime

from msgspec import Struct
from msgspec.structs import replace

from lango import events
from lango.sessions import StoredEvent
from lango.turns.turn_log import TurnLog
from lango.waits import QuestionWait

_KINDS: tuple[type[events.TextDelta] | type[events.ThoughtDelta], ...] = (events.TextDelta, events.ThoughtDelta)
_Step = tuple[type, str | None]
_Speaker = tuple[type[events.TextDelta] | type[events.ThoughtDelta], str]


class _SentText(Struct):
    """The text of one author that readers have, and how much of it the second run has produced again."""

    text: str = ""
    ends: list[tuple[int, int]] = []
    """Where each event ends in the text, and its id."""
    position: int = 0

    def add(self, event: events.TextDelta | events.ThoughtDelta, *, follows_own: bool) -> None:
        """Add a piece of text. Readers may have it as one event with the piece before it, so both end together."""
        self.text += event.text
        if follows_own:
            self.ends.pop()
        self.ends.append((len(self.text), event.id))

    def drop_after(self, event_id: int) -> None:
        self.text = self.text[: self.end_of(event_id)]
        self.ends = [(end, id_) for end, id_ in self.ends if id_ <= event_id]

    @property
    def last_valid_id(self) -> int:
        """The id of the last event whose text was produced again as a whole."""
        return max((id_ for end, id_ in self.ends if end <= self.position), default=0)

    def end_of(self, event_id: int) -> int:
        """Return where the text up to an event ends."""
        return max((end for end, id_ in self.ends if id_ <= event_id), default=0)


class ResumedEvents:
    """Emits the events of a second run to the readers of a turn."""

    def __init__(self, log: TurnLog, sent: Sequence[events.TurnEvent]) -> None:
        """`sent` are the events that readers may have."""
        self._log = log
        self._first_id = sent[0].id if sent else 0
        self._texts: dict[_Speaker, _SentText] = {}
        self._steps: set[_Step] = set()
        previous: _Speaker | None = None
        for event in sent:
            speaker = (type(event), event.author) if isinstance(event, events.TextDelta | events.ThoughtDelta) else None
            self._note(event, follows_own=speaker is not None and speaker == previous)
            previous = speaker

    def _note(self, event: events.TurnEvent, *, follows_own: bool) -> None:
        match event:
            case events.TextDelta() | events.ThoughtDelta():
                self._texts.setdefault((type(event), event.author), _SentText()).add(event, follows_own=follows_own)
            case events.TextWithdrawn():
                for kind in _KINDS:
                    if sent := self._texts.get((kind, event.author)):
                        sent.drop_after(event.after_id)
            case _:
                if (step := _step(event)) is not None:
                    self._steps.add(step)

    def emit(self, event: events.TurnEvent) -> None:
        """Emit an event, or the part of it that readers do not have."""
        match event:
            case events.TextDelta() | events.ThoughtDelta():
                if (rest := self._unsent(event)) is not None:
                    self._log.emit(rest)
            case events.WaitOpened() | events.WaitClosed() if isinstance(event.wait, QuestionWait):
                self._log.emit(event)  # a tool that runs again asks again
            case _ if _step(event) in self._steps:
                pass
            case _:
                self._log.emit(event)

    def _unsent(self, event: events.TextDelta | events.ThoughtDelta) -> events.TextDelta | events.ThoughtDelta | None:
        sent = self._texts.get((type(event), event.author))
        if sent is None:
            return event
        left = sent.text[sent.position :]
        if left.startswith(event.text):
            sent.position += len(event.text)
            return None
        if event.text.startswith(left):
            del self._texts[type(event), event.author]
            return replace(event, text=event.text[len(left) :])
        again = self._withdraw(event.author).get(type(event), "")
        return replace(event, id=self._log.next_id(), text=again + event.text)

    def begin_model_call(self, author: str) -> None:
        """Withdraw the text of an author that no stored response has: the model is called again."""
        again = self._withdraw(author)
        for kind, text in again.items():
            if text:
                self._log.emit(kind(self._log.next_id(), text, author))

    def _withdraw(self, author: str) -> dict[type[events.TextDelta] | type[events.ThoughtDelta], str]:
        """Withdraw what was not produced again; return the produced text of events that had to be withdrawn whole."""
        sent = {kind: self._texts.pop((kind, author)) for kind in _KINDS if (kind, author) in self._texts}
        unfinished = [text for text in sent.values() if text.position < len(text.text)]
        if not unfinished:
            return {}
        after_id = max(min(text.last_valid_id for text in unfinished), self._first_id)
        self._log.emit(events.TextWithdrawn(self._log.next_id(), after_id, author))
        return {kind: text.text[text.end_of(after_id) : text.position] for kind, text in sent.items()}


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
    for message in (event.message for event in stored if event.message is not None):
        if message.role == "assistant" and message.content:
            resumed.emit(events.TextDelta(log.next_id(), message.content, message.author))
        for call in message.tool_calls:
            if call.output is not None and call.id in started:
                is_ok = not call.output.get("error")
                resumed.emit(events.ToolEnd(log.next_id(), call.id, call.name, is_ok, call.output, None))
    for author in {event.author for event in sent if isinstance(event, _KINDS)}:
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
        case events.ArtifactSaved():
            return type(event), f"{event.name}#{event.version}"
        case events.NodeProgress():
            return type(event), f"{event.path}#{event.attempt} {event.status}"
        case _:
            return None
