"""The window keeps the newest messages that fit, and separates no call from its result."""

import logging
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lango.errors import BudgetTooSmall
from lango.history import CONTEXT_AUTHOR, count_tokens, current_user_message, fit_to_budget
from lango.history.budget_window import first_valid_start
from lango.history.token_clipping import clip_object
from lango.history.tokens import compact_json
from lango.messages import Media, Message, ToolCall
from tests.support.provider_rules import any_history, broken_rules, sound_history


def user(text: str = "question") -> Message:
    return Message("user", text)


def assistant(text: str = "answer") -> Message:
    return Message("assistant", text)


def calls(*ids: str, **args: Any) -> Message:
    return Message("assistant", tool_calls=tuple(ToolCall(i, "exec", args or {"cmd": "ls"}) for i in ids))


def results(*ids: str, name: str = "exec", **output: Any) -> Message:
    return Message("tool", tool_calls=tuple(ToolCall(i, name, output=output or {"ok": True}) for i in ids))


def long_turn(number: int) -> list[Message]:
    return [m for n in range(number) for m in (calls(f"c{n}"), results(f"c{n}", out=f"line {n} " * 20))]


def warnings_of(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name == "lango.history"]


# H1


def test_h1_an_explicit_budget_keeps_the_newest_that_fit() -> None:
    history = [Message("user" if n % 2 == 0 else "assistant", f"message {n}") for n in range(20)]
    budget = count_tokens(history[13:])
    assert fit_to_budget(history, budget) == history[13:]
    assert fit_to_budget(history, budget - 1) == history[14:]


@pytest.mark.parametrize("budget", [None, 0])
def test_h1_no_budget_is_32_000_tokens(budget: int | None) -> None:
    history = [Message("user" if n % 2 == 0 else "assistant", "word " * 995) for n in range(60)]
    window = fit_to_budget(history, budget)
    assert window == history[-len(window) :]
    assert 31_000 < count_tokens(window) <= 32_000


def test_h1_everything_fits_and_nothing_changes(caplog: pytest.LogCaptureFixture) -> None:
    history = [user(), calls("c1"), results("c1"), assistant(), user()]
    assert fit_to_budget(history, 10_000) == history
    assert fit_to_budget([], 10) == []
    assert warnings_of(caplog) == []


def test_h1_the_system_prompt_and_tools_count_against_the_budget() -> None:
    history = [Message("user" if n % 2 == 0 else "assistant", f"message {n}") for n in range(20)]
    budget = count_tokens(history[13:])
    assert fit_to_budget(history, budget + 500, reserved_tokens=500) == history[13:]
    with pytest.raises(BudgetTooSmall, match="budget"):
        fit_to_budget(history, 500, reserved_tokens=600)


@given(sound_history(), st.integers(30, 2_000))
def test_h1_one_more_unit_would_not_have_fitted(history: list[Message], budget: int) -> None:
    try:
        window = fit_to_budget(history, budget)
    except BudgetTooSmall:
        return
    assert count_tokens(window) <= budget
    cut = history[: len(history) - len(window)]
    if window == history[len(cut) :] and cut:  # nothing is clipped, and the current message is the last
        unit = cut[-2:] if cut[-1].role == "tool" else cut[-1:]
        assert count_tokens(unit) + count_tokens(window) > budget


# H2


def test_h2_max_messages_is_a_further_limit() -> None:
    history = [Message("user" if n % 2 == 0 else "assistant", f"{n}") for n in range(151)]
    assert fit_to_budget(history, max_messages=100) == history[-100:]


def test_h2_max_messages_separates_no_call_from_its_result() -> None:
    history = [user("old"), *long_turn(5), user()]
    assert fit_to_budget(history, max_messages=4) == history[-3:]


def test_h2_max_turns_keeps_the_most_recent_turns() -> None:
    turn = [user(), calls("c1"), results("c1"), Message("user", "quoted", author=CONTEXT_AUTHOR), assistant()]
    history = turn * 25
    assert fit_to_budget(history, max_turns=20) == turn * 20
    assert fit_to_budget(history, max_turns=0) == history
    assert fit_to_budget(history, max_turns=30) == history


