"""Serve the evaluation routes of ADK's development server from the agent's test cases.

Sets of cases are the files that the page and `lango eval` use. Each route has the two names that ADK gives it.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Annotated, Any

from fastapi import Depends, Path
from pydantic import Field

from lango.development.test_cases import Exchange
from lango.errors import LangoError, UsageError
from lango.evaluation.case_runner import CaseResult
from lango.evaluation.checks import Metric
from lango.evaluation.criteria import SUPPORTED, Criteria, criteria_beside, criteria_of
from lango.evaluation.run_history import PastResult, read_history
from lango.runtime.sessions.eval_sets import convert_case
from lango.server.compat.adk.adk_paths import AdkRequestBody, check_app
from lango.server.context import AgentUser, CurrentUser
from lango.server.errors import ApiError, bad_request, not_found
from lango.server.security.auth import AuthenticatedRouter
from lango.threads import run_in_thread


async def _check(app: str, user: CurrentUser) -> None:
    check_app(user.context, app)
    user.require_operator("edit and run them", "test cases are files of the server, and their tools really run")


router = AuthenticatedRouter("/dev/apps/{app}", include_in_schema=False, dependencies=[Depends(_check)])

_PASSED, _FAILED = 1, 2
_DESCRIPTIONS = {
    "tool_trajectory_avg_score": "The tool calls are the expected ones: 1 or 0 for each message, on average.",
    "response_match_score": "The words of the answers are those of the expected ones (ROUGE-1), on average.",
    "final_response_match_v2": "A model decides whether the answers mean the same as the expected ones.",
}

Name = Annotated[str, Path(max_length=200)]
CaseId = Annotated[str, Path(max_length=1000)]


class NamedSet(AdkRequestBody):
    """A set to create; its cases are added one by one."""

    eval_set_id: str


class NewSet(AdkRequestBody):
    """A set to create."""

    eval_set: NamedSet


class SessionToAdd(AdkRequestBody):
    """A session to add to a set, as a case with this id."""

    eval_id: str = Field(min_length=1, max_length=1000)
    session_id: str
    user_id: str


class ChosenMetric(AdkRequestBody):
    """A criterion of a run."""

    metric_name: str
    threshold: float | None = None
    criterion: dict[str, Any] | None = None


class CasesToRun(AdkRequestBody):
    """The cases to run, or all, and the criteria; without any, those beside the file of the set."""

    eval_ids: Sequence[str] = ()
    eval_case_ids: Sequence[str] = ()
    eval_metrics: Sequence[ChosenMetric] = ()
    live_model_config: dict[str, Any] | None = None
    user_simulator_config: dict[str, Any] | None = None


# -- sets and cases -----------------------------------------------------------------------------------------------


@router.get("/eval-sets")
async def list_sets(user: CurrentUser) -> dict[str, list[str]]:
    """List the sets."""
    return {"evalSetIds": await list_sets_by_old_name(user)}


@router.get("/eval_sets")
async def list_sets_by_old_name(user: CurrentUser) -> list[str]:
    """List the sets."""
    return sorted(await run_in_thread(user.context.cases.files))


@router.post("/eval-sets")
async def create_set(body: NewSet, user: CurrentUser) -> dict[str, Any]:
    """Create a set without cases."""
    made = await _run(user.context.cases.create, body.eval_set.eval_set_id)
    return made | {"eval_set_id": body.eval_set.eval_set_id}  # ADK's names of a set are in snake case


@router.post("/eval_sets/{name}")
async def create_set_by_old_name(name: Name, user: CurrentUser) -> None:
    """Create a set without cases."""
    await create_set(NewSet(eval_set=NamedSet(eval_set_id=name)), user)


@router.post("/eval-sets/{name:path}/add-session")
@router.post("/eval_sets/{name:path}/add_session")
async def add_session(name: Name, body: SessionToAdd, user: CurrentUser) -> None:
    """Add a session to a set as a case."""
    if body.user_id != user.id and not user.context.authenticator.is_single_user:
        raise not_found("Session not found")
    if await user.sessions.find(body.session_id, user_id=body.user_id) is None:
        raise not_found("Session not found")
    files = await run_in_thread(user.context.cases.files)
    if name not in files:
        raise not_found(f"Eval set `{name}` not found.")
    if body.eval_id in [case.id for case in await _run(user.context.cases.cases, name)]:
        raise bad_request(f"Eval id `{body.eval_id}` already exists in `{name}` eval set.")
    try:
        made = await user.sessions.eval_set(body.session_id, user_id=body.user_id)
    except UsageError as error:
        raise bad_request(str(error)) from error
    await _run(user.context.cases.add, name, made["eval_cases"][0], body.eval_id)


@router.get("/eval_sets/{name:path}/evals")
async def list_cases(name: Name, user: CurrentUser) -> list[str]:
    """List the ids of the cases of a set."""
    return sorted(case.id for case in await _run(user.context.cases.cases, name))


@router.get("/eval-sets/{name:path}/eval-cases/{case_id}")
@router.get("/eval_sets/{name:path}/evals/{case_id}")
async def read_case(name: Name, case_id: CaseId, user: CurrentUser) -> dict[str, Any]:
    """Return a case."""
    case = await _run(user.context.cases.case, name, case_id, refused=404)
    return await _run(_convert_to_api, case)


@router.put("/eval-sets/{name:path}/eval-cases/{case_id}")
@router.put("/eval_sets/{name:path}/evals/{case_id}")
async def replace_case(name: Name, case_id: CaseId, case: dict[str, Any], user: CurrentUser) -> None:
    """Replace a case; its id stays."""
    id_ = case.get("evalId") or case.get("eval_id") or case_id
    if id_ != case_id:
        raise bad_request("Eval id in EvalCase should match the eval id in the API route.")
    kept = await _run(_convert_to_file, case, refused=422)
    await _run(user.context.cases.case, name, case_id, refused=404)
    await _run(user.context.cases.replace, name, case_id, {**kept, "eval_id": case_id})


@router.delete("/eval-sets/{name:path}/eval-cases/{case_id}")
@router.delete("/eval_sets/{name:path}/evals/{case_id}")
async def delete_case(name: Name, case_id: CaseId, user: CurrentUser) -> None:
    """Delete a case."""
    await _run(user.context.cases.delete, name, case_id, refused=404)


# -- runs ---------------------------------------------------------------------------------------------------------


@router.post("/eval-sets/{name:path}/run")
async def run_cases(name: Name, body: CasesToRun, user: CurrentUser) -> dict[str, Any]:
    """Run cases of a set, each as a user of its own, and return their results."""
    return {"runEvalResults": await run_cases_by_old_name(name, body, user)}


@router.post("/eval_sets/{name:path}/run_eval")
async def run_cases_by_old_name(name: Name, body: CasesToRun, user: CurrentUser) -> list[dict[str, Any]]:
    """Run cases of a set, each as a user of its own, and return their results."""
    if body.live_model_config or body.user_simulator_config:
        raise bad_request("Live models and simulated users are not supported: use `adk eval` for them")
    cases = await _run(user.context.cases.cases, name, body.eval_case_ids or body.eval_ids)
    chosen = {one.metric_name: one.criterion or one.threshold for one in body.eval_metrics}
    try:
        criteria = criteria_of(chosen) if chosen else None
    except UsageError as error:
        raise bad_request(str(error)) from error
    try:
        run = user.context.evals.start(cases, _always(criteria) if criteria else criteria_beside)
    except LangoError as error:
        raise ApiError(409, "NotRun", str(error)) from error
    await user.context.evals.wait()
    if run.error:
        raise ApiError(500, "RunFailed", run.error)
    return [_result_json(name, result) for result in run.results]


def _always(criteria: Criteria) -> Callable[[object], Criteria]:
    return lambda _: criteria


@router.get("/eval-results")
async def list_results(user: CurrentUser) -> dict[str, list[str]]:
    """List the runs whose results are kept, the oldest first."""
    return {"evalResultIds": await list_results_by_old_name(user)}


@router.get("/eval_results")
async def list_results_by_old_name(user: CurrentUser) -> list[str]:
    """List the runs whose results are kept, the oldest first."""
    return [*await run_in_thread(_past_runs, user)]


@router.get("/eval-results/{result_id:path}")
@router.get("/eval_results/{result_id:path}")
async def read_result(result_id: Name, user: CurrentUser) -> dict[str, Any]:
    """Return the result of each case of a run."""
    run = (await run_in_thread(_past_runs, user)).get(result_id)
    if run is None:
        raise not_found(f"there is no result {result_id!r}")
    name, results = run
    return {
        "evalSetResultId": result_id,
        "evalSetResultName": result_id,
        "evalSetId": name,
        "evalCaseResults": [_result_json(name, result) for result in results],
        "creationTimestamp": results[0].at,
    }


def _past_runs(user: AgentUser) -> dict[str, tuple[str, Sequence[PastResult]]]:
    """Return the kept runs by their ids: the set and the results of each, the oldest first."""
    runs: dict[tuple[float, str], list[PastResult]] = {}
    for name, file in user.context.cases.files().items():
        for history in read_history(file).values():
            for result in history:
                runs.setdefault((result.at, name), []).append(result)
    return {f"{user.runtime.app_name}_{name}_{at}": (name, found) for (at, name), found in sorted(runs.items())}


@router.get("/metrics-info")
async def describe_metrics() -> dict[str, Any]:
    """List the criteria that a run may have."""
    interval = {"minValue": 0.0, "openAtMin": False, "maxValue": 1.0, "openAtMax": False}
    return {
        "metricsInfo": [
            {
                "metricName": name,
                "description": _DESCRIPTIONS[name],
                "metricValueInfo": {"interval": interval},
                "requiresThreshold": True,
            }
            for name in SUPPORTED
        ]
    }


def _result_json(name: str, result: CaseResult | PastResult) -> dict[str, Any]:
    is_new = isinstance(result, CaseResult)
    expected = result.case.exchanges if is_new else result.expected
    pairs = enumerate(zip(result.exchanges, expected, strict=False))  # a case that failed early has fewer
    return {
        "evalSetFile": name,
        "evalSetId": name,
        "evalId": result.case.id if is_new else result.case,
        "finalEvalStatus": _PASSED if result.passed else _FAILED,
        "overallEvalMetricResults": [
            _metric_json(metric, metric.score, passed=metric.passed) for metric in result.metrics
        ],
        "evalMetricResultPerInvocation": [_message_json(result.metrics, at, *pair) for at, pair in pairs],
        "userId": result.user_id,
        "sessionId": result.session_id,
    }


def _metric_json(metric: Metric, score: float | None, *, passed: bool) -> dict[str, Any]:
    status = _PASSED if passed else _FAILED
    return {"metricName": metric.name, "threshold": metric.threshold, "score": score, "evalStatus": status}


def _message_json(metrics: Sequence[Metric], at: int, actual: Exchange, expected: Exchange) -> dict[str, Any]:
    scores = [(metric, metric.scores[at].value) for metric in metrics if at < len(metric.scores)]
    return {
        "actualInvocation": _invocation_json(actual),
        "expectedInvocation": _invocation_json(expected),
        "evalMetricResults": [
            _metric_json(metric, score, passed=score is None or score >= metric.threshold) for metric, score in scores
        ],
    }


def _invocation_json(exchange: Exchange) -> dict[str, Any]:
    calls = [{"name": call.name, "args": dict(call.args)} for call in exchange.calls]
    return {
        "userContent": {"role": "user", "parts": [{"text": exchange.text}]},
        "finalResponse": {"role": "model", "parts": [{"text": exchange.answer}]},
        "intermediateData": {"toolUses": calls, "toolResponses": [], "intermediateResponses": []},
    }


_convert_to_api = functools.partial(convert_case, camel_names=True)
_convert_to_file = functools.partial(convert_case, camel_names=False)


async def _run(function: Callable[..., Any], *arguments: Any, refused: int = 400) -> Any:
    """Run what reads or writes files in a thread; what it refuses is an error of ADK's kind."""
    try:
        return await run_in_thread(function, *arguments)
    except UsageError as error:
        raise ApiError(refused, "CaseRefused", str(error)) from error
