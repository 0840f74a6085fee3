"""Read what the turns of a session used, or of all sessions by day, and which messages the next request would keep.

Model calls are measured by `lango.adk.turn.model_calls`; usage is stored by `lango.store.turns.turn_usage`.
"""

from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import replace

from lango.config import Settings
from lango.errors import BudgetTooSmall
from lango.events import Usage
from lango.history import (
    DEFAULT_BUDGET_TOKENS,
    Limit,
    WindowRules,
    count_tokens,
    describe_limit,
    kept_tokens,
    load_limit,
    messages_to_load,
)
from lango.memory import quote, thresholds_for
from lango.messages import Message
from lango.runtime.trace.prices import Prices, cost_usd
from lango.sessions import SessionId, SessionInfo, StoredEvent
from lango.store import Store
from lango.store.engine.database import Operation
from lango.store.memory.observations import SessionMemory, read_spent, read_window_with_memory
from lango.store.sessions.lineage import live_ranges
from lango.store.sessions.sessions import get_session
from lango.store.sessions.window import read_window
from lango.store.turns.turn_usage import (
    NEWEST_TURN,
    ModelCall,
    ModelUsage,
    Resumption,
    TurnCount,
    TurnUsage,
    read_live,
    read_totals,
    read_turns,
    sum_by_day,
)
from lango.threads import run_in_thread

__all__ = ["DEFAULT_TURNS", "ModelCall", "Resumption", "SessionUsage", "TurnUsage", "Window", "window_rules_for"]

DEFAULT_TURNS = 100


class Window(Struct, frozen=True):
    """How many messages the next request would keep, and how many it would leave out."""

    first_seq: int | None
    """The first message from which on all are kept, or null if none is kept."""
    messages: int
    tokens: int
    left_out_messages: int
    left_out_tokens: int
    observed_seq: int = 0
    """The last message that the notes of the memory cover, or 0."""
    memory_tokens: int = 0
    """Tokens of the memory that the request quotes."""
    limit: Limit | None = None
    """The limit that cuts the window, or None if all messages are kept or quoted as notes."""
    reason: str = ""
    """Says which limit cuts the window, and how to change it."""


class SessionUsage(Struct, frozen=True):
    """The usage of a session: its newest turns, the window, and the sum of all turns."""

    rules: WindowRules
    window: Window
    turns: Sequence[TurnUsage]
    before: int | None
    """The value of `before` for the next older page, or None if there are no older turns."""
    all_turns: int
    total: Usage
    memory: Usage = Usage()
    """What the observer used, which is not part of the turns; `model_calls` counts its batches."""


def window_rules_for(settings: Settings) -> WindowRules:
    """Return the configured limits of a request; a small local model may limit it further."""
    history = settings.history
    budget = history.max_message_token_budget or DEFAULT_BUDGET_TOKENS
    max_messages = None if settings.memory.enabled else history.max_messages
    return WindowRules(
        budget,
        max_messages,
        history.max_turns,
        max_loaded=messages_to_load(max_messages),
        with_memory=settings.memory.enabled,
        with_facts=settings.memory.enabled and settings.memory.user_facts,
        notes_tokens=thresholds_for(settings.memory, budget).notes_tokens if settings.memory.enabled else None,
    )


def read_usage(
    name: SessionId, rules: WindowRules, *, before: int | None = None, limit: int = DEFAULT_TURNS
) -> Operation[SessionUsage]:
    """Read the usage of a session, with its newest turns, or the newest before a turn. Raise `SessionNotFound`."""
    session = yield from get_session(name)
    kept_window = yield from _window(session, rules)
    rows = yield from read_turns(session, NEWEST_TURN if before is None else before, limit + 1)
    all_turns, total = yield from read_totals(session.key)
    batches, input_tokens, output_tokens = yield from read_spent(session)
    page = rows[-limit:]
    return SessionUsage(
        rules=rules,
        window=kept_window,
        turns=page,
        before=page[0].turn if len(rows) > limit else None,
        all_turns=all_turns,
        total=total,
        memory=Usage(int(input_tokens), int(output_tokens), model_calls=int(batches)),
    )


def _window(session: SessionInfo, rules: WindowRules) -> Operation[Window]:
    """Compute the window of the next request, with an empty user message in place of the coming one."""
    live_messages, live_tokens = yield from read_live(session)
    stored, memory = yield from _load_window(session, rules)
    quoted = quote(memory, rules.room_tokens // 2)
    quoted_tokens = count_tokens(Message("user", quoted)) if quoted else 0
    shown = [(row.seq, row.message, row.tokens) for row in stored if row.message and row.message.role != "event"]
    next_message = Message("user")
    messages = [*(message for _, message, _ in shown), next_message]
    tokens = [*(tokens for _, _, tokens in shown), count_tokens(next_message)]
    try:
        kept, limit = kept_tokens(messages, tokens, rules, reserved_tokens=quoted_tokens)
    except BudgetTooSmall:
        kept, limit = {}, "budget"
    if limit is None and _is_cut_by_load(session, stored, memory.floor_seq):
        limit = load_limit(len(stored), rules.max_loaded)
    kept.pop(len(shown), None)
    first = len(shown)
    while first - 1 in kept:
        first -= 1
    return Window(
        first_seq=shown[first][0] if first < len(shown) else None,
        messages=len(kept),
        tokens=sum(kept.values()),
        left_out_messages=max(0, live_messages - len(kept)),
        left_out_tokens=max(0, live_tokens - sum(kept.values())),
        observed_seq=memory.observed_seq,
        memory_tokens=quoted_tokens,
        limit=limit,
        reason=describe_limit(limit, rules) if limit else "",
    )


def _is_cut_by_load(session: SessionInfo, stored: Sequence[StoredEvent], first_seq: int) -> bool:
    """Whether messages from `first_seq` on, before which all are quoted as notes, were not loaded."""
    ranges = live_ranges(session.last_seq, session.rewinds)
    in_all = sum(max(0, last - max(first, first_seq) + 1) for first, last in ranges)
    return in_all > sum(1 for row in stored if row.seq >= first_seq)


def _load_window(session: SessionInfo, rules: WindowRules) -> Operation[tuple[list[StoredEvent], SessionMemory]]:
    """Read the messages that the session service would load for a request."""
    budget = min(rules.room_tokens, rules.budget_tokens)
    if rules.with_memory:
        found = yield from read_window_with_memory(
            session.name, budget, with_facts=rules.with_facts, notes_tokens=rules.notes_tokens
        )
        return found[1:] if found else ([], SessionMemory())
    return (yield from read_window(session, budget, rules.max_loaded)), SessionMemory()


# -- of all sessions, by day -------------------------------------------------------------------------------------------


class UsageByDay(Struct, frozen=True):
    """The usage of the turns since a time, by day."""

    models: Sequence[ModelUsage]
    turns: Sequence[TurnCount]


async def usage_by_day(store: Store, app: str, user_id: str | None, since: float, prices: Prices) -> UsageByDay:
    """Sum the turns of a user, or of all users, since a time; the database sums them."""
    turns, models = await store.read(sum_by_day, store.dialect, app, user_id, since)
    priced = await run_in_thread(lambda: [replace(one, cost_usd=_cost(one, prices)) for one in models])
    return UsageByDay(priced, turns)


def _cost(one: ModelUsage, prices: Prices) -> float | None:
    usage = {one.model: Usage(one.input_tokens, one.output_tokens, one.cached_tokens)}
    return cost_usd(usage, prices) if one.model else None
