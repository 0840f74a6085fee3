"""Keep the results of the runs of test cases beside their files, and find regressions."""

import time
from collections.abc import Sequence
from pathlib import Path

import msgspec
from msgspec import Struct, to_builtins
from msgspec.structs import replace

from lango.development.test_cases import Exchange
from lango.evaluation.case_runner import CaseResult
from lango.evaluation.checks import Metric
from lango.json_values import to_client_json

_FOLDER = ".eval-history"
_KEPT = 20
"""How many runs of a case are kept."""


class PastResult(Struct, frozen=True, omit_defaults=True):
    """The result of one run of a case."""

    case: str
    at: float
    passed: bool
    model: str = ""
    why: str = ""
    duration_s: float = 0.0
    tokens: int = 0
    cost_usd: float | None = None
    user_id: str = ""
    """Whose session it ran in, where that was kept."""
    session_id: str = ""
    metrics: Sequence[Metric] = ()
    exchanges: Sequence[Exchange] = ()
    """What was said and called, without files."""
    expected: Sequence[Exchange] = ()

    def without_details(self) -> "PastResult":
        """Return the result without its scores and its conversation."""
        return replace(self, metrics=(), exchanges=(), expected=())


def read_history(file: Path) -> dict[str, list[PastResult]]:
    """Return the results of the cases of a file by their ids, the oldest first, without damaged lines."""
    found: dict[str, list[PastResult]] = {}
    try:
        lines = _history_of(file).read_bytes().splitlines()
    except OSError:
        return found
    decode = msgspec.json.Decoder(PastResult).decode
    for line in lines:
        try:
            result = decode(line)
        except msgspec.DecodeError:
            continue
        found.setdefault(result.case, []).append(result)
    return found


def add_to_history(results: Sequence[CaseResult], model: str, *, with_sessions: bool = False) -> None:
    """Add the results of a run beside the files of its cases. Raise `OSError` where nothing can be written."""
    now = time.time()
    for file in dict.fromkeys(result.case.file for result in results):
        history = read_history(file)
        for result in results:
            if result.case.file == file:
                history.setdefault(result.case.id, []).append(_past(result, model, now, with_sessions))
        kept = sorted((one for every in history.values() for one in every[-_KEPT:]), key=lambda one: one.at)
        place = _history_of(file)
        place.parent.mkdir(exist_ok=True)
        new = place.with_name(f"{place.name}.part")
        new.write_bytes(msgspec.json.Encoder().encode_lines(to_client_json(to_builtins(kept))))
        new.replace(place)


def is_regression(history: Sequence[PastResult]) -> bool:
    """Whether the newest run of a case failed, and the one before passed."""
    return len(history) > 1 and not history[-1].passed and history[-2].passed


def _history_of(file: Path) -> Path:
    return file.parent / _FOLDER / f"{file.name.removesuffix('.json')}.jsonl"


def _past(result: CaseResult, model: str, at: float, with_session: bool) -> PastResult:
    kept = with_session and not result.passed
    return PastResult(
        result.case.id,
        at,
        result.passed,
        model,
        result.why,
        round(result.duration_s, 3),
        result.tokens,
        result.cost_usd,
        result.user_id if kept else "",
        result.session_id if kept else "",
        result.metrics,
        [replace(exchange, files=()) for exchange in result.exchanges],
        [replace(exchange, files=()) for exchange in result.case.exchanges],
    )
