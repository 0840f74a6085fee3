"""The private names of ADK that Lango depends on exist, and mean what we take them for."""

import sys
from collections.abc import Callable
from typing import Any

from google.adk.code_executors import UnsafeLocalCodeExecutor
from google.adk.code_executors.code_execution_utils import CodeExecutionInput
from google.adk.tools import BaseTool, FunctionTool, LongRunningFunctionTool

from lango.adk.agents.adk_internals import (
    declaration_of,
    defers_response,
    has_replaced_run,
    preload_adk,
    replace_code_execution,
    replace_run,
)


def look(page: int) -> str:
    """Look at a page."""
    return f"page {page}"


def test_the_declaration_of_a_function_is_what_the_model_reads() -> None:
    declaration = declaration_of(FunctionTool(look))
    assert declaration is not None
    assert (declaration.name, declaration.description) == ("look", "Look at a page.")


def test_only_long_running_tools_defer_their_response() -> None:
    assert "_defers_response" in vars(BaseTool)
    assert not defers_response(FunctionTool(look))
    assert defers_response(LongRunningFunctionTool(look))


def test_the_run_of_one_tool_object_can_be_replaced() -> None:
    async def run(**_: object) -> str:
        return "replaced"

    tool, other = FunctionTool(look), FunctionTool(look)
    assert not has_replaced_run(tool)
    replace_run(tool, run)
    assert has_replaced_run(tool)
    assert tool.run_async is run
    assert not has_replaced_run(other)


def test_the_execution_of_code_can_be_wrapped_once() -> None:
    executor, calls = UnsafeLocalCodeExecutor(), list[str]()

    def wrap(execute: Callable[..., Any]) -> Callable[..., Any]:
        def execute_and_note(context: Any, code: CodeExecutionInput) -> Any:
            calls.append(code.code)
            return execute(context, code)

        return execute_and_note

    for _ in range(2):
        replace_code_execution(executor, wrap)
    context: Any = None
    assert executor.execute_code(context, CodeExecutionInput("print(6 * 7)")).stdout == "42\n"
    assert calls == ["print(6 * 7)"]


def test_a_module_that_cannot_be_imported_is_not_tried_again() -> None:
    preload_adk()
    assert "google.adk.agents.remote_a2a_agent" in sys.modules
