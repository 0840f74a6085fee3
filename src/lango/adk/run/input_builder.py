"""Build the input of a turn from a message, an approval or the results of client tools."""

import uuid
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from google.adk.events import Event, EventActions
from google.genai import types
from msgspec import convert
from msgspec.structs import replace

from lango.adk.agents.client_tools import (
    as_user_content,
    check_tool_names,
    find_unanswered_results,
    results_content,
    results_to_store,
)
from lango.adk.agents.tree import walk_agents
from lango.adk.run.client_history import history_to_entries
from lango.adk.services.events_to_rows import complete_event, event_to_entry
from lango.adk.services.message_parts import attachments_to_parts
from lango.adk.services.rows_to_events import stored_to_events
from lango.adk.services.session_service import SqlSessionService
from lango.errors import ApprovalExpired, CallNotWaiting, TurnDiverged
from lango.messages import Attachment, Message, ToolCall
from lango.store import SessionId, SessionRecord, Store
from lango.store.codec.records import CONFIRMATION_CALL, ClientResult
from lango.store.codec.rows import approval_subject
from lango.store.sessions.open_calls import find_event, message_at
from lango.store.sessions.sessions import find_session
from lango.store.turns.approvals import ApprovalAnswer
from lango.store.turns.client_calls import ClientCall, read_client_calls
from lango.store.turns.tool_journal import DECIDED_BY_POLICY, read_journal_entry
from lango.store.turns.turns import TurnRecord, find_by_idempotency_key
from lango.tools import Tool, client_tool
from lango.tools.client_tool_definitions import tools_by_name
from lango.turns.turn_input import TurnInput

ClientResults = Mapping[str, Mapping[str, Any]]
"""What client tools returned, by the ids of their calls."""


