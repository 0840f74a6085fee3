"""Waits and answers: plain values that are stored and sent as JSON, and which answers fit which wait."""

from datetime import UTC, datetime
from typing import get_args

import pytest
from msgspec import to_builtins

from lango.errors import InvalidAnswer
from lango.json_values import convert
from lango.waits import (
    ANSWERS,
    Answer,
    ApprovalWait,
    Approve,
    Decline,
    InputWait,
    Refuse,
    Value,
    Wait,
    check_answer,
)
from lango.waits.pauses import matches

_OPENED = datetime(2026, 1, 1, tzinfo=UTC)


def test_every_kind_lists_its_answers() -> None:
    assert set(ANSWERS) == set(get_args(Wait))
    assert {answer for answers in ANSWERS.values() for answer in answers} == set(get_args(Answer))


def test_a_wait_survives_json() -> None:
    wait = ApprovalWait(
        id="w1", session_id="s", turn=1, opened_at=_OPENED, tool="pay", call_id="c1", arguments={"to": "bob"}
    )
    stored = to_builtins(wait)
    assert stored["kind"] == "approval"
    assert convert(stored, Wait) == wait


def test_an_answer_that_does_not_fit_is_refused() -> None:
    approval = ApprovalWait(id="w1", session_id="s", turn=1, opened_at=_OPENED, tool="pay", call_id="c1")
    request = InputWait(id="w2", session_id="s", turn=1, opened_at=_OPENED)
    check_answer(approval, Approve())
    check_answer(approval, Refuse("too expensive"))
    check_answer(request, Value({"size": 3}))
    with pytest.raises(InvalidAnswer, match="kind approval is answered with approve or refuse, not with value"):
        check_answer(approval, Value(1))
    with pytest.raises(InvalidAnswer, match="kind input is answered with value, not with decline"):
        check_answer(request, Decline())


def test_the_data_of_an_event_matches_by_plain_equality_at_dotted_paths() -> None:
    data = {"order": {"id": 7, "lines": [{"sku": "a"}]}, "paid": True, "note": None}
    for fits in (
        {},
        {"order.id": 7},
        {"order.lines.0.sku": "a", "paid": True},
        {"note": None},
        {"order.lines.0": {"sku": "a"}},
    ):
        assert matches(data, fits)
    for differs in ({"order.id": "7"}, {"paid": 1}, {"missing": None}, {"order.lines.1.sku": "a"}, {"order.id.x": 7}):
        assert not matches(data, differs)
    assert matches("text", {})
    assert not matches("text", {"a": 1})