def test_h2_messages_left_out_are_logged_once_with_their_number(caplog: pytest.LogCaptureFixture) -> None:
    history = [Message("user" if n % 2 == 0 else "assistant", f"message {n}") for n in range(20)]
    with caplog.at_level(logging.WARNING, "lango.history"):
        fit_to_budget(history, count_tokens(history[13:]))
    [warning] = warnings_of(caplog)
    assert "13 of 20 messages" in warning


# H3


def test_h3_truncation_cuts_before_a_tool_message() -> None:
    """Seed scenario: the slice would start with a tool message, so leading tool messages are skipped."""
    history = [user("old"), calls("c1"), results("c1"), assistant(), user()]
    assert fit_to_budget(history, count_tokens(history[2:])) == history[3:]


def test_h3_no_truncation_preserves_a_trailing_call() -> None:
    """Seed scenario: all fits, and the last call's response is pending."""
    history = [user(), calls("c1")]
    assert fit_to_budget(history, 10_000) == history


def test_h3_orphaned_results_that_lead_stay_when_nothing_was_cut() -> None:
    history = [results("c1"), user()]
    assert fit_to_budget(history, 10_000) == history


@pytest.mark.parametrize(
    "start",
    [
        [results("gone")],
        [calls("c1", "c2"), results("c1")],
        [calls("c1")],
        [Message("tool", "legacy")],
        [calls(""), results("other", name="search")],
        [results("gone"), calls("c1"), results("other")],
    ],
)
def test_h3_a_cut_window_starts_with_no_orphan(start: list[Message]) -> None:
    history = [user("old " * 200), *start, user(), assistant(), user("now")]
    assert fit_to_budget(history, 150) == history[-3:]


def test_h3_a_system_message_between_does_not_make_an_orphan_valid() -> None:
    note = Message("system", "note")
    history = [user("old " * 200), note, results("gone"), assistant(), user("now")]
    assert fit_to_budget(history, 150) == [note, *history[-2:]]


def test_h3_a_legacy_result_belongs_to_the_call_before_it() -> None:
    turn = [calls("c1", "c2"), Message("tool", "one"), Message("tool", "two"), Message("tool", "three")]
    history = [user("old " * 200), *turn, user()]
    assert fit_to_budget(history, 150) == history[1:]
    assert fit_to_budget(history, count_tokens(history[2:])) == history[-1:]


def test_h3_parallel_results_in_several_messages_stay_with_their_call() -> None:
    history = [user("old"), calls("c1", "c2"), results("c1"), results("c2"), user()]
    for budget in range(count_tokens(history[-1:]), count_tokens(history)):
        assert fit_to_budget(history, budget) in (history[1:], history[-1:])


def test_h3_a_result_far_from_its_call_stays_with_it() -> None:
    history = [user("old " * 50), calls("c1"), user("still there?"), results("c1"), user()]
    assert fit_to_budget(history, count_tokens(history[2:])) == history[-1:]


def test_h3_the_valid_start_of_a_cut_history() -> None:
    assert first_valid_start([]) == 0
    assert first_valid_start([results("gone"), calls("c1", "c2"), results("c1"), user()]) == 3
    assert first_valid_start([results("gone"), calls("c1"), results("c1"), user()]) == 1
    assert first_valid_start([results("gone")]) == 1


def test_h3_a_result_before_its_call_stays_with_it() -> None:
    history = [user("old " * 50), results("c1"), user("there?"), calls("c1"), user("x")]
    assert fit_to_budget(history, count_tokens(history[2:])) == history[-1:]


@pytest.mark.parametrize(("made", "answered"), [("a", ""), ("", "toolu_1"), ("", "")])
def test_h3_a_result_stays_with_its_call_if_an_id_is_missing(made: str, answered: str) -> None:
    history = [user("old " * 50), calls(made), user("still there?"), results(answered), user()]
    for budget in range(count_tokens(history[-1:]), count_tokens(history)):
        assert fit_to_budget(history, budget) in (history[1:], history[-1:])


def test_h3_a_trailing_call_may_wait_after_the_user_message() -> None:
    history = [user("old " * 200), user("now"), *long_turn(3), calls("c9")]
    assert fit_to_budget(history, count_tokens([history[1], history[-1]])) == [history[1], history[-1]]
    assert fit_to_budget(history[:2] + history[-1:], 60) == [history[1], history[-1]]
    # Without a user message the window would start with it.
    assert fit_to_budget([assistant("old " * 200), calls("c9")], 60) == []


