"""Run `lango eval`: run test cases against the agent, and save sessions as cases."""

import itertools
import json
import sys
import tempfile
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from typer.core import TyperGroup
from typing_extensions import override

from lango.cli.commands.agent.run import ApprovedTools, approved_tools, check_tool_names
from lango.cli.options import AgentOptions, Model, SessionIdArgument, SessionOptions, with_shared_options
from lango.cli.process_setup import fast_imports, run_async, stdout_for_answers
from lango.cli.progress import Progress, progress_bar
from lango.cli.tables import print_table
from lango.cli.terminal_text import counted, printable
from lango.development.test_cases import readable_id
from lango.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lango.config import Settings
    from lango.development.test_cases import Case
    from lango.evaluation.case_runner import CaseResult
    from lango.evaluation.criteria import Criteria
    from lango.runtime.stored_data import AppData
    from lango.sessions import SessionInfo


class _FilesOrCommand(TyperGroup):
    """Runs `run` where the first argument is no command: `lango eval FILE` is `lango eval run FILE`."""

    @override
    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if args and args[0] not in {*self.commands, *ctx.help_option_names}:
            args = ["run", *args]
        return super().parse_args(ctx, args)


app = typer.Typer(
    help="Test cases: run them against the agent (`lango eval FILE...`), save a session as a case.",
    no_args_is_help=True,
    cls=_FilesOrCommand,
)

Files = Annotated[list[Path], typer.Argument(metavar="FILE...", help="Files in ADK's eval-set format.")]
CaseIds = Annotated[list[str] | None, typer.Option("--case", metavar="ID", help="Only this case; may be repeated.")]
CriteriaFile = Annotated[
    Path | None,
    typer.Option("--criteria", metavar="FILE", help="ADK's test_config.json; else the one beside each file."),
]
JudgeModel = Annotated[
    str, typer.Option("--judge", metavar="MODEL", help="provider/name of the model that grades answers.")
]
Parallel = Annotated[int, typer.Option("--parallel", min=1, max=100, help="The most cases to run at once.")]
Format = Annotated[
    Literal["table", "json"], typer.Option("--output-format", help="Print the report as a table or as JSON.")
]
Page = Annotated[Path | None, typer.Option("--html", metavar="FILE", help="Also write the report as an HTML page.")]


@dataclass(frozen=True)
class EvalOptions(AgentOptions):
    """The options that select the agent to evaluate."""

    store: Annotated[
        str | None, typer.Option("--store", help="Keep the sessions in this store; else they are deleted at the end.")
    ] = None


@app.command()
@with_shared_options
def run(
    chosen: EvalOptions,
    files: Files,
    case: CaseIds = None,
    model: Model = None,
    criteria: CriteriaFile = None,
    judge: JudgeModel = "",
    parallel: Parallel = 4,
    approve: ApprovedTools = "none",
    output_format: Format = "table",
    page: Page = None,
) -> None:
    """Run the cases of files against the agent, each in a new session, and compare tool calls and answers.

    Exits with 0 if all pass, 1 if one fails, 2 for wrong usage.
    """
    settings = chosen.settings(model)
    folder = nullcontext("") if chosen.store else tempfile.TemporaryDirectory(prefix="lango-eval-")
    with stdout_for_answers(), progress_bar("evaluating", "cases") as advance, folder as temporary:
        if temporary:  # nothing of an evaluation reaches the sessions, the memory and the artifacts of users
            settings = settings.with_store(f"sqlite:///{temporary}/eval.db")
        results, model_name = run_async(
            _evaluate(settings, files, case or (), criteria, judge, parallel, approved_tools(approve), advance)
        )
    _keep(results, model_name)
    _print_report(results, output_format, page)
    raise typer.Exit(0 if all(result.passed for result in results) else 1)