class InputBuilder:
    """Builds turn inputs for one agent tree on one store."""

    def __init__(self, store: Store, service: SqlSessionService, root: Any) -> None:
        self._store = store
        self._service = service
        self._root = root

    def message(
        self, text: str, attachments: Sequence[Attachment] = (), state_delta: Mapping[str, Any] | None = None
    ) -> TurnInput:
        """Build the input of a user's message, with the state change that comes with it."""
        files = attachments_to_parts(attachments)
        text_parts = [types.Part(text=text)] if text or not files else []
        return self._build(types.Content(role="user", parts=text_parts + files), f"e-{uuid.uuid4()}", state_delta)

    def add_client_tools(self, turn_input: TurnInput, tools: Sequence[Tool]) -> None:
        """Offer client tools in a turn. Raise `ClientToolRefused` for a name that is already used or reserved."""
        turn_input.client_tools = tools_by_name(tools)
        check_tool_names(turn_input.client_tools, walk_agents(self._root))

    async def add_results(self, name: SessionId, turn_input: TurnInput, results: ClientResults) -> None:
        """Add the results of open client calls to a message; results of other calls are left out."""
        open_ids = [open_call.call.id for open_call in await self.open_client_calls(name)]
        stored = self.results_to_store({call_id: results[call_id] for call_id in open_ids if call_id in results})
        turn_input.entry = replace(turn_input.entry, client_results=stored)

    async def client_results(
        self, name: SessionId, results: ClientResults, idempotency_key: str | None = None
    ) -> TurnInput:
        """Build the input that brings results of open client calls. Raise `CallNotWaiting` if none of them is open.

        If the results are stored and their turn failed, the turn is tried again from there. If a turn with this
        idempotency key is stored, the request is repeated, and needs no open call.
        """
        open_calls = [open_call for open_call in await self.open_client_calls(name) if open_call.call.id in results]
        if not open_calls:
            if idempotency_key is not None and await self._is_stored(name, idempotency_key):
                return self._build_mark(f"e-{uuid.uuid4()}")
            return await self.retry_results(name, results)
        calls = [open_call.call for open_call in open_calls]
        stored = self.results_to_store({call.id: results[call.id] for call in calls})
        turn_input = self._build(results_content(calls, stored), open_calls[-1].made_by.invocation_id)
        turn_input.entry = replace(turn_input.entry, client_results=stored)
        return turn_input

    def add_history(self, turn_input: TurnInput, history: Sequence[Message]) -> None:
        """Store a history that the client sent along before a message; see `lango.adk.run.client_history`."""
        preceding = history_to_entries(history, self._root.name, [*walk_agents(self._root)])
        turn_input.entry = replace(turn_input.entry, preceding=preceding)

    def results_after_history(self, history: Sequence[Message], results: ClientResults) -> TurnInput:
        """Build the input that brings results of the calls at the end of a history that the client sent along."""
        preceding = history_to_entries(history, self._root.name, [*walk_agents(self._root)], leave_last_open=True)
        stored = self.results_to_store(results)
        turn_input = self._build(results_content(history[-1].tool_calls, stored), preceding[-1].invocation_id)
        turn_input.entry = replace(turn_input.entry, client_results=stored, preceding=preceding)
        return turn_input

    def results_to_store(self, results: ClientResults) -> dict[str, ClientResult]:
        """Convert results of client tools to plain JSON, clipped where they are long, as the model reads them."""
        return results_to_store(results, walk_agents(self._root))

    async def retry_results(self, name: SessionId, call_ids: Collection[str]) -> TurnInput:
        """Build the input of a turn that continues from results that are stored but unanswered."""
        session = await self._service.get_session(app_name=name.app_name, user_id=name.user_id, session_id=name.id)
        results_event = find_unanswered_results(session.events if session else (), call_ids)
        if results_event is None:
            ids = ", ".join(sorted(call_ids))
            raise CallNotWaiting(f"no call {ids} waits for a result in session {name.id!r} (any more)")
        return self._build_mark(results_event.invocation_id, results_event)

    def _build_mark(self, invocation_id: str, continued: Event | None = None) -> TurnInput:
        """Build an input without content: it continues from an event that is stored."""
        mark = Event(author=self._root.name, invocation_id=invocation_id)
        complete_event(mark, self._root.name)
        return TurnInput(continued or mark, event_to_entry(mark), is_retry=True)

    async def _is_stored(self, name: SessionId, idempotency_key: str) -> bool:
        session = await self._store.read(find_session, name)
        return bool(session and await self._store.read(find_by_idempotency_key, session.key, idempotency_key))

    async def stored_input(self, session: SessionRecord, record: TurnRecord) -> TurnInput:
        """Build the input of a turn that another process accepted, from what is stored."""
        assert record.first_seq is not None
        request = record.request
        stored = await self._store.read(message_at, session.key, record.first_seq)
        if stored is None:
            raise TurnDiverged(f"the input of the turn is not in session {session.name.id!r} any more")
        if "retry_of" in request:
            results_event = await self._store.read(find_event, session.key, request["retry_of"])
            assert results_event
            [event, mark] = stored_to_events([results_event, stored], self._root.name)
            turn_input = TurnInput(as_user_content(event), event_to_entry(mark), is_retry=True)
        else:
            [event] = stored_to_events([stored], self._root.name)
            if results := event.get_function_responses():
                event = as_user_content(event)
            turn_input = TurnInput(event, event_to_entry(event))
            if results and "approval_answer" not in request:
                given = {result.id or "": ClientResult(result.response or {}) for result in results}
                turn_input.entry = replace(turn_input.entry, client_results=given)
        if "approval_answer" in request:
            turn_input.approval_answer = convert(request["approval_answer"], ApprovalAnswer)
            turn_input.answered_call_id = turn_input.approval_answer.call_id
        tools = [client_tool(**members) for members in request.get("client_tools", ())]
        turn_input.client_tools = tools_by_name(tools)
        return turn_input

    async def open_client_calls(self, name: SessionId) -> list[ClientCall]:
        """Return the calls of a session that wait for a result from the client."""
        session = await self._store.read(find_session, name)
        return await self._store.read(read_client_calls, session) if session else []

    async def approval_answer(self, name: SessionId, call_id: str, *, approved: bool, by: str = "") -> TurnInput:
        """Build the input that answers an approval request. Raise `ApprovalExpired` if none is open for the call."""
        request = (await self.pending_approvals(name)).get(call_id)
        if request is None:
            raise ApprovalExpired(await self._why_expired(name, call_id))
        confirmation_id, invocation_id = request
        response = types.FunctionResponse(id=confirmation_id, name=CONFIRMATION_CALL, response={"confirmed": approved})
        content = types.Content(role="user", parts=[types.Part(function_response=response)])
        turn_input = self._build(content, invocation_id)
        turn_input.answered_call_id = call_id
        turn_input.approval_answer = ApprovalAnswer(confirmation_id, call_id, approved, by or name.user_id)
        return turn_input

    async def _why_expired(self, name: SessionId, call_id: str) -> str:
        session = await self._store.read(find_session, name)
        journal = await self._store.read(read_journal_entry, session.key, call_id) if session else None
        if journal and journal.approved is False and journal.approved_by == DECIDED_BY_POLICY:
            return f"the approval request for call {call_id!r} was not answered in time, which counts as a refusal"
        return f"no call {call_id!r} waits for approval in session {name.id!r} (any more)"

    async def pending_approvals(self, name: SessionId, answer_id: str = "") -> dict[str, tuple[str, str]]:
        """Return the calls that wait for approval, each with the ids of its confirmation call and its invocation.

        `answer_id` is the event of the answer that the current turn brings: its own request still counts as pending.
        """
        session = await self._service.get_session(app_name=name.app_name, user_id=name.user_id, session_id=name.id)
        events = [event for event in session.events if event.id != answer_id] if session else []
        answered = {result.id for event in events for result in event.get_function_responses()}
        pending: dict[str, tuple[str, str]] = {}
        for event in reversed(events):
            if event.author == "user" and not event.get_function_responses():
                break  # a message instead of an answer counts as a refusal
            for call in event.get_function_calls():
                if call.name == CONFIRMATION_CALL and call.id not in answered:
                    subject = approval_subject(ToolCall(call.id or "", CONFIRMATION_CALL, call.args))
                    pending[subject.get("id", "")] = (call.id or "", event.invocation_id)
        return pending

    def _build(
        self, content: types.Content, invocation_id: str, state_delta: Mapping[str, Any] | None = None
    ) -> TurnInput:
        actions = EventActions(state_delta=dict(state_delta or {}))
        event = Event(author="user", invocation_id=invocation_id, content=content, actions=actions)
        complete_event(event, self._root.name)
        return TurnInput(event, event_to_entry(event))
