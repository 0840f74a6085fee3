"""Store ADK sessions in SQL: ADK's session service on the Lango store."""

import asyncio
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from weakref import WeakValueDictionary

from google.adk.errors import StaleSessionError
from google.adk.errors.already_exists_error import AlreadyExistsError
from google.adk.errors.session_not_found_error import SessionNotFoundError
from google.adk.events import Event
from google.adk.sessions import BaseSessionService, Session
from google.adk.sessions.base_session_service import GetSessionConfig, ListSessionsResponse
from google.genai import types
from msgspec import Struct
from msgspec.structs import replace
from typing_extensions import override

from lango.adk.events.events_to_rows import DEFAULT_AGENT_NAME, complete_error, complete_event, event_to_entry
from lango.adk.events.recorded_run import FROM_CODE, TOOL_SCHEMAS, SteeringMessage
from lango.adk.events.rows_to_events import stored_to_events
from lango.adk.services.credential_secrets import holds_credentials, without_secrets
from lango.adk.services.credential_service import keep_state_credentials, show_state_credentials
from lango.adk.services.stored_service import StoredService
from lango.adk.services.stored_session import (
    SessionVersion,
    known_version,
    prepare_for_requests,
    session_from_info,
    set_version,
    show_event,
    show_steering,
    shows_event,
    version_of_info,
)
from lango.adk.turn.step import LoadSummary, note_load, warn_left_out
from lango.adk.turn.turn_run import TurnRun, turn_of_session
from lango.errors import SessionExists, SessionNotFound, StaleSession, StoreError
from lango.history import load_limit, load_tokenizer
from lango.messages import ToolCall
from lango.sessions import CONFIRMATION_CALL, TEXT_PLACE, SessionId, SessionInfo, StoredEvent
from lango.store import Store
from lango.store.codec.records import NewEvent, without_temporary_state
from lango.store.codec.rows import approval_subject, garbage_collection_paused
from lango.store.credentials.secret_box import SecretBox
from lango.store.memory.observations import SessionMemory, read_window_with_memory
from lango.store.sessions.lineage import live_ranges
from lango.store.sessions.sessions import create_session, find_session, list_sessions
from lango.store.sessions.state import delta_to_restore, read_state_before, read_user_state, split_scopes
from lango.store.sessions.window import read_session_events, read_session_window
from lango.store.turns.steering import has_messages


class StaleStoredSession(StaleSession, StaleSessionError):
    """Another writer changed the session since it was loaded: an error of both ADK's and Lango's type."""


class StoredSessionNotFound(SessionNotFound, SessionNotFoundError):
    """The session does not exist: an error of both ADK's and Lango's type."""


class StoredSessionExists(SessionExists, AlreadyExistsError):
    """A session of that id exists: an error of both ADK's and Lango's type."""


_ADK_ERRORS: dict[type[Exception], type[StoreError]] = {
    StaleSession: StaleStoredSession,
    SessionNotFound: StoredSessionNotFound,
    SessionExists: StoredSessionExists,
}


class SessionRules(Struct, frozen=True):
    """What a Lango runtime asks of its sessions beyond ADK's contract."""

    box: SecretBox | None = None
    """Encrypts the secrets of credentials, each in its own row. With None, they are stored in messages.

    Only a Lango runtime can bring the answer to a request for such a credential.
    """
    ends_turn: Callable[[Event], bool] = lambda event: False
    """Returns whether an event ends its turn."""
    expires_s: Mapping[str, float | None] = {}
    """After how many seconds waits expire, by their kinds; without limit where none is given."""
    memory: bool = False
    """Whether the window starts after the observed messages, and the session holds their notes."""
    user_facts: bool = False
    """Whether it holds the facts about its user, too."""
    notes_tokens: int | None = None


