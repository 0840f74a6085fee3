"""Check what an agent did against what a case expects. Pure functions, but for the judge that is passed in.

Texts are compared by their words: ROUGE-1, as ADK's `response_match_score`. The stems are those of Porter's published
algorithm; ADK's score uses a variant, which differs in a few words.
"""

import re
import unicodedata
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Any, cast

from msgspec import Struct

from lango.development.test_cases import AnswerCheck, Call, CaseChecks, Exchange, Order
from lango.evaluation.criteria import Criteria, JudgeCriterion, ToolCriterion

_MIN_STEMMED = 4
_ONE_BY_ONE = ((0x4E00, 0x9FFF), (0x3040, 0x309F), (0x30A0, 0x30FF), (0xAC00, 0xD7AF))
"""Chinese, Japanese and Korean: each character counts as a word."""
_WITHOUT_SPACES = ((0x0E00, 0x0E7F), (0x0E80, 0x0EFF), (0x1780, 0x17FF), (0x1000, 0x109F))
"""Thai, Lao, Khmer and Burmese: a letter with its marks counts as a word."""


class Score(Struct, frozen=True):
    """How well one answer, or the calls before it, fulfil a criterion: 0 to 1, or None if nothing was expected."""

    value: float | None
    why: str = ""


class Metric(Struct, frozen=True):
    """A criterion with its scores, message by message. It is passed if their average reaches the threshold."""

    name: str
    threshold: float
    scores: tuple[Score, ...]

    @property
    def score(self) -> float | None:
        """The average of the scores, or None if there are none."""
        known = [score.value for score in self.scores if score.value is not None]
        return sum(known) / len(known) if known else None

    @property
    def passed(self) -> bool:
        """Whether the threshold is reached, or nothing was expected."""
        return self.score is None or self.score >= self.threshold


Judge = Callable[[Exchange, str, str, JudgeCriterion], Awaitable[Score]]
"""Asks a model about an answer: what was expected, the answer, the question, the model and the number of verdicts."""


async def check_case(
    expected: Sequence[Exchange], actual: Sequence[Exchange], checks: CaseChecks, criteria: Criteria, judge: Judge
) -> list[Metric]:
    """Return the metrics of a case."""
    pairs = list(zip(expected, actual, strict=True))
    metrics: list[Metric] = []
    tools = _tool_criterion(checks, criteria)
    if tools is not None:
        scores = tuple(check_calls(wanted.calls, done.calls, tools) for wanted, done in pairs)
        metrics.append(Metric("tool_trajectory_avg_score", tools.threshold, scores))
    if checks.answers is not None:
        scores = [
            await _check_answer(wanted, done, checks.answer(at), judge) for at, (wanted, done) in enumerate(pairs)
        ]
        metrics.append(Metric("answers", 1.0, tuple(scores)))
        return metrics
    if criteria.similarity is not None:
        scores = tuple(_score_similarity(wanted, done, criteria.similarity) for wanted, done in pairs)
        metrics.append(Metric("response_match_score", criteria.similarity, scores))
    if criteria.judge is not None:
        verdicts = [
            await judge(wanted, done.answer, "", criteria.judge) if wanted.answer else Score(None)
            for wanted, done in pairs
        ]
        metrics.append(Metric("final_response_match_v2", criteria.judge.threshold, tuple(verdicts)))
    return metrics


def _tool_criterion(checks: CaseChecks, criteria: Criteria) -> ToolCriterion | None:
    if checks.tools is None:
        return criteria.tools
    return None if checks.tools == "any" else ToolCriterion(checks.tools, checks.ignore_args)


def check_calls(expected: Sequence[Call], actual: Sequence[Call], criterion: ToolCriterion) -> Score:
    """Compare tool calls as ADK's trajectory metric does: 1 or 0."""
    wanted, done = (
        [_comparable(call, criterion) for call in expected],
        [_comparable(call, criterion) for call in actual],
    )
    if _fits(wanted, done, criterion.order):
        return Score(1.0)
    return Score(0.0, f"expected {_describe_calls(expected)}, called {_describe_calls(actual)}")


def _comparable(call: Call, criterion: ToolCriterion) -> Call:
    return Call(call.name) if criterion.ignore_args else call


def _fits(wanted: list[Call], done: list[Call], order: Order) -> bool:
    match order:
        case "exact":
            return wanted == done
        case "in_order":
            rest = iter(done)
            return all(call in rest for call in wanted)
        case "any_order":
            left = list(done)
            for call in wanted:
                if call not in left:
                    return False
                left.remove(call)
            return True


def _describe_calls(calls: Sequence[Call]) -> str:
    described = [
        f"{call.name}({', '.join(f'{name}={value!r}' for name, value in call.args.items())})" for call in calls
    ]
    return ", ".join(described) or "no tool"


async def _check_answer(wanted: Exchange, done: Exchange, check: AnswerCheck | None, judge: Judge) -> Score:
    if check is None or check.match == "any":
        return Score(None)
    match check.match:
        case "exact":
            same = wanted.answer.strip() == done.answer.strip()
            return Score(float(same), "" if same else "the answer differs from the expected one")
        case "regex":
            found = re.search(check.pattern, done.answer) is not None
            return Score(float(found), "" if found else f"the answer does not match {check.pattern!r}")
        case "similar":
            score = _score_similarity(wanted, done, check.threshold)
            return Score(float(score.value is None or score.value >= check.threshold), score.why)
        case "judge":
            return await judge(wanted, done.answer, check.question, JudgeCriterion())


def _score_similarity(wanted: Exchange, done: Exchange, threshold: float) -> Score:
    if not wanted.answer:
        return Score(None)
    score = similarity(done.answer, wanted.answer)
    return Score(
        score, "" if score >= threshold else f"the similarity of the answer is {score:.2f}, below {threshold:g}"
    )


def similarity(answer: str, expected: str) -> float:
    """Return how much the words of two texts overlap, from 0 to 1: the F-measure of ROUGE-1."""
    words, expected_words = Counter(_words(answer)), Counter(_words(expected))
    common = (words & expected_words).total()
    if not common:
        return 0.0
    precision, recall = common / words.total(), common / expected_words.total()
    return 2 * precision * recall / (precision + recall)


def _words(text: str) -> Iterator[str]:
    """Yield the words of a text in lower case, the English ones as stems."""
    import snowballstemmer  # pyright: ignore[reportMissingTypeStubs] - a server that evaluates nothing starts without it

    stemmer = cast("Any", snowballstemmer).stemmer("porter")
    spaced = "".join(map(_with_spaces, unicodedata.normalize("NFKC", text).lower()))
    for word in spaced.split():
        yield stemmer.stemWord(word) if word.isascii() and len(word) >= _MIN_STEMMED else word


def _with_spaces(char: str) -> str:
    code, is_mark = ord(char), unicodedata.category(char).startswith("M")
    if _is_in(code, _ONE_BY_ONE):
        return f" {char} "
    if _is_in(code, _WITHOUT_SPACES):
        return char if is_mark else f" {char}"
    return char if char.isalnum() or is_mark else " "


def _is_in(code: int, ranges: tuple[tuple[int, int], ...]) -> bool:
    return any(first <= code <= last for first, last in ranges)
