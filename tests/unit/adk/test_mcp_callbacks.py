"""What an MCP server asks and reports while its tools run, without a server."""

import asyncio
from types import SimpleNamespace
from typing import Any

import mcp

from lango.adk.agents.tools.mcp.questions import Question, ServerCallbacks
from lango.tools import Tool, run_tool
from lango.waits import Value

assert mcp.types, "imported here: a cold import takes longer than the limit"
CONTEXT: Any = SimpleNamespace(
    function_call_id="c1", agent_name="a", session=SimpleNamespace(app_name="app", user_id="u", id="s")
)
PARAMS = SimpleNamespace(mode="form", message="Which?", requested_schema={"type": "object"})
LIMIT_S = 1.0


async def answer_late(question: Question, timeout_s: float) -> Value:
    await asyncio.sleep(LIMIT_S * 2)
    return Value({"asked": question.message, "timeout_s": timeout_s})


def callbacks(ask: Any = answer_late) -> ServerCallbacks:
    return ServerCallbacks("server", 5.0, over_http=False, ask=ask)


async def test_the_time_limit_of_a_tool_does_not_run_while_the_user_is_asked() -> None:
    passing_on = callbacks()
    ask = passing_on.options["elicitation_callback"]

    async def handler(arguments: dict[str, Any], /) -> Any:
        with passing_on.during_call(CONTEXT):
            asked: Any = await ask(None, PARAMS)
            if arguments:
                await asyncio.Event().wait()
            return {"action": asked.action, "content": asked.content}

    tool = Tool("t", "", {"type": "object"}, handler)
    outcome = await run_tool(tool, {}, timeout_s=LIMIT_S)
    assert outcome.result == {"action": "accept", "content": {"asked": "Which?", "timeout_s": 5.0}}
    outcome = await run_tool(tool, {"hang": True}, timeout_s=LIMIT_S)
    assert "timed out" in outcome.result["error"], "it runs on after the answer"


async def test_a_question_ends_with_its_call() -> None:
    asking, closed = asyncio.Event(), asyncio.Event()

    async def never(question: Question, timeout_s: float) -> Value:
        asking.set()
        try:
            return await asyncio.Future[Value]()
        finally:
            closed.set()

    passing_on = callbacks(never)
    with passing_on.during_call(CONTEXT):
        question = asyncio.ensure_future(passing_on.options["elicitation_callback"](None, PARAMS))
        await asking.wait()
    assert (await question).action == "cancel"
    assert closed.is_set()


async def test_a_server_that_may_not_ask_gets_no_callback() -> None:
    assert "elicitation_callback" not in ServerCallbacks("server", 0.0, over_http=True).options
    refused = await callbacks().options["elicitation_callback"](None, PARAMS)  # no call runs
    assert "cannot be asked" in refused.message
