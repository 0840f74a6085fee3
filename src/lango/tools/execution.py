"""Decide whether a tool may run, and run a call within a time limit. No failure of a handler ends the turn."""

import asyncio
import hashlib
import inspect
import json
import logging
from collections.abc import Awaitable, Callable, Generator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from typing import Any, Literal, TypeVar

from msgspec import Struct

from lango.config import ToolSettings
from lango.development.failures import log_failure
from lango.errors import InvalidArguments, NotJson, ToolError
from lango.messages import Attachment
from lango.threads import run_in_own_thread
from lango.tools.results import FileLimits, ResultFiles, clip_to_characters, error_text, to_result
from lango.tools.tool import Level, Tool, ToolContext
from lango.waits.pauses import AwaitedEvent, Pause, Sleep

log = logging.getLogger(__name__)

T = TypeVar("T")

DEFAULT_TIMEOUT_S = 120.0
time_limit: ContextVar[asyncio.Timeout | None] = ContextVar("lango_tool_time_limit", default=None)
"""The time limit of the tool that this code runs in: a tool may stop it while it waits for a person."""
CANCELLED_INSIDE = "the tool cancelled itself; its outcome is unknown"
_GRACE_S = 2.0
"""How long a cancelled handler may take to clean up before it is abandoned."""


class ToolOutcome(Struct, frozen=True):
    """The outcome of a call; the model reads `result`."""

    result: dict[str, Any]
    ok: bool
    whole: str | None = None
    """The full text of a clipped `result`, to be stored and read in pieces; None if nothing was clipped."""
    files: tuple[Attachment, ...] = ()
    """Pictures and other files of the result; `result` has their names in their places."""
    pause: Pause | None = None
    """The call waits, and has no result yet."""


async def run_tool(
    tool: Tool,
    arguments: Mapping[str, Any],
    context: ToolContext | None = None,
    *,
    timeout_s: float = DEFAULT_TIMEOUT_S,
    how_to_read: str = "",
    file_limits: FileLimits | None = None,
) -> ToolOutcome:
    """Run a tool once. Only Ctrl-C and a cancellation of the caller raise; everything else is an outcome.

    `timeout_s` is the default for tools without a limit. `how_to_read` is added to a clipped result, for the model.
    """
    limit_s = tool.timeout_s or timeout_s
    context = context or ToolContext()
    try:
        given = tool.validate(arguments)
    except InvalidArguments as error:
        return ToolOutcome({"error": error_text(error)}, ok=False)
    limit = asyncio.timeout(limit_s)
    time_limit.set(limit)
    try:
        async with limit:
            if tool.is_async:
                value = await _run_in_task(tool.call(given, context))
                return await _run_in_thread(_outcome, value, how_to_read, file_limits)
            value = await _run_in_thread(tool.call, given, context)
            if inspect.isawaitable(value):  # a sync function that returns a coroutine
                value = await _run_in_task(value)
            return await _run_in_thread(_outcome, value, how_to_read, file_limits)
    except TimeoutError as error:
        return _timed_out(tool, limit_s) if limit.expired() else _failed(error)
    except _HandlerCancelled:
        return ToolOutcome({"error": CANCELLED_INSIDE}, ok=False)
    except Exception as error:  # noqa: BLE001 - it is logged, and the model reads it
        if not isinstance(error, ToolError) or error.__cause__ is not None:  # else the tool says what failed
            log_failure(f"tool {tool.name} failed", error, context.call_id)
        return _failed(error)


def _failed(error: BaseException) -> ToolOutcome:
    details: dict[str, Any] = {}
    if isinstance(error, ToolError):
        with suppress(NotJson):  # then without details
            details = to_result(error.details)
    clipped = clip_to_characters({"error": error_text(error), **details})
    return ToolOutcome(clipped.result, ok=False, whole=clipped.whole)


def _timed_out(tool: Tool, limit_s: float) -> ToolOutcome:
    message = f"timed out after {limit_s:g} s"
    if tool.effect == "none":
        return ToolOutcome({"error": message}, ok=False)
    left = "it was stopped" if tool.is_async else "it may still be running"
    return ToolOutcome({"error": f"{message}; {left}, and its outcome is unknown"}, ok=False)


