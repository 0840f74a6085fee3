"""Build the input of a turn from a message, an answer to what a turn waits for, or the results of tools."""

import uuid
from collections.abc import Collection, Mapping, Sequence
from itertools import pairwise
from typing import Any

from google.adk.events import Event
from google.genai import types
from msgspec.structs import replace

from lango.adk.agents.tools.adk_tool import attachments_to_parts
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
from lango.adk.events.rows_to_events import stored_to_events
from lango.adk.model.request_config import check_options
from lango.adk.run.input.client_history import history_to_entries
from lango.adk.run.pauses.answers import (
    answer_content,
    checked_value,
    given_credential,
    result_content,
    state_of_address,
)
from lango.adk.services.credential_secrets import holds_credentials, request_purpose, without_secrets
from lango.adk.services.session_service import SqlSessionService
from lango.errors import InvalidAnswer, TurnDiverged, WaitNotOpen
from lango.events import to_plain_values
from lango.json_values import as_object
from lango.messages import Attachment, Message, ToolCall
from lango.sessions import CONFIRMATION_CALL, CREDENTIAL_CALL, SessionId, SessionInfo
from lango.store import Store
from lango.store.codec.json_text import dumps
from lango.store.codec.records import ClientResult, NewEvent
from lango.store.codec.wait_rows import StoredWait
from lango.store.credentials.secret_box import SecretBox
from lango.store.sessions.open_calls import find_event, message_at
from lango.store.sessions.sessions import find_session
from lango.store.turns.client_requests import find_key_of_session
from lango.store.turns.continuing import is_run_of_store
from lango.store.turns.turns import StoredRequest, StoredTurn, read_paused_request
from lango.store.waits.waits import WaitAnswer, list_unclosed, list_waits, read_answer
from lango.submissions import TurnRequest
from lango.tools import Tool, client_tool
from lango.tools.client_tool_definitions import tools_by_name
from lango.turns.turn_input import TurnInput
from lango.waits import (
    REFUSAL_REASON,
    Answer,
    ApprovalWait,
    Approve,
    ClientResultWait,
    Credential,
    CredentialWait,
    InputWait,
    Refuse,
    ToolResultWait,
    Value,
)

ClientResults = Mapping[str, Mapping[str, Any]]
"""What client tools returned, by the ids of their calls."""