class SqlSessionService(StoredService, BaseSessionService):
    """Stores sessions in SQL for any ADK `Runner`: in order, exactly once, across processes.

    Without `budget_tokens`, a session comes with every event, as ADK's contract says. With it, `get_session` returns
    the newest messages that fit the budget, however long the session is; events that only change state are applied but
    not returned. `max_messages` is a further limit. Each load logs one warning about messages that it leaves out.

    With `load_files=False`, the files of messages are not loaded: their `data` is a `StoredBytes`, and
    `lango.adk.services.stored_service` loads them into a request.

    `root_agent_name` is the author of stored messages that have none; if empty, `lango-agent`. `rules` are those of a
    Lango runtime.
    """

    def __init__(
        self,
        url: str,
        *,
        store: Store | None = None,
        budget_tokens: int | None = None,
        max_messages: int | None = None,
        root_agent_name: str | None = DEFAULT_AGENT_NAME,
        load_files: bool = True,
        rules: SessionRules | None = None,
    ) -> None:
        self._store = store or Store(url)
        self._budget_tokens = budget_tokens or None
        self._max_messages = max_messages
        self._root_agent_name = root_agent_name
        self._load_files = load_files
        self._warn = rules is None  # otherwise the model logs it, together with what it leaves out of the request
        self._rules = rules or SessionRules()
        self._locks: WeakValueDictionary[tuple[int, int], asyncio.Lock] = WeakValueDictionary()

    @override
    async def create_session(
        self,
        *,
        app_name: str,
        user_id: str,
        state: dict[str, Any] | None = None,
        session_id: str | None = None,
    ) -> Session:
        """Create a session; spaces around the id are removed."""
        await load_tokenizer()  # for the appends to this session
        name = SessionId(app_name, user_id, (session_id or "").strip() or str(uuid.uuid4()))
        try:
            return session_from_info(await self._store.write(create_session, name, state, time.time()), [])
        except tuple(_ADK_ERRORS) as error:
            raise _ADK_ERRORS[type(error)](str(error)) from error

    @override
    async def get_session(
        self,
        *,
        app_name: str,
        user_id: str,
        session_id: str,
        config: GetSessionConfig | None = None,
    ) -> Session | None:
        """Load a session: all of it, or the window that fits the budget."""
        await load_tokenizer()  # for the appends to this session
        name = SessionId(app_name, user_id, session_id)
        newest = config.num_recent_events if config else None
        since = config.after_timestamp if config else None
        recalled = SessionMemory()
        turn = turn_of_session(session_id)
        until = turn.record.first_seq if turn else None  # a turn that is run again starts from the events before it
        if self._budget_tokens is None:
            found = await self._store.read(read_session_events, name, newest, since)
        elif self._rules.memory:
            facts, notes_tokens = self._rules.user_facts, self._rules.notes_tokens
            place = name, self._budget_tokens
            remembered = await self._store.read(
                read_window_with_memory, *place, with_facts=facts, notes_tokens=notes_tokens, until=until
            )
            found = remembered and remembered[:2]
            recalled = remembered[2] if remembered else recalled
        else:
            found = await self._store.read(read_session_window, name, self._budget_tokens, self._max_messages, until)
        if found is None:
            return None
        info, stored = found
        left_out = 0
        if self._budget_tokens is not None:
            left_out = self._count_left_out(info, stored, recalled.floor_seq)
            stored = _apply_config(stored, newest, since)
        if self._load_files:
            await self._store.load_files(stored)
        has_all_calls = not info.rewinds and len([row for row in stored if row.message]) == info.last_seq
        clipped_tokens = sum(row.clipped_tokens for row in stored)
        first_seq = min((row.seq for row in stored), default=0)
        limit = load_limit(len(stored), self._max_messages)
        note_load(LoadSummary(left_out, self._warn, has_all_calls, clipped_tokens, first_seq, limit))
        session = session_from_info(info, stored_to_events(stored, self._root_agent_name), recalled)
        if turn is not None:
            _show_to_turn(turn, session)
        if turn is not None and self._rules.box is not None:
            await show_state_credentials(self._store, self._rules.box, session)
        if until is not None and (newest_info := await self._store.read(find_session, name)):
            set_version(session, version_of_info(newest_info))
        return session

    def _count_left_out(self, info: SessionInfo, stored: list[StoredEvent], first_seq: int) -> int:
        """Count the messages that did not fit the budget; those before `first_seq` are quoted as memory."""
        total = sum(
            last - max(first, first_seq) + 1
            for first, last in live_ranges(info.last_seq, info.rewinds)
            if last >= first_seq
        )
        left_out = total - len([row for row in stored if row.seq >= first_seq])
        if self._warn and left_out:
            warn_left_out(left_out, total)
        return left_out

    @override
    async def list_sessions(self, *, app_name: str, user_id: str | None = None) -> ListSessionsResponse:
        """List sessions with their state and without their events, oldest update first."""
        infos = await self._store.read(list_sessions, app_name, user_id)
        with garbage_collection_paused():
            return ListSessionsResponse.model_construct(sessions=[session_from_info(info, []) for info in infos])

    @override
    async def delete_session(self, *, app_name: str, user_id: str, session_id: str) -> None:
        await self._store.delete_session(SessionId(app_name, user_id, session_id))

    @override
    async def get_user_state(self, *, app_name: str, user_id: str) -> dict[str, Any]:
        return await self._store.read(read_user_state, app_name, user_id)

    @override
    async def append_event(self, session: Session, event: Event) -> Event:
        """Store an event, then add it to the session in memory. If it raises, neither has happened."""
        if event.author == "user":
            prepare_for_requests(session)
        turn = turn_of_session(session.id)
        if event.partial or (turn is not None and _is_input(turn, session, event)):
            return event
        if turn is not None and (is_message := _take_recorded(turn, event)) is not None:
            show_event(session, event, as_event=is_message or self._budget_tokens is None)
            return event
        # tasks that share a session object append in turn: concurrent appends would make each other stale
        lock_key = id(asyncio.get_running_loop()), id(session)
        async with self._locks.get(lock_key) or self._locks.setdefault(lock_key, asyncio.Lock()):
            return await self._append(session, event, turn)

    async def _append(self, session: Session, event: Event, turn: TurnRun | None) -> Event:
        try:
            complete_event(event, self._root_agent_name, session.events)
            version = known_version(session) or await self._find_version(session)
            if event.actions.rewind_before_invocation_id and self._budget_tokens is not None:
                await self._complete_rewind(version.key, session, event)
            if self._rules.box is not None and holds_credentials(event):
                entry = await self._to_entry_without_secrets(event, version.name, self._rules.box)
            else:
                entry = event_to_entry(event, self._rules.expires_s)
            if turn is not None and (marks := _marks(turn, event, turn.output.emit_rest(event))):
                entry = replace(entry, extra={**(entry.extra or {}), **marks})
            if turn is not None:  # a text that begins while this one is stored comes after it
                turn.output.sink.blocks.note_stored(entry.message is not None)
            appended = await self._store.append(
                version.key,
                version.name,
                version.revision,
                entry,
                epoch=turn.record.lease.epoch if turn else None,
                ends_turn=self._rules.ends_turn(event),
                last_seq=version.last_seq,
            )
        except tuple(_ADK_ERRORS) as error:
            raise _ADK_ERRORS[type(error)](str(error)) from error
        set_version(session, SessionVersion(version.key, version.name, appended.revision, appended.seq))
        if turn is not None:
            turn.end_model_call(event, appended.seq)
        is_shown = appended.repeated and shows_event(session, event)
        is_loaded = entry.message is not None or self._budget_tokens is None
        show_event(session, event, as_event=is_loaded and not is_shown)
        return event

    async def take_steering(
        self, turn: TurnRun, session: Session, invocation_id: str, place: Mapping[str, Any]
    ) -> Sequence[SteeringMessage]:
        """Store the messages that steer a turn in its session, and show them there; `place`: see `take_messages`."""
        lease = turn.record.lease
        if not await self._store.read(has_messages, lease):
            return ()
        lock_key = id(asyncio.get_running_loop()), id(session)
        async with self._locks.get(lock_key) or self._locks.setdefault(lock_key, asyncio.Lock()):
            version = known_version(session) or await self._find_version(session)
            about = version.name, version.revision
            taken = await self._store.take_messages(lease, about, invocation_id, place)
            if taken.messages:
                turn.output.sink.blocks.note_stored(len(taken.messages))
                last_seq = taken.messages[-1].seq
                set_version(session, SessionVersion(version.key, version.name, taken.revision, last_seq))
            events = stored_to_events(taken.messages, self._root_agent_name)
            for event in events:
                show_steering(session, event)
        return [SteeringMessage.of(row, event) for row, event in zip(taken.messages, events, strict=True)]

    async def _to_entry_without_secrets(self, event: Event, name: SessionId, box: SecretBox) -> NewEvent:
        kept_in_state = await keep_state_credentials(self._store, box, name, event)
        stored, kept = without_secrets(event, name, box, kept_in_state)
        entry = event_to_entry(stored, self._rules.expires_s)
        return replace(entry, request_secrets=kept)

    async def _complete_rewind(self, key: int, session: Session, event: Event) -> None:
        """Set the state that a rewind restores: ADK computes it from the loaded events, which are not all."""
        target = await self._store.read(read_state_before, key, event.actions.rewind_before_invocation_id or "")
        own, _, _ = split_scopes(without_temporary_state(session.state))
        event.actions.state_delta = delta_to_restore(own, target)

    async def _find_version(self, session: Session) -> SessionVersion:
        """Find the version of a session object that was not loaded here, by its `last_update_time`."""
        name = SessionId(session.app_name, session.user_id, session.id)
        info = await self._store.read(find_session, name)
        if info is None:
            raise SessionNotFound(f"session {name.id!r} of user {name.user_id!r} does not exist")
        if info.updated_at > session.last_update_time:
            raise StaleSession(f"session {name.id!r} changed since it was loaded: load it again")
        return version_of_info(info)


