"""No test judges by a clock: a bound on a duration fails on a slower or a busier machine.

Count the work instead (`tests.support.counted_work`), show which thread does it, await an event, or write a benchmark.
Clocks are for timestamps and for giving up: a wait may end after `TIMEOUT_S`, or at a point in time.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[2]
CLOCKS = ("perf_counter", "perf_counter_ns", "monotonic", "monotonic_ns", "process_time", "thread_time", "ru_utime")
DURATION = re.compile(r"(^|_)(elapsed|took|duration|latency|lateness|ms|milliseconds)(_s|_ms)?$")
MAY_JUDGE = re.compile(
    rf"{'|'.join(CLOCKS)}|{DURATION.pattern.replace('(^|_)', '(?<![A-Za-z0-9])').replace('$', '')}(?!\w)"
)
"""What a test contains that judges by a clock: parsing takes longer than looking for it."""
GIVING_UP = re.compile(r"(^|_)TIMEOUT_S$|^(end|until|deadline|left)$")


def names_in(node: ast.AST) -> set[str]:
    """Return the names, the attributes and the literal keys in an expression."""
    inside = list(ast.walk(node))
    keys = [one.slice for one in inside if isinstance(one, ast.Subscript)]
    return {
        *(one.id for one in inside if isinstance(one, ast.Name)),
        *(one.attr for one in inside if isinstance(one, ast.Attribute)),
        *(key.value for key in keys if isinstance(key, ast.Constant) and isinstance(key.value, str)),
    }


def reads_clock(node: ast.AST) -> bool:
    return any(isinstance(one, ast.Call) and not names_in(one.func).isdisjoint(CLOCKS) for one in ast.walk(node))


def is_positive_number(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and type(node.value) in (int, float) and bool(node.value)


def judged_durations(source: str) -> Iterator[int]:
    """Yield the lines of assertions that compare a duration with a bound."""
    tree = ast.parse(source)
    differences = {
        name
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.BinOp) and reads_clock(node.value)
        for target in node.targets
        for name in names_in(target)
        if not GIVING_UP.search(name)
    }
    for statement in ast.walk(tree):
        if not isinstance(statement, ast.Assert):
            continue
        for compared in ast.walk(statement.test):
            if not isinstance(compared, ast.Compare) or all(isinstance(one, ast.Eq | ast.Is) for one in compared.ops):
                continue
            sides = [compared.left, *compared.comparators]
            if any(GIVING_UP.search(name) for side in sides for name in names_in(side)):
                continue
            measured = reads_clock(compared) or not names_in(compared).isdisjoint(differences)
            named = any(DURATION.search(name) for name in names_in(compared))
            if measured or (named and any(map(is_positive_number, sides))):
                yield statement.lineno


def test_no_test_asserts_a_duration() -> None:
    found = [
        f"{file.relative_to(TESTS.parent)}:{line}"
        for file in sorted(TESTS.rglob("*.py"))
        if MAY_JUDGE.search(source := file.read_text("utf-8"))
        for line in judged_durations(source)
    ]
    assert found == []


@pytest.mark.parametrize(
    "judged",
    [
        "began = time.perf_counter()\nassert time.perf_counter() - began < 1",
        "took = time.process_time() - began\nassert took < 0.5",
        "spent = perf_counter() - began\nassert spent * 2 <= bound",
        "assert worst['late_ms'] <= 50",
        "assert answer.elapsed.total_seconds() < 3",
        "assert delay_ms < 50",
        "assert all(0 <= one.duration_s < 60 for one in calls)",
    ],
)
def test_an_assertion_on_a_duration_is_found(judged: str) -> None:
    assert MAY_JUDGE.search(judged)
    assert [*judged_durations(judged)] == [judged.count("\n") + 1]


@pytest.mark.parametrize(
    "allowed",
    [
        "assert time.monotonic() < end, 'nothing came'",
        "assert time.monotonic() - began < TIMEOUT_S",
        "assert step.duration_s == 1.0",
        "assert call.duration_s >= 0",
        "end = time.monotonic() + TIMEOUT_S\nassert count < 5",
    ],
)
def test_data_and_giving_up_are_allowed(allowed: str) -> None:
    assert [*judged_durations(allowed)] == []
