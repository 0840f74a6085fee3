"""Repair turns any history into one that every provider accepts."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lango.errors import BudgetTooSmall
from lango.history import CONTEXT_AUTHOR, INTERRUPTED, count_tokens, fit_to_budget, keep_signatures, repair
from lango.messages import Media, Message, Signature, Thought, ToolCall
from tests.support.provider_rules import any_history, broken_rules, sound_history

USER = Message("user", "hi")
UNKNOWN = {"error": INTERRUPTED}


def calls(*ids: str, name: str = "exec") -> Message:
    return Message("assistant", tool_calls=tuple(ToolCall(i, name, {"cmd": "ls"}) for i in ids))


def results(*ids: str, name: str = "exec", **output: Any) -> Message:
    return Message("tool", tool_calls=tuple(ToolCall(i, name, output=output or {"ok": i}) for i in ids))


@given(any_history())
def test_m8_any_history_becomes_valid(history: list[Message]) -> None:
    assert broken_rules(repair(history)) == []


@given(any_history())
def test_m8_repair_is_idempotent(history: list[Message]) -> None:
    once = repair(history)
    assert repair(once) == once


@given(sound_history())
def test_m8_a_valid_history_comes_back_equal(history: list[Message]) -> None:
    assert repair(history) == history


@given(any_history(), st.integers(1, 3_000), st.integers(0, 200))
def test_m8_any_history_and_any_budget_give_a_valid_request_or_a_typed_error(
    history: list[Message], budget: int, reserved: int
) -> None:
    repaired = repair(history)
    try:
        window = fit_to_budget(repaired, budget, reserved_tokens=reserved)
    except BudgetTooSmall:
        return
    assert broken_rules(window) == []
    assert count_tokens(window) <= max(0, budget - reserved)
    assert [m for m in repaired if m.role == "user" and m.author != CONTEXT_AUTHOR][-1:] == [
        m for m in window if m.role == "user" and m.author != CONTEXT_AUTHOR
    ][-1:]


def test_a8_a_call_without_a_result_gets_an_interrupted_result() -> None:
    assert "interrupted" in INTERRUPTED
    assert "unknown" in INTERRUPTED
    [_, turn, result, _] = repair([USER, calls("c1"), Message("user", "and?")])
    assert turn.tool_calls[0].id == result.tool_calls[0].id == "c1"
    assert result.tool_calls[0].output == UNKNOWN


def test_m8_missing_results_are_added_to_those_that_are_there() -> None:
    repaired = repair([USER, calls("c1", "c2", "c3"), results("c2"), Message("user", "and?")])
    assert [[c.id for c in m.tool_calls] for m in repaired] == [[], ["c1", "c2", "c3"], ["c2"], ["c1", "c3"], []]
    assert repaired[3].tool_calls[0].output == UNKNOWN


def test_m8_a_result_far_from_its_call_moves_to_it() -> None:
    question = Message("user", "are you there?")
    assert repair([USER, calls("c1"), question, results("c1")]) == [USER, calls("c1"), results("c1"), question]


def test_m8_a_result_before_its_call_moves_to_it() -> None:
    assert repair([USER, results("c1"), calls("c1"), USER]) == [USER, calls("c1"), results("c1"), USER]


def test_m8_a_result_without_a_call_is_quoted_as_data() -> None:
    [_, quoted] = repair([USER, results("c9", secret=42)])
    assert (quoted.role, quoted.author) == ("user", CONTEXT_AUTHOR)
    assert '"exec"' in quoted.content
    assert '{"secret":42}' in quoted.content


def test_m8_a_quoted_result_is_clipped() -> None:
    [_, quoted] = repair([USER, results("c9", out="word " * 50_000)])
    assert "tokens left out" in quoted.content
    assert count_tokens(quoted) < 1_100


def test_m8_a_second_result_of_a_call_is_quoted_unless_it_is_equal() -> None:
    first, later = results("c1", status="pending"), results("c1", status="done")
    repaired = repair([USER, calls("c1"), first, first, Message("assistant", "started"), later])
    assert repaired[:4] == [USER, calls("c1"), first, Message("assistant", "started")]
    assert '{"status":"done"}' in repaired[4].content


def test_m8_ids_reused_in_another_turn_are_made_unique_in_call_and_result() -> None:
    repaired = repair([USER, calls("c1"), results("c1", n=1), calls("c1"), results("c1", n=2)])
    assert [c.id for m in repaired for c in m.tool_calls] == ["c1", "c1", "c1_2", "c1_2"]
    assert [m.tool_calls[0].output for m in repaired if m.role == "tool"] == [{"n": 1}, {"n": 2}]


def test_m5_missing_ids_become_call_name_and_its_successors() -> None:
    repaired = repair([USER, calls("", ""), results("", "")])
    assert [[c.id for c in m.tool_calls] for m in repaired[1:]] == [["call_exec", "call_exec_2"]] * 2


def test_m5_a_result_without_an_id_goes_to_the_open_call_of_its_name() -> None:
    turn = Message("assistant", tool_calls=(ToolCall("a", "exec", {}), ToolCall("b", "search", {})))
    repaired = repair([USER, turn, results("", name="search", n=1), results("a", n=2)])
    assert {c.id: c.output for m in repaired if m.role == "tool" for c in m.tool_calls} == {
        "b": {"n": 1},
        "a": {"n": 2},
    }


@pytest.mark.parametrize(("made", "answered"), [("abc", ""), ("abc", "call_exec"), ("", "toolu_1"), ("call_exec", "x")])
def test_m5_a_result_answers_its_call_where_an_id_is_missing_on_either_side(made: str, answered: str) -> None:
    [_, turn, result] = repair([USER, calls(made), results(answered, n=1)])
    assert (result.tool_calls[0].id, result.tool_calls[0].output) == (turn.tool_calls[0].id, {"n": 1})


def test_m5_a_result_with_an_id_is_paired_before_a_result_without_one() -> None:
    for answers in ([results("", n=2), results("a", n=1)], [results("a", n=1), results("", n=2)]):
        repaired = repair([USER, calls("a", "b"), *answers])
        found = {c.id: c.output for m in repaired if m.role == "tool" for c in m.tool_calls}
        assert found == {"a": {"n": 1}, "b": {"n": 2}}


def test_m5_a_result_of_another_call_is_not_taken_by_position() -> None:
    [_, turn, unknown, quoted] = repair([USER, calls("a"), results("b", n=1)])
    assert (turn, unknown.tool_calls[0].output) == (calls("a"), UNKNOWN)
    assert '{"n":1}' in quoted.content


def test_m5_a_result_without_an_id_and_a_name_answers_the_turn_before_it_only() -> None:
    unnamed = Message("tool", tool_calls=(ToolCall("", "", output={"n": 1}),))
    assert repair([USER, calls("a"), unnamed])[2].tool_calls == (ToolCall("a", "exec", output={"n": 1}),)
    repaired = repair([USER, calls("a"), calls("b"), results("b"), unnamed])
    assert repaired[2].tool_calls[0].output == UNKNOWN
    assert '{"n":1}' in repaired[-1].content


def test_m8_parallel_calls_of_one_id_are_answered_in_order() -> None:
    repaired = repair([USER, calls("a", "a"), results("a", n=1), results("a", n=2)])
    assert [(c.id, c.output) for m in repaired if m.role == "tool" for c in m.tool_calls] == [
        ("a", {"n": 1}),
        ("a_2", {"n": 2}),
    ]


def test_m8_a_call_among_results_is_a_call() -> None:
    both = Message("tool", tool_calls=(ToolCall("a", "exec", {"cmd": "ls"}), ToolCall("a", "exec", output={"n": 1})))
    assert [m.tool_calls for m in repair([USER, both])[1:]] == [
        (ToolCall("a", "exec", {"cmd": "ls"}),),
        (ToolCall("a", "exec", output={"n": 1}),),
    ]


def test_m8_overlong_and_malformed_ids_are_replaced_by_distinct_ids() -> None:
    long = "x" * 60
    repaired = repair([USER, calls(long, long + "y", "a b!"), results(long, long + "y", "a b!")])
    ids = [c.id for c in repaired[1].tool_calls]
    assert ids == ["x" * 40, "x" * 38 + "_2", "a_b_"]
    assert [c.id for c in repaired[2].tool_calls] == ids


def test_m8_new_messages_do_not_change_earlier_ids() -> None:
    # providers cache by prefix: an id that changes with a later message would invalidate the cache
    history = [USER, calls("", "c1"), results("", "c1"), calls("c1"), results("c1")]
    assert repair([*history, USER])[:5] == repair([*history, calls("call_exec"), results("call_exec"), USER])[:5]


def test_s6_a_legacy_result_answers_the_turn_before_it_by_position() -> None:
    repaired = repair([USER, calls("c1", "c2"), Message("tool", '{"n": 1}'), Message("tool", "plain"), USER])
    assert [m.tool_calls[0] for m in repaired[2:4]] == [
        ToolCall("c1", "exec", output={"n": 1}),
        ToolCall("c2", "exec", output={"result": "plain"}),
    ]


def test_s6_a_legacy_result_with_no_call_becomes_text() -> None:
    answered = [USER, calls("c1"), results("c1")]
    assert "plain" in repair([*answered, Message("tool", "plain")])[-1].content
    assert "[1]" in repair([USER, Message("tool", "[1]")])[-1].content
    assert repair([USER, Message("tool", " ")]) == [USER]


def test_s6_an_empty_legacy_result_answers_its_call() -> None:
    assert repair([USER, calls("c1"), Message("tool", "")])[2].tool_calls[0].output == {"result": ""}


def test_s6_a_result_without_output_takes_the_text_of_its_message() -> None:
    empty = Message("tool", "done", (ToolCall("c1", "exec"),))
    assert repair([USER, calls("c1"), empty])[2].tool_calls[0].output == {"result": "done"}
    both = Message("tool", "done", (ToolCall("c1", "exec"), ToolCall("c2", "exec")))
    assert repair([USER, calls("c1", "c2"), both])[2].tool_calls[0].output == {}


def test_m8_a_call_that_holds_its_result_is_split() -> None:
    turn = Message("assistant", tool_calls=(ToolCall("c1", "exec", {"a": 1}, {"b": 2}),))
    assert [m.tool_calls for m in repair([USER, turn])[1:]] == [
        (ToolCall("c1", "exec", {"a": 1}),),
        (ToolCall("c1", "exec", output={"b": 2}),),
    ]


def test_m8_results_in_a_message_of_another_role_are_found() -> None:
    stray = ToolCall("c1", "exec", output={"n": 1})
    for role in ("assistant", "user"):
        [_, turn, result, *_] = repair([USER, calls("c1"), Message(role, "see", (stray,)), USER])
        assert (turn, result.tool_calls) == (calls("c1"), (stray,))


def test_m8_one_tool_message_for_two_turns_is_split() -> None:
    repaired = repair([USER, calls("c1"), calls("c2"), Message("tool", "both", results("c1", "c2").tool_calls)])
    assert repaired == [USER, calls("c1"), results("c1"), calls("c2"), results("c2")]


def test_m8_empty_parts_and_messages_are_removed() -> None:
    full = Message("assistant", "a", thoughts=(Thought("t"), Thought()), media=(Media("image/png"),))
    blank = Message("assistant", "  ", thoughts=(Thought("only thoughts"),))
    repaired = repair([Message("user", " \n"), USER, full, blank, Message("event", "error"), USER])
    assert repaired == [USER, Message("assistant", "a", thoughts=(Thought("t"),)), USER]


def test_m8_a_system_message_after_the_start_is_quoted() -> None:
    system = Message("system", "be kind")
    assert repair([system, system, USER, system]) == [
        system,
        system,
        USER,
        Message("user", "be kind", author=CONTEXT_AUTHOR),
    ]


def test_m8_a_history_that_ends_with_the_assistant_is_continued() -> None:
    answer = Message("assistant", "I was saying")
    assert repair([USER, answer]) == [USER, answer, Message("user", "Continue.", author=CONTEXT_AUTHOR)]
    assert repair([]) == []


def test_m8_values_that_are_not_json_become_text() -> None:
    cycle: dict[str, Any] = {}
    cycle["self"] = cycle
    odd: dict[str, Any] = {"f": float("inf"), "b": b"x", "t": (1, None, True, 0.5), "d": {1: "\ud800"}}
    turn = Message("assistant", "\ud800", tool_calls=(ToolCall("c1", "exec", cycle),))
    [_, turn, result] = repair([USER, turn, results("c1", **odd)])
    assert turn.content == "\ufffd"
    assert "nested too deep" in str(turn.tool_calls[0].input)
    assert result.tool_calls[0].output == {"f": "inf", "b": "b'x'", "t": [1, None, True, 0.5], "d": {"1": "\ufffd"}}


def test_m8_signatures_of_another_model_are_left_out() -> None:
    own, foreign, no_model = Signature("p", "m", b"1"), Signature("p", "other", b"2"), Signature("p", "", b"3")
    message = Message(
        "assistant",
        "a",
        (ToolCall("c1", "exec", {}, signature=own), ToolCall("c2", "exec", {}, signature=foreign)),
        thoughts=(Thought("kept", foreign), Thought("", foreign), Thought("", no_model)),
        signature=Signature("q", "m", b"4"),
    )
    [kept] = keep_signatures([message], "p", "m")
    assert [call.signature for call in kept.tool_calls] == [own, None]
    assert kept.thoughts == (Thought("kept"),)
    assert kept.signature is None


@pytest.mark.parametrize("size", [3_000])
def test_m8_a_long_history_of_one_reused_id_is_not_quadratic(size: int) -> None:
    history = [message for _ in range(size) for message in (calls("call_exec"), results("call_exec"))]
    assert len({c.id for m in repair(history) for c in m.tool_calls}) == size
