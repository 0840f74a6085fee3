"""The newest part of a history that fits a token budget.

What is kept or cut is a unit: a message, or a call turn with all its results. The current user message and the call
turn that the model has to go on from always stay; if that alone is too much, its results are clipped.
"""

import logging
from collections.abc import Iterable, Sequence
from itertools import pairwise, takewhile

from msgspec import Struct

from lango.errors import BudgetTooSmall
from lango.history.clip import clip_to_tokens
from lango.history.repair import CONTEXT_AUTHOR
from lango.history.tokens import count_tokens
from lango.messages import Message

DEFAULT_BUDGET_TOKENS = 32_000
DEFAULT_MAX_MESSAGES = 100
"""How many messages a request holds at most while observational memory is off."""

_log = logging.getLogger("lango.history")


class WindowRules(Struct, frozen=True):
    """What bounds the messages of a request."""

    budget_tokens: int = DEFAULT_BUDGET_TOKENS
    """As the model counts them."""
    max_messages: int | None = DEFAULT_MAX_MESSAGES
    max_turns: int | None = None
    factor: float = 1.0
    """How many of the model's tokens one of ours is."""
    with_memory: bool = False
    """What was observed is quoted, and not sent any more."""
    with_facts: bool = False
    """What is known of the user is quoted, too."""

    @property
    def room_tokens(self) -> int:
        """The budget in tokens of ours."""
        return max(1, int(self.budget_tokens / self.factor))


def fit_to_budget(
    messages: Iterable[Message],
    budget_tokens: int | None = None,
    *,
    max_messages: int | None = None,
    max_turns: int | None = None,
    reserved_tokens: int = 0,
    not_loaded: int = 0,
) -> list[Message]:
    """Return the newest messages that fit the budget; None or 0 is 32,000 tokens.

    `reserved_tokens` is what the system prompt and the tool declarations take of the budget. `max_messages` and
    `max_turns` (a turn begins with a message of the user) bound the window besides; None or 0 is no bound. Leading
    system messages and the current user message stay in any case. Whatever is left out or clipped is logged in one
    warning, and with it the `not_loaded` messages before these, which stayed in the store. Raises `BudgetTooSmall`
    where even the least does not fit.
    """
    budget = (budget_tokens or DEFAULT_BUDGET_TOKENS) - reserved_tokens
    window = _fitted(list(messages), budget, max_messages, max_turns)
    left_out = len(window.history) - len(window.kept) + not_loaded
    if left_out or window.clipped_tokens:
        _log.warning(
            "the history is larger than its budget: left out %d of %d messages, clipped %d tokens of results",
            left_out,
            len(window.history) + not_loaded,
            window.clipped_tokens,
        )
    return [window.kept[at] for at in sorted(window.kept)]


def kept_tokens(
    messages: Iterable[Message], tokens: Sequence[int], rules: WindowRules, *, reserved_tokens: int = 0
) -> dict[int, int]:
    """Return the places of the messages that `fit_to_budget` would keep, each with the tokens that are sent of it.

    `tokens` is what the messages cost, where that is known already. Nothing is logged.
    """
    window = _fitted(list(messages), rules.room_tokens - reserved_tokens, rules.max_messages, rules.max_turns, tokens)
    return {at: window.cost({at: window.kept[at]}) for at in sorted(window.kept)}


def _fitted(
    messages: list[Message],
    budget_tokens: int,
    max_messages: int | None,
    max_turns: int | None,
    tokens: Sequence[int] | None = None,
) -> "_Window":
    window = _Window(messages, budget_tokens, tokens)
    window.pin()
    window.fill(_first_of_turns(messages, max_turns or 0), max_messages or len(messages))
    window.mend_start()
    return window


def _spoken(messages: Sequence[Message]) -> list[int]:
    """Return the places of what the user said, quoted data aside."""
    return [at for at, m in enumerate(messages) if m.role == "user" and m.author != CONTEXT_AUTHOR]


def current_user_message(messages: Sequence[Message]) -> int | None:
    """Return the place of the message that the model is to answer: the user's last; None where there is none."""
    users = _spoken(messages) or [at for at, message in enumerate(messages) if message.role == "user"]
    return users[-1] if users else None


def _first_of_turns(messages: Sequence[Message], max_turns: int) -> int:
    """Return where the newest `max_turns` turns begin."""
    starts = _spoken(messages)
    return starts[-max_turns] if 0 < max_turns <= len(starts) else 0


class _Unit(Struct, frozen=True):
    """The messages from `start` to before `stop`, which stay or go together."""

    start: int
    stop: int
    leads: bool
    """Whether a window may start with it: no result without its call, no call without its results."""
    calls: bool


def _units(messages: Sequence[Message]) -> list[_Unit]:
    """Split the history at every place where no result is parted from its call."""
    last_of, unanswered = _reach(messages)
    borders, reach = [0], 0
    for at in range(1, len(messages)):
        reach = max(reach, last_of[at - 1])
        if at > reach:
            borders.append(at)
    borders.append(len(messages))
    return [
        _Unit(
            start,
            stop,
            leads=messages[start].role != "tool" and not any(unanswered[start:stop]),
            calls=any(_is_call(message) for message in messages[start:stop]),
        )
        for start, stop in pairwise(borders)
    ]


def _is_call(message: Message) -> bool:
    return message.role == "assistant" and any(call.output is None for call in message.tool_calls)