@given(any_history(), st.integers(1, 500))
def test_h3_holds_for_any_history_and_budget(history: list[Message], budget: int) -> None:
    try:
        window = fit_to_budget(history, budget)
    except BudgetTooSmall:
        return
    if len(window) == len(history) or not window:
        return
    first = next((m for m in window if m.role != "system"), window[0])
    assert first.role != "tool"
    if first.role == "assistant" and any(call.output is None for call in first.tool_calls):
        answered = {call.id for m in window if m.role == "tool" for call in m.tool_calls}
        called = {call.id for call in first.tool_calls if call.output is None}
        by_position = any(m.role == "tool" and not m.tool_calls for m in window) or any(
            not call_id or call_id.startswith("call_") for call_id in called | answered
        )
        assert by_position or called <= answered


# H4


def test_h4_the_current_user_message_is_never_left_out() -> None:
    history = [user("the task"), *long_turn(50)]
    assert fit_to_budget(history, 300)[0] == user("the task")
    with pytest.raises(BudgetTooSmall, match=r"take \d+ tokens, and the budget leaves 50"):
        fit_to_budget([user("word " * 100)], 50)


def test_h4_quoted_data_is_not_the_current_user_message() -> None:
    quoted = Message("user", "what another agent said", author=CONTEXT_AUTHOR)
    history = [user("the task"), *long_turn(20), quoted, *long_turn(3)]
    assert current_user_message(history) == 0
    assert fit_to_budget(history, 400)[0] == user("the task")
    assert current_user_message([quoted, assistant()]) == 0
    assert current_user_message([assistant()]) is None


