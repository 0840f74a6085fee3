"""Build the input of a turn from a message, an approval, a person's input or credential, or the results of tools."""

import uuid
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple, cast

from google.adk.events import Event
from google.genai import types
from msgspec.structs import replace

from lango.adk.agents.tools.client_tools import (
    as_user_content,
    check_tool_names,
    find_unanswered_results,
    names_in_use,
    results_content,
    results_to_store,
)
from lango.adk.agents.tree import walk_agents
from lango.adk.events.events_to_rows import complete_event, event_to_entry
from lango.adk.events.message_parts import attachments_to_parts
from lango.adk.events.rows_to_events import stored_to_events
from lango.adk.model.turn_options import check_options
from lango.adk.run.input.client_history import history_to_entries
from lango.adk.run.pauses import credential_answers
from lango.adk.run.pauses.human_input import answer_content, checked_value
from lango.adk.services.credential_secrets import holds_credentials, request_purpose, without_secrets
from lango.adk.services.session_service import SqlSessionService
from lango.errors import InvalidAnswer, TurnDiverged, WaitNotOpen
from lango.events import to_plain_values
from lango.grants import NewGrant
from lango.messages import Attachment, Message, ToolCall
from lango.sessions import CONFIRMATION_CALL, SessionId, SessionRecord
from lango.store import Store
from lango.store.codec.records import ClientResult, NewEvent
from lango.store.codec.rows import approval_subject, confirmation_of
from lango.store.credentials.secret_box import SecretBox
from lango.store.sessions.open_calls import find_event, message_at
from lango.store.sessions.sessions import find_session
from lango.store.tool_calls.approvals import REFUSAL_REASON, ApprovalAnswer
from lango.store.tool_calls.client_calls import PendingCall, read_client_calls
from lango.store.tool_calls.credential_requests import (
    CredentialAnswer,
    CredentialRequest,
    read_answer,
    read_credential_requests,
)
from lango.store.tool_calls.input_requests import InputAnswer, InputRequest, read_input_requests
from lango.store.tool_calls.long_running import read_long_running_calls
from lango.store.tool_calls.tool_journal import DECIDED_BY_POLICY, read_journal_entry
from lango.store.turns.turns import TurnRecord, find_by_idempotency_key, read_request
from lango.submissions import ModelOptions, TurnRequest
from lango.tools import client_tool
from lango.tools.client_tool_definitions import tools_by_name
from lango.turns.turn_input import TurnInput
from lango.typed_values import convert

ClientResults = Mapping[str, Mapping[str, Any]]
"""What client tools returned, by the ids of their calls."""


def is_answer_address(text: str) -> bool:
    """Whether a text may be the address that a user is sent to after allowing an access, and nothing else."""
    return text.strip().startswith(("https://", "http://")) and "state=" in text and len(text.split()) == 1


class PendingApproval(NamedTuple):
    """An approval request that waits: the id of its own call, and the run that made it."""

    confirmation_id: str
    invocation_id: str
    branch: str | None
    isolation_scope: str | None
    payload: Any = None
    """What the tool asked with."""


