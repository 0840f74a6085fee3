"""What a tool or a node of a workflow returns to wait: for a time, or for an event of another system.

The turn ends and no process waits. When the time has come, or the event, any process continues the conversation.
"""

import json
import math
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Literal, cast

from msgspec import Struct, ValidationError, to_builtins

from lango.errors import TimedOut, UsageError
from lango.json_values import convert

SLEEP_CALL = "lango_sleep"
EVENT_CALL = "lango_wait_for_event"
"""The names of the calls by which nodes wait."""
DEFAULT_WINDOW_S = 60.0
EVENT_NAME = r"[A-Za-z0-9][A-Za-z0-9._:-]{0,199}"
"""A pattern of the names of events: they are a segment of an address."""
MAX_SECONDS = 100 * 366 * 86_400.0
_MAX_MATCHES = 50


class Sleep(Struct, frozen=True, kw_only=True):
    """Wait for a time: `seconds` from when the wait is stored, or until `at`, in seconds since 1970."""

    seconds: float | None = None
    at: float | None = None
    reason: str = ""
    id: str = ""

    kind = "timer"
    call = SLEEP_CALL
    event = None

    @property
    def arguments(self) -> dict[str, Any]:
        """The arguments of the call by which a node waits."""
        return {name: value for name, value in to_builtins(self).items() if value not in (None, "") and name != "id"}


class AwaitedEvent(Struct, frozen=True, kw_only=True):
    """Wait for an event whose data has the values of `match`, for `seconds` at most, or without limit if None."""

    event: str
    match: Mapping[str, Any] = {}
    seconds: float | None = None
    window_s: float = DEFAULT_WINDOW_S
    """An event that came at most this many seconds before the wait was stored counts, too."""
    reason: str = ""
    id: str = ""

    kind = "event"
    call = EVENT_CALL
    at = None

    @property
    def arguments(self) -> dict[str, Any]:
        """The arguments of the call by which a node waits."""
        shown = to_builtins(self).items()
        return {name: value for name, value in shown if value not in (None, "", {}) and name != "id"}


Pause = Sleep | AwaitedEvent


def sleep(
    duration: float | timedelta | None = None, *, until: datetime | None = None, reason: str = "", id: str = ""
) -> Sleep:
    """Return a pause for a duration (seconds or a `timedelta`) or until a time, for a tool or a node to return.

    ```python
    @node
    async def pause() -> AsyncGenerator[Any, None]:
        yield sleep(timedelta(hours=2), reason="the coffee is being roasted")
    ```

    People read the `reason`. A node that runs again finds the result in `ctx.resume_inputs[id]`.
    """
    if (duration is None) == (until is None):
        raise UsageError("sleep takes a duration or `until`, and not both")
    if until is not None:
        if until.tzinfo is None:
            raise UsageError("`until` has no time zone: use an aware datetime")
        return Sleep(at=until.timestamp(), reason=reason, id=id)
    return Sleep(seconds=_seconds(duration, "the duration"), reason=reason, id=id)


def wait_for_event(
    name: str,
    match: Mapping[str, Any] | None = None,
    timeout: float | timedelta | None = None,
    *,
    window: float | timedelta = DEFAULT_WINDOW_S,
    reason: str = "",
    id: str = "",
) -> AwaitedEvent:
    """Return a pause until an event comes, for a tool or a node to return; see `event_data`.

    ```python
    @node
    async def paid(node_input: dict[str, Any]) -> AsyncGenerator[Any, None]:
        yield wait_for_event("payment", {"order.id": node_input["id"]}, timedelta(days=3))
    ```

    The data of the event must have the values of `match` at these dotted paths. After the `timeout` (seconds or a
    `timedelta`; None: never) the wait ends without an event. An event that came before the wait was stored, at most
    `window` earlier, counts as well.
    """
    check_event_name(name)
    wanted = dict(match or {})
    if len(wanted) > _MAX_MATCHES:
        raise UsageError(f"match has {len(wanted)} values: at most {_MAX_MATCHES} are allowed")
    try:
        json.dumps(wanted, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise UsageError(f"match must be plain JSON values by dotted paths: {error}") from error
    return AwaitedEvent(
        event=name,
        match=wanted,
        seconds=None if timeout is None else _seconds(timeout, "the timeout"),
        window_s=_seconds(window, "the window"),
        reason=reason,
        id=id,
    )


def check_event_name(name: str) -> None:
    """Raise `UsageError` for a text that cannot be the name of an event."""
    if re.fullmatch(EVENT_NAME, name) is None:
        raise UsageError(
            f"{name!r} is not a valid event name: use letters, digits and . _ : -, beginning with a letter or digit"
        )


def event_data(output: Any) -> Any:
    """Return the data of the event that ended a wait, or raise `TimedOut` if none came in time.

    `output` is what follows the wait: the input of the next node, or `ctx.resume_inputs[id]`.
    """
    result: Mapping[str, Any] = cast("Mapping[str, Any]", output) if isinstance(output, Mapping) else {}
    if result.get("timed_out"):
        raise TimedOut(f"no event {result.get('event')!r} came in time")
    return result.get("data", output)


def matches(data: Any, match: Mapping[str, Any]) -> bool:
    """Whether the data of an event has the values of a match: plain equality, by dotted paths."""
    return all(_is_equal(_value_at(data, path.split(".")), wanted) for path, wanted in match.items())


def pause_of_call(name: str, arguments: Mapping[str, Any]) -> Pause | None:
    """Return the pause of a node's call, or None if it is another call."""
    try:
        match name:
            case "lango_sleep":
                return convert(arguments, Sleep)
            case "lango_wait_for_event":
                return convert(arguments, AwaitedEvent)
            case _:
                return None
    except ValidationError:
        return None


def timer_result(by: Literal["time", "person"]) -> dict[str, Any]:
    """Return the result of a call that slept."""
    return {"woken_by": by, "at": datetime.now(UTC).isoformat(timespec="seconds")}


def event_result(event: str, data: Any, sent_at: float) -> dict[str, Any]:
    """Return the result of a call that waited for an event which came."""
    at = datetime.fromtimestamp(sent_at, UTC).isoformat(timespec="milliseconds")
    return {"event": event, "data": data, "at": at}


def timeout_result(event: str) -> dict[str, Any]:
    """Return the result of a call that waited for an event which did not come in time."""
    return {"event": event, "timed_out": True}


_MISSING = object()


def _value_at(data: Any, path: Sequence[str]) -> Any:
    for step in path:
        if isinstance(data, Mapping):
            data = cast("Mapping[str, Any]", data).get(step, _MISSING)
        elif isinstance(data, list) and step.isdigit() and int(step) < len(cast("list[Any]", data)):
            data = cast("list[Any]", data)[int(step)]
        else:
            return _MISSING
    return data


def _is_equal(found: Any, wanted: Any) -> bool:
    return found is not _MISSING and json.dumps(found, sort_keys=True) == json.dumps(wanted, sort_keys=True)


def _seconds(value: float | timedelta | None, what: str) -> float:
    seconds = value.total_seconds() if isinstance(value, timedelta) else value
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 <= seconds <= MAX_SECONDS:
        raise UsageError(f"{what} must be seconds or a timedelta, from 0 to 100 years, not {value!r}")
    if math.isnan(seconds):
        raise UsageError(f"{what} is not a number")
    return float(seconds)
