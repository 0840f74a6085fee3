"""Convert what an agent's callbacks raise to errors of the turn.

ADK runs callbacks in its own tasks. A `SystemExit` in such a task ends the event loop, and with it every other turn of
the process. A panic of a native library is not caught by `except Exception` either.
"""

import functools
import inspect
from collections.abc import Callable
from typing import Any, cast

from google.adk.agents import BaseAgent

from lango.errors import AgentFailed
from lango.tools.execution import base_exceptions_converted, convert_base_exceptions

_GUARDED_MARK = "_lango_guarded"


def is_adk_control_flow(error: BaseException) -> bool:
    """Whether ADK itself raises this error to control a run, such as a node that waits for input."""
    return type(error).__module__.startswith("google.adk.")


def guard_callbacks(agent: BaseAgent) -> None:
    """Wrap the callbacks of an agent so that they raise nothing but an `Exception`. It may be called again."""
    for name in type(agent).model_fields:
        found: Any = getattr(agent, name) if name.endswith("_callback") else None
        if isinstance(found, list):
            setattr(agent, name, [_guarded(callback) for callback in cast("list[Any]", found)])
        elif callable(found):
            setattr(agent, name, _guarded(found))


def _guarded(callback: Callable[..., Any]) -> Callable[..., Any]:
    if hasattr(callback, _GUARDED_MARK):
        return callback

    @functools.wraps(callback)
    def call(*arguments: Any, **named: Any) -> Any:
        with base_exceptions_converted(is_adk_control_flow, _callback_failed):
            result = callback(*arguments, **named)
        if inspect.isawaitable(result):
            return convert_base_exceptions(result, is_adk_control_flow, _callback_failed)
        return result

    setattr(call, _GUARDED_MARK, True)
    return call


def _callback_failed(text: str) -> AgentFailed:
    return AgentFailed(f"a callback of the agent raised {text}")
