"""The trace of a turn is built from its rows: nothing is lost, twice, or outside of its parent."""

from collections import Counter
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from lango.events import Usage
from lango.messages import Message, ToolCall
from lango.runtime.trace.steps import MAX_DEPTH, Step
from lango.runtime.trace.tree import turn_trace
from lango.sessions import StoredEvent
from lango.store.sessions.developer_log import ModelRequest
from lango.store.turns.turn_usage import ToolUse, TurnUsage
from lango.store.turns.turns import TurnResult
from tests.support.counted_work import check_growth, counted_calls
from tests.support.examples import examples


def _row(tools: list[ToolUse], calls: list[dict[str, Any]], status: Any = "done") -> TurnUsage:
    return TurnUsage(1, status, 10.0, 99.0, 1, 50, 0, Usage(), False, TurnResult(calls=calls), tools)


def _message(
    seq: int, at: float, author: str, branch: str = "", calls: tuple[str, ...] = (), **extra: Any
) -> StoredEvent:
    made = tuple(ToolCall(call_id, "look", {}) for call_id in calls)
    return StoredEvent(seq, f"e{seq}", at, Message("assistant", "", made, author), extra={"branch": branch, **extra})


def _result(seq: int, at: float, call_id: str) -> StoredEvent:
    return StoredEvent(seq, f"e{seq}", at, Message("tool", "", (ToolCall(call_id, "look", output={}),), "a"))


def _flat(steps: list[Step]) -> list[Step]:
    return [found for step in steps for found in (step, *_flat(step.steps))]


def test_agents_that_take_turns_are_groups_in_their_order() -> None:
    events = [_message(2, 11.0, "a"), _message(3, 12.0, "b"), _message(4, 13.0, "a")]
    trace = turn_trace(_row([], []), events)
    assert [(group.name, [step.seq for step in group.steps]) for group in trace.steps] == [
        ("a", [2]),
        ("b", [3]),
        ("a", [4]),
    ]
    assert len({step.id for step in _flat(trace.steps)}) == 6


def test_parallel_agents_are_groups_side_by_side() -> None:
    events = [_message(n, 10.0 + n, "ab"[n % 2], f"p.{'ab'[n % 2]}") for n in range(2, 8)]
    trace = turn_trace(_row([], []), events)
    assert [(group.name, [step.seq for step in group.steps]) for group in trace.steps] == [
        ("a", [2, 4, 6]),
        ("b", [3, 5, 7]),
    ]


def test_a_call_whose_process_died_follows_from_its_response() -> None:
    usage = {"prompt_token_count": 7, "candidates_token_count": 2, "thoughts_token_count": 1}
    events = [
        _message(2, 12.0, "a", calls=("c1",), usage_metadata=usage, model_version="m"),
        _result(3, 14.0, "c1"),
        _message(4, 15.0, "a"),
    ]
    calls = [
        {"agent": "a", "step": "a@#1", "started_at": 40.0, "duration_s": 0.0, "replayed": True, "model": "m"},
        {"agent": "a", "step": "a@#2", "started_at": 41.0, "duration_s": 2.0, "seq": 4, "model": "m"},
    ]
    for known in ([], calls):
        [group] = turn_trace(_row([], known), events).steps
        first, second = group.steps
        assert (first.is_estimated, first.started_at, first.ended_at, first.seq) == (True, 10.0, 12.0, 2)
        assert [tool.call_id for tool in first.steps] == ["c1"]
        assert second.seq == 4
    assert second.started_at == 41.0
    [group] = turn_trace(_row([], []), events).steps
    assert (group.steps[0].usage.input_tokens, group.steps[0].usage.output_tokens, group.steps[0].model) == (7, 3, "m")


def test_requests_belong_to_their_run_of_a_call() -> None:
    calls = [
        {"agent": "a", "step": "a@#1", "started_at": 11.0, "duration_s": 1.0, "failed": True},
        {"agent": "a", "step": "a@#1", "started_at": 20.0, "duration_s": 1.0, "seq": 2},
    ]
    requests = [_request("1", "a@#1", 11.0, "no"), _request("2", "a@#1", 20.0), _request("3", "b@p#1", 22.0, "lost")]
    first, other = turn_trace(_row([], calls), [_message(2, 21.0, "a")], requests).steps
    assert [[attempt.request_id for attempt in step.attempts] for step in first.steps] == [["1"], ["2"]]
    assert [step.status for step in first.steps] == ["failed", "done"]
    assert (other.name, other.branch, other.status) == ("b", "p", "failed")


def _request(request_id: str, step: str, at: float, error: str = "") -> ModelRequest:
    return ModelRequest(step, "p", "m", "", at, 0.5, None, error, request_id, 1, 10)


def test_nodes_and_code_are_steps_of_their_own() -> None:
    tools = [
        ToolUse("node:flow/first@1#1", "first", "finished", 11.0, 12.0, None, 11.0),
        ToolUse("code:a@/1", "code", "unknown", 13.0, None, None, 13.0),
    ]
    node, group = turn_trace(_row(tools, []), []).steps
    assert (node.kind, node.name, node.duration_s) == ("node", "first", 1.0)
    assert (group.name, group.steps[0].status) == ("a", "unknown")


