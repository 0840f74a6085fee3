"""Continue turns that another version of the app began.

Before anything runs, a turn is judged by its record: it is replayed, or continues from its stored history, or cannot
continue, and ends. A turn whose own code turns out to differ while it is replayed continues from its history, too.
"""

import time
import uuid
from collections.abc import Callable
from typing import Any, Literal

from google.adk.agents import LlmAgent
from google.adk.events import Event
from google.genai import types
from msgspec.structs import replace

from lango.adk.agents.adk_internals import agent_to_run
from lango.adk.agents.app_shape import AppVersion, kind_of
from lango.adk.agents.tree import walk_agents
from lango.adk.events.events_to_rows import complete_event, event_to_entry
from lango.adk.events.rows_to_events import stored_to_events
from lango.adk.run.record.verdict import DIVERGED, SAME, Verdict, is_response, judge, judge_answer, judge_nodes
from lango.adk.turn.model_calls import stop_sequence_of, usage_of_response
from lango.adk.turn.turn_run import ContinuedHistory
from lango.errors import TurnDiverged
from lango.events import Usage
from lango.sessions import UPDATE, SessionId, StoredEvent
from lango.store import Store, Turn
from lango.store.engine.database import LARGEST
from lango.store.sessions.open_calls import message_at, message_of_calls
from lango.store.tool_calls.tool_journal import read_turn_entries
from lango.store.turns.continuing import continue_from_history, read_waiting_messages, set_version
from lango.store.turns.event_log import read_earlier_nodes
from lango.store.turns.turns import StoredTurn, TurnResult, read_conversation, read_turn_record

Continuation = Literal["from its record", "from its history", "is answered"]

_SEARCHED_MESSAGES = 100
"""The newest answers among this many messages before a turn decide which agent begins it."""
_UPDATE_NOTE = (
    f"{UPDATE} while it worked on the request above. Its agents, tools and instructions may have changed. What is "
    "finished is part of this conversation: do not repeat it, and continue from there.]"
)


