"""Turn a stored session into a test case, and into the exchanges that a run is checked by."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from google.adk.evaluation.eval_case import EvalCase, Invocation, InvocationEvent, InvocationEvents, SessionInput
from google.adk.events import Event
from google.genai.types import Content, Part
from msgspec import Struct, to_builtins

from lango.adk.evaluation.eval_set import add_case, is_request, new_eval_set, set_id, text_of, tool_calls
from lango.adk.events.rows_to_events import stored_to_events
from lango.development.test_cases import Exchange, Reply
from lango.errors import SessionNotFound, UsageError
from lango.json_values import as_object
from lango.sessions import CONFIRMATION_CALL, INPUT_CALL, SessionId, SessionInfo
from lango.store import Store
from lango.store.sessions.lineage import is_live, live_ranges
from lango.store.sessions.state import read_state_at
from lango.store.sessions.window import read_session_events
from lango.threads import run_in_thread
from lango.waits import REFUSAL_REASON, Approve, Refuse, Result, Value


class _Turn(Struct, frozen=True):
    """A user's message, and the events up to the next one: an answer to a request belongs to the same turn."""

    message: Event
    events: list[Event]
    answers: list[Event]
    """What the user answered to requests."""

    @property
    def final(self) -> Event | None:
        """The event with the final answer."""
        found = (event for event in reversed(self.events) if event.is_final_response() and text_of(event.content))
        return next(found, None)


async def session_case(store: Store, name: SessionId, case_id: str) -> EvalCase:
    """Return a session as a test case: its messages, tool calls, answers and first state, without rewound turns.

    Raise `UsageError` if there is no message to send.
    """
    info, turns = await _read_turns(store, name)
    if not turns:
        raise UsageError(f"session {name.id!r} has no message yet: there is nothing to save")
    first_state = await store.read(read_state_at, info.key, 0)
    start = SessionInput(app_name=name.app_name, user_id=name.user_id, state=first_state)

    def make() -> EvalCase:
        replies = [[_reply_json(reply) for reply in _replies(turn)] for turn in turns]
        return EvalCase(
            eval_id=case_id,
            conversation=[_to_invocation(turn) for turn in turns],
            session_input=start,
            creation_timestamp=info.updated_at,
        ).model_copy(update={"lango": {"replies": replies}} if any(replies) else {})

    return await run_in_thread(make)


async def save_case(store: Store, name: SessionId, case_id: str, path: Path) -> int:
    """Add a session as a case to a file; return how many cases the file has. Raise `UsageError`."""
    return add_case(path, await session_case(store, name, case_id))


async def session_eval_set(store: Store, name: SessionId) -> dict[str, Any]:
    """Return an eval set with a session as its only case."""
    case = await session_case(store, name, name.id)
    return await run_in_thread(new_eval_set, set_id(name.id), [case])


async def session_exchanges(store: Store, name: SessionId) -> list[Exchange]:
    """Return what was said and called in a session, message by message."""
    _, turns = await _read_turns(store, name)
    return await run_in_thread(lambda: [_to_exchange(turn) for turn in turns])


async def _read_turns(store: Store, name: SessionId) -> tuple[SessionInfo, list[_Turn]]:
    found = await store.read(read_session_events, name)
    if found is None:
        raise SessionNotFound(f"there is no session {name.id!r}")
    info, stored = found
    live = live_ranges(info.last_seq, info.rewinds)
    shown = await run_in_thread(lambda: [event for event in stored if event.message and is_live(event.seq, live)])
    await store.load_files(shown)
    return info, await run_in_thread(lambda: list(_split_turns(stored_to_events(shown, None))))


def _split_turns(events: Sequence[Event]) -> Iterator[_Turn]:
    turn: _Turn | None = None
    for event in events:
        if event.author == "user" and event.content and not event.get_function_responses():
            if turn:
                yield turn
            turn = _Turn(event, [], [])
        elif turn:
            (turn.answers if event.author == "user" else turn.events).append(event)
    if turn:
        yield turn


def _replies(turn: _Turn) -> Iterator[Reply]:
    """Yield what the user answered to approvals, inputs and long-running tools; no credentials."""
    asked = {call.id: call for event in turn.events for call in event.get_function_calls()}
    for response in (response for event in turn.answers for response in event.get_function_responses()):
        call = asked.get(response.id)
        given: dict[str, Any] = response.response or {}
        arguments: dict[str, Any] = (call.args if call else None) or {}
        if response.name == INPUT_CALL:
            schema = as_object(arguments.get("response_schema")) or None
            yield Reply(Value(given.get("result", given)), "", str(arguments.get("message") or ""), schema)
        elif response.name == CONFIRMATION_CALL:
            original: dict[str, Any] = arguments.get("originalFunctionCall") or {}
            tool, payload = str(original.get("name") or ""), given.get("payload")
            reason = as_object(payload).get(REFUSAL_REASON, "")
            yield Reply(Approve(payload=payload) if given.get("confirmed") else Refuse(str(reason)), tool)
        elif call is not None and not is_request(response.name):
            yield Reply(Result(given), response.name or "")


def _reply_json(reply: Reply) -> dict[str, Any]:
    fields: dict[str, Any] = to_builtins(reply)
    answer = {name: value for name, value in fields["answer"].items() if value is not None or name == "value"}
    return fields | {"answer": answer}


def _to_exchange(turn: _Turn) -> Exchange:
    calls = tool_calls(call for event in turn.events for call in event.get_function_calls())
    answer = text_of(turn.final.content) if turn.final else ""
    return Exchange(text_of(turn.message.content), calls=calls, answer=answer)


def _to_invocation(turn: _Turn) -> Invocation:
    final = turn.final
    steps = [
        InvocationEvent(author=event.author, content=content)
        for event in turn.events
        if event is not final and (content := _kept_content(event.content))
    ]
    return Invocation(
        invocation_id=turn.message.invocation_id,
        user_content=_kept_content(turn.message.content) or Content(role="user", parts=[]),
        final_response=_kept_content(final.content) if final else None,
        intermediate_data=InvocationEvents(invocation_events=steps),
        creation_timestamp=turn.message.timestamp,
    )


def _kept_content(content: Content | None) -> Content | None:
    """Return what a test case keeps of a message: no thoughts, no signatures, no requests to a person."""
    parts = [kept for part in (content and content.parts) or () if (kept := _kept_part(part))]
    return Content(role=content.role, parts=parts) if content and parts else None


def _kept_part(part: Part) -> Part | None:
    if part.thought or (part.function_call and is_request(part.function_call.name)):
        return None
    if part.function_response and is_request(part.function_response.name):
        return None
    if not (part.text or part.function_call or part.function_response or part.inline_data):
        return None
    return part.model_copy(update={"thought_signature": None})
