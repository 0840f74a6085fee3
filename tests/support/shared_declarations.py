"""Build once in a process what models read of a tool: ADK does so for each new function, for 5 ms.

A test makes its tools anew for each version of an app, with the same code, and opens many versions.
"""

import functools
import sys
from collections.abc import Hashable
from types import FunctionType
from typing import Any

_SIGNATURE = {"__signature__", "__wrapped__"}
"""What gives a function another signature than that of its code."""


def share_declarations() -> None:
    """Let ADK build one declaration for all functions that are declared alike. Do nothing where ADK is not imported."""
    if function_tool := sys.modules.get("google.adk.tools.function_tool"):
        of_module: Any = vars(function_tool)
        build: Any = of_module["_build_declaration_cached"]
        built: dict[Hashable, Any] = {}

        @functools.wraps(build.__wrapped__)
        def build_once(function: Any, *options: Hashable) -> Any:
            code = _declared_by(function)
            if code is None:
                return build(function, *options)
            if (code, options) not in built:
                built[code, options] = build(function, *options)
            return built[code, options]

        of_module["_build_declaration_cached"] = build_once


def _declared_by(function: Any) -> Hashable:
    """Return what the declaration of a function is made from, or None of one that is declared by more than its code."""
    if not isinstance(function, FunctionType) or _SIGNATURE & vars(function).keys():
        return None
    defaults: list[object] = [*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).items()]
    key: tuple[Hashable, ...] = (
        function.__code__,
        function.__module__,
        function.__name__,
        function.__doc__,
        *function.__annotations__.items(),
        *((type(value), value) for value in defaults),
    )
    try:
        hash(key)
    except TypeError:
        return None
    return key
