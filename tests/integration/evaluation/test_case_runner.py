"""Cases run against an agent with a scripted model: their sessions, their state, the judge, and what ADK reads."""

import json
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest
from google.adk.evaluation.local_eval_sets_manager import load_eval_set_from_file
from google.adk.events import RequestInput
from google.adk.workflow import START, Workflow, node
from pydantic import BaseModel

from lango import Settings, open_runtime, tool
from lango.adk.evaluation.eval_set import add_case, read_cases
from lango.adk.evaluation.session_case import session_case
from lango.errors import UsageError
from lango.evaluation.case_runner import CaseResult, CaseRunner
from lango.evaluation.criteria import DEFAULT_CRITERIA, Criteria, JudgeCriterion
from lango.evaluation.judge import ModelJudge
from lango.messages import Attachment, ToolCall
from lango.providers import Request
from lango.sessions import SessionId
from lango.testing import ScriptedProvider
from lango.waits import Value
from tests.support.runtimes import store_of

IMAGE = Attachment("dot.png", "image/png", b"\x89PNG dot")


@tool(effect="none")
def weather(city: str) -> dict[str, str]:
    """Tell the weather of a city."""
    return {"weather": f"rain in {city}"}


def settings(folder: Path) -> Settings:
    return Settings.model_validate(
        {
            "store": {"url": f"sqlite:///{folder}/lango.db"},
            "agent": {"name": "forecaster", "model": "scripted/one", "instruction": "Speak {language?}."},
        }
    )


async def evaluate(
    folder: Path, cases: Path, script: list[Any], *, criteria: Criteria = DEFAULT_CRITERIA, judge: Any = ()
) -> tuple[list[CaseResult], ScriptedProvider]:
    provider, chosen = ScriptedProvider(script), settings(folder)
    async with open_runtime(chosen, provider=provider, tools=[weather]) as runtime:
        runner = CaseRunner(runtime, ModelJudge(chosen, "", ScriptedProvider(judge)), lambda file: criteria)
        return await runner.run(read_cases(cases), 2), provider


async def test_a_session_becomes_a_case_that_adk_reads_and_that_passes(tmp_path: Path) -> None:
    script: list[Any] = ["withdrawn", ToolCall("c1", "weather", {"city": "Oslo"}), "Rain in Oslo.", "A dot."]
    cases = tmp_path / "new" / "cases.evalset.json"
    async with open_runtime(settings(tmp_path), provider=ScriptedProvider(script), tools=[weather]) as runtime:
        await runtime.sessions.create("s1", state={"language": "Norwegian", "user:name": "Ada"})
        await runtime.run("s1", "a mistake")
        await runtime.sessions.rewind("s1", before=1)
        await runtime.run("s1", "How is Oslo?")
        await runtime.run("s1", "What is this?", attachments=[IMAGE])
        name = SessionId("forecaster", "user", "s1")
        assert add_case(cases, await session_case(store_of(runtime), name, "oslo")) == 1
        with pytest.raises(UsageError, match="already has a case 'oslo'"):
            add_case(cases, await session_case(store_of(runtime), name, "oslo"))
        assert add_case(cases, await session_case(store_of(runtime), name, "oslo again")) == 2
        await runtime.sessions.create("empty")
        with pytest.raises(UsageError, match="has no message yet"):
            await session_case(store_of(runtime), SessionId("forecaster", "user", "empty"), "empty")

    read = load_eval_set_from_file(str(cases), "cases")
    assert [case.eval_id for case in read.eval_cases] == ["oslo", "oslo again"]
    first = read.eval_cases[0]
    assert first.session_input
    assert first.session_input.state == {"language": "Norwegian"}
    assert first.conversation
    assert len(first.conversation) == 2, "the rewound turn is left out"
    assert first.conversation[1].user_content.parts
    assert first.conversation[1].user_content.parts[-1].inline_data

    def answers_by_request(request: Request) -> Any:
        last = request.messages[-1]
        if last.role == "tool":
            return "Rain in Oslo."
        if last.media:
            return "A dot."
        return ToolCall("c1", "weather", {"city": "Oslo"})

    results, provider = await evaluate(tmp_path, cases, [answers_by_request] * 6)
    assert [result.why for result in results] == ["", ""]
    assert all(result.passed for result in results)
    assert all("Speak Norwegian." in request.system for request in provider.requests), "the first state is set"
    assert len({(result.user_id, result.session_id) for result in results}) == 2, "each has a user of its own"


class Order(BaseModel):
    """An order."""

    size: int
    gift: bool = False


async def ask_for_order(node_input: Any) -> AsyncGenerator[Any, None]:
    yield RequestInput(message="What do you order?", response_schema=Order)


