"""Find the turn that may have made its process die, so that the other turns of the process do not pay for it.

A tool can stop the event loop or end the process, and each process that resumes its turn dies as well. The tool journal
shows which turns had a step under way: these are suspects, and if there is none, all turns of the process are. The
others are resumed first and at once; the suspects follow one by one, so that at the next death fewer can have been the
cause. An attempt is charged only to a turn that alone can have been it.
"""

from collections.abc import Mapping, Sequence

from msgspec import Struct, field

from lango.store.turns.lease import CrashedTurn, Suspicion

_FIRST_WINDOW_S = 0.5
_WINDOW_S = 60.0
"""How long a suspect is alone at most: after its first death it may well be innocent, later it has to be proven."""
_WAIT_FOR_OTHERS_S = 5.0
_SUSPICIONS_PER_ATTEMPT = 2
"""A turn that was suspected this often for each allowed attempt is charged, even if others are suspected as well."""

Place = tuple[int, int]
"""The session and the number of a turn."""


class Crash(Struct):
    """The death of a process, and the turns that it ran."""

    detected_at: float
    """By the clock of the event loop."""
    suspects: Mapping[Place, CrashedTurn]
    bystanders: Sequence[CrashedTurn]
    charged: frozenset[Place] = field(default_factory=frozenset[Place])

    def suspicion(self, place: Place) -> Suspicion | None:
        """Return what is suspected of a turn, or None if it is a bystander."""
        return Suspicion(is_charged=place in self.charged) if place in self.suspects else None

    def delay_s(self, place: Place, retry_delay_s: float) -> float:
        """Return how long after the death a suspect is resumed: later each time."""
        suspicions = self.suspects[place].suspicions
        return retry_delay_s * 2 ** (suspicions - 1) if suspicions else 0.0

    def window_s(self, place: Place) -> float:
        """Return how long the next suspect waits for this one."""
        return _WINDOW_S if self.suspects[place].suspicions else _FIRST_WINDOW_S

    def waits_for_bystanders(self, place: Place, now: float) -> bool:
        """Whether a suspect still waits until the bystanders have ended."""
        return bool(self.bystanders) and now < self.detected_at + max(_WAIT_FOR_OTHERS_S, self.window_s(place))


def judge_crash(turns: Sequence[CrashedTurn], detected_at: float, max_attempts: int) -> Crash:
    """Decide which of the turns of a dead process are suspects, and which one is charged an attempt."""
    with_steps = [turn for turn in turns if turn.steps]
    candidates = with_steps or turns
    most = max((turn.suspicions for turn in candidates), default=0)
    # one that was suspected more often than the others was alone with new turns, and is the cause
    prime = [turn for turn in candidates if turn.suspicions == most]
    is_over = most + 1 >= max_attempts * _SUSPICIONS_PER_ATTEMPT
    suspects = {_place(turn): turn for turn in prime}
    return Crash(
        detected_at,
        suspects,
        [turn for turn in turns if _place(turn) not in suspects],
        frozenset(suspects) if len(prime) == 1 or is_over else frozenset(),
    )


def _place(turn: CrashedTurn) -> Place:
    return turn.session_key, turn.turn