def _reach(messages: Sequence[Message]) -> tuple[list[int], list[list[str]]]:
    """Return for each message the place of the last result of its calls, and the ids of its calls without one."""
    last_of = list(range(len(messages)))
    unanswered: list[list[str]] = [[] for _ in messages]
    caller: dict[str, int] = {}
    turn: int | None = None  # the call turn whose tool messages are being read
    for at, message in enumerate(messages):
        if _is_call(message):
            turn = at
            unanswered[at] = [call.id for call in message.tool_calls if call.output is None]
            caller.update(dict.fromkeys(unanswered[at], at))
        elif message.role != "tool":
            turn = None
        else:
            for owner, call_id in _answered(message, caller, turn, unanswered):
                last_of[owner] = at
                if call_id in unanswered[owner]:
                    unanswered[owner].remove(call_id)
    return last_of, unanswered


def _answered(
    message: Message, caller: dict[str, int], turn: int | None, unanswered: list[list[str]]
) -> Sequence[tuple[int, str | None]]:
    """Return which calls (turn and id) a tool message answers; it stays with the turn it follows in any case."""
    found = [(caller[call.id], call.id) for call in message.tool_calls if call.id in caller]
    if turn is not None and not found:
        # A legacy result has no id: it answers the next call of the turn it follows.
        legacy = unanswered[turn][:1] if not message.tool_calls else []
        return [(turn, legacy[0] if legacy else None)]
    return found


class _Window:
    """The messages kept so far, by their place, and the room that is left."""

    def __init__(self, history: list[Message], budget_tokens: int, tokens: Sequence[int] | None = None) -> None:
        self.history = history
        self._tokens = tokens
        self.budget_tokens = budget_tokens
        self.room = budget_tokens
        self.kept: dict[int, Message] = {}
        self.clipped_tokens = 0
        self._units = _units(history) if history else []
        self._pinned: set[int] = set()

    def pin(self) -> None:
        """Keep what must be sent: leading system messages, the current user message, the unit to be answered."""
        places = [at for at, _ in takewhile(lambda one: one[1].role == "system", enumerate(self.history))]
        current = current_user_message(self.history)
        if current is not None and current not in places:
            places.append(current)
        self._keep({at: self.history[at] for at in places})
        last = self._last_unit()
        messages = {} if last is None else self._missing(last)
        clipped = self._clip(messages) if self.cost(messages) > self.room else messages
        if self.room < 0 or clipped is None:
            least = self.cost({**self.kept, **messages})
            raise BudgetTooSmall(
                f"the messages that must be sent take {least} tokens, the budget leaves {self.budget_tokens}: "
                "raise the budget, or shorten the message, the system prompt or the tools"
            )
        self._keep(clipped)
        self._pinned = set(self.kept)

    def _last_unit(self) -> _Unit | None:
        """Return what the model has to go on from: a last call turn with its results, or a last user message."""
        if not self._units:
            return None
        last = self._units[-1]
        return last if (last.calls and last.leads) or self.history[-1].role == "user" else None

    def fill(self, first: int, max_messages: int) -> None:
        """Keep units, newest first, back to the message `first`, until one does not fit."""
        for unit in reversed(self._units):
            messages = self._missing(unit)
            if not messages:
                continue
            if unit.start < first or len(self.kept) + len(messages) > max_messages:
                return
            if self.cost(messages) > self.room:
                clipped = self._clip(messages) if self._has_giant(messages) else None
                if clipped is None:
                    return
                messages = clipped
            self._keep(messages)

    def mend_start(self) -> None:
        """Where something was cut, drop what a window must not start with."""
        if len(self.kept) == len(self.history):
            return
        for unit in self._units:
            free = [at for at in range(unit.start, unit.stop) if at in self.kept and at not in self._pinned]
            if self.history[unit.start].role == "system":
                continue  # a window with a system message before it starts after that
            if free and (unit.leads or not self._at_edge(unit)):
                return
            for at in free:
                del self.kept[at]

    def _at_edge(self, unit: _Unit) -> bool:
        """Whether the cut is just before the unit, and nothing is kept before it that makes it valid there."""
        before = [at for at in range(unit.start) if self.history[at].role != "system"]
        if before and before[-1] in self.kept:
            return False
        # A call that still waits may follow the user's message, with others cut between them; a result may not.
        after_user = any(at < unit.start and self.history[at].role == "user" for at in self.kept)
        return self.history[unit.start].role == "tool" or not after_user

    def _missing(self, unit: _Unit) -> dict[int, Message]:
        return {at: self.history[at] for at in range(unit.start, unit.stop) if at not in self.kept}

    def _keep(self, messages: dict[int, Message]) -> None:
        self.kept.update(messages)
        self.room -= self.cost(messages)

    def cost(self, messages: dict[int, Message]) -> int:
        """Count the tokens of some messages; those that are as they were may have been counted before."""
        if self._tokens is None:
            return count_tokens(messages.values())
        return sum(
            self._tokens[at] if message is self.history[at] else count_tokens(message)
            for at, message in messages.items()
        )

    def _has_giant(self, messages: dict[int, Message]) -> bool:
        """Whether one result alone is larger than the whole budget: such a one is clipped, wherever it stands."""
        return any(
            message.role == "tool" and count_tokens(message) > self.budget_tokens for message in messages.values()
        )

    def _clip(self, messages: dict[int, Message]) -> dict[int, Message] | None:
        """Return the messages with clipped results in half of the room, so that one result leaves place for others."""
        values = list(messages.values())
        clipped = clip_to_tokens(values, self.room // 2) or clip_to_tokens(values, self.room)
        if clipped is None:
            return None
        self.clipped_tokens += count_tokens(values) - count_tokens(clipped)
        return dict(zip(messages, clipped, strict=True))
