"""Let operators edit and run the test cases of an agent on the page."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

from fastapi import Query, Response
from pydantic import Field

from lango.development.test_cases import Case, readable_id
from lango.errors import LangoError, UsageError
from lango.evaluation.eval_runs import EvalRun
from lango.evaluation.report import case_json
from lango.evaluation.run_history import PastResult, is_regression, read_history
from lango.runtime.sessions.eval_sets import read_cases
from lango.server.context import CurrentUser
from lango.server.errors import ApiError
from lango.server.json_body import large_response
from lango.server.openapi import shown
from lango.server.schemas import RequestBody
from lango.server.security.auth import AuthenticatedRouter
from lango.threads import run_in_thread

router = AuthenticatedRouter("/page/evals", include_in_schema=False)

_SHOWN_RUNS = 10

Name = Annotated[str, Field(min_length=1, max_length=200)]
SetName = Annotated[str, Query(alias="set", max_length=200)]
CaseId = Annotated[str, Query(alias="case", max_length=1000)]


class SessionToSave(RequestBody):
    """A session to save as a case of a set."""

    session: Name
    set: Name
    name: Annotated[str, Field(max_length=200)] = ""
    """The case's id; empty: one after the session's title."""


class EditedCase(RequestBody):
    """A case as its file has it."""

    case: dict[str, Any]


class CasesToRun(RequestBody):
    """The cases to run: all, those of a set, or one."""

    set: Annotated[str, Field(max_length=200)] = ""
    case: Annotated[str, Field(max_length=1000)] = ""


@router.get("")
async def list_cases(user: CurrentUser) -> Response:
    """List the sets of cases with the newest results of each, and the run under way."""
    _require_operator(user)
    files = await run_in_thread(user.context.cases.files)
    sets = [await run_in_thread(_describe_set, name, file) for name, file in files.items()]
    folder, newest = str(user.context.cases.folder), user.context.evals.newest
    return await large_response(lambda: {"folder": folder, "sets": sets, "run": newest and _describe_run(newest)})


def _describe_set(name: str, file: Path) -> dict[str, Any]:
    try:
        cases = read_cases(file)
    except UsageError as error:
        return {"name": name, "error": str(error), "cases": []}
    history = read_history(file)
    return {"name": name, "error": "", "cases": [_describe_case(case, history.get(case.id, [])) for case in cases]}


def _describe_case(case: Case, history: Sequence[PastResult]) -> dict[str, Any]:
    return {
        "id": case.id,
        "messages": len(case.exchanges),
        "first": case.exchanges[0].text[:200],
        "replies": sum(map(len, case.checks.replies)),
        "history": [shown(one.without_details()) for one in history[-_SHOWN_RUNS:]],
        "regression": is_regression(history),
    }


def _describe_run(run: EvalRun) -> dict[str, Any]:
    results = [case_json(result) | {"why": result.why} for result in run.results]
    return {"running": run.running, "total": run.total, "error": run.error, "results": results}


@router.get("/case")
async def read_case(user: CurrentUser, name: SetName, case_id: CaseId) -> Response:
    """Return a case as its file has it."""
    _require_operator(user)
    case = await _run(user.context.cases.case, name, case_id)
    return await large_response(lambda: case)


@router.post("/case", status_code=201)
async def save_session(body: SessionToSave, user: CurrentUser) -> dict[str, str]:
    """Save a session as a case."""
    _require_operator(user)
    session = await user.sessions.read(body.session, user_id=user.id)
    try:
        eval_set = await user.sessions.eval_set(body.session, user_id=user.id)
    except UsageError as error:
        raise ApiError(409, "NothingToSave", str(error)) from error
    wanted = body.name.strip() or readable_id(session.display_title)
    return {"id": await _run(user.context.cases.add, body.set, eval_set["eval_cases"][0], wanted)}


@router.put("/case", status_code=204)
async def edit_case(body: EditedCase, user: CurrentUser, name: SetName, case_id: CaseId) -> None:
    """Replace a case."""
    _require_operator(user)
    await _run(user.context.cases.replace, name, case_id, body.case)


@router.delete("/case", status_code=204)
async def delete_case(user: CurrentUser, name: SetName, case_id: CaseId) -> None:
    """Delete a case."""
    _require_operator(user)
    await _run(user.context.cases.delete, name, case_id)


@router.post("/runs", status_code=202)
async def run_cases(body: CasesToRun, user: CurrentUser) -> dict[str, Any]:
    """Run cases, each as a user of its own; `GET` shows the progress."""
    _require_operator(user)
    folder = user.context.cases
    if body.set:
        cases = await _run(folder.cases, body.set, [body.case] if body.case else [])
    else:
        cases = await run_in_thread(folder.every_case)
    try:
        return _describe_run(user.context.evals.start(cases))
    except LangoError as error:
        raise ApiError(409, "NotRun", str(error)) from error


@router.delete("/runs", status_code=204)
async def stop_run(user: CurrentUser) -> None:
    """Stop the run under way."""
    _require_operator(user)
    await user.context.evals.stop()


def _require_operator(user: CurrentUser) -> None:
    user.require_operator("edit and run them", "test cases are files of the server, and their tools really run")


async def _run(function: Any, *arguments: Any) -> Any:
    """Run what reads or writes files in a thread; what it refuses, the client has to fix."""
    try:
        return await run_in_thread(function, *arguments)
    except UsageError as error:
        raise ApiError(422, "CaseRefused", str(error)) from error
