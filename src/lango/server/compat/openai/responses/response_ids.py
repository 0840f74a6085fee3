"""Name responses and their items by the session's key and the turn, and find the turn of an id.

The ids need no table of their own and hold in every process. A caller finds only responses of the caller's own
sessions: to others, an id that exists and one that does not are the same.
"""

import re
from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from lango.runtime.turns import StoredTurn
from lango.server.context import AgentUser
from lango.server.errors import ApiError
from lango.server.streaming.turn_streams import TurnRef
from lango.sessions import SessionInfo

_RESPONSE_ID = re.compile(r"resp_([0-9]{1,19})_([0-9]{1,12})")
_ITEM_ID = re.compile(r"(?:msg|fc|rs|mcp)_([0-9]{1,19}_[0-9]{1,12})_[0-9]{1,9}")
_APPROVAL_ID = re.compile(r"mcpr_([0-9]{1,19}_[0-9]{1,12})_(.+)", re.DOTALL)
_LARGEST_KEY = 2**63 - 1
APPROVAL = "_approval"
"""Where the stored parameters of a response name the approval request that it answers."""


class StoredResponse(Struct, frozen=True):
    """A turn that is a response, with the parameters of its request."""

    session: SessionInfo
    turn: int
    record: StoredTurn

    @property
    def id(self) -> str:
        """The id of the response."""
        return response_id(self.turn_ref)

    @property
    def turn_ref(self) -> TurnRef:
        """The turn."""
        return TurnRef(self.session, self.turn)

    @property
    def parameters(self) -> Mapping[str, Any]:
        """The parameters of its request."""
        return self.record.client_request or {}

    @property
    def is_open(self) -> bool:
        """Whether it is queued or in progress."""
        return self.record.status in ("queued", "running")


def session_key_of_response(given: str) -> int | None:
    """Return the key of the session of a response."""
    found = _RESPONSE_ID.fullmatch(given)
    return int(found[1]) if found else None


def response_id(turn: TurnRef) -> str:
    """Return the id of the response that a turn is."""
    return f"resp_{turn.session.key}_{turn.turn}"


def item_id(prefix: str, response: str, number: int) -> str:
    """Return the id of an item of a response: its kind's prefix, and its number among the items of that kind."""
    return f"{prefix}_{response.removeprefix('resp_')}_{number}"


def approval_request_id(response: str, call_id: str) -> str:
    """Return the id of an approval request, which names the call."""
    return f"mcpr_{response.removeprefix('resp_')}_{call_id}"


def read_approval_request_id(given: str) -> tuple[str, str] | None:
    """Return the response and the call of an approval request, or None for any other id."""
    found = _APPROVAL_ID.fullmatch(given)
    return (f"resp_{found[1]}", found[2]) if found else None


def response_of_item(given: str) -> str | None:
    """Return the id of the response that an item belongs to, or None for any other id."""
    if found := _ITEM_ID.fullmatch(given):
        return f"resp_{found[1]}"
    approval = read_approval_request_id(given)
    return approval[0] if approval else None


async def find_response(user: AgentUser, given: str, unstored_id: str | None = None) -> StoredResponse | None:
    """Find a response of the caller that was stored, or is the one that was not, and was not deleted."""
    found = _RESPONSE_ID.fullmatch(given)
    if found is None or int(found[1]) > _LARGEST_KEY:
        return None
    session = await user.sessions.find_by_key(int(found[1]))
    if session is None or (session.name.app_name, session.name.user_id) != (user.runtime.app_name, user.id):
        return None
    turn = int(found[2])
    record = await user.runtime.turns.read(session, turn)
    parameters = record.client_request if record else None
    if record is None or parameters is None or parameters.get("deleted"):
        return None
    if given != unstored_id and not parameters.get("store", True):
        return None
    return StoredResponse(session, turn, record)


async def get_response(user: AgentUser, given: str) -> StoredResponse:
    """Find a response of the caller. Raise `ApiError` if there is none."""
    response = await find_response(user, given)
    if response is None:
        raise ApiError(
            404,
            "response_not_found",
            f"there is no response {given!r}: it was not stored, or was deleted with its session",
        )
    return response
