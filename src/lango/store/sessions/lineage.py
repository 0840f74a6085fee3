"""Find where the rows of a session are stored, and which of them rewinds have removed.

A session's own rows have its key; the rows that a fork shares have the keys of its ancestors.
"""

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence

from lango.sessions import SessionInfo, SharedRange
from lango.store.codec.rows import rewinds_from_json
from lango.store.engine.database import Operation, Row

RowRange = tuple[int, int, int]
"""The session key of some rows, and the first and the last message among them."""

_LINEAGE = """
SELECT session_key, first_seq, last_seq, last_revision, last_epoch, source_key FROM session_lineage
WHERE session_key = $1 ORDER BY ordinal
"""
_ALL_LINEAGES = """
SELECT session_key, first_seq, last_seq, last_revision, last_epoch, source_key FROM session_lineage
ORDER BY session_key, ordinal
"""

_REWINDS = "SELECT last_seq, rewinds FROM sessions WHERE session_key = $1"
_TOTAL_AT = "SELECT total_tokens FROM messages WHERE session_key = $1 AND seq = $2"
Range = tuple[int, int]


def read_lineages(keys: Sequence[int]) -> Operation[dict[int, tuple[SharedRange, ...]]]:
    """Read the lineages of some forks, each with its oldest ancestor first."""
    found: dict[int, tuple[SharedRange, ...]] = {}
    if len(keys) > 50:
        rows: list[Row] = yield _ALL_LINEAGES, ()
    else:
        rows = []
        for key in keys:
            rows += yield _LINEAGE, (key,)
    for key, *shared in rows:
        found[key] = (*found.get(key, ()), SharedRange(*shared))
    return found


def row_ranges(session: SessionInfo, first: int, last: int) -> Iterator[RowRange]:
    """Split a range of messages by the sessions that hold its rows, the newest first."""
    start = session.lineage[-1].last_seq + 1 if session.lineage else 1
    if last >= start:
        yield session.key, max(first, start), last
    for shared in reversed(session.lineage):
        begin, end = max(first, shared.first_seq), min(last, shared.last_seq)
        if begin <= end:
            yield shared.source_key, begin, end


def all_row_ranges(session: SessionInfo, ranges: Iterable[tuple[int, int]]) -> list[RowRange]:
    """Split several ranges, the newest first."""
    return [place for first, last in ranges for place in row_ranges(session, first, last) if first <= last]


def key_of_message(session: SessionInfo, seq: int) -> int:
    """Return the key of the session that holds a message's row."""
    return next(
        (shared.source_key for shared in session.lineage if shared.first_seq <= seq <= shared.last_seq), session.key
    )


def total_tokens_at(session: SessionInfo, seq: int) -> Operation[int]:
    """Return the tokens of a session up to a message; 0 before the first message."""
    if seq == session.last_seq:
        return session.total_tokens
    rows = yield _TOTAL_AT, (key_of_message(session, seq), seq)
    return rows[0][0] if rows else 0


def read_rewinds(key: int) -> Operation[tuple[Range, ...]]:
    """Read the rewinds of a session, the oldest first; empty if the session was deleted."""
    rows = yield _REWINDS, (key,)
    return rewinds_from_json(rows[0][1]) if rows else ()


def live_ranges(last_seq: int, rewinds: Sequence[Range]) -> list[Range]:
    """Return the ranges of messages that no rewind removed, the newest first.

    As ADK does it: from the end backwards, a rewind jumps to the start of the invocation that it names, and rewinds in
    between have no effect.
    """
    ranges: list[Range] = []
    end = last_seq
    for at, first in reversed(rewinds):
        if at > end:
            continue
        if at < end:
            ranges.append((at + 1, end))
        end = first - 1
    if end >= 1:
        ranges.append((1, end))
    return ranges


def read_live_ranges(key: int) -> Operation[list[Range]]:
    """Read the ranges of a session's messages that no rewind removed, the newest first."""
    [[last_seq, rewinds]] = yield _REWINDS, (key,)
    return live_ranges(last_seq, rewinds_from_json(rewinds))


def is_live(seq: int, ranges: Sequence[Range]) -> bool:
    """Whether a message lies in one of the ranges of `live_ranges`."""
    ending_later = bisect_right(ranges, -seq, key=lambda range_: -range_[1])
    return ending_later > 0 and ranges[ending_later - 1][0] <= seq