class Updates:
    """Decides how this version of an app continues a turn, and lets it continue so."""

    def __init__(self, store: Store, root: Any, version: Callable[[], AppVersion]) -> None:
        """`version` is called when a turn needs it: the schemas of all tools take a moment."""
        self._store = store
        self._root = root
        self._version = version

    @property
    def version(self) -> AppVersion:
        """The version of the app that runs here."""
        return self._version()

    async def judge(self, turn: Turn, row: StoredTurn) -> Verdict:
        """Return how this version continues a turn that has begun; nothing is run or written."""
        shape = self.version.shape
        if row.record_seq is None:
            return SAME
        if row.continued_seq is None and (verdict := await self._judge_answer(turn, row)) is not SAME:
            return verdict
        if row.version == shape.fingerprint:
            return SAME
        stored = await self._store.read(read_turn_record, turn, row.record_seq)
        verdict = judge(stored, await self._store.read(read_turn_entries, turn), shape)
        first = next((event.message.author for event in stored if is_response(event) and event.message), "")
        if verdict is SAME and first and shape.kind == "llm":
            begins = await self._agent_to_run(turn.session_key, row)
            if begins != first:
                return Verdict("continues at the next model call", f"agent {begins!r} now begins, and not {first!r}")
        return verdict

    async def _agent_to_run(self, session_key: int, row: StoredTurn) -> str:
        """Return the name of the agent with which ADK begins a turn: the root agent, or one that answered before."""
        stored = await self._store.read(read_conversation, session_key, row.record_seq or 0, _SEARCHED_MESSAGES)
        events = stored_to_events(stored, self._root.name)
        if row.continued_seq is not None:
            agents = continued_history(self._root)
            for event in events:
                event.author = agents.author(event.author)
        return agent_to_run(self._root, events).name

    async def _judge_answer(self, turn: Turn, row: StoredTurn) -> Verdict:
        """Return how this version continues with what the turn brings to an invocation that paused."""
        brought = await self._store.read(message_at, turn.session_key, row.first_seq or 0)
        if brought is None or brought.message is None or brought.message.role not in ("tool", "function"):
            return SAME
        asked_by = await self._store.read(message_of_calls, turn.session_key, brought.seq)
        return await self._judge_request(turn, row.invocation_id, asked_by)

    async def judge_pause(self, session_key: int) -> Verdict:
        """Return how this version continues a session that has paused, once what it waits for comes."""
        after_all = Turn(session_key, LARGEST)
        for asked_by in await self._store.read(read_waiting_messages, session_key):
            verdict = await self._judge_request(after_all, asked_by.invocation_id, asked_by)
            if verdict is not SAME:
                return verdict
        return SAME

    async def _judge_request(self, turn: Turn, invocation_id: str, asked_by: StoredEvent | None) -> Verdict:
        """Return how this version continues with the answer that a turn brings, to a message and its invocation."""
        shape = self.version.shape
        nodes = await self._store.read(read_earlier_nodes, turn, invocation_id)
        if nodes and (verdict := judge_nodes(nodes, shape)) is not SAME:
            return verdict
        return SAME if asked_by is None or asked_by.message is None else judge_answer(asked_by, shape)

    async def prepare(self, name: SessionId, turn: Turn, row: StoredTurn, *, has_diverged: bool) -> Continuation:
        """Prepare a turn that is about to be run again; return how it continues.

        `has_diverged`: it was run again, and did not follow its record. Raise `TurnDiverged` if this version cannot
        continue the turn.
        """
        verdict = DIVERGED if has_diverged else await self.judge(turn, row)
        match verdict.kind:
            case "same":
                if row.version != self.version.name:
                    await self._store.write(set_version, turn, self.version.name)
                return "from its record"
            case _ if row.answer_stored:
                return "is answered"
            case "continues at the next model call":
                await self.continue_from_history(name, turn, row)
                return "from its history"
            case "cannot continue":
                raise TurnDiverged(
                    f"this version of the application cannot continue the turn: {verdict.why}. What is stored stays: "
                    f"undo that change, and continue the turn with `lango turns retry {name.id}`"
                )

    @property
    def can_continue_from_history(self) -> bool:
        """Whether a turn of any record can continue: with a workflow, only the record says where it is."""
        return self.version.shape.kind != "workflow"

    async def continue_from_history(self, name: SessionId, turn: Turn, row: StoredTurn) -> None:
        """Close what a turn left open, and store the note from which it continues."""
        assert row.first_seq is not None
        parts = [types.Part(text=_UPDATE_NOTE)]
        if self.version.shape.kind == "workflow":
            parts = await self._request(turn, row.first_seq)  # its nodes get the request itself
        elif _repeats_request(self._root):
            parts = [*await self._request(turn, row.first_seq), *parts]
        content = types.Content(role="user", parts=parts)
        event = Event(author="user", invocation_id=f"e-{uuid.uuid4()}", content=content)
        complete_event(event, self._root.name)
        now = time.time()
        note = event_to_entry(event)
        assert note.message
        # not the user's: the window keeps the message that began the turn, and clients do not see another one
        note = replace(
            note, message=replace(note.message, role="system"), extra={**(note.extra or {}), "role": content.role}
        )
        await self._store.write_long(continue_from_history, turn, name, note, self.version.name, now)

    async def read_result(self, turn: Turn, row: StoredTurn) -> tuple[TurnResult, dict[str, Usage]]:
        """Return how a turn ended whose answer is stored, and what each model used for it since its record began."""
        stored = await self._store.read(read_turn_record, turn, row.record_seq or 0)
        responses = [event for event in stored_to_events(stored, self._root.name) if event.usage_metadata is not None]
        used: dict[str, Usage] = {}
        for event in responses:
            model = event.model_version or ""
            used[model] = used.get(model, Usage()) + usage_of_response(event.usage_metadata) + Usage(model_calls=1)
        ends = [(str(one.finish_reason.value).lower(), stop_sequence_of(one)) for one in responses if one.finish_reason]
        reason, stop_sequence = ends[-1] if ends else ("", "")
        return TurnResult(finish_reason=reason, stop_sequence=stop_sequence), used

    async def _request(self, turn: Turn, first_seq: int) -> list[types.Part]:
        """Return the parts of the message that the turn answers, without answers to requests."""
        stored = await self._store.read(message_at, turn.session_key, first_seq)
        if stored is None:
            return []
        await self._store.load_files([stored])
        [event] = stored_to_events([stored], self._root.name)
        return [part for part in (event.content and event.content.parts) or [] if not part.function_response]


def _reads_history(agent: Any) -> bool:
    return isinstance(agent, LlmAgent) and agent.include_contents == "default"


def _repeats_request(root: Any) -> bool:
    """Whether the note repeats the request of the turn: an agent reads only the newest message."""
    shells = ("sequence", "parallel", "loop")  # they read nothing themselves
    return any(not _reads_history(agent) and kind_of(agent) not in shells for agent in walk_agents(root))


def continued_history(root: Any) -> ContinuedHistory:
    """Return how the agents of an app read the history of a turn that continues after an update."""
    agents = [*walk_agents(root)]
    # an agent that reads the request again takes its calls for ones that were never made
    is_repeated = bool(getattr(root, "graph", None)) or _repeats_request(root)
    readers = () if is_repeated else (agent for agent in agents if _reads_history(agent))
    return ContinuedHistory(
        frozenset(agent.name for agent in agents),
        root.name if isinstance(root, LlmAgent) else "",
        frozenset(agent.name for agent in readers),
    )
