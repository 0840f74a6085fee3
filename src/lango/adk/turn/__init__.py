"""One run of a turn: what the turn is, its limits, its record, its waits and its output."""
