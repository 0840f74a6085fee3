"""How expected tool calls and answers are compared, and which criteria are read or refused."""

import json
from pathlib import Path
from typing import Any

import pytest

from lango.development.test_cases import AnswerCheck, Call, CaseChecks, Exchange, Order, read_case_checks
from lango.errors import UsageError
from lango.evaluation.checks import Metric, Score, check_calls, check_case, similarity
from lango.evaluation.criteria import Criteria, JudgeCriterion, ToolCriterion, read_criteria

A, B, C = Call("a", {"n": 1}), Call("b"), Call("c")


def test_similarity_is_the_overlap_of_words() -> None:
    assert similarity("The cats were running.", "a cat runs, the cat RAN") == pytest.approx(0.6)
    assert similarity("今日は", "今日") == pytest.approx(0.8), "each character counts"
    assert similarity("", "something") == similarity("", "") == 0


@pytest.mark.parametrize(
    ("order", "done", "fits"),
    [
        ("exact", [A, B], True),
        ("exact", [A, B, C], False),
        ("exact", [B, A], False),
        ("in_order", [C, A, C, B], True),
        ("in_order", [B, A], False),
        ("any_order", [B, C, A], True),
        ("any_order", [A, A], False),
    ],
)
def test_tool_calls_in_each_order(order: Order, done: list[Call], fits: bool) -> None:
    score = check_calls([A, B], done, ToolCriterion(order))
    assert score.value == float(fits)
    assert fits or score.why.startswith("expected a(n=1), b(), called ")


def test_arguments_count_unless_they_are_ignored() -> None:
    other = [Call("a", {"n": 2})]
    assert check_calls([A], other, ToolCriterion()).value == 0
    assert check_calls([A], other, ToolCriterion(ignore_args=True)).value == 1


def test_a_metric_is_the_average_of_its_scores() -> None:
    scores = (Score(1.0), Score(None), Score(0.5))
    assert Metric("m", 0.75, scores).passed
    assert not Metric("m", 0.76, scores).passed
    assert Metric("m", 1.0, (Score(None),)).passed, "nothing was expected"


async def test_the_checks_of_a_case_replace_those_of_the_set() -> None:
    asked: list[tuple[str, str]] = []

    async def judge(expected: Exchange, answer: str, question: str, criterion: JudgeCriterion) -> Score:
        asked.append((answer, question))
        return Score(1.0, criterion.model)

    expected = [Exchange("1", answer="one"), Exchange("2"), Exchange("3", answer="x"), Exchange("4", answer="four")]
    actual = [
        Exchange("1", answer=" one\n"),
        Exchange("2", answer="order 4711"),
        Exchange("3"),
        Exchange("4", answer="4"),
    ]
    checks = CaseChecks(
        "any",
        answers=[
            AnswerCheck("exact"),
            AnswerCheck("regex", pattern=r"order \d{4}"),
            AnswerCheck("any"),
            AnswerCheck("judge", question="Is it four?"),
        ],
    )
    [metric] = await check_case(expected, actual, checks, Criteria(ToolCriterion(), 0.8), judge)
    assert [score.value for score in metric.scores] == [1, 1, None, 1]
    assert asked == [("4", "Is it four?")]
    metrics = await check_case(expected, actual, CaseChecks(), Criteria(None, 0.8, JudgeCriterion("m")), judge)
    assert [[score.value for score in metric.scores] for metric in metrics] == [[1, None, 0, 0], [1, None, 1, 1]]
    assert "similarity of the answer is 0.00, below 0.8" in metrics[0].scores[2].why


def config(folder: Path, criteria: Any) -> Path:
    file = folder / "test_config.json"
    file.write_text(json.dumps({"criteria": criteria}))
    return file


def test_criteria_of_adk_are_read_in_both_spellings(tmp_path: Path) -> None:
    read = read_criteria(
        config(
            tmp_path,
            {
                "tool_trajectory_avg_score": {"threshold": 0.5, "matchType": "any order", "ignore_args": True},
                "response_match_score": 0.7,
                "final_response_match_v2": {"threshold": 0.6, "judge_model_options": {"judge_model": "gemini-9"}},
            },
        )
    )
    assert read == Criteria(ToolCriterion("any_order", True, 0.5), 0.7, JudgeCriterion("gemini/gemini-9", 5, 0.6))


@pytest.mark.parametrize(
    ("criteria", "says"),
    [
        ({"safety_v1": 0.8}, "safety_v1: this criterion is not supported"),
        ({"response_match_score": "high"}, "the threshold must be a number"),
        ({"response_match_score": {"threshold": 1, "stemmer": 1}}, "unknown option: stemmer"),
        ({"tool_trajectory_avg_score": {"threshold": 1, "match_type": "some"}}, "match_type must be EXACT"),
        (None, "the object `criteria` is missing"),
    ],
)
def test_criteria_that_cannot_be_checked_are_refused(tmp_path: Path, criteria: Any, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        read_criteria(config(tmp_path, criteria))


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"answers": [{"match": "exact"}]}, "1 checks, and the conversation 2 messages"),
        ({"answers": {"match": "regex"}}, "needs a `pattern`"),
        ({"answers": {"match": "regex", "pattern": "("}}, "is not a regular expression"),
        ({"tool": "exact"}, "unknown field `tool`"),
        ({"tools": "exactly"}, "Invalid enum value 'exactly'"),
    ],
)
def test_checks_of_a_case_that_make_no_sense_are_refused(fields: Any, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        read_case_checks(fields, 2)
