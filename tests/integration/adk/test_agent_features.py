"""Features of an agent: each is honoured by the runtime, and survives a kill at every commit."""

import json
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest
from google.adk.agents import LlmAgent
from google.adk.agents.callback_context import CallbackContext
from google.adk.agents.invocation_context import InvocationContext
from google.adk.apps import App
from google.adk.code_executors import BaseCodeExecutor, UnsafeLocalCodeExecutor
from google.adk.code_executors.code_execution_utils import CodeExecutionInput, CodeExecutionResult
from google.adk.models import BaseLlm
from google.adk.models.llm_request import LlmRequest
from google.adk.models.llm_response import LlmResponse
from google.adk.planners import BuiltInPlanner, PlanReActPlanner
from google.adk.plugins import BasePlugin
from google.adk.tools import BaseTool, ToolContext
from google.genai import types
from pydantic import BaseModel
from typing_extensions import override

from lango import open_runtime
from lango.messages import ToolCall
from lango.store import Store
from lango.testing import ScriptedProvider
from tests.agents.parts import rows, settings_for
from tests.support.agent_shapes import agent, call, fetch
from tests.support.kill_points import Journal, check_every_kill, go_on, left_behind, run_and_copy
from tests.support.runtimes import store_of

pytestmark = [
    pytest.mark.filterwarnings("ignore::UserWarning"),  # of ADK: experimental features
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]


# -- answers, plans and code ----------------------------------------------------------------------------------------


class Size(BaseModel):
    n: int


async def test_an_output_schema_beside_tools_survives_a_kill(tmp_path: Path) -> None:
    def make(journal: Journal) -> LlmAgent:
        plan = [call("fetch", x="1"), call("set_model_response", n=3)]
        return agent(journal, "a", *plan, tools=[fetch(journal)], output_schema=Size, output_key="size")

    story = await check_every_kill(make, tmp_path)
    assert story[-1] == 'a assistant: {"n": 3}'


async def test_an_output_schema_is_sent_to_the_provider_and_its_value_kept(sqlite_url: str) -> None:
    provider = ScriptedProvider(['{"n": 3}'])
    root = LlmAgent(name="a", output_schema=Size, output_key="size")
    async with open_runtime(settings_for(sqlite_url), provider=provider, root_agent=root) as runtime:
        assert await runtime.run("s", "how many?") == '{"n": 3}'
        assert (provider.requests[0].response_schema or {})["properties"].keys() == {"n"}
        [[state]] = await rows(store_of(runtime), "SELECT state FROM session_states")
        assert json.loads(state) == {"size": {"n": 3}}


async def test_planners_plan(tmp_path: Path) -> None:
    def make(journal: Journal) -> LlmAgent:
        answer = "/*PLANNING*/ first fetch /*FINAL_ANSWER*/ all done"
        return agent(journal, "a", call("fetch", x="1"), answer, tools=[fetch(journal)], planner=PlanReActPlanner())

    story = await check_every_kill(make, tmp_path)
    assert story[-1] == "a assistant:  all done"
    provider = ScriptedProvider(["hm"])
    planner = BuiltInPlanner(thinking_config=types.ThinkingConfig(thinking_budget=99))
    root = LlmAgent(name="a", planner=planner)
    async with open_runtime(settings_for(f"sqlite:///{tmp_path}/b.db"), provider=provider, root_agent=root) as runtime:
        await runtime.run("s", "think")
    assert provider.requests[0].thinking
    assert provider.requests[0].thinking.budget_tokens == 99


class Calculator(BaseCodeExecutor):
    """Runs the one program that the model below writes."""

    journal: Any = None

    @override
    def execute_code(
        self, invocation_context: InvocationContext, code_execution_input: CodeExecutionInput
    ) -> CodeExecutionResult:
        self.journal.effects.append(f"code {code_execution_input.code}")
        return CodeExecutionResult(stdout="42")


class Programmer(BaseLlm):
    """Writes a program, and answers with what came of it."""

    journal: Any = None

    @override
    async def generate_content_async(
        self, llm_request: LlmRequest, stream: bool = False
    ) -> AsyncGenerator[LlmResponse, None]:
        parts = [part for content in llm_request.contents for part in content.parts or []]
        results = "".join(part.text or "" for part in parts if "tool_output" in (part.text or ""))
        self.journal.model_calls.append(f"a {bool(results)}")
        text = "I compute.\n```tool_code\nprint(6 * 7)\n```"
        if results:
            text = "its outcome is unknown" if "unknown" in results else "it is 42"
        yield LlmResponse(content=types.Content(role="model", parts=[types.Part(text=text)]))


