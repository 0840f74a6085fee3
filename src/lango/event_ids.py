"""Number the events that clients read: the turn times a million, plus a count.

So ids grow within a session. Events that are rebuilt from messages have higher numbers than those of a running turn.
"""

IDS_PER_TURN = 1_000_000
FIRST_REBUILT = 900_000


def event_id(turn: int, number: int) -> int:
    """Return the id of an event by its number within its turn, from 1 on."""
    return turn * IDS_PER_TURN + number


def rebuilt_id(turn: int, number: int) -> int:
    """Return the id of a rebuilt event by its number among these, from 0 on."""
    return event_id(turn, FIRST_REBUILT + number)


def number_of_event(event_id: int) -> int:
    """Return the number of an event within its turn."""
    return event_id % IDS_PER_TURN


def turn_of_event(event_id: int) -> int:
    """Return the turn that an event belongs to."""
    return event_id // IDS_PER_TURN


def id_range(turn: int) -> tuple[int, int]:
    """Return the bounds of a turn's ids; both are exclusive."""
    return event_id(turn, 0), event_id(turn + 1, 0)


def is_rebuilt(event_id: int) -> bool:
    """Whether an id is that of a rebuilt event."""
    return event_id % IDS_PER_TURN >= FIRST_REBUILT


def is_known_only_to_log(turn: int, id_: int) -> bool:
    """Whether an id lies between the first event of a turn and the rebuilt ones: only the event log knows it."""
    return event_id(turn, 1) < id_ < rebuilt_id(turn, 0)
