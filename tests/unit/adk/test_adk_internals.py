"""The private names of ADK that Lango depends on exist, and mean what we take them for."""

import sys

from google.adk.tools import BaseTool, FunctionTool, LongRunningFunctionTool

from lango.adk.agents.adk_internals import (
    declaration_of,
    defers_response,
    has_replaced_run,
    preload_adk,
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


def test_a_module_that_cannot_be_imported_is_not_tried_again() -> None:
    preload_adk()
    assert "google.adk.agents.remote_a2a_agent" in sys.modules
