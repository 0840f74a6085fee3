"""Number the events that clients read: the turn times a million, plus a count.

So ids grow within a session.
"""

IDS_PER_TURN = 1_000_000


def event_id(turn: int, number: int) -> int:
    """Return the id of an event by its number within its turn, from 1 on."""
    return turn * IDS_PER_TURN + number


def number_of_event(event_id: int) -> int:
    """Return the number of an event within its turn."""
    return event_id % IDS_PER_TURN


def turn_of_event(event_id: int) -> int:
    """Return the turn that an event belongs to."""
    return event_id // IDS_PER_TURN


def id_range(turn: int) -> tuple[int, int]:
    """Return the bounds of a turn's ids; both are exclusive."""
    return event_id(turn, 0), event_id(turn + 1, 0)
