"""Store grants: an approval that also holds for later calls of the same tool in the same session.

A grant is made by the answer to an approval request, in its transaction. Whether a call is covered is decided in the
transaction that journals the call; a revocation waits for that transaction, or the transaction for the revocation.
Grants belong to one session: a fork, an export or an import has none.
"""

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from lango.errors import GrantRefused
from lango.messages import ToolCall
from lango.store.codec.json_text import dumps, loads
from lango.store.codec.records import Turn, call_key, wait_id
from lango.store.engine.database import Operation, Row
from lango.store.sessions.sessions import check_epoch, lock_session
from lango.store.tool_calls import tool_journal
from lango.store.tool_calls.tool_journal import ApprovalDecision, Effect
from lango.waits.grants import MAX_EXPIRES_IN_S, NewGrant, PatternsJson, fits, parse_patterns

MAX_ACTIVE_GRANTS = 50
MAX_LISTED_GRANTS = 200

_COLUMNS = "id, tool, arguments, granted_by, granted_at, expires_at, revoked_at, revoked_by"
_IS_ACTIVE = "revoked_at IS NULL AND (expires_at IS NULL OR expires_at > (SELECT now FROM database_clock))"
_ADD = """
INSERT INTO approval_grants (session_key, id, tool, arguments, request_id, seq, granted_by, granted_at, expires_at)
SELECT CAST($1 AS BIGINT), (SELECT COALESCE(MAX(id), 0) + 1 FROM approval_grants WHERE session_key = $1),
    CAST($2 AS TEXT), CAST($3 AS TEXT), CAST($4 AS TEXT), CAST($5 AS BIGINT), CAST($6 AS TEXT), now,
    now + CAST($7 AS DOUBLE PRECISION)
FROM database_clock
"""
_COUNT_ACTIVE = f"SELECT COUNT(*) FROM approval_grants WHERE session_key = $1 AND {_IS_ACTIVE}"  # noqa: S608 - constants
_LIST = f"""
SELECT {_COLUMNS}, CASE WHEN {_IS_ACTIVE} THEN 1 ELSE 0 END FROM approval_grants
WHERE session_key = $1 ORDER BY id DESC LIMIT {MAX_LISTED_GRANTS}
"""  # noqa: S608 - constants
# a request that is open, or whose answer is queued, is not overtaken by a grant: its turn is run again as it was
_COVERING = f"""
SELECT {_COLUMNS}, 1 FROM approval_grants
WHERE session_key = $1 AND tool = $2 AND {_IS_ACTIVE}
    AND NOT EXISTS (SELECT 1 FROM waits WHERE session_key = $1 AND closed IS NULL AND (about_id = $3 OR id = $4))
ORDER BY id
"""  # noqa: S608 - constants
_REVOKE = f"""
UPDATE approval_grants SET revoked_at = (SELECT now FROM database_clock), revoked_by = $1
WHERE session_key = $2 AND id = $3 AND {_IS_ACTIVE} RETURNING id
"""  # noqa: S608 - constants
_WITHDRAW = "DELETE FROM approval_grants WHERE session_key = $1 AND request_id = $2"


class Grant(Struct, frozen=True):
    """A grant of a session: calls of the tool that fit run without asking, while it is active."""

    id: int
    tool: str
    arguments: PatternsJson | None
    """The pattern of each argument; see `lango.waits.grants`. None allows any arguments."""
    granted_by: str
    granted_at: float
    expires_at: float | None
    """None if it does not expire."""
    revoked_at: float | None
    revoked_by: str | None
    """The user who revoked it, or `rewind`."""
    active: bool
    """It has neither expired nor been revoked."""


def add_grant(key: int, request_id: str, seq: int, call: ToolCall, new: NewGrant, by: str) -> Operation[None]:
    """Store the grant that came with the approval of a call; the caller holds the lock of the session.

    Raise `GrantRefused` if its pattern is not valid or does not fit the call, or there are too many.
    """
    if new.arguments is not None and not fits(parse_patterns(new.arguments), call.input or {}):
        raise GrantRefused(f"the pattern does not match the approved call of {call.name}: include all its arguments")
    if new.expires_in_s is not None and not 0 < new.expires_in_s <= MAX_EXPIRES_IN_S:
        raise GrantRefused("a grant must expire later than now, and within ten years")
    [[active]] = yield _COUNT_ACTIVE, (key,)
    if active >= MAX_ACTIVE_GRANTS:
        raise GrantRefused(f"the session has {active} grants, the most that are allowed: revoke one first")
    arguments = None if new.arguments is None else dumps({name: dict(each) for name, each in new.arguments.items()})
    yield _ADD, (key, call.name, arguments, request_id, seq, by, new.expires_in_s)


def withdraw_grant(key: int, request_id: str) -> Operation[None]:
    """Delete the grant of an answer that is withdrawn before its turn started."""
    yield _WITHDRAW, (key, request_id)


def read_grants(key: int) -> Operation[list[Grant]]:
    """Read the grants of a session, the newest first, with those that have ended."""
    return [_row_to_grant(row) for row in (yield _LIST, (key,))]


def revoke_grant(key: int, grant_id: int, by: str) -> Operation[bool]:
    """Revoke a grant: every call that is not journaled yet asks again. False: it has ended, or there is none."""
    if (yield from lock_session(key)) is None:
        return False
    return bool((yield _REVOKE, (by, key, grant_id)))


def record_intent_by_grant(
    turn: Turn,
    call_id: str,
    name: str,
    effect: Effect,
    fingerprint: str,
    now: float,
    arguments: Mapping[str, Any],
    input_request_id: str = "",
) -> Operation[Grant | None]:
    """Record that a tool is about to run if a grant covers the call, else that it asks; return the grant.

    A call that asks by an input request has the id `input_request_id` for it.
    """
    yield from check_epoch(turn.session_key, turn.epoch)  # before the grants are read: it waits for a revocation
    grant: Grant | None = None
    for row in (yield _COVERING, (turn.session_key, name, call_key(call_id), wait_id(input_request_id))):
        found = _row_to_grant(row)
        if found.arguments is None or fits(parse_patterns(found.arguments), arguments):
            grant = found
            break
    decision = None if grant is None else ApprovalDecision(True, grant.granted_by, grant.id)
    yield from tool_journal.record_intent(turn, call_id, name, effect, fingerprint, now, decision)
    return grant


def _row_to_grant(row: Row) -> Grant:
    grant_id, tool, arguments, *others, active = row
    return Grant(grant_id, tool, loads(arguments) if arguments else None, *others, active=bool(active))
