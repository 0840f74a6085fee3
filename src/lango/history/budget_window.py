"""Choose the newest messages of a history that fit a token budget.

Messages are kept or left out in units: a message, or a message with calls and all their results. The current user
message and the unit that the model has to answer always stay. Before messages are left out, large results are clipped
to a quarter of the budget, so that a single result does not displace the conversation before it.
"""

import logging
from collections.abc import Iterable, Sequence
from itertools import pairwise, takewhile

from msgspec import Struct
from msgspec.structs import replace

from lango.errors import BudgetTooSmall
from lango.history.history_repair import CONTEXT_AUTHOR, STEERING_AUTHOR
from lango.history.pairing import pair
from lango.history.token_clipping import clip_results, clip_text, clip_to_tokens
from lango.history.tokens import count_tokens
from lango.history.window_rules import DEFAULT_BUDGET_TOKENS, Limit, WindowRules
from lango.messages import Message

RESULT_SHARE = 4
"""A result takes at most this fraction (1/n) of the budget if not everything fits."""

_log = logging.getLogger("lango.history")


class FittedWindow(Struct, frozen=True):
    """The messages that fit a request, and what was left out for them."""

    messages: list[Message]
    left_out: int
    clipped_tokens: int
    limit: Limit | None
    """The limit that ended the window, or None if no message was left out."""


def fit_to_budget(
    messages: Iterable[Message],
    budget_tokens: int | None = None,
    *,
    max_messages: int | None = None,
    max_turns: int | None = None,
    reserved_tokens: int = 0,
) -> list[Message]:
    """Return the newest messages that fit the budget, and log one warning about what is left out or clipped.

    The arguments are those of `fit_window`.
    """
    window = fit_window(
        messages, budget_tokens, max_messages=max_messages, max_turns=max_turns, reserved_tokens=reserved_tokens
    )
    if window.left_out or window.clipped_tokens:
        in_all = len(window.messages) + window.left_out
        _log.warning("%s", describe_left_out(window.left_out, in_all, window.clipped_tokens))
    return window.messages


def describe_left_out(left_out: int, in_all: int, clipped_tokens: int) -> str:
    """Return a sentence about what a request does not have of its history."""
    clipped = f", clipped {clipped_tokens} tokens of results" if clipped_tokens else ""
    return f"the history is larger than its budget: left out {left_out} of {in_all} messages{clipped}"


def fit_window(
    messages: Iterable[Message],
    budget_tokens: int | None = None,
    *,
    max_messages: int | None = None,
    max_turns: int | None = None,
    reserved_tokens: int = 0,
) -> FittedWindow:
    """Return the newest messages that fit the budget, and what was left out; None or 0 is 32,000 tokens.

    `reserved_tokens` of the budget are for the system prompt and the tool declarations. `max_messages` and `max_turns`
    (a turn starts with a user message) are further limits; None or 0 is no limit. Leading system messages and the
    current user message always stay. Raise `BudgetTooSmall` if the messages that must stay do not fit.
    """
    budget = (budget_tokens or DEFAULT_BUDGET_TOKENS) - reserved_tokens
    window = _fit(list(messages), budget, max_messages, max_turns)
    left_out = len(window.history) - len(window.kept)
    return FittedWindow(
        [window.kept[at] for at in sorted(window.kept)],
        left_out,
        window.clipped_tokens,
        (window.limit or "budget") if left_out else None,
    )


def kept_tokens(
    messages: Iterable[Message], tokens: Sequence[int], rules: WindowRules, *, reserved_tokens: int = 0
) -> tuple[dict[int, int], Limit | None]:
    """Return the indexes of the messages that `fit_window` would keep, each with the tokens that are sent of it.

    Also return the limit that ended the window, if it does not keep all. `tokens` holds the token counts of the
    messages.
    """
    window = _fit(list(messages), rules.room_tokens - reserved_tokens, rules.max_messages, rules.max_turns, tokens)
    return {at: window.cost({at: window.kept[at]}) for at in sorted(window.kept)}, window.limit


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
    """Return the indexes of the user's messages, without quoted data."""
    return [at for at, m in enumerate(messages) if m.role == "user" and m.author != CONTEXT_AUTHOR]


def current_user_message(messages: Sequence[Message]) -> int | None:
    """Return the index of the user's last message, which the model has to answer, or None if there is none."""
    users = _user_positions(messages) or [at for at, message in enumerate(messages) if message.role == "user"]
    return users[-1] if users else None


def _first_of_turns(messages: Sequence[Message], max_turns: int) -> int:
    """Return the index at which the newest `max_turns` turns start."""
    starts = [at for at in _user_positions(messages) if messages[at].author != STEERING_AUTHOR]
    return starts[-max_turns] if 0 < max_turns <= len(starts) else 0


class _Unit(Struct, frozen=True):
    """The messages from `start` to before `stop`, which are kept or left out together."""

    start: int
    stop: int
    leads: bool
    """Whether a window may start with it: it has no result without a call and no call without a result."""
    calls: bool


