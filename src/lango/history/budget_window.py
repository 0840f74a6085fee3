"""The newest part of a history that fits a token budget.

What is kept or cut is a unit: a message, or a call turn with all its results. The current user message and the call
turn that the model has to go on from always stay. Before anything is cut, large results are clipped: none takes more
than a quarter of the budget, so that one of them does not push out the conversation before it.
"""

import logging
from collections.abc import Iterable, Sequence
from itertools import pairwise, takewhile

from msgspec import Struct
from msgspec.structs import replace

from lango.errors import BudgetTooSmall
from lango.history.history_repair import CONTEXT_AUTHOR
from lango.history.pairing import pair
from lango.history.token_clipping import clip_results, clip_text, clip_to_tokens
from lango.history.tokens import count_tokens
from lango.messages import Message

DEFAULT_BUDGET_TOKENS = 32_000
DEFAULT_MAX_MESSAGES = 100
"""How many messages a request holds at most while observational memory is off."""
RESULT_SHARE = 4
"""A result takes one of so many parts of the budget at most, where not everything fits."""

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
    clipped_tokens: int = 0,
) -> list[Message]:
    """Return the newest messages that fit the budget; None or 0 is 32,000 tokens.

    `reserved_tokens` is what the system prompt and the tool declarations take of the budget. `max_messages` and
    `max_turns` (a turn begins with a message of the user) bound the window besides; None or 0 is no bound. Leading
    system messages and the current user message stay in any case. Whatever is left out or clipped is logged in one
    warning, and with it what stayed in the store: the `not_loaded` messages before these, and `clipped_tokens` of
    results. Raises `BudgetTooSmall` where even the least does not fit.
    """
    budget = (budget_tokens or DEFAULT_BUDGET_TOKENS) - reserved_tokens
    window = _fit(list(messages), budget, max_messages, max_turns)
    left_out = len(window.history) - len(window.kept) + not_loaded
    clipped_tokens += window.clipped_tokens
    if left_out or clipped_tokens:
        _log.warning(
            "the history is larger than its budget: left out %d of %d messages, clipped %d tokens of results",
            left_out,
            len(window.history) + not_loaded,
            clipped_tokens,
        )
    return [window.kept[at] for at in sorted(window.kept)]


def kept_tokens(
    messages: Iterable[Message], tokens: Sequence[int], rules: WindowRules, *, reserved_tokens: int = 0
) -> dict[int, int]:
    """Return the places of the messages that `fit_to_budget` would keep, each with the tokens that are sent of it.

    `tokens` is what the messages cost, where that is known already. Nothing is logged.
    """
    window = _fit(list(messages), rules.room_tokens - reserved_tokens, rules.max_messages, rules.max_turns, tokens)
    return {at: window.cost({at: window.kept[at]}) for at in sorted(window.kept)}


def _fit(
    messages: list[Message],
    budget_tokens: int,
    max_messages: int | None,
    max_turns: int | None,
    tokens: Sequence[int] | None = None,
) -> "_Window":
    window = _Window(messages, budget_tokens, tokens)
    window.pin()
    window.fill(_first_of_turns(messages, max_turns or 0), max_messages or len(messages))
    window.drop_invalid_start()
    return window


def _user_positions(messages: Sequence[Message]) -> list[int]:
    """Return the places of what the user said, quoted data aside."""
    return [at for at, m in enumerate(messages) if m.role == "user" and m.author != CONTEXT_AUTHOR]


def current_user_message(messages: Sequence[Message]) -> int | None:
    """Return the place of the message that the model is to answer: the user's last; None where there is none."""
    users = _user_positions(messages) or [at for at, message in enumerate(messages) if message.role == "user"]
    return users[-1] if users else None


def _first_of_turns(messages: Sequence[Message], max_turns: int) -> int:
    """Return where the newest `max_turns` turns begin."""
    starts = _user_positions(messages)
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
    last_of, unanswered = _dependencies(messages)
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