def _outcome(value: Any, how_to_read: str, file_limits: FileLimits | None) -> ToolOutcome:
    if isinstance(value, Sleep | AwaitedEvent):
        return ToolOutcome({}, ok=True, pause=value)
    files = ResultFiles(file_limits)
    try:
        result = to_result(value, files)
    except NotJson as error:
        return ToolOutcome({"error": f"the tool ran, but its result has no JSON form: {error}"}, ok=False)
    clipped = clip_to_characters(result, how_to_read=how_to_read)
    return ToolOutcome(clipped.result, ok=True, whole=clipped.whole, files=tuple(files.files))


class _HandlerCancelled(Exception):
    """The handler was cancelled by its own code, not by the runtime."""


@contextmanager
def base_exceptions_converted(
    passes: Callable[[BaseException], bool] = lambda _: False, to: Callable[[str], Exception] = ToolError
) -> Generator[None]:
    """Raise errors of a user's code that do not derive from `Exception` as an error that does.

    A `SystemExit` (of an argument parser) that leaves a task ends the event loop, and with it every other turn. No
    `except Exception` catches a panic of a native library. Cancellation, Ctrl-C and errors for which `passes` is true
    are not converted.
    """
    try:
        yield
    except (Exception, asyncio.CancelledError, KeyboardInterrupt):
        raise
    except BaseException as error:
        if passes(error):
            raise
        raise to(error_text(error)) from error


async def convert_base_exceptions(
    work: Awaitable[T],
    passes: Callable[[BaseException], bool] = lambda _: False,
    to: Callable[[str], Exception] = ToolError,
) -> T:
    """Await a user's code; see `base_exceptions_converted`."""
    with base_exceptions_converted(passes, to):
        return await work


async def _run_in_task(awaitable: Any) -> Any:
    """Await a handler in a separate task, to distinguish its cancellation from ours."""
    task = asyncio.ensure_future(convert_base_exceptions(awaitable))
    try:
        await asyncio.wait({task})
    except asyncio.CancelledError:
        task.cancel()
        # a handler that does not stop is abandoned: the turn must not hang
        _, running = await asyncio.wait({task}, timeout=_GRACE_S)
        if running:
            task.add_done_callback(_log_abandoned)
        else:
            _log_abandoned(task)
        raise
    if task.cancelled():
        raise _HandlerCancelled
    return task.result()


def _log_abandoned(task: "asyncio.Future[Any]") -> None:
    """Retrieve the exception of an abandoned task, so that asyncio does not warn about it."""
    if not task.cancelled() and task.exception():
        log.info("an abandoned tool ended with %s", type(task.exception()).__name__)


async def _run_in_thread(function: Callable[..., Any], *arguments: Any) -> Any:
    """Run a function in its own thread: hanging handlers would use up the threads of asyncio's pool."""

    def run() -> Any:
        try:
            with base_exceptions_converted():
                return function(*arguments)
        except asyncio.CancelledError as error:  # a future of the handler was cancelled, not the caller
            raise _HandlerCancelled from error

    return await run_in_own_thread(run)


Decision = Literal["run", "ask", "deny"]


def decide(name: str, level: Level, policy: ToolSettings) -> Decision:
    """Decide whether a tool of this name and level may run.

    A name under `deny` never runs; otherwise a name under `allow` runs without approval. For the rest:

    | approval      | safe | write | dangerous |
    | ------------- | ---- | ----- | --------- |
    | ask (default) | run  | ask   | ask       |
    | auto          | run  | run   | run       |
    | deny          | run  | deny  | deny      |
    """
    if name in policy.deny:
        return "deny"
    if name in policy.allow or level == "safe":
        return "run"
    match policy.approval:
        case "auto":
            return "run"
        case "ask":
            return "ask"
        case _:
            return "deny"


def fingerprint(name: str, arguments: Mapping[str, Any]) -> str:
    """Return a hash of a tool with exactly these arguments, which an approval is valid for.

    The order of keys does not matter; 1, 1.0 and "1" differ. Raises `TypeError` or `ValueError` for values that are not
    JSON, so that they never match.
    """
    text = json.dumps([name, dict(arguments)], sort_keys=True, allow_nan=False, separators=(",", ":"))
    return hashlib.sha256(text.encode("ascii")).hexdigest()
