"""The evaluation routes of ADK's development server and ours, with the same agent and the same requests."""

import json
import shutil
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from google.adk.cli.dev_server import EvalResult, ListMetricsInfoResponse, RunEvalResponse
from google.adk.cli.fast_api import get_fast_api_app
from google.adk.evaluation.eval_case import EvalCase
from google.adk.evaluation.eval_metrics import EvalStatus

from lango import Settings, open_runtime
from lango.server.app import create_app
from tests.support.processes import TIMEOUT_S
from tests.support.servers import adk_agents

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of ADK's routes with the old names
AGENT = Path(adk_agents.__file__).parent / "peer"
ROOT = "/dev/apps/peer"
HELLO = {"role": "user", "parts": [{"text": "words hello there"}]}


class Peer:
    """ADK's server or ours, each with a copy of the agent of its own."""

    def __init__(self, http: httpx.AsyncClient) -> None:
        self.http = http

    async def send(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        sent = {} if body is None else {"json": body}
        response = await self.http.request(method, path if path.startswith("/run") else ROOT + path, **sent)
        return response.status_code, response.json()

    async def talk(self, session: str = "s1") -> None:
        await self.http.post("/apps/peer/users/u/sessions", json={"sessionId": session})
        run = {"appName": "peer", "userId": "u", "sessionId": session, "newMessage": HELLO}
        assert (await self.http.post("/run", json=run)).status_code == 200


@asynccontextmanager
async def adk_server(folder: Path) -> AsyncGenerator[Peer]:
    app = get_fast_api_app(agents_dir=str(folder), web=True, session_service_uri="memory://", artifact_service_uri=None)
    async with client_of(app) as http:
        yield Peer(http)


@asynccontextmanager
async def our_server(folder: Path) -> AsyncGenerator[Peer]:
    chosen = {"store": {"url": f"sqlite:///{folder}/lango.db"}, "server": {"adk_ui": True}, "agent": {"name": "peer"}}
    settings = Settings.model_validate(chosen).with_agent(str(folder / "peer"))
    async with open_runtime(settings) as runtime, client_of(create_app(settings, runtime)) as http:
        yield Peer(http)


def client_of(app: Any) -> httpx.AsyncClient:
    transport = httpx.ASGITransport(app, client=("127.0.0.1", 50_000))
    return httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:8000", timeout=TIMEOUT_S)


@pytest.fixture
async def servers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[tuple[Peer, Peer]]:
    monkeypatch.setenv("ADK_DISABLE_LOAD_DOTENV", "1")
    folders = tmp_path / "theirs", tmp_path / "ours"
    for folder in folders:
        shutil.copytree(AGENT, folder / "peer", ignore=shutil.ignore_patterns("__pycache__"))
    async with AsyncExitStack() as stack:
        yield (
            await stack.enter_async_context(adk_server(folders[0])),
            await stack.enter_async_context(our_server(folders[1])),
        )


def shape(value: Any) -> Any:
    """Return a value without what two servers choose for themselves: ids, times and sentences."""
    if isinstance(value, dict):
        fields: dict[str, Any] = {str(name): inner for name, inner in value.items()}  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
        own = ("creationTimestamp", "creation_timestamp", "invocationId", "detail", "error")
        return {name: shape(inner) for name, inner in fields.items() if name not in own}
    return [shape(one) for one in value] if isinstance(value, list) else value  # pyright: ignore[reportUnknownVariableType]


async def test_sets_and_cases_are_those_of_adks_server(servers: tuple[Peer, Peer]) -> None:
    _, ours = servers
    edited: dict[str, Any] = {}
    for server in servers:
        await server.talk()
    session = {"evalId": "hello", "sessionId": "s1", "userId": "u"}

    async def both(method: str, path: str, body: Any = None) -> Any:
        expected, found = [await server.send(method, path, body) for server in servers]
        assert (found[0], shape(found[1])) == (expected[0], shape(expected[1])), (path, expected)
        return found[1]

    assert await both("GET", "/eval-sets") == {"evalSetIds": []}
    assert await both("GET", "/eval_sets") == []
    made = await both("POST", "/eval-sets", {"evalSet": {"eval_set_id": "talks", "eval_cases": []}})
    assert made["creation_timestamp"] > 0
    await both("POST", "/eval-sets", {"evalSet": {"eval_set_id": "talks", "eval_cases": []}})  # 400: it exists
    await both("POST", "/eval_sets/more")
    assert await both("GET", "/eval_sets") == ["more", "talks"]
    await both("POST", "/eval-sets/talks/add-session", session)
    await both("POST", "/eval-sets/talks/add-session", session)  # 400: it has the case
    await both("POST", "/eval_sets/talks/add_session", session | {"evalId": "again"})
    await both("POST", "/eval-sets/talks/add-session", session | {"sessionId": "none"})
    await both("POST", "/eval-sets/none/add-session", session)
    assert await both("GET", "/eval_sets/talks/evals") == ["again", "hello"]
    await both("GET", "/eval_sets/none/evals")
    for path in ("/eval-sets/talks/eval-cases/hello", "/eval_sets/talks/evals/hello"):
        cases = [(await server.send("GET", path))[1] for server in servers]
        expected, found = [EvalCase.model_validate(case) for case in cases]
        assert found.eval_id == expected.eval_id == "hello"
        [wanted], [message] = expected.conversation or [], found.conversation or []
        assert message.user_content == wanted.user_content
        assert message.final_response == wanted.final_response
        edited = cases[1]
    edited["conversation"][0]["finalResponse"]["parts"][0]["text"] = "good bye"
    await both("PUT", "/eval-sets/talks/eval-cases/hello", edited)
    await both("PUT", "/eval-sets/talks/eval-cases/other", edited)  # 400: another id
    await both("PUT", "/eval-sets/talks/eval-cases/none", edited | {"evalId": "none"})
    changed = (await ours.send("GET", "/eval-sets/talks/eval-cases/hello"))[1]
    assert changed["conversation"][0]["finalResponse"]["parts"][0]["text"] == "good bye"
    await both("DELETE", "/eval_sets/talks/evals/again")
    await both("DELETE", "/eval-sets/talks/eval-cases/again")  # 404
    await both("GET", "/eval-sets/talks/eval-cases/again")
    assert await both("GET", "/eval_sets/talks/evals") == ["hello"]
    assert await both("GET", "/eval-results") == {"evalResultIds": []}
    await both("GET", "/eval-results/none")


async def test_a_run_answers_in_the_shapes_of_adk(servers: tuple[Peer, Peer], tmp_path: Path) -> None:
    """ADK's own server runs cases only with packages that are not installed here: its models read our answers."""
    _, ours = servers
    await ours.talk()
    await ours.send("POST", "/eval_sets/talks")
    for case in ("right", "wrong"):
        added = {"evalId": case, "sessionId": "s1", "userId": "u"}
        assert (await ours.send("POST", "/eval-sets/talks/add-session", added))[0] == 200
    file = tmp_path / "ours" / "peer" / "talks.evalset.json"
    document = json.loads(file.read_text())
    document["eval_cases"][1]["conversation"][0]["final_response"]["parts"][0]["text"] = "something else"
    file.write_text(json.dumps(document))
    described = ListMetricsInfoResponse.model_validate((await ours.send("GET", "/metrics-info"))[1])
    assert "response_match_score" in [metric.metric_name for metric in described.metrics_info]
    metrics = [{"metricName": "response_match_score", "threshold": 0.5}]
    status, body = await ours.send("POST", "/eval-sets/talks/run", {"evalMetrics": metrics})
    assert status == 200, body
    results = {one.eval_id: one for one in RunEvalResponse.model_validate(body).run_eval_results}
    assert results["right"].final_eval_status == EvalStatus.PASSED
    assert results["wrong"].final_eval_status == EvalStatus.FAILED
    [metric] = results["right"].overall_eval_metric_results
    assert (metric.metric_name, metric.threshold, metric.score) == ("response_match_score", 0.5, 1.0)
    [message] = results["wrong"].eval_metric_result_per_invocation
    assert message.actual_invocation.final_response
    assert message.expected_invocation
    assert "hello there" in str(message.actual_invocation.final_response)
    assert "something else" in str(message.expected_invocation.final_response)
    one = await ours.send("POST", "/eval_sets/talks/run_eval", {"evalMetrics": [], "evalCaseIds": ["right"]})
    assert [(case["evalId"], case["finalEvalStatus"]) for case in one[1]] == [("right", 1)]
    ids = (await ours.send("GET", "/eval-results"))[1]["evalResultIds"]
    assert len(ids) == 2
    assert (await ours.send("GET", "/eval_results"))[1] == ids
    kept = EvalResult.model_validate((await ours.send("GET", f"/eval-results/{ids[0]}"))[1])
    assert {case.eval_id: case.final_eval_status.name for case in kept.eval_case_results} == {
        "right": "PASSED",
        "wrong": "FAILED",
    }
    for case in kept.eval_case_results:
        ran = results[case.eval_id]
        assert case.overall_eval_metric_results == ran.overall_eval_metric_results
        assert case.eval_metric_result_per_invocation == ran.eval_metric_result_per_invocation
    refused: list[dict[str, Any]] = [
        {"evalMetrics": [{"metricName": "hallucinations_v1", "threshold": 0.5}]},
        {"evalMetrics": [], "liveModelConfig": {}, "userSimulatorConfig": {"type": "llm"}},
    ]
    for wrong in refused:
        status, body = await ours.send("POST", "/eval-sets/talks/run", wrong)
        assert status == 400
        assert "adk eval" in body["detail"]
    assert (await ours.send("POST", "/eval-sets/none/run", {"evalMetrics": []}))[0] == 400
    assert (await ours.send("POST", "/eval-sets/talks/run", {"evalMetrics": [], "evalCaseIds": ["none"]}))[0] == 409
