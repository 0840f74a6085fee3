"""T2: the model gets a result from any handler, and the turn continues. A8: an unknown outcome is reported."""

import asyncio
import json
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime
from enum import Enum, IntEnum
from pathlib import PurePosixPath
from typing import Annotated, Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import AfterValidator, BaseModel

from lango.errors import InvalidArguments
from lango.tools import Effect, Tool, ToolError, ToolOutcome, run_tool, tool
from lango.tools.results import MAX_KEPT_CHARACTERS, MAX_RESULT_CHARACTERS, clip_to_characters, error_text, to_result


def returning(value: Any) -> Tool:
    return Tool("it", "", {}, lambda: value)


async def outcome_of(function: Callable[..., Any], *, effect: Effect = "once", timeout_s: float = 30) -> ToolOutcome:
    return await run_tool(Tool("it", "", {}, function, effect=effect), {}, timeout_s=timeout_s)


class Kind(Enum):
    A = "a"


class Number(IntEnum):
    ONE = 1


class Model(BaseModel):
    at: datetime
    kind: Kind = Kind.A


@dataclass
class Pair:
    left: Any
    right: Any


@pytest.mark.parametrize(
    ("value", "result"),
    [
        ({"a": [1, 2.5, None, True, "x"]}, {"a": [1, 2.5, None, True, "x"]}),
        (None, {"result": None}),
        ("text", {"result": "text"}),
        ([1], {"result": [1]}),
        ((1, {2}), {"result": [1, [2]]}),
        (Number.ONE, {"result": 1}),
        ({Kind.A: 1, 2: 3, None: 4}, {"a": 1, "2": 3, "null": 4}),
        (Model(at=datetime(2026, 1, 2, tzinfo=UTC)), {"at": "2026-01-02T00:00:00Z", "kind": "a"}),
        (Pair(date(2026, 1, 2), UUID(int=1)), {"left": "2026-01-02", "right": str(UUID(int=1))}),
        (PurePosixPath("a/b"), {"result": "a/b"}),
        ("a\0b\ud800c", {"result": "a\ufffdb\ufffdc"}),
        ({"\0": "\udfff"}, {"\ufffd": "\ufffd"}),
    ],
)
async def test_t2_json_values_are_the_result(value: Any, result: dict[str, Any]) -> None:
    outcome = await run_tool(returning(value), {})
    assert outcome == ToolOutcome(result, ok=True)
    json.dumps(outcome.result, ensure_ascii=False, allow_nan=False).encode()


def cyclic() -> list[Any]:
    value: list[Any] = []
    value.append({"again": value})
    return value


def endless() -> Iterator[int]:
    while True:
        yield 1


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (b"abc", "result is bytes"),
        ({"a": [bytearray(b"x")]}, "result.a[0] is bytes"),
        (float("nan"), "result is nan"),
        ({"a": {"b": float("-inf")}}, "result.a.b is -inf"),
        (object(), "type object"),
        (print, "type builtin_function_or_method"),
        (cyclic(), "contains itself"),
        (endless(), "type generator"),
        ({(1, 2): 3}, "key of type tuple"),
        ({"n": 10**5000}, "too long"),
        (Pair(b"", 1), "result.left is bytes"),
    ],
)
async def test_t2_other_values_are_an_error_result(value: Any, message: str) -> None:
    outcome = await run_tool(returning(value), {})
    assert not outcome.ok
    assert message in outcome.result["error"]
    assert "the tool ran" in outcome.result["error"]


async def fails_later() -> None:
    raise KeyError("missing")


def fails() -> None:
    raise ValueError("no such\0 city\ud800")


def leaves() -> None:
    sys.exit(3)


def stops() -> None:
    raise StopIteration


class Rude(Exception):
    def __str__(self) -> str:
        raise RuntimeError


def is_rude() -> None:
    raise Rude


def refuses() -> None:
    raise ToolError("the shop is closed", opens_at="9:00")


def refuses_badly() -> None:
    raise ToolError("the shop is closed", photo=b"")


def times_out_itself() -> None:
    raise TimeoutError("the other side took too long")


@pytest.mark.parametrize(
    ("handler", "result"),
    [
        (fails_later, {"error": "KeyError: 'missing'"}),
        (fails, {"error": "ValueError: no such\ufffd city\ufffd"}),
        (leaves, {"error": "SystemExit: 3"}),
        (stops, {"error": "RuntimeError: coroutine raised StopIteration"}),
        (is_rude, {"error": "Rude"}),
        (refuses, {"error": "the shop is closed", "opens_at": "9:00"}),
        (refuses_badly, {"error": "the shop is closed"}),
        (times_out_itself, {"error": "TimeoutError: the other side took too long"}),
    ],
)
async def test_t2_an_exception_is_an_error_result(handler: Any, result: dict[str, Any]) -> None:
    assert await outcome_of(handler) == ToolOutcome(result, ok=False)