@pytest.mark.parametrize(
    "output",
    [
        {"stdout": "line of output\n" * 30_000, "code": 0},
        {"rows": [{"id": n, "name": f"row {n}"} for n in range(20_000)]},
        {f"key {n}": f"value {n}" for n in range(20_000)},
        {"text": "这是一个测试" * 20_000},
        {"blob": "QUJDREVG" * 50_000},
    ],
)
def test_h4_a_result_larger_than_the_budget_is_clipped_with_a_visible_mark(
    output: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    history = [user(), *long_turn(3), calls("big"), results("big", **output)]
    window = fit_to_budget(history, 2_000)
    assert window[0] == user()
    assert window[:-1] == [*history[:1], *history[-len(window) + 1 : -1]]
    clipped = window[-1].tool_calls[0].output
    assert clipped is not None
    text = compact_json(clipped)
    assert "tokens left out" in text
    assert count_tokens(window) <= 2_000
    assert 400 < count_tokens(text) <= 500  # clipped to its share, a quarter, not to nothing
    assert len(window) == len(history)  # and not at the cost of the rest of the turn
    [warning] = warnings_of(caplog)
    assert "0 of 9 messages" in warning
    assert broken_rules(window) == []


def test_h4_clipping_keeps_the_other_fields_of_a_result() -> None:
    clipped = clip_object({"code": 3, "stdout": "begin " + "x y z " * 5_000 + " end"}, 200)
    assert clipped["code"] == 3
    assert clipped["stdout"].startswith("begin ")
    assert clipped["stdout"].endswith(" end")


def test_h4_an_older_result_larger_than_the_budget_is_clipped_too() -> None:
    history = [user(), calls("big"), results("big", out="word " * 5_000), *long_turn(2)]
    window = fit_to_budget(history, 1_000)
    assert len(window) == len(history)
    assert "tokens left out" in compact_json(window[2].tool_calls[0].output)
    assert window[2].content == ""  # the text would repeat the unclipped output


def test_h4_a_huge_result_in_the_turn_before_does_not_displace_older_messages() -> None:
    before = [user("old"), assistant("older answer")]
    turn = [user("question"), calls("big"), results("big", out="word " * 5_000), assistant()]
    window = fit_to_budget([*before, *turn, user("now")], 1_000)
    assert [*window[:4], *window[5:]] == [*before, *turn[:2], turn[3], user("now")]
    clipped = compact_json(window[4].tool_calls[0].output)
    assert "tokens left out" in clipped
    assert count_tokens(clipped) <= 250


def test_h4_results_are_clipped_to_a_quarter_before_messages_are_left_out() -> None:
    outs = {f"c{n}": {"out": f"{n} " + "word " * 600} for n in range(4)}
    turns = [m for i, output in outs.items() for m in (user(i), calls(i), results(i, **output))]
    window = fit_to_budget([*turns, user("now")], 1_000)
    assert [m for m in window if m.role == "user"] == [user(f"c{n}") for n in range(4)] + [user("now")]
    assert max(count_tokens(compact_json(c.output)) for m in window if m.role == "tool" for c in m.tool_calls) <= 250
    assert fit_to_budget([*turns, user("now")], 10_000) == [*turns, user("now")], "where all fits, nothing is clipped"


def test_h4_large_quoted_data_is_clipped_but_not_the_users_messages() -> None:
    quoted = Message("user", "begin " + "word " * 5_000 + "end", author=CONTEXT_AUTHOR)
    window = fit_to_budget([user("old"), quoted, assistant(), user("now")], 1_000)
    assert [window[0], *window[2:]] == [user("old"), assistant(), user("now")]
    assert window[1].content.startswith("begin ")
    assert "tokens left out" in window[1].content
    assert window[1].content.endswith("end")
    assert count_tokens(window[1]) <= 260
    assert fit_to_budget([user("old"), user("word " * 5_000), user("now")], 1_000) == [user("now")]


def test_h4_a_turn_of_many_large_results_is_clipped_into_what_is_left() -> None:
    ids = [f"c{n}" for n in range(6)]
    history = [user("question"), calls(*ids), results(*ids, out="word " * 220), assistant(), user("now")]
    window = fit_to_budget(history, 1_000)
    assert len(window) == len(history)
    assert window[:2] == history[:2]
    assert all("tokens left out" in compact_json(call.output) for call in window[2].tool_calls)


def test_h4_parallel_results_share_the_room_and_small_ones_are_not_clipped() -> None:
    outputs = {"a": "word " * 3_000, "b": "short", "c": "word " * 2_000}
    answers = Message("tool", "all", tuple(ToolCall(i, "exec", output={"out": o}) for i, o in outputs.items()))
    window = fit_to_budget([user(), calls("a", "b", "c"), answers], 1_000)
    kept = {call.id: call.output for call in window[-1].tool_calls}
    assert kept["b"] == {"out": "short"}
    assert all("tokens left out" in compact_json(kept[i]) for i in "ac")
    assert count_tokens(window) <= 1_000


def test_h4_arguments_are_clipped_only_if_clipping_results_is_not_enough() -> None:
    history = [user(), calls("c1", text="word " * 3_000), results("c1")]
    window = fit_to_budget(history, 500)
    assert "tokens left out" in compact_json(window[1].tool_calls[0].input)
    assert window[2] == history[2]


def test_h4_a_budget_that_is_too_small_for_the_current_message_is_a_typed_error() -> None:
    picture = Message("tool", "", results("c1").tool_calls, media=(Media("image/png", b"x"),))
    with pytest.raises(BudgetTooSmall):
        fit_to_budget([user(), calls("c1"), picture], 500)


def test_h4_a_system_message_at_the_start_stays() -> None:
    system = Message("system", "be kind")
    assert fit_to_budget([system, *[user(), assistant()] * 50, user("now")], 40)[0] == system


# H5


def test_h5_the_budget_holds_inside_a_turn_of_hundreds_of_calls() -> None:
    history = [user("before"), assistant(), user("the task"), *long_turn(400)]
    window = fit_to_budget(history, 4_000)
    assert window[0] == user("the task")
    assert window[1:] == history[-len(window) + 1 :]
    assert 3_800 < count_tokens(window) <= 4_000
    assert broken_rules(window) == []


@given(sound_history(), st.integers(1, 40), st.integers(60, 3_000))
def test_h5_a_window_of_a_long_turn_is_valid(before: list[Message], length: int, budget: int) -> None:
    history = [*before, *long_turn(length)]
    try:
        window = fit_to_budget(history, budget)
    except BudgetTooSmall:
        return
    assert count_tokens(window) <= budget
    assert broken_rules(window) == []
    assert before[-1] in window
