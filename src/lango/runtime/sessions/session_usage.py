"""Read what each turn of a session used, and which messages the next request would keep.

Model calls are measured by `lango.adk.turn.model_calls`; usage is stored by `lango.store.turns.turn_usage`.
"""

from collections.abc import Sequence

from msgspec import Struct

from lango.config import Settings
from lango.errors import BudgetTooSmall
from lango.events import Usage
from lango.history import DEFAULT_BUDGET_TOKENS, WindowRules, count_tokens, kept_tokens, messages_to_load
from lango.memory import quote, thresholds_for
from lango.messages import Message
from lango.sessions import SessionId, SessionRecord, StoredEvent
from lango.store import Store
from lango.store.engine.database import Operation
from lango.store.memory.observations import SessionMemory, read_spent, read_window_with_memory
from lango.store.sessions.sessions import get_session
from lango.store.sessions.window import read_window
from lango.store.turns import turn_usage

DEFAULT_TURNS = 100
_MAX_CACHED_SESSIONS = 500


class Window(Struct, frozen=True):
    """How many messages the next request would keep, and how many it would leave out."""

    first_seq: int | None
    """The first message from which on all are kept; null: none is kept."""
    messages: int
    tokens: int
    left_out_messages: int
    left_out_tokens: int
    observed_seq: int = 0
    """The last message that the notes of the memory cover; 0: none."""
    memory_tokens: int = 0
    """Tokens of the memory that the request quotes."""


class SessionUsage(Struct, frozen=True):
    """The usage of a session: its newest turns, the window, and the sum of all turns."""

    rules: WindowRules
    window: Window
    turns: Sequence[turn_usage.TurnUsage]
    before: int | None
    """The value of `before` for the next older page; None: there are no older turns."""
    all_turns: int
    total: Usage
    memory: Usage = Usage()
    """What the observer used, which is not part of the turns; `model_calls` counts its batches."""


def window_rules_for(settings: Settings) -> WindowRules:
    """Return the configured limits of a request; a small local model may limit it further."""
    history = settings.history
    budget = history.max_message_token_budget or DEFAULT_BUDGET_TOKENS
    return WindowRules(
        budget,
        None if settings.memory.enabled else history.max_messages,
        history.max_turns,
        with_memory=settings.memory.enabled,
        with_facts=settings.memory.enabled and settings.memory.user_facts,
        notes_tokens=thresholds_for(settings.memory, budget).notes_tokens if settings.memory.enabled else None,
    )


class TotalsCache:
    """Caches the sums over the finished turns of sessions, which do not change."""

    def __init__(self) -> None:
        self._totals: dict[int, turn_usage.Totals] = {}

    def get(self, session: SessionRecord) -> turn_usage.Totals | None:
        """Return the cached sum of a session, if there is one."""
        return self._totals.get(session.key)

    def put(self, session: SessionRecord, totals: turn_usage.Totals) -> None:
        """Cache the sum of a session, in place of the one that was stored longest ago."""
        self._totals.pop(session.key, None)
        self._totals[session.key] = totals
        if len(self._totals) > _MAX_CACHED_SESSIONS:
            del self._totals[next(iter(self._totals))]


async def session_usage(
    store: Store,
    name: SessionId,
    rules: WindowRules,
    *,
    before: int | None = None,
    limit: int = DEFAULT_TURNS,
    cache: TotalsCache | None = None,
) -> SessionUsage:
    """Read the usage of a session, with its newest turns, or the newest before a turn. Raise `SessionNotFound`.

    Pass the same `cache` to each call, so that a long session is not summed again each time.
    """
    totals_cache = cache or TotalsCache()
    session, totals, view = await store.read(_read, name, rules, before, limit, totals_cache)
    totals_cache.put(session, totals)
    return view


def _read(
    name: SessionId, rules: WindowRules, before: int | None, limit: int, known: TotalsCache
) -> Operation[tuple[SessionRecord, turn_usage.Totals, SessionUsage]]:
    session = yield from get_session(name)
    kept_window = yield from _window(session, rules)
    rows = yield from turn_usage.read_turns(session, turn_usage.NEWEST_TURN if before is None else before, limit + 1)
    everything, over = yield from turn_usage.read_totals(session, known.get(session))
    batches, input_tokens, output_tokens = yield from read_spent(session)
    page = rows[-limit:]
    view = SessionUsage(
        rules=rules,
        window=kept_window,
        turns=page,
        before=page[0].turn if len(rows) > limit else None,
        all_turns=everything.count,
        total=everything.spent,
        memory=Usage(int(input_tokens), int(output_tokens), model_calls=int(batches)),
    )
    return session, over, view


def _window(session: SessionRecord, rules: WindowRules) -> Operation[Window]:
    """Compute the window of the next request, with an empty user message in place of the coming one."""
    live = yield from turn_usage.read_live(session)
    stored, recalled = yield from _load_window(session, rules)
    quoted = quote(recalled, rules.room_tokens // 2)
    memory = count_tokens(Message("user", quoted)) if quoted else 0
    shown = [(row.seq, row.message, row.tokens) for row in stored if row.message and row.message.role != "event"]
    next_message = Message("user")
    messages = [*(message for _, message, _ in shown), next_message]
    tokens = [*(tokens for _, _, tokens in shown), count_tokens(next_message)]
    try:
        kept = kept_tokens(messages, tokens, rules, reserved_tokens=memory)
    except BudgetTooSmall:
        kept = {}
    kept.pop(len(shown), None)
    first = len(shown)
    while first - 1 in kept:
        first -= 1
    return Window(
        first_seq=shown[first][0] if first < len(shown) else None,
        messages=len(kept),
        tokens=sum(kept.values()),
        left_out_messages=max(0, live.messages - len(kept)),
        left_out_tokens=max(0, live.tokens - sum(kept.values())),
        observed_seq=recalled.observed_seq,
        memory_tokens=memory,
    )


def _load_window(session: SessionRecord, rules: WindowRules) -> Operation[tuple[list[StoredEvent], SessionMemory]]:
    """Read the messages that the session service would load for a request."""
    budget = min(rules.room_tokens, rules.budget_tokens)
    if rules.with_memory:
        found = yield from read_window_with_memory(
            session.name, budget, with_facts=rules.with_facts, notes_tokens=rules.notes_tokens
        )
        return found[1:] if found else ([], SessionMemory())
    return (yield from read_window(session, budget, messages_to_load(rules.max_messages))), SessionMemory()