async def test_code_that_ran_is_never_run_again(tmp_path: Path) -> None:
    def make(journal: Journal) -> LlmAgent:
        return LlmAgent(
            name="a", model=Programmer(model="m", journal=journal), code_executor=Calculator(journal=journal)
        )

    whole, copies = await run_and_copy(make, tmp_path)
    assert (whole.status, whole.journal.effects) == ("done", ["code print(6 * 7)"])
    stages: list[str] = []
    for copy in copies:
        before, stage = left_behind(copy), await _stage(copy)
        stages.append(stage)
        resumed = await go_on(make, copy)
        died_meanwhile = stage == "started"  # also in the copy after a heartbeat
        answer = "its outcome is unknown" if died_meanwhile else "it is 42"
        assert resumed.story[-1] == f"a assistant: {answer}", copy.name
        assert resumed.event_ids[: len(before.event_ids)] == before.event_ids, copy.name
        has_begun = stage in ("started", "finished")
        assert resumed.journal.effects == ([] if has_begun else whole.journal.effects), copy.name
    assert {"started", "finished"} < set(stages)


async def _stage(copy: Path) -> str:
    """Return how far the code came before the process died."""
    async with Store(f"sqlite:///{copy}") as store:
        found = await rows(store, "SELECT status FROM tool_journal WHERE name = 'code'")
    return str(found[0][0]) if found else ""


async def test_code_runs_in_adks_own_executor(sqlite_url: str) -> None:
    provider = ScriptedProvider(["I compute.\n```tool_code\nprint(6 * 7)\n```", "it is 42"])
    root = LlmAgent(name="a", code_executor=UnsafeLocalCodeExecutor())
    async with open_runtime(settings_for(sqlite_url), provider=provider, root_agent=root) as runtime:
        # the code was streamed as text, and the stored response has it as code
        assert await runtime.run("s", "compute") == "I compute.\nit is 42"
        stored = [row.message.content for row in await runtime.sessions.messages("s") if row.message]
    assert stored == ["compute", "I compute.\n", "", "it is 42"]


# -- instructions and settings --------------------------------------------------------------------------------------


async def test_instructions_and_settings_are_sent(sqlite_url: str) -> None:
    provider = ScriptedProvider(["hello", "again"])
    config = types.GenerateContentConfig(temperature=0.25, max_output_tokens=77, stop_sequences=["stop"])
    root = LlmAgent(
        name="a",
        instruction="Speak {language}.",
        global_instruction="Be brief.",
        before_agent_callback=set_language,
        generate_content_config=config,
    )
    async with open_runtime(settings_for(sqlite_url), provider=provider, root_agent=root) as runtime:
        await runtime.run("s", "hi")
    [request] = provider.requests
    sent = str(request)
    assert "Speak Latin." in sent
    assert "Be brief." in sent
    assert (request.temperature, request.max_tokens, list(request.stop)) == (0.25, 77, ["stop"])


async def test_a_static_instruction_stays_apart_from_the_changing_one(sqlite_url: str) -> None:
    provider = ScriptedProvider(["hello"])
    root = LlmAgent(
        name="a",
        static_instruction="Never change {this}.",
        instruction="Speak {language}.",
        before_agent_callback=set_language,
    )
    async with open_runtime(settings_for(sqlite_url), provider=provider, root_agent=root) as runtime:
        await runtime.run("s", "hi")
    [request] = provider.requests
    assert "Never change {this}." in request.system
    assert "Speak Latin." not in request.system, "what changes comes after it, so that a provider can cache the rest"
    assert "Speak Latin." in str(request.messages)


def set_language(callback_context: CallbackContext) -> None:
    callback_context.state["language"] = "Latin"


# -- callbacks ------------------------------------------------------------------------------------------------------


def _content(text: str) -> types.Content:
    return types.Content(role="model", parts=[types.Part(text=text)])


def with_callbacks(journal: Journal) -> LlmAgent:
    """An agent with a callback around everything: each changes what comes out, and counts in the state."""

    def count(context: Any, name: str) -> None:
        context.state[name] = context.state.get(name, 0) + 1

    def before_agent(callback_context: CallbackContext) -> None:
        count(callback_context, "before_agent")

    def after_agent(callback_context: CallbackContext) -> types.Content:
        return _content("said afterwards")

    def before_model(callback_context: CallbackContext, llm_request: LlmRequest) -> None:
        count(callback_context, "before_model")

    def after_model(callback_context: CallbackContext, llm_response: LlmResponse) -> LlmResponse | None:
        parts = (llm_response.content and llm_response.content.parts) or []
        if llm_response.partial or not parts or not parts[0].text:
            return None
        return llm_response.model_copy(update={"content": _content(parts[0].text.upper())})

    def before_tool(tool: BaseTool, args: dict[str, Any], tool_context: ToolContext) -> None:
        count(tool_context, "before_tool")

    def after_tool(
        tool: BaseTool, args: dict[str, Any], tool_context: ToolContext, tool_response: Any
    ) -> dict[str, Any]:
        return {**tool_response, "seen": True}

    return agent(
        journal,
        "a",
        call("fetch", x="1"),
        call("fetch", x="2"),
        "done",
        tools=[fetch(journal)],
        before_agent_callback=before_agent,
        after_agent_callback=after_agent,
        before_model_callback=before_model,
        after_model_callback=after_model,
        before_tool_callback=before_tool,
        after_tool_callback=after_tool,
    )


