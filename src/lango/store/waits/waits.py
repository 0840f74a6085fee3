"""Read what the turns of a session wait for."""

from lango.sessions import REQUEST_CALLS, SessionRecord, as_datetime
from lango.store.codec.ids import address_safe_id, call_key
from lango.store.engine.database import Operation
from lango.store.tool_calls.approvals import read_approval_requests
from lango.store.tool_calls.client_calls import read_client_calls
from lango.store.tool_calls.credential_requests import read_credential_requests
from lango.store.tool_calls.input_requests import read_input_requests
from lango.store.tool_calls.long_running import read_awaited_results
from lango.store.tool_calls.tool_questions import read_tool_questions
from lango.waits import (
    ApprovalWait,
    ClientResultWait,
    CredentialWait,
    InputWait,
    LongRunningWait,
    QuestionWait,
    Wait,
)

_TURNS = "SELECT call_id, turn FROM open_calls WHERE session_key = $1"
_TURN_OF_MESSAGE = "SELECT MAX(turn) FROM turns WHERE session_key = $1 AND first_seq <= $2"
_TURNS_OF_RESULTS = "SELECT call_id, turn FROM long_running_calls WHERE session_key = $1"


def read_waits(session: SessionRecord) -> Operation[list[Wait]]:
    """Read what a session waits for, in the order in which it was asked."""
    id_, key = session.name.id, session.key
    turns: dict[str, int | None] = {row[0]: row[1] for row in (yield _TURNS, (key,))}
    found: list[Wait] = [
        ApprovalWait(
            id=address_safe_id(asked.request_id),
            session_id=id_,
            turn=turns.get(asked.request_id),
            opened_at=as_datetime(asked.requested_at),
            expires_at=None if asked.expires_at is None else as_datetime(asked.expires_at),
            tool=asked.name,
            call_id=asked.call_id,
            arguments=asked.arguments,
            hint=asked.hint,
            payload=asked.payload,
        )
        for asked in (yield from read_approval_requests(session))
    ]
    found += [
        InputWait(
            id=asked.call_id,
            session_id=id_,
            turn=turns.get(call_key(asked.stored_id)),
            opened_at=as_datetime(asked.requested_at),
            expires_at=None if asked.expires_at is None else as_datetime(asked.expires_at),
            message=asked.message,
            schema=asked.schema,
            payload=asked.payload,
            author=asked.author,
            path=asked.path,
        )
        for asked in (yield from read_input_requests(session))
    ]
    found += [
        CredentialWait(
            id=asked.call_id,
            session_id=id_,
            turn=turns.get(call_key(asked.stored_id)),
            opened_at=as_datetime(asked.requested_at),
            expires_at=None if asked.expires_at is None else as_datetime(asked.expires_at),
            scheme_type=asked.kind,
            scheme=asked.scheme,
            auth_url=asked.auth_url,
            scopes=asked.scopes,
            message=asked.message,
            author=asked.author,
            path=asked.path,
        )
        for asked in (yield from read_credential_requests(session))
    ]
    clients = yield from read_client_calls(session)
    made_in: dict[int, int | None] = {}
    for seq in {pending.made_by.seq for pending in clients}:
        [[made_in[seq]]] = yield _TURN_OF_MESSAGE, (key, seq)
    found += [
        ClientResultWait(
            id=address_safe_id(pending.call.id),
            session_id=id_,
            turn=made_in[pending.made_by.seq],
            opened_at=as_datetime(pending.made_by.created_at),
            tool=pending.call.name,
            call_id=pending.call.id,
            arguments=pending.call.input or {},
        )
        for pending in clients
    ]
    turns = {row[0]: row[1] for row in (yield _TURNS_OF_RESULTS, (key,))}
    found += [
        LongRunningWait(
            id=address_safe_id(awaited.call_id),
            session_id=id_,
            turn=turns.get(call_key(awaited.call_id)),
            opened_at=as_datetime(awaited.called_at),
            tool=awaited.name,
            call_id=awaited.call_id,
            arguments=awaited.arguments,
        )
        for awaited in (yield from read_awaited_results(session))
        if awaited.name not in REQUEST_CALLS  # of a tool that only asks: it waits for a person
    ]
    found += [
        QuestionWait(
            id=asked.call_id,
            session_id=id_,
            turn=turn,
            opened_at=as_datetime(asked.requested_at),
            expires_at=None if asked.expires_at is None else as_datetime(asked.expires_at),
            message=asked.message,
            schema=asked.schema,
            payload=asked.payload,
            call_id=asked.tool_call_id,
        )
        for asked, turn in (yield from read_tool_questions(session))
    ]
    return found