def is_answer_address(text: str) -> bool:
    """Whether a text may be the address that a user is sent to after allowing an access, and nothing else."""
    return text.strip().startswith(("https://", "http://")) and "state=" in text and len(text.split()) == 1


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

    def with_state(self, turn_input: TurnInput, state_delta: Mapping[str, Any]) -> TurnInput:
        """Return an input that changes the session's state when its turn starts."""
        if not state_delta:
            return turn_input
        turn_input.event.actions.state_delta.update(state_delta)
        return _with_entry(turn_input, state_delta=dict(turn_input.event.actions.state_delta))

    async def with_request(
        self, name: SessionId, turn_input: TurnInput, request: TurnRequest, digest: str | None
    ) -> TurnInput:
        """Return an input with what its request sets: the options of the model calls, and the client's tools.

        Where the request has none, a turn that continues after a pause has those of the turn that paused, without tools
        whose names the agents have taken since. Raise `ModelOptionsRefused` if the agents cannot follow the options,
        and `ClientToolRefused` for a tool with a name that is already used or reserved.
        """
        options, client_tools = request.options, request.client_tools
        paused = StoredRequest()
        if turn_input.continues_invocation and (options is None or client_tools is None):
            session = await self._store.read(find_session, name)
            if session is not None:
                paused = await self._store.read(read_paused_request, session.key, turn_input.event.invocation_id)
        if client_tools is None:
            kept = _client_tools(paused)
            taken = names_in_use(kept, walk_agents(self._root))
            tools = {name: tool for name, tool in kept.items() if name not in taken}
        else:
            tools = tools_by_name(client_tools)
            check_tool_names(tools, walk_agents(self._root))
        if options is not None:
            check_options(options, self._root, walk_agents(self._root))
        chosen = paused.options.for_next_turn if options is None else options
        return replace(turn_input, client_tools=tools, options=chosen, digest=digest)

    async def with_results(self, name: SessionId, turn_input: TurnInput, results: ClientResults) -> TurnInput:
        """Return the input of a message with the results of open client calls; those of other calls are left out."""
        open_ids = [stored.call_id for stored in await self.unclosed_waits(name) if stored.wait.kind == "client_result"]
        stored = self.results_to_store({call_id: results[call_id] for call_id in open_ids if call_id in results})
        return _with_entry(turn_input, client_results=stored)

    async def results(
        self,
        name: SessionId,
        results: ClientResults,
        idempotency_key: str | None = None,
        *,
        will_continue: bool | None = False,
    ) -> TurnInput:
        """Build the input that brings results of client calls or long-running tools.

        Raise `WaitNotOpen` if none of the calls waits for one. With `will_continue`, more results follow, or
        may follow if it is None. Raise `InvalidAnswer` for an update to a node that made the call itself: it continues
        with the first result.
        If the results are stored and their turn failed, the turn is tried again from there. If a turn with this
        idempotency key is stored, the request is repeated, and needs no open call.
        """
        waiting: list[StoredWait] = []
        calls: list[ToolCall] = []
        for stored in await self.unclosed_waits(name):
            if isinstance(stored.wait, ClientResultWait | ToolResultWait) and stored.call_id in results:
                waiting.append(stored)
                calls.append(ToolCall(stored.call_id, stored.wait.tool))
        if not waiting:
            if idempotency_key is not None and await self.is_stored(name, idempotency_key):
                return self.repeated_input()
            return await self.retry_results(name, results)
        if will_continue and any(stored.from_code for stored in waiting):
            raise InvalidAnswer("a workflow node is waiting for the final result: it accepts no updates")
        of_calls = {call.id: results[call.id] for call in calls}
        to_store = results_to_store(of_calls, walk_agents(self._root), will_continue=will_continue)
        turn_input = self._answer_input(waiting[-1], results_content(calls, to_store))
        return _with_entry(turn_input, client_results=to_store)

    def with_history(self, turn_input: TurnInput, history: Sequence[Message]) -> TurnInput:
        """Return the input of a message that a history of the client precedes; see `client_history`."""
        preceding = history_to_entries(history, self._root.name, [*walk_agents(self._root)])
        return _with_entry(turn_input, preceding=preceding)

    def history(self, messages: Sequence[Message]) -> list[NewEvent]:
        """Convert messages of a client that start no turn. Each is an invocation, with the results of its calls."""
        first = [place for place, message in enumerate(messages) if message.role != "tool" or place == 0]
        parts = [messages[start:end] for start, end in pairwise([*first, len(messages)])]
        agents = [*walk_agents(self._root)]
        return [entry for part in parts for entry in history_to_entries(part, self._root.name, agents)]

    def results_after_history(self, history: Sequence[Message], results: ClientResults) -> TurnInput:
        """Build the input that brings results of the calls at the end of a history that the client sent along."""
        preceding = history_to_entries(history, self._root.name, [*walk_agents(self._root)], leave_last_open=True)
        stored = self.results_to_store(results)
        turn_input = self._build(results_content(history[-1].tool_calls, stored), preceding[-1].invocation_id)
        return _with_entry(turn_input, client_results=stored, preceding=preceding)

    def results_to_store(self, results: ClientResults) -> dict[str, ClientResult]:
        """Convert results of client tools to plain JSON, clipped where they are long, as the model reads them."""
        return results_to_store(results, walk_agents(self._root))

    async def retry_results(self, name: SessionId, call_ids: Collection[str]) -> TurnInput:
        """Build the input of a turn that continues from results that are stored but unanswered."""
        session = await self._service.get_session(app_name=name.app_name, user_id=name.user_id, session_id=name.id)
        results_event = find_unanswered_results(session.events if session else (), call_ids)
        info = await self._store.read(find_session, name)
        if (
            results_event is None
            or info is None
            or not await self._store.read(is_run_of_store, info.key, results_event.invocation_id)
        ):
            ids = ", ".join(sorted(call_ids))
            raise WaitNotOpen(f"session {name.id!r} has no call {ids} that is waiting for a result")
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
        return bool(session and await self._store.read(find_key_of_session, session.key, idempotency_key))

    async def stored_input(self, session: SessionInfo, row: StoredTurn) -> TurnInput:
        """Build the input of a turn that another process accepted, from what is stored."""
        assert row.record_seq is not None
        request, is_continued = row.request, row.continued_seq is not None
        if is_continued:  # what it answers belongs to its history
            request = replace(request, answer=None, retry_of="")
        answer = request.answer
        stored = await self._store.read(message_at, session.key, row.record_seq)
        if stored is None:
            raise TurnDiverged(f"the input of the turn is no longer in session {session.name.id!r}")
        await self._store.load_files([stored])
        if request.retry_of:
            results_event = await self._store.read(find_event, session.key, request.retry_of)
            assert results_event
            await self._store.load_files([results_event])
            [event, mark] = stored_to_events([results_event, stored], self._root.name)
            event, entry = as_user_content(event), event_to_entry(mark)
        else:
            [event] = stored_to_events([stored], self._root.name)
            if answer is not None and answer.kind == "credential":
                await self._add_credential(session, event, answer)
            if results := event.get_function_responses():
                event = as_user_content(event)
            entry = self._to_entry(event, session.name)
            if results and answer is None:
                given = {result.id or "": ClientResult(result.response or {}) for result in results}
                entry = replace(entry, client_results=given)
        return TurnInput(
            event,
            entry,
            answer=answer,
            client_tools=_client_tools(request),
            options=request.options,
            is_retry=bool(request.retry_of),
            is_continued=is_continued,
            quota_id=request.quota,
            tokens_per_day=request.tokens_per_day,
        )

    async def unclosed_waits(self, name: SessionId) -> list[StoredWait]:
        """Return the waits of a session that are not closed, also those whose answers are queued or came too late."""
        session = await self._store.read(find_session, name)
        return await self._store.read(list_unclosed, session.key, name) if session else []

    async def message_or_answer(
        self, name: SessionId, text: str, attachments: Sequence[Attachment], idempotency_key: str | None
    ) -> TurnInput:
        """Build the input of a message; if a workflow waits for input, the text answers its first open request.

        A text that is the address of an answer to a credential request answers that. Raise `InvalidAnswer` for a text
        that does not fit.
        """
        message = self.message(text, attachments)
        if attachments or (idempotency_key is not None and await self.is_stored(name, idempotency_key)):
            return message
        session = await self._store.read(find_session, name)
        waits = await self._store.read(list_waits, session.key, name) if session else []
        state = state_of_address(text.strip()) if is_answer_address(text) else None
        for stored in waits if state else ():
            if isinstance(stored.wait, CredentialWait) and state_of_address(stored.wait.auth_url) == state:
                return self.answer(name, stored, Credential(text))
        for stored in waits:
            if isinstance(stored.wait, InputWait):
                return replace(self.answer(name, stored, Value(text)), sent=message.entry)
        return message

    def answer(self, name: SessionId, stored: StoredWait, answer: Answer) -> TurnInput:
        """Build the input that answers a request to a person. Raise `InvalidAnswer` if the answer does not fit it."""
        wait, call_id, by = stored.wait, stored.call_id, name.user_id
        about = WaitAnswer(wait.id, call_id, wait.kind, stored.seq, by, dumps(to_plain_values(answer)))
        match wait, answer:
            case ApprovalWait(), Approve() | Refuse():
                content = _approval_content(call_id, wait, answer)
                approved = isinstance(answer, Approve)
                grant = answer.grant if isinstance(answer, Approve) else None
                about = replace(about, about=wait.call_id, approved=approved, grant=grant)
            case InputWait(), Value():
                content = answer_content(call_id, checked_value(wait, answer.value))
            case CredentialWait(), Credential():
                purpose = request_purpose(name, call_id)
                kept: dict[str, Any] = self._box.open(stored.secret, *purpose) if stored.secret else {}
                given = given_credential(wait.scheme_type, stored.config, answer.value, kept)
                content = result_content(call_id, CREDENTIAL_CALL, given)
                about = replace(about, content=self._box.seal(given, *purpose))
            case _:
                raise InvalidAnswer(f"a wait of kind {wait.kind} cannot be answered with {type(answer).__name__}")
        turn_input = self._answer_input(stored, content)
        return replace(turn_input, entry=self._to_entry(turn_input.event, name), answer=about)

    async def _add_credential(self, session: SessionInfo, event: Event, answer: WaitAnswer) -> None:
        """Add the credential that the user gave to the stored input, which does not have it, while it is kept."""
        sealed = await self._store.read(read_answer, session.key, answer.wait_id)
        if sealed is None:  # it is kept until its turn has ended: a tool takes the user's stored one, or asks again
            return
        for response in event.get_function_responses():
            if response.id == answer.call_id:
                response.response = self._box.open(sealed, *request_purpose(session.name, answer.call_id))

    def _to_entry(self, event: Event, name: SessionId) -> NewEvent:
        """Convert an input to a store entry, without the credential that it may bring."""
        stored, _ = without_secrets(event, name, self._box) if holds_credentials(event) else (event, None)
        return event_to_entry(stored)

    def _answer_input(self, stored: StoredWait, content: types.Content) -> TurnInput:
        """Build the input that continues where a wait was opened, on the branch and in the scope of who waits."""
        return self._build(content, stored.invocation_id, (stored.branch, stored.isolation_scope))

    def _build(
        self,
        content: types.Content,
        invocation_id: str,
        scope: tuple[str | None, str | None] = (None, None),
    ) -> TurnInput:
        event = Event(author="user", invocation_id=invocation_id, content=content)
        event.branch, event.isolation_scope = scope
        complete_event(event, self._root.name)
        return TurnInput(event, event_to_entry(event))


def _with_entry(turn_input: TurnInput, **fields: Any) -> TurnInput:
    return replace(turn_input, entry=replace(turn_input.entry, **fields))


def _client_tools(request: StoredRequest) -> dict[str, Tool]:
    tools = [client_tool(tool.name, tool.description, tool.parameters) for tool in request.client_tools]
    return tools_by_name(tools)


def _approval_content(call_id: str, wait: ApprovalWait, answer: Approve | Refuse) -> types.Content:
    """Build the content of ADK's confirmation; the tool gets the payload of the answer, or the one it asked with."""
    approved = isinstance(answer, Approve)
    payload: Any = to_plain_values(wait.payload if answer.payload is None else answer.payload)
    if isinstance(answer, Refuse) and (reason := answer.reason.strip()):
        payload = as_object(payload) | {REFUSAL_REASON: reason}
    confirmation: dict[str, Any] = {"confirmed": approved} | ({} if payload is None else {"payload": payload})
    return result_content(call_id, CONFIRMATION_CALL, confirmation)