def _units(messages: Sequence[Message]) -> list[_Unit]:
    """Split the history wherever that separates no result from its call."""
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
    """Return for each message the last index of its unit, and whether it has unanswered calls."""
    last_of = list(range(len(messages)))
    unanswered = [False] * len(messages)
    pairing = pair(messages)
    for slot in pairing.slots:
        if slot.result is None:
            unanswered[slot.at] = True
        else:
            first, last = sorted((slot.at, slot.result.at))
            last_of[first] = max(last_of[first], last)
    turn: int | None = None  # the message whose tool messages follow: they always belong to its unit
    for at, message in enumerate(messages):
        if message.role != "tool":
            turn = at if at in pairing.turns else None
        elif turn is not None:
            last_of[turn] = at
    return last_of, unanswered


def first_valid_start(messages: Sequence[Message]) -> int:
    """Return the first index at which a cut history may start: not with a result or an unanswered call."""
    return next((unit.start for unit in _units(messages) if unit.leads), len(messages)) if messages else 0


class _Window:
    """The messages kept so far, by their index, and the room that is left."""

    def __init__(self, history: list[Message], budget_tokens: int, tokens: Sequence[int] | None = None) -> None:
        self.history = history
        self._tokens = tokens
        self._counted: dict[int, int] = {}
        self.budget_tokens = budget_tokens
        self.room = budget_tokens
        self.kept: dict[int, Message] = {}
        self.limit: Limit | None = None
        """The limit that ended the window."""
        self._units = _units(history) if history else []
        self._pinned: set[int] = set()
        self._all_fit = self._fits()

    @property
    def clipped_tokens(self) -> int:
        """How many tokens were clipped from the kept messages."""
        return sum(
            self._cost_of(at) - count_tokens(message)
            for at, message in self.kept.items()
            if message is not self.history[at]
        )

    def _fits(self) -> bool:
        """Whether all messages fit. The newest are counted first, and counting stops once the room is used up."""
        left = self.budget_tokens
        for at in reversed(range(len(self.history))):
            left -= self._cost_of(at)
            if left < 0:
                return False
        return True

    def _clipped_to_share(self, at: int) -> Message:
        """Return a message, with its large results clipped to their share if not all messages fit.

        Quoted data counts as a result, too: results of another agent's tools come as text.
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
        """Keep the messages that must stay: leading system messages, the current user message, the last unit."""
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
                f"the messages that must be sent take {least} tokens, and the budget leaves {self.budget_tokens}: "
                "raise the budget, or shorten the message, the system prompt or the tools"
            )
        self._keep(clipped)
        self._pin_steered_message()
        self._pinned = set(self.kept)

    def _pin_steered_message(self) -> None:
        """Keep the messages that the turn took in, and the one that it began with, while there is room."""
        for at in reversed(_user_positions(self.history)):
            message = self.history[at]
            if at not in self.kept and self._cost_of(at) <= self.room:
                self._keep({at: message})
            if message.author != STEERING_AUTHOR:
                return

    def _last_unit(self) -> _Unit | None:
        """Return the unit that the model has to answer: calls with their results, or a user message, at the end."""
        if not self._units:
            return None
        last = self._units[-1]
        return last if (last.calls and last.leads) or self.history[-1].role == "user" else None

    def fill(self, first: int, max_messages: int) -> None:
        """Keep units, the newest first, back to index `first`, until a unit does not fit."""
        for unit in reversed(self._units):
            messages = self._missing(unit)
            if not messages:
                continue
            if unit.start < first:
                self.limit = "max_turns"
                return
            if len(self.kept) + len(messages) > max_messages:
                self.limit = "max_messages"
                return
            if self.cost(messages) > self.room:
                # if a small unit does not fit, the window is nearly full and ends
                clipped = self._clip(messages) if self.cost(messages) > self._share else None
                if clipped is None:
                    self.limit = "budget"
                    return
                messages = clipped
            self._keep(messages)

    def drop_invalid_start(self) -> None:
        """If messages were left out, drop units that a window must not start with."""
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
        """Whether the unit follows the cut, and no kept message before it makes it valid there."""
        before = [at for at in range(unit.start) if self.history[at].role != "system"]
        if before and before[-1] in self.kept:
            return False
        # an open call may follow the user's message, with a cut between them; a result may not
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
        """Return the tokens of an unclipped message, counted once."""
        if self._tokens is not None:
            return self._tokens[at]
        if at not in self._counted:
            self._counted[at] = count_tokens(self.history[at])
        return self._counted[at]

    def _clip(self, messages: dict[int, Message]) -> dict[int, Message] | None:
        """Clip the results to half of the room; the rest is for older messages. Return None if they do not fit."""
        values = list(messages.values())
        clipped = clip_to_tokens(values, self.room // 2) or clip_to_tokens(values, self.room)
        return None if clipped is None else dict(zip(messages, clipped, strict=True))