def test_five_thousand_steps_take_no_time_to_speak_of() -> None:
    calls = [
        {"agent": "a", "step": f"a@#{n}", "started_at": 10.0 + n, "duration_s": 0.5, "seq": 2 * n}
        for n in range(1, 2501)
    ]
    events = [
        event
        for n in range(1, 2501)
        for event in (_message(2 * n, 10.5 + n, "a", calls=(f"c{n}",)), _result(2 * n + 1, 10.8 + n, f"c{n}"))
    ]
    tools = [ToolUse(f"c{n}", "look", "finished", 10.6 + n, 10.7 + n, None, 10.6 + n) for n in range(1, 2501)]
    [group] = turn_trace(_row(tools, calls), events).steps
    assert len(group.steps) == 2500
    assert all(len(step.steps) == 1 for step in group.steps)


_AGENTS, _BRANCHES = ["a", "b"], ["", "p.a", "p.b"]
_TIMES = st.floats(10, 90)


@st.composite
def _turns(draw: st.DrawFn) -> tuple[TurnUsage, list[StoredEvent], list[ModelRequest]]:
    """Any rows of a turn, also those that no run would leave."""
    ids = [f"c{n}" for n in range(6)]
    events: list[StoredEvent] = []
    for seq, at in enumerate(sorted(draw(st.lists(_TIMES, max_size=8))), 2):
        if draw(st.booleans()):
            made = tuple(draw(st.lists(st.sampled_from(ids), max_size=2, unique=True)))
            extra = {"from_code": True} if draw(st.integers(0, 4)) == 0 else {}
            agent, branch = draw(st.sampled_from(_AGENTS)), draw(st.sampled_from(_BRANCHES))
            events.append(_message(seq, at, agent, branch, made, **extra))
        else:
            events.append(_result(seq, at, draw(st.sampled_from(ids))))
    calls = [
        {
            "agent": draw(st.sampled_from(_AGENTS)),
            "branch": draw(st.sampled_from(_BRANCHES)),
            "step": f"{draw(st.sampled_from(_AGENTS))}@#{draw(st.integers(1, 3))}",
            "started_at": draw(_TIMES),
            "duration_s": draw(st.floats(0, 5)),
            **draw(
                st.sampled_from(
                    [
                        {},
                        {"failed": True},
                        {"replayed": True},
                        {"running": True},
                        {"inside": "c1", "made": ["c2"]},
                        {"inside": "c2", "made": ["c1"]},
                        {"seq": 2},
                        {"seq": 3},
                    ]
                )
            ),
        }
        for _ in range(draw(st.integers(0, 5)))
    ]
    names = draw(
        st.lists(st.sampled_from([*ids, "node:flow@1#1", "c1/inner@#1", "c1/node:x#1", "code:a@/1"]), unique=True)
    )
    tools = [
        ToolUse(
            name,
            "look",
            draw(st.sampled_from(["waiting", "not_run", "running", "finished", "failed", "unknown"])),
            draw(st.none() | _TIMES),
            draw(st.none() | _TIMES),
            None,
            10.0,
        )
        for name in names
    ]
    requests = [
        _request(str(n), f"{draw(st.sampled_from(_AGENTS))}@#{draw(st.integers(1, 3))}", draw(_TIMES))
        for n in range(draw(st.integers(0, 4)))
    ]
    return _row(tools, calls, draw(st.sampled_from(["done", "running", "failed"]))), events, requests


@examples(150)
@given(_turns())
def test_every_row_is_in_the_tree_once(turn: tuple[TurnUsage, list[StoredEvent], list[ModelRequest]]) -> None:
    row, events, requests = turn
    trace = turn_trace(row, events, requests)
    steps = _flat(trace.steps)
    assert max(Counter(step.id for step in steps).values(), default=1) == 1
    models = [step for step in steps if step.kind == "model_call"]
    assert len(models) >= len(row.result.calls)
    shown = {step.seq for step in steps} | {step.result_seq for step in steps}
    assert {event.seq for event in events if event.message and event.message.role == "assistant"} <= shown
    assert {tool.call_id for tool in row.tools} <= {step.call_id for step in steps} | {step.id for step in steps}
    assert sorted(attempt.request_id or "" for step in steps for attempt in step.attempts) == sorted(
        request.id for request in requests
    )
    for group in steps:
        if group.kind == "agent":
            assert all(group.started_at <= step.started_at for step in group.steps)
            assert group.duration_s is None or all(step.ended_at <= group.ended_at + 1e-6 for step in group.steps)


def _nested(count: int) -> TurnUsage:
    """A turn in which each model call stands inside the tool that the one before it called."""
    calls = [
        {"agent": "a", "step": f"a@#{number}", "inside": f"c{number - 1}" if number else "", "made": [f"c{number}"]}
        for number in range(count)
    ]
    tools = [ToolUse(f"c{number}", "look", "finished", 10.0, 11.0, None) for number in range(count)]
    return _row(tools, calls)


def test_attack_22_a_trace_takes_time_linear_in_its_steps() -> None:
    """Measured: 20,000 nested calls took 175 s."""
    check_growth(lambda size: counted_calls(turn_trace, _nested(size), []), 1_000)
    events = [_message(seq, 10.0, "a", f"b{seq}") for seq in range(2, 502)]
    others = [{"agent": "a", "branch": "none"}]
    check_growth(lambda size: counted_calls(turn_trace, _row([], others * size), events), 1_000)


def test_steps_that_are_nested_too_deep_stand_at_the_top() -> None:
    trace = turn_trace(_nested(200), [])
    assert len([step for step in _flat(trace.steps) if step.kind != "agent"]) == 400

    def depth(steps: list[Step]) -> int:
        return 1 + max((depth(step.steps) for step in steps), default=0)

    assert depth(trace.steps) <= 2 * MAX_DEPTH
