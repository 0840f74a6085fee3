"""Number the events that clients read: the turn times a million, plus a count."""

IDS_PER_TURN = 1_000_000
FIRST_REBUILT = 900_000
"""No event that is emitted while a turn runs has so high a number within it."""


def turn_of_event(event_id: int) -> int:
    """Return the turn that an event belongs to."""
    return event_id // IDS_PER_TURN


def is_rebuilt(event_id: int) -> bool:
    """Whether an id is that of a rebuilt event."""
    return event_id % IDS_PER_TURN >= FIRST_REBUILT


def is_known_only_to_log(turn: int, event_id: int) -> bool:
    """Whether an id stands between the first event of a turn and those that are rebuilt: only the log knows it."""
    return turn * IDS_PER_TURN + 1 < event_id < turn * IDS_PER_TURN + FIRST_REBUILT
