"""Read messages of a session with what its turns and the tool journal know about them."""

from collections.abc import Mapping, Sequence

from msgspec import Struct

from lango.events import NodeProgress, TurnError
from lango.messages import ToolCall
from lango.sessions import REQUEST_CALLS, SessionInfo, StoredEvent
from lango.store.artifacts.session_artifacts import read_saved_versions
from lango.store.codec.records import call_key, wait_id
from lango.store.engine.database import Operation
from lango.store.sessions.window import read_message_page
from lango.store.tool_calls.tool_journal import JournalEntry, read_journal_entries
from lango.store.turns.event_log import read_nodes, read_turn_errors


class MessageDetails(Struct, frozen=True):
    """A stored message, and what is known of its tool calls and of the turn that it starts."""

    stored: StoredEvent
    journal: Mapping[str, JournalEntry]
    """The entries of its calls in the tool journal, by their ids."""
    nodes: Sequence[NodeProgress] = ()
    """The latest progress of each node of a workflow in its turn, in the order of their starts."""
    error: TurnError | None = None
    """Why its turn ended without an answer."""
    artifacts: Sequence[tuple[str, int]] = ()
    """The names and versions of the artifacts that were saved with it, or after it and before the next message."""

    def shown_id(self, call: ToolCall) -> str:
        """Return the id of a call as clients see it: that of a request for approval or input is safe in a URL."""
        return wait_id(call.id) if call.name in REQUEST_CALLS else call.id


class MessagePage(Struct, frozen=True):
    """Messages in order."""

    messages: Sequence[MessageDetails]
    before: int | None
    """The value of `before` for the previous page, or None if there is none."""


def read_messages(session: SessionInfo, before: int | None, limit: int) -> Operation[MessagePage]:
    """Read the newest messages, or the newest before a sequence number, in order."""
    found = yield from read_message_page(session, before=before, limit=limit + 1)
    if not found:
        return MessagePage([], None)
    page = found[-limit:]
    last_seq = session.last_seq if before is None else before - 1
    entries = yield from read_journal_entries(session.key, page)
    nodes = yield from read_nodes(session, page[0].seq, last_seq)
    errors = yield from read_turn_errors(session, page[0].seq, last_seq)
    saved = yield from read_saved_versions(session, page[0].seq, last_seq)
    details: list[MessageDetails] = []
    for at, stored in enumerate(page):
        until = page[at + 1].seq if at + 1 < len(page) else last_seq + 1
        artifacts = [one for seq in saved if stored.seq <= seq < until for one in saved[seq].items()]
        calls = stored.message.tool_calls if stored.message else ()
        known = {call.id: entries.get((stored.seq, call_key(call.id))) for call in calls}
        journal = {call_id: entry for call_id, entry in known.items() if entry is not None}
        latest = {event.path: event for event in nodes.get(stored.seq, ())}
        details.append(MessageDetails(stored, journal, [*latest.values()], errors.get(stored.seq), artifacts))
    return MessagePage(details, page[0].seq if len(found) > limit else None)