async def _evaluate(
    settings: "Settings",
    files: "Sequence[Path]",
    wanted: "Sequence[str]",
    criteria_file: Path | None,
    judge_model: str,
    parallel: int,
    approved: "Sequence[str]",
    advance: Progress,
) -> "tuple[list[CaseResult], str]":
    with fast_imports():
        from lango.evaluation.case_runner import CaseRunner
        from lango.evaluation.judge import ModelJudge
        from lango.runtime.opening import open_runtime
    cases = _read_cases(files, wanted)
    find_criteria = cache(partial(_find_criteria, criteria_file))
    judge = ModelJudge(settings, judge_model)
    try:
        for file in files:
            find_criteria(file)
        async with open_runtime(settings, every_session=False) as runtime:
            await check_tool_names(runtime, approved)
            runner = CaseRunner(runtime, judge, find_criteria, approved)
            runner.check(cases)
            done = itertools.count(1)
            advance(0, len(cases))
            results = await runner.run(cases, parallel, lambda result: advance(next(done), len(cases)))
            return results, runtime.model_name
    finally:
        await judge.close()


def _read_cases(files: "Sequence[Path]", wanted: "Sequence[str]") -> "list[Case]":
    from lango.runtime.sessions.eval_sets import read_cases

    cases = [case for file in files for case in read_cases(file)]
    if unknown := set(wanted) - {case.id for case in cases}:
        raise UsageError(f"--case: there is no case {', '.join(sorted(unknown))} in these files")
    chosen = [case for case in cases if not wanted or case.id in wanted]
    if not chosen:
        raise UsageError("these files contain no cases")
    return chosen


def _find_criteria(given: Path | None, file: Path) -> "Criteria":
    from lango.evaluation.criteria import criteria_beside, read_criteria

    return criteria_beside(file) if given is None else read_criteria(given)


def _keep(results: "Sequence[CaseResult]", model: str) -> None:
    """Add the results to the history beside the files, where that can be written."""
    from lango.evaluation.run_history import add_to_history

    try:
        add_to_history(results, model)
    except OSError as error:
        print(f"lango: the results are not added to the history: {error.strerror}", file=sys.stderr)


def _regressions(results: "Sequence[CaseResult]") -> "set[tuple[Path, str]]":
    """Return the failed cases whose run before passed."""
    from lango.evaluation.run_history import is_regression, read_history

    histories = {file: read_history(file) for file in {result.case.file for result in results}}
    return {(file, id_) for file, every in histories.items() for id_, one in every.items() if is_regression(one)}


def _print_report(results: "Sequence[CaseResult]", output_format: str, page: Path | None) -> None:
    from lango.evaluation.report import report_json, report_page, report_rows, summary

    if output_format == "json":
        print(json.dumps(report_json(results, _regressions(results)), ensure_ascii=False, default=str))
    else:
        regressions = _regressions(results)
        print_table(report_rows(results, regressions), empty="", cut=("why",))
        print(summary(results, regressions))
    if page is not None:
        try:
            page.write_text(report_page(results), "utf-8")
        except OSError as error:
            raise UsageError(f"--html {printable(str(page))}: {error.strerror}") from error


@app.command()
@with_shared_options
def save(
    chosen: SessionOptions,
    session_id: SessionIdArgument,
    to: Annotated[Path, typer.Option("--to", metavar="FILE", help="The file; the case is added if it exists.")],
    case_id: Annotated[
        str | None, typer.Option("--id", help="The case's id; else one after the session's title.")
    ] = None,
) -> None:
    """Save a session as a test case: its messages, tool calls, answers and first state."""

    async def write(app: "AppData", record: "SessionInfo") -> "tuple[str, int]":
        from lango.runtime.sessions.eval_sets import read_cases

        taken = [case.id for case in read_cases(to)] if case_id is None and to.exists() else []
        read = await app.sessions.read(record.name.id, user_id=record.name.user_id)
        id_ = case_id or readable_id(read.display_title, taken)
        return id_, await app.sessions.save_case(record.name.id, to, id_, user_id=record.name.user_id)

    try:
        saved, count = chosen.run_on(session_id, write)
    except OSError as error:
        raise UsageError(f"{to} cannot be written: {error.strerror}") from error
    print(printable(f"saved {saved} to {to}, which has {counted(count, 'case')} now"))