class Panic(BaseException):
    """An error like the panic of a native library."""


@pytest.mark.parametrize("error", [SystemExit(2), Panic("index out of bounds"), GeneratorExit("closed")])
@pytest.mark.parametrize("kind", ["sync", "async", "hands out a coroutine", "hands out a task"])
async def test_t2_a_base_exception_is_an_error_result(error: BaseException, kind: str) -> None:
    async def raises_later() -> None:
        await asyncio.sleep(0)
        raise error

    def raises() -> None:
        raise error

    handlers: dict[str, Any] = {
        "sync": raises,
        "async": raises_later,
        "hands out a coroutine": lambda: raises_later(),
    }
    if kind == "hands out a task":
        if isinstance(error, SystemExit):
            return  # a task of the handler ends the loop first
        task = asyncio.ensure_future(raises_later())
        handlers[kind] = lambda: task
    outcome = await outcome_of(handlers[kind])
    assert outcome == ToolOutcome({"error": f"{type(error).__name__}: {error}"}, ok=False)


@pytest.mark.parametrize("error", [SystemExit(2), Panic("index out of bounds")])
async def test_t2_a_validator_that_raises_a_base_exception_means_invalid_arguments(error: BaseException) -> None:
    def check(value: int) -> int:
        raise error

    def counts(number: Annotated[int, AfterValidator(check)]) -> int:
        """Count."""
        return number

    counting = tool(counts)
    with pytest.raises(InvalidArguments, match=type(error).__name__):
        counting.validate({"number": 1})
    assert not (await run_tool(counting, {"number": 1})).ok


@pytest.mark.parametrize("is_async", [False, True])
def test_t2_ctrl_c_goes_through(is_async: bool) -> None:
    """Run in a separate event loop, which the handler ends."""

    async def interrupted_later() -> None:
        raise KeyboardInterrupt

    def interrupted() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        asyncio.run(outcome_of(interrupted_later if is_async else interrupted))


async def test_t2_an_error_holds_no_traceback_and_no_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_API_KEY", "canary-7281-do-not-tell")

    def connects() -> None:
        raise RuntimeError(
            "401 for canary-7281-do-not-tell at postgresql://user:hunter2@db/x, Bearer abcdefghijklmnop, "
            "key sk-proj-abcdefghijklmnopqrstu " + "x" * 9000
        )

    error = (await outcome_of(connects)).result["error"]
    for secret in ("canary-7281", "hunter2", "abcdefghijklmnop", "Traceback", __file__):
        assert secret not in error
    assert error.startswith(
        "RuntimeError: 401 for [secret] at postgresql://[secret]@db/x, Bearer [secret], key [secret]"
    )
    assert len(error) < 2100


async def test_a8_a_hanging_async_handler_is_stopped_and_its_outcome_is_unknown() -> None:
    stopped = asyncio.Event()

    async def hangs() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()

    outcome = await outcome_of(hangs, timeout_s=0.05)
    assert stopped.is_set()
    assert not outcome.ok
    assert outcome.result["error"] == "timed out after 0.05 s; it was stopped, and its outcome is unknown"
    outcome = await outcome_of(hangs, timeout_s=0.05, effect="none")
    assert outcome.result["error"] == "timed out after 0.05 s"


async def test_a8_a_hanging_sync_handler_does_not_block_the_loop_and_its_outcome_is_unknown() -> None:
    release, ended = threading.Event(), threading.Event()

    def hangs() -> None:
        release.wait(120)
        ended.set()

    try:
        outcome = await outcome_of(hangs, timeout_s=0.05)
        assert not ended.is_set(), "it was not waited for"
        assert "may still be running" in outcome.result["error"]
        assert "outcome is unknown" in outcome.result["error"]
    finally:
        release.set()
    assert await asyncio.to_thread(ended.wait, 120)  # and its late return has no effect


async def test_many_hanging_handlers_do_not_starve_the_others() -> None:
    release = threading.Event()
    try:
        outcomes = await asyncio.gather(*(outcome_of(lambda: release.wait(120), timeout_s=0.1) for _ in range(40)))
        assert all("outcome is unknown" in outcome.result["error"] for outcome in outcomes)
        assert (await outcome_of(lambda: "fine")).ok
    finally:
        release.set()


