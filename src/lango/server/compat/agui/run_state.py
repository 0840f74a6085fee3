"""Keep the state of an AG-UI client and the state of its session the same: a client's state is the session's state.

A run brings the client's whole state. What differs from the session's is stored with the message of the run, so a run
that changes nothing stores nothing. Keys that the client does not send stay: a client that was reloaded has none yet.
"""

from collections.abc import Iterator, Mapping
from typing import Any, cast

from lango.server.context import AgentUser
from lango.server.errors import ApiError, bad_request
from lango.server.schemas import client_state
from lango.sessions import SessionInfo

Patch = dict[str, Any]
"""An operation of a JSON patch (RFC 6902)."""

_NOT_THE_CLIENTS = ("app:", "temp:")
_MAX_VALUES = 10_000
_MAX_CHARACTERS = 1_000_000


def read_client_state(state: Any) -> Mapping[str, Any]:
    """Return the state that a client sent. Raise `ApiError` if it is no object, too large, or not the client's."""
    if state is None:
        return {}
    if not isinstance(state, dict):
        raise bad_request("state: must be an object")
    members = cast("dict[str, Any]", state)
    _check_size(members)
    if wrong := sorted(name for name in members if name.startswith(_NOT_THE_CLIENTS)):
        raise bad_request(f"state: clients cannot set app: and temp: keys: {', '.join(wrong)}")
    return members


def _check_size(state: dict[str, Any]) -> None:
    """Raise `ApiError` for a state that is too large to be sent, compared and stored with every run."""
    values, characters, rest = 0, 0, [cast("Any", state)]
    while rest:
        value = rest.pop()
        values += 1
        if isinstance(value, str):
            characters += len(value)
        elif isinstance(value, dict):
            members = cast("dict[str, Any]", value)
            characters += sum(map(len, members))
            rest += members.values()
        elif isinstance(value, list):
            rest += cast("list[Any]", value)
        if values + len(rest) > _MAX_VALUES or characters > _MAX_CHARACTERS:
            limits = f"at most {_MAX_VALUES:,} values and {_MAX_CHARACTERS:,} characters"
            raise ApiError(413, "TooLarge", f"state: {limits}; keep large data in artifacts")


def changed_keys(sent: Mapping[str, Any], session: SessionInfo | None) -> dict[str, Any]:
    """Return what a client's state changes in a session, or in a new one (None)."""
    known = client_state(session) if session else {}
    return {name: value for name, value in sent.items() if name not in known or not _equal(known[name], value)}


async def store_state(user: AgentUser, session: SessionInfo | None, state_delta: Mapping[str, Any]) -> None:
    """Store what a client changed in the state of a session that waits for its answer.

    A new session waits for nothing: the answer itself is refused.
    """
    if session and state_delta:
        await user.sessions.change_state(session.name.id, state_delta, user_id=user.id, with_answer=True)


def json_patch(before: Any, after: Any, path: str = "") -> Iterator[Patch]:
    """Yield the operations that turn one value into another. A list that differs is replaced."""
    if not (isinstance(before, dict) and isinstance(after, dict)):
        if not _equal(before, after):
            yield {"op": "replace", "path": path, "value": after}
        return
    old, new = cast("dict[str, Any]", before), cast("dict[str, Any]", after)
    for name in old.keys() - new.keys():
        yield {"op": "remove", "path": f"{path}/{_escaped(name)}"}
    for name, value in new.items():
        if name in old:
            yield from json_patch(old[name], value, f"{path}/{_escaped(name)}")
        else:
            yield {"op": "add", "path": f"{path}/{_escaped(name)}", "value": value}


def _escaped(name: str) -> str:
    return name.replace("~", "~0").replace("/", "~1")


def _equal(one: Any, other: Any) -> bool:
    """Whether two JSON values are equal: `true` is not 1."""
    if isinstance(one, dict) and isinstance(other, dict):
        left, right = cast("dict[str, Any]", one), cast("dict[str, Any]", other)
        return left.keys() == right.keys() and all(_equal(value, right[name]) for name, value in left.items())
    if isinstance(one, list) and isinstance(other, list):
        items, others = cast("list[Any]", one), cast("list[Any]", other)
        return len(items) == len(others) and all(map(_equal, items, others))
    return one == other and isinstance(one, bool) == isinstance(other, bool)