async def test_callbacks_around_agent_model_and_tools_survive_a_kill(tmp_path: Path) -> None:
    story = await check_every_kill(with_callbacks, tmp_path)
    text = "\n".join(story)
    assert '{"fetched":"1","seen":true}' in text
    assert '{"fetched":"2","seen":true}' in text
    assert story[-2:] == ["a assistant: DONE", "a assistant: said afterwards"]


async def test_a_callback_answers_in_place_of_a_tool(sqlite_url: str) -> None:
    def answer(tool: BaseTool, args: dict[str, Any], tool_context: ToolContext) -> dict[str, Any]:
        return {"fetched": "from the callback"}

    journal = Journal()
    root = LlmAgent(name="a", tools=[fetch(journal)], before_tool_callback=answer)
    provider = ScriptedProvider([ToolCall("c1", "fetch", {"x": "1"}), "done"])
    async with open_runtime(settings_for(sqlite_url), provider=provider, root_agent=root) as runtime:
        assert await runtime.run("s", "go") == "done"
    assert "from the callback" in str(provider.requests[1].messages)
    assert journal.effects == []


async def test_callbacks_answer_for_a_failed_model_and_a_failed_tool(sqlite_url: str) -> None:
    def fails(x: str) -> dict[str, str]:
        """Fail."""
        raise ConnectionError("no connection")

    def on_tool_error(
        tool: BaseTool, args: dict[str, Any], tool_context: ToolContext, error: Exception
    ) -> dict[str, Any]:
        return {"instead": str(error)}

    def on_model_error(callback_context: CallbackContext, llm_request: LlmRequest, error: Exception) -> LlmResponse:
        return LlmResponse(content=_content(f"instead of {type(error).__name__}"))

    root = LlmAgent(
        name="a",
        tools=[fails],
        on_tool_error_callback=on_tool_error,
        on_model_error_callback=on_model_error,
    )
    provider = ScriptedProvider([ToolCall("c1", "fails", {"x": "1"}), ValueError("bad model")])
    async with open_runtime(settings_for(sqlite_url), provider=provider, root_agent=root) as runtime:
        assert (await runtime.run("s", "go")).startswith("instead of ")
        [*_, result, _] = await runtime.sessions.messages("s")
        assert result.message
        assert result.message.tool_calls[0].output == {"instead": "no connection"}


class Answers(BasePlugin):
    """Answers for failed tools, and notes the results of tools."""

    def __init__(self) -> None:
        super().__init__(name="answers")
        self.seen: list[object] = []

    @override
    async def on_tool_error_callback(
        self, *, tool: BaseTool, tool_args: dict[str, Any], tool_context: ToolContext, error: BaseException
    ) -> dict[str, Any]:
        return {"plugin": str(error)}

    @override
    async def after_tool_callback(
        self, *, tool: BaseTool, tool_args: dict[str, Any], tool_context: ToolContext, result: object
    ) -> None:
        self.seen.append(result)


async def test_callbacks_get_the_results_of_tools_as_the_tools_return_them(store_url: str) -> None:
    def measure() -> Size:
        """Measure."""
        return Size(n=3)

    def fails() -> None:
        """Fail."""
        raise ConnectionError("no connection")

    def after_tool(
        tool: BaseTool, args: dict[str, Any], tool_context: ToolContext, tool_response: object
    ) -> dict[str, Any] | None:
        return {"doubled": tool_response.n * 2} if isinstance(tool_response, Size) and "x" in args else None

    plugin = Answers()
    root = LlmAgent(name="a", tools=[measure, fails], after_tool_callback=after_tool)
    calls = [ToolCall("c1", "measure", {}), ToolCall("c2", "measure", {"x": 1}), ToolCall("c3", "fails", {})]
    async with open_runtime(
        settings_for(store_url),
        provider=ScriptedProvider([*calls, "done"]),
        root_agent=App(name="a", root_agent=root, plugins=[plugin]),
    ) as runtime:
        await runtime.run("s", "go")
        found = [
            row.message.tool_calls[0].output
            for row in await runtime.sessions.messages("s")
            if row.message and row.message.role == "tool"
        ]
    assert found == [{"result": {"n": 3}}, {"doubled": 6}, {"plugin": "no connection"}]
    assert plugin.seen == [Size(n=3), Size(n=3), {"plugin": "no connection"}]