async def test_a_handler_that_does_not_stop_is_abandoned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lango.tools.execution._GRACE_S", 0.05)
    release = asyncio.Event()

    async def stubborn() -> None:
        while not release.is_set():
            try:
                await release.wait()
            except asyncio.CancelledError:
                continue
        raise ValueError("much later")

    outcome = await outcome_of(stubborn, timeout_s=0.05)
    assert "outcome is unknown" in outcome.result["error"]
    release.set()
    await asyncio.sleep(0)


async def test_a_cancel_of_the_caller_reaches_the_handler_and_propagates() -> None:
    started, cleaned = asyncio.Event(), asyncio.Event()

    async def works() -> None:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            cleaned.set()

    task = asyncio.ensure_future(outcome_of(works))
    await started.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert cleaned.is_set()


async def cancels_itself() -> None:
    raise asyncio.CancelledError


def cancels_in_its_thread() -> None:
    raise asyncio.CancelledError


@pytest.mark.parametrize("handler", [cancels_itself, cancels_in_its_thread])
async def test_a_handler_that_cancels_itself_is_an_outcome(handler: Any) -> None:
    outcome = await outcome_of(handler)
    assert not outcome.ok
    assert "unknown" in outcome.result["error"]


async def test_a_sync_handler_does_not_block_the_loop() -> None:
    arrived, release = asyncio.Event(), threading.Event()
    loop = asyncio.get_running_loop()

    def waits() -> str:
        loop.call_soon_threadsafe(arrived.set)
        return "released" if release.wait(120) else "stuck"

    task = asyncio.ensure_future(outcome_of(waits))
    await arrived.wait()  # the loop turns while the handler waits
    release.set()
    assert (await task).result == {"result": "released"}


async def test_a_sync_handler_may_return_a_coroutine() -> None:
    async def later() -> int:
        return 5

    assert (await outcome_of(lambda: later())).result == {"result": 5}


# Large results.


async def test_t2_fifty_megabytes_are_clipped_with_a_note() -> None:
    outcome = await run_tool(returning("x" * 50_000_000), {}, how_to_read="read them with read_result")
    assert outcome.ok
    shown = outcome.result["result"]
    assert len(shown) <= MAX_RESULT_CHARACTERS
    assert "of 50000000 were left out; read them with read_result" in shown
    assert outcome.whole is not None
    assert len(outcome.whole) < MAX_KEPT_CHARACTERS + 100
    assert "characters omitted" in outcome.whole


def test_a_clipped_text_keeps_its_head_its_tail_and_other_values() -> None:
    text = "".join(f"line {number}\n" for number in range(10_000))
    clipped = clip_to_characters({"exit_code": 0, "stdout": text}, 1_000)
    assert clipped.result["exit_code"] == 0
    assert clipped.result["stdout"].startswith("line 0\n")
    assert clipped.result["stdout"].endswith("line 9999\n")
    assert clipped.whole is not None
    assert clipped.whole == text
    mark = clipped.result["stdout"].split("[... characters ")[1]
    first, last = int(mark.split(" to ")[0]), int(mark.split(" to ")[1].split(" of ")[0])
    head, tail = clipped.result["stdout"].split("\n[...")[0], clipped.result["stdout"].split("...]\n")[1]
    assert head + clipped.whole[first:last] + tail == text  # the offsets are what read_result takes


@given(
    st.dictionaries(st.text(max_size=5), st.text() | st.lists(st.text(), max_size=40), max_size=6),
    st.integers(min_value=300, max_value=2_000),
)
def test_a_clipped_result_fits(result: dict[str, Any], most: int) -> None:
    result = to_result(result | {"long": '\n"é' * 300})
    clipped = clip_to_characters(result, most)
    assert len(json.dumps(clipped.result, ensure_ascii=False, separators=(",", ":"))) <= most or clipped.whole is None
    assert (clipped.result == result) == (clipped.whole is None)


def test_many_small_values_are_clipped_as_text() -> None:
    clipped = clip_to_characters({"rows": list(range(100_000))}, 1_000)
    assert clipped.result["clipped"].startswith('{"rows":[0,1,2')
    assert clipped.whole is not None
    assert json.loads(clipped.whole) == {"rows": list(range(100_000))}


def test_an_error_without_a_message_has_its_name() -> None:
    assert error_text(AssertionError()) == "AssertionError"