class InputBuilder:
    """Builds turn inputs for one agent tree on one store."""

    def __init__(self, store: Store, service: SqlSessionService, root: Any, box: SecretBox) -> None:
        """`box` encrypts the credentials that users give."""
        self._store = store
        self._service = service
        self._root = root
        self._box = box

    def message(self, text: str, attachments: Sequence[Attachment] = ()) -> TurnInput:
        """Build the input of a user's message."""
        files = attachments_to_parts(attachments)
        text_parts = [types.Part(text=text)] if text or not files else []
        return self._build(types.Content(role="user", parts=text_parts + files), f"e-{uuid.uuid4()}")

    def add_state(self, turn_input: TurnInput, state_delta: Mapping[str, Any]) -> None:
        """Change the session's state when the turn starts."""
        if state_delta:
            turn_input.event.actions.state_delta.update(state_delta)
            turn_input.entry = replace(turn_input.entry, state_delta=dict(turn_input.event.actions.state_delta))

    async def apply_request(self, name: SessionId, turn_input: TurnInput, request: TurnRequest) -> None:
        """Apply the client's request to its turn: the options of the model calls, and the client's tools.

        None: a turn that goes on after a pause has those of the turn that paused, without tools whose names the agents
        have taken since. Raise `ModelOptionsRefused` if the agents cannot follow the options, `ClientToolRefused` for a
        tool with a name that is already used or reserved.
        """
        options, client_tools = request.options, request.client_tools
        paused: Mapping[str, Any] = {}
        if turn_input.continues_invocation and (options is None or client_tools is None):
            session = await self._store.read(find_session, name)
            if session is not None:
                paused = await self._store.read(read_request, session.key, turn_input.event.invocation_id)
        if client_tools is None:
            kept = tools_by_name([client_tool(**members) for members in paused.get("client_tools", ())])
            taken = names_in_use(kept, walk_agents(self._root))
            turn_input.client_tools = {name: tool for name, tool in kept.items() if name not in taken}
        else:
            turn_input.client_tools = tools_by_name(client_tools)
            check_tool_names(turn_input.client_tools, walk_agents(self._root))
        if options is None:
            turn_input.options = convert(paused.get("options", {}), ModelOptions).for_next_turn
        else:
            check_options(options, self._root, walk_agents(self._root))
            turn_input.options = options

    async def add_results(self, name: SessionId, turn_input: TurnInput, results: ClientResults) -> None:
        """Add the results of open client calls to a message; results of other calls are left out."""
        open_ids = [open_call.call.id for open_call in await self.open_client_calls(name)]
        stored = self.results_to_store({call_id: results[call_id] for call_id in open_ids if call_id in results})
        turn_input.entry = replace(turn_input.entry, client_results=stored)

    async def client_results(
        self,
        name: SessionId,
        results: ClientResults,
        idempotency_key: str | None = None,
        *,
        will_continue: bool | None = False,
    ) -> TurnInput:
        """Build the input that brings results of client calls or long-running tools.

        Raise `WaitNotOpen` if none of the calls waits for one. With `will_continue`, more results follow; None: they
        may. Raise `InvalidAnswer` for an update to a node that made the call itself: it goes on with the first result.
        If the results are stored and their turn failed, the turn is tried again from there. If a turn with this
        idempotency key is stored, the request is repeated, and needs no open call.
        """
        waiting = [*await self.open_client_calls(name), *await self.long_running_calls(name)]
        open_calls = [open_call for open_call in waiting if open_call.call.id in results]
        if not open_calls:
            if idempotency_key is not None and await self.is_stored(name, idempotency_key):
                return self.repeated_input()
            return await self.retry_results(name, results)
        if will_continue and any((open_call.made_by.extra or {}).get("from_code") for open_call in open_calls):
            raise InvalidAnswer("a node of a workflow waits for the result itself: it takes no updates")
        calls = [open_call.call for open_call in open_calls]
        of_calls = {call.id: results[call.id] for call in calls}
        stored = results_to_store(of_calls, walk_agents(self._root), will_continue=will_continue)
        made_by = open_calls[-1].made_by
        scope = (made_by.extra or {}).get("branch"), (made_by.extra or {}).get("isolation_scope")
        turn_input = self._build(results_content(calls, stored), made_by.invocation_id, scope=scope)
        turn_input.entry = replace(turn_input.entry, client_results=stored)
        return turn_input

    def add_history(self, turn_input: TurnInput, history: Sequence[Message]) -> None:
        """Store a history that the client sent along before a message; see `lango.adk.run.input.client_history`."""
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
            raise WaitNotOpen(f"no call {ids} waits for a result in session {name.id!r} (any more)")
        return self._input_without_content(results_event.invocation_id, results_event)

    def repeated_input(self) -> TurnInput:
        """Build an input for a repeated request, whose turn is stored."""
        return self._input_without_content(f"e-{uuid.uuid4()}")

    def _input_without_content(self, invocation_id: str, continued: Event | None = None) -> TurnInput:
        """Build an input without content: it continues from an event that is stored."""
        mark = Event(author=self._root.name, invocation_id=invocation_id)
        complete_event(mark, self._root.name)
        return TurnInput(continued or mark, event_to_entry(mark), is_retry=True)

    async def is_stored(self, name: SessionId, idempotency_key: str) -> bool:
        """Whether a turn with this idempotency key is stored."""
        session = await self._store.read(find_session, name)
        return bool(session and await self._store.read(find_by_idempotency_key, session.key, idempotency_key))

    async def stored_input(self, session: SessionRecord, record: TurnRecord) -> TurnInput:
        """Build the input of a turn that another process accepted, from what is stored."""
        assert record.first_seq is not None
        request = record.request
        stored = await self._store.read(message_at, session.key, record.first_seq)
        if stored is None:
            raise TurnDiverged(f"the input of the turn is not in session {session.name.id!r} any more")
        await self._store.load_files([stored])
        if "retry_of" in request:
            results_event = await self._store.read(find_event, session.key, request["retry_of"])
            assert results_event
            await self._store.load_files([results_event])
            [event, mark] = stored_to_events([results_event, stored], self._root.name)
            turn_input = TurnInput(as_user_content(event), event_to_entry(mark), is_retry=True)
        else:
            [event] = stored_to_events([stored], self._root.name)
            if "credential_answer" in request:
                await self._add_credential(session, event, request["credential_answer"]["call_id"])
            if results := event.get_function_responses():
                event = as_user_content(event)
            turn_input = TurnInput(event, self._to_entry(event, session.name))
            if results and not request.keys() & {"approval_answer", "input_answer", "credential_answer"}:
                given = {result.id or "": ClientResult(result.response or {}) for result in results}
                turn_input.entry = replace(turn_input.entry, client_results=given)
        if "approval_answer" in request:
            turn_input.approval_answer = convert(request["approval_answer"], ApprovalAnswer)
            turn_input.answered_call_id = turn_input.approval_answer.call_id
        if "input_answer" in request:
            turn_input.input_answer = convert(request["input_answer"], InputAnswer)
        if "credential_answer" in request:
            turn_input.credential_answer = convert(request["credential_answer"], CredentialAnswer)
        tools = [client_tool(**members) for members in request.get("client_tools", ())]
        turn_input.client_tools = tools_by_name(tools)
        turn_input.options = convert(request.get("options", {}), ModelOptions)
        turn_input.quota_id, turn_input.tokens_per_day = request.get("quota"), request.get("tokens_per_day")
        return turn_input

    async def open_client_calls(self, name: SessionId) -> list[PendingCall]:
        """Return the calls of a session that wait for a result from the client."""
        session = await self._store.read(find_session, name)
        return await self._store.read(read_client_calls, session) if session else []

    async def open_input_requests(self, name: SessionId) -> list[InputRequest]:
        """Return the input requests of a session that can still be answered, in order."""
        session = await self._store.read(find_session, name)
        return await self._store.read(read_input_requests, session) if session else []

    async def input_answer(
        self, name: SessionId, call_id: str, value: Any, idempotency_key: str | None = None
    ) -> TurnInput:
        """Build the input that answers an input request of a workflow.

        If a turn with this idempotency key is stored, the request is repeated, and needs no open call.
        """
        if idempotency_key is not None and await self.is_stored(name, idempotency_key):
            return self.repeated_input()
        for request in await self.open_input_requests(name):
            if call_id in (request.call_id, request.stored_id):
                return self._answer(request, value)
        raise WaitNotOpen(f"no call {call_id!r} waits for input in session {name.id!r} (any more)")

    async def message_or_input_answer(
        self, name: SessionId, text: str, attachments: Sequence[Attachment], idempotency_key: str | None
    ) -> TurnInput:
        """Build the input of a message; if a workflow waits for input, the text answers its first open request.

        A text that is the address of an answer to a credential request answers that. Raise `InvalidAnswer` for a text
        that does not fit.
        """
        message = self.message(text, attachments)
        if (given := await self._pasted_credential(name, text, attachments, idempotency_key)) is not None:
            return given
        if attachments or (idempotency_key is not None and await self.is_stored(name, idempotency_key)):
            return message
        for request in await self.open_input_requests(name):
            turn_input = self._answer(request, text)
            turn_input.sent = message.entry
            return turn_input
        return message

    def _answer(self, request: InputRequest, value: Any) -> TurnInput:
        content = answer_content(request, checked_value(request, value))
        turn_input = self._build(content, request.invocation_id, scope=(request.branch, request.isolation_scope))
        turn_input.input_answer = InputAnswer(request.stored_id, request.seq)
        return turn_input

    async def open_credential_requests(self, name: SessionId) -> list[CredentialRequest]:
        """Return the credential requests of a session that can still be answered, in order."""
        session = await self._store.read(find_session, name)
        return await self._store.read(read_credential_requests, session) if session else []

    async def credential_answer(
        self, name: SessionId, call_id: str, value: Any, idempotency_key: str | None = None
    ) -> TurnInput:
        """Build the input that answers a credential request."""
        if idempotency_key is not None and await self.is_stored(name, idempotency_key):
            return self.repeated_input()
        for request in await self.open_credential_requests(name):
            if call_id in (request.call_id, request.stored_id):
                purpose = request_purpose(name, request.stored_id)
                kept: dict[str, Any] = self._box.open(request.sealed, *purpose) if request.sealed else {}
                given = credential_answers.given_credential(request, value, kept)
                content = credential_answers.answer_content(request, given)
                event = Event(author="user", invocation_id=request.invocation_id, content=content)
                event.branch, event.isolation_scope = request.branch, request.isolation_scope
                complete_event(event, self._root.name)
                turn_input = TurnInput(event, self._to_entry(event, name))
                sealed = self._box.seal(given, *purpose)
                turn_input.credential_answer = CredentialAnswer(request.stored_id, request.seq, sealed)
                return turn_input
        raise WaitNotOpen(f"no call {call_id!r} waits for a credential in session {name.id!r} (any more)")

    async def _pasted_credential(
        self, name: SessionId, text: str, attachments: Sequence[Attachment], idempotency_key: str | None
    ) -> TurnInput | None:
        """Build the answer to the credential request whose OAuth state the text carries; None: it carries none."""
        state = credential_answers.state_of_address(text.strip()) if is_answer_address(text) else None
        if attachments or not state:
            return None
        for request in await self.open_credential_requests(name):
            if credential_answers.state_of_address(request.auth_url) == state:
                return await self.credential_answer(name, request.call_id, text, idempotency_key)
        return None

    async def _add_credential(self, session: SessionRecord, event: Event, call_id: str) -> None:
        """Add the credential that the user gave to the stored input, which does not have it."""
        sealed = await self._store.read(read_answer, session.key, call_id)
        if sealed is None:
            raise TurnDiverged(f"the credential for call {call_id!r} is not stored any more: ask for it again")
        for response in event.get_function_responses():
            if response.id == call_id:
                response.response = self._box.open(sealed, *request_purpose(session.name, call_id))

    def _to_entry(self, event: Event, name: SessionId) -> NewEvent:
        """Convert an input to a store entry, without the credential that it may bring."""
        stored, _ = without_secrets(event, name, self._box) if holds_credentials(event) else (event, None)
        return event_to_entry(stored)

    async def long_running_calls(self, name: SessionId) -> list[PendingCall]:
        """Return the calls of long-running tools in a session whose results may still come."""
        session = await self._store.read(find_session, name)
        return await self._store.read(read_long_running_calls, session) if session else []

    async def unreported_calls(self, name: SessionId) -> list[PendingCall]:
        """Return the calls of long-running tools in a session that have no result yet."""
        session = await self._store.read(find_session, name)
        return await self._store.read(read_long_running_calls, session, "without result") if session else []

    async def approval_answer(
        self,
        name: SessionId,
        call_id: str,
        *,
        approved: bool,
        grant: NewGrant | None = None,
        reason: str = "",
        payload: Any = None,
    ) -> TurnInput:
        """Build the input that answers an approval request. Raise `WaitNotOpen` if none is open for the call.

        The model reads the `reason` of a refusal; the tool gets the `payload`, or the one that it asked with.
        """
        request = (await self.pending_approvals(name)).get(call_id)
        if request is None:
            raise WaitNotOpen(await self._why_expired(name, call_id))
        confirmation_id = request.confirmation_id
        payload = to_plain_values(request.payload if payload is None else payload)
        if reason:
            payload = {**(cast("dict[str, Any]", payload) if isinstance(payload, dict) else {}), REFUSAL_REASON: reason}
        answer: dict[str, Any] = {"confirmed": approved} | ({} if payload is None else {"payload": payload})
        response = types.FunctionResponse(id=confirmation_id, name=CONFIRMATION_CALL, response=answer)
        content = types.Content(role="user", parts=[types.Part(function_response=response)])
        turn_input = self._build(content, request.invocation_id, scope=(request.branch, request.isolation_scope))
        turn_input.answered_call_id = call_id
        turn_input.approval_answer = ApprovalAnswer(confirmation_id, call_id, approved, name.user_id, grant)
        return turn_input

    async def _why_expired(self, name: SessionId, call_id: str) -> str:
        session = await self._store.read(find_session, name)
        journal = await self._store.read(read_journal_entry, session.key, call_id) if session else None
        if journal and journal.approved is False and journal.approved_by == DECIDED_BY_POLICY:
            return f"the approval request for call {call_id!r} was not answered in time, which counts as a refusal"
        return f"no call {call_id!r} waits for approval in session {name.id!r} (any more)"

    async def pending_approvals(self, name: SessionId, answer_id: str = "") -> dict[str, PendingApproval]:
        """Return the requests that wait for approval, by the call that they are about.

        `answer_id` is the event of the answer that the current turn brings: its own request still counts as pending.
        """
        session = await self._service.get_session(app_name=name.app_name, user_id=name.user_id, session_id=name.id)
        events = [event for event in session.events if event.id != answer_id] if session else []
        answered = {result.id for event in events for result in event.get_function_responses()}
        pending: dict[str, PendingApproval] = {}
        for event in reversed(events):
            if event.author == "user" and not event.get_function_responses():
                break  # a message instead of an answer counts as a refusal
            for call in event.get_function_calls():
                if call.name == CONFIRMATION_CALL and call.id not in answered:
                    asking = ToolCall(call.id or "", CONFIRMATION_CALL, call.args)
                    place = event.invocation_id, event.branch, event.isolation_scope
                    _, payload = confirmation_of(asking)
                    pending[approval_subject(asking).get("id", "")] = PendingApproval(asking.id, *place, payload)
        return pending

    def _build(
        self,
        content: types.Content,
        invocation_id: str,
        scope: tuple[str | None, str | None] = (None, None),
    ) -> TurnInput:
        """Build an input; `scope` has the branch and isolation scope of the call that it answers, as ADK sets them."""
        event = Event(author="user", invocation_id=invocation_id, content=content)
        event.branch, event.isolation_scope = scope
        complete_event(event, self._root.name)
        return TurnInput(event, event_to_entry(event))