def _show_to_turn(turn: TurnRun, session: Session) -> None:
    """Show ADK what the stored messages of a turn do not have: the credential that its input brings.

    A turn that continues after an update shows the steps of agents that no longer exist as those of its root.
    """
    for event in session.events:
        if turn.brings_credential and event.id == turn.input_event.id:
            event.content = turn.input_event.content
        if turn.input.is_continued:
            event.author = turn.app.continued_history.author(event.author)


def _is_input(turn: TurnRun, session: Session, event: Event) -> bool:
    """Whether this is the input of the turn, which is stored already."""
    stored = turn.input_event
    return (
        event.author == "user"
        and event.content == stored.content
        and any(shown.id == stored.id for shown in session.events)
    )


def _take_recorded(turn: TurnRun, event: Event) -> bool | None:
    """Recognise an event that an earlier run stored, as `RecordedRun.take` does, or return None if it is new."""
    if event.actions.compaction is not None:
        turn.output.add_summary(event)
    if event.author != "user":
        complete_error(event)
    return turn.record.earlier_run.take(event)


def _is_from_code(turn: TurnRun, event: Event) -> bool:
    """Whether an event with content is neither a model's response nor a result: the user's own code made it."""
    if event.author == "user" or not (event.content or event.error_code) or event.get_function_responses():
        return False
    return not turn.output.model_calls.is_awaited(event)


def _marks(turn: TurnRun, event: Event, block: int | None) -> dict[str, Any]:
    """Return what the event itself does not show.

    It is that code made it, where its text began among those of other agents, and the schemas of tools that it asks
    about.
    """
    marks: dict[str, Any] = {FROM_CODE: True} if _is_from_code(turn, event) else {}
    if block is not None and (place := turn.output.sink.blocks.place_of(block)) is not None:
        marks[TEXT_PLACE] = place
    about = [_tool_of_request(call) for call in event.get_function_calls() if call.name == CONFIRMATION_CALL]
    schemas = {name: schema for name in about if (schema := turn.app.tool_schema(event.author, name)) is not None}
    return marks | {TOOL_SCHEMAS: schemas} if schemas else marks


def _tool_of_request(call: types.FunctionCall) -> str:
    return str(approval_subject(ToolCall("", call.name or "", call.args)).get("name", ""))


def _apply_config(stored: list[StoredEvent], newest: int | None, since: float | None) -> list[StoredEvent]:
    if since is not None:
        stored = [row for row in stored if row.created_at >= since]
    return stored if newest is None else stored[len(stored) - min(newest, len(stored)) :]