async def test_a_saved_value_has_the_question_and_the_schema_that_it_answers(tmp_path: Path) -> None:
    cases = tmp_path / "cases.evalset.json"
    flow = Workflow(name="flow", edges=[(START, node(ask_for_order))])
    chosen = Settings.model_validate({"store": {"url": f"sqlite:///{tmp_path}/lango.db"}})
    async with open_runtime(chosen, root_agent=flow) as runtime:
        await runtime.run("s", "go")
        [wait] = await runtime.waits("s")
        await (await runtime.answer("s", wait.id, Value({"size": 3}))).wait()
        name = SessionId(runtime.app_name, "user", "s")
        add_case(cases, await session_case(store_of(runtime), name, "order"))
        [case] = read_cases(cases)
        [[reply]] = case.checks.replies
        assert isinstance(reply.answer, Value)
        assert (reply.answer.value["size"], reply.question) == (3, "What do you order?")
        assert reply.schema
        assert reply.schema["properties"].keys() == {"size", "gift"}
        runner = CaseRunner(runtime, ModelJudge(chosen, "", ScriptedProvider([])), lambda file: DEFAULT_CRITERIA)
        [result] = await runner.run([case], 1)
        assert result.why == ""


async def test_what_differs_fails_with_its_reason(tmp_path: Path) -> None:
    cases = tmp_path / "old.test.json"
    older_format: list[Any] = [
        {
            "name": "oslo",
            "data": [
                {
                    "query": "How is Oslo?",
                    "expected_tool_use": [{"tool_name": "weather", "tool_input": {"city": "Oslo"}}],
                    "reference": "Rain in Oslo.",
                }
            ],
            "initial_session": {"state": {}, "app_name": "x", "user_id": "ada"},
        }
    ]
    cases.write_text(json.dumps(older_format))
    [result], _ = await evaluate(tmp_path, cases, ["It snows."])
    assert not result.passed
    assert result.user_id == "ada", "a user that the case names"
    assert result.why == (
        "expected weather(city='Oslo'), called no tool; the similarity of the answer is 0.00, below 0.8"
    )
    [result], _ = await evaluate(tmp_path / "..", cases, [RuntimeError("boom")])
    assert "boom" in result.error
    assert not result.passed


async def test_most_verdicts_of_the_judge_decide(tmp_path: Path) -> None:
    cases = tmp_path / "judged.evalset.json"
    message = {"user_content": {"parts": [{"text": "2+2?"}]}, "final_response": {"parts": [{"text": "4"}]}}
    own = {"answers": {"match": "judge", "question": "Is it polite?"}}
    one = {"eval_id": "set", "conversation": [message]}
    document = {"eval_set_id": "s", "eval_cases": [one, {"eval_id": "own", "conversation": [message], "lango": own}]}
    cases.write_text(json.dumps(document))
    good, bad = '{"reason": "It is four.", "verdict": "pass"}', '```json\n{"reason": "Rude.", "verdict": "fail"}\n```'

    def verdict(request: Request) -> str:
        return bad if "Is it polite?" in request.messages[-1].content else good

    criteria = Criteria(judge=JudgeCriterion("scripted/judge", 2))
    judge = [verdict, verdict, verdict]
    chosen = settings(tmp_path)
    async with open_runtime(chosen, provider=ScriptedProvider(["four", "four"])) as runtime:
        runner = CaseRunner(runtime, ModelJudge(chosen, "", ScriptedProvider(judge)), lambda file: criteria)
        with pytest.raises(UsageError, match="choose its model with --judge"):
            runner.check(read_cases(cases))
        runner = CaseRunner(runtime, ModelJudge(chosen, "scripted/x", ScriptedProvider(judge)), lambda file: criteria)
        runner.check(read_cases(cases))
        results = await runner.run(read_cases(cases), 1)
    assert [result.passed for result in results] == [True, False]
    assert results[1].why == "the judge: Rude."


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("{", "is not JSON"),
        ('{"eval_set_id": "x"}', "is not an ADK eval set: eval_cases: Field required"),
        ("[{}]", "is not an ADK eval set: KeyError"),
        (
            '{"eval_set_id": "x", "eval_cases": [{"eval_id": "a", "conversation_scenario": '
            '{"starting_prompt": "hi", "conversation_plan": "talk"}}]}',
            "case 'a': it has no `conversation`",
        ),
    ],
)
def test_files_that_are_no_cases_are_refused(tmp_path: Path, content: str, says: str) -> None:
    file = tmp_path / "bad.json"
    file.write_text(content)
    with pytest.raises(UsageError, match=says):
        read_cases(file)