def _dependencies(messages: Sequence[Message]) -> tuple[list[int], list[bool]]:
    """Return for each message the last place that must not be parted from it, and whether it has unanswered calls."""
    last_of = list(range(len(messages)))
    unanswered = [False] * len(messages)
    pairing = pair(messages)
    for slot in pairing.slots:
        if slot.result is None:
            unanswered[slot.at] = True
        else:
            first, last = sorted((slot.at, slot.result.at))
            last_of[first] = max(last_of[first], last)
    turn: int | None = None  # the call turn whose tool messages are being read: they stay with it in any case
    for at, message in enumerate(messages):
        if message.role != "tool":
            turn = at if at in pairing.turns else None
        elif turn is not None:
            last_of[turn] = at
    return last_of, unanswered


def first_valid_start(messages: Sequence[Message]) -> int:
    """Return where a history that was cut before these messages may start: with no result and no unanswered call."""
    return next((unit.start for unit in _units(messages) if unit.leads), len(messages)) if messages else 0


class _Window:
    """The messages kept so far, by their place, and the room that is left."""

    def __init__(self, history: list[Message], budget_tokens: int, tokens: Sequence[int] | None = None) -> None:
        self.history = history
        self._tokens = tokens
        self._counted: dict[int, int] = {}
        self.budget_tokens = budget_tokens
        self.room = budget_tokens
        self.kept: dict[int, Message] = {}
        self._units = _units(history) if history else []
        self._pinned: set[int] = set()
        self._all_fit = self._fits()

    @property
    def clipped_tokens(self) -> int:
        """How much was left out of the results that are kept."""
        return sum(
            self._cost_of(at) - count_tokens(message)
            for at, message in self.kept.items()
            if message is not self.history[at]
        )

    def _fits(self) -> bool:
        """Whether all messages fit; those that are counted last are the oldest, and may not be counted at all."""
        left = self.budget_tokens
        for at in reversed(range(len(self.history))):
            left -= self._cost_of(at)
            if left < 0:
                return False
        return True

    def _clipped_to_share(self, at: int) -> Message:
        """Return a message as it may be sent: where not everything fits, with no result above its share.

        What is quoted as data is one, too: the result of another agent's tool comes as text.
        """
        message = self.history[at]
        if self._all_fit or self._cost_of(at) <= self._share:
            return message
        if message.role == "user" and message.author == CONTEXT_AUTHOR:
            return replace(message, content=clip_text(message.content, self._share))
        return clip_results(message, self._share)

    @property
    def _share(self) -> int:
        return self.budget_tokens // RESULT_SHARE

    def pin(self) -> None:
        """Keep what must be sent: leading system messages, the current user message, the unit to be answered."""
        places = [at for at, _ in takewhile(lambda item: item[1].role == "system", enumerate(self.history))]
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
                # a small unit that does not fit ends the window, which is nearly full then
                clipped = self._clip(messages) if self.cost(messages) > self._share else None
                if clipped is None:
                    return
                messages = clipped
            self._keep(messages)

    def drop_invalid_start(self) -> None:
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
        return {at: self._clipped_to_share(at) for at in range(unit.start, unit.stop) if at not in self.kept}

    def _keep(self, messages: dict[int, Message]) -> None:
        self.kept.update(messages)
        self.room -= self.cost(messages)

    def cost(self, messages: dict[int, Message]) -> int:
        """Count the tokens of some messages."""
        return sum(
            self._cost_of(at) if message is self.history[at] else count_tokens(message)
            for at, message in messages.items()
        )

    def _cost_of(self, at: int) -> int:
        """Count a message as it is, once, unless that is known already."""
        if self._tokens is not None:
            return self._tokens[at]
        if at not in self._counted:
            self._counted[at] = count_tokens(self.history[at])
        return self._counted[at]

    def _clip(self, messages: dict[int, Message]) -> dict[int, Message] | None:
        """Return the messages with clipped results in half of the room, so that one result leaves place for others."""
        values = list(messages.values())
        clipped = clip_to_tokens(values, self.room // 2) or clip_to_tokens(values, self.room)
        return None if clipped is None else dict(zip(messages, clipped, strict=True))
