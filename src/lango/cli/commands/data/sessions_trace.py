"""Run `lango sessions trace`: show what happened in the turns of a session as a waterfall."""

import json
import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lango.cli.options import Json, SessionIdArgument, SessionOptions, id_by_prefix, load_settings, with_shared_options
from lango.cli.tables import print_table
from lango.cli.terminal_text import describe_resumption, format_cost, format_time, one_line, printable

if TYPE_CHECKING:
    from lango.development.failures import Failure
    from lango.runtime.sessions.sessions import ModelRequest
    from lango.runtime.stored_data import AppData
    from lango.runtime.trace.session_trace import ReadableRequest, SessionTrace
    from lango.runtime.trace.steps import Step, TurnTrace
    from lango.sessions import SessionInfo

_BAR_WIDTH = 20
_SEARCHED_TURNS = 100


@with_shared_options
def trace(
    chosen: SessionOptions,
    session_id: SessionIdArgument,
    turn: Annotated[int | None, typer.Option("--turn", "-t", min=1, help="Only this turn.")] = None,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="The number of newest turns.")] = 5,
    request: Annotated[
        str | None,
        typer.Option(
            "--request",
            help="Print this request to a model and its answer, named by its id or its beginning; with --json, all of "
            "it as it was sent.",
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Show what happened in the turns of a session: agents, model calls and tools, with times, tokens and cost."""
    if request is not None:
        _print_request(chosen, session_id, request, as_json=as_json)
        return

    async def read(app: "AppData", record: "SessionInfo") -> "tuple[SessionTrace, Sequence[Failure]]":
        read_trace = app.sessions.trace(record.name.id, user_id=record.name.user_id, turn=turn, limit=limit)
        return await read_trace, await app.sessions.failures(record.name.id, user_id=record.name.user_id)

    found, failures = chosen.run_on(session_id, read)
    if as_json:
        from lango.server.api.sessions.trace_routes import TraceReport
        from lango.server.openapi import shown

        keeps = bool(load_settings(chosen.config).trace.requests)
        print(json.dumps(shown(TraceReport(keeps, found.turns, found.before))))
        return
    if not found.turns:
        print("no turns")
    for number, one in enumerate(found.turns):
        if number:
            print()
        print_turn(one)
        for failure in failures:
            if failure.turn == one.turn:
                _print_failure(failure)


def _print_failure(failure: "Failure") -> None:
    """Print where the user's own code raised an error."""
    place = f": {failure.file}, line {failure.line}, in {failure.function}" if failure.file else ""
    print(f"\n{one_line(failure.what)}{one_line(place)}\n{printable(failure.folded)}")


async def _find_request(app: "AppData", record: "SessionInfo", wanted: str) -> str:
    """Return the id of the request of the newest turns that begins with what the user typed."""
    found = await app.sessions.trace(record.name.id, user_id=record.name.user_id, limit=_SEARCHED_TURNS)
    steps = [step for turn in found.turns for _, step in turn.walk()]
    ids = [attempt.request_id for step in steps for attempt in step.attempts if attempt.request_id]
    return id_by_prefix(wanted, ids, "requests")


def _print_request(chosen: SessionOptions, session_id: str, wanted: str, *, as_json: bool) -> None:
    if as_json:

        async def read(app: "AppData", record: "SessionInfo") -> "ModelRequest":
            request_id = await _find_request(app, record, wanted)
            return await app.sessions.traced_request(record.name.id, request_id, user_id=record.name.user_id)

        found = chosen.run_on(session_id, read)
        about = {"id": found.id, "turn": found.turn, "url": found.url, "status": found.status, "error": found.error}
        text = json.dumps(about | found.bodies(), indent=2, ensure_ascii=False)
        print(printable(text) if sys.stdout.isatty() else text)
        return

    async def read_readable(app: "AppData", record: "SessionInfo") -> "ReadableRequest":
        request_id = await _find_request(app, record, wanted)
        return await app.sessions.readable_request(record.name.id, request_id, user_id=record.name.user_id)

    print(printable("\n".join(_request_lines(chosen.run_on(session_id, read_readable)))))


def _request_lines(found: "ReadableRequest") -> Iterator[str]:
    new = found.changes.added_messages if found.changes else range(len(found.sent.messages))
    yield f"request {found.id} of turn {found.turn} to {found.provider}/{found.model}"
    yield from _section("options", [f"{name}: {json.dumps(value)}" for name, value in found.sent.options.items()])
    yield from _section("system", found.sent.system.splitlines())
    if found.changes and found.changes.system:
        yield from _section("changes of the system text", found.changes.system.splitlines())
    yield from _section("tools", [f"{tool.name}: {one_line(tool.description, 80)}" for tool in found.sent.tools])
    if len(new) < len(found.sent.messages):
        yield f"{len(found.sent.messages) - len(new)} messages as in the request before"
    for place in new:
        message = found.sent.messages[place]
        calls = [f"calls {call.name} {json.dumps(call.value, ensure_ascii=False)}" for call in message.calls]
        results = [f"result of {call.name} {json.dumps(call.value, ensure_ascii=False)}" for call in message.results]
        yield from _section(message.role, [*message.text.splitlines(), *calls, *results, *message.files])
    if found.error:
        yield f"error: {found.error}"
    if answer := found.answer:
        calls = [f"calls {call['name']} {json.dumps(call['arguments'], ensure_ascii=False)}" for call in answer.calls]
        yield from _section(f"answer ({answer.finish})", [*answer.text.splitlines(), *calls])


def _section(name: str, lines: "Sequence[str]") -> Iterator[str]:
    if lines:
        yield f"{name}:"
        yield from (f"  {line}" for line in lines)


def print_turn(turn: "TurnTrace") -> None:
    """Print one turn: a line about it, and a row for each step."""
    usage = turn.usage
    parts = [
        f"turn {turn.turn}",
        "rewound" if turn.is_rewound else turn.status,
        format_time(turn.started_at),
        _seconds(turn.duration_s),
        f"{usage.input_tokens:,} tokens in, {usage.output_tokens:,} out",
        format_cost(usage.cost_usd),
    ]
    print(one_line(" · ".join(part for part in parts if part)))
    for one in turn.resumptions:
        print(printable(f"  resumed {format_time(one.at)}: {describe_resumption(one.reason)}"))
    if turn.version != turn.begun_version:
        print(printable(f"  begun by version {turn.begun_version} of the app, run last by version {turn.version}"))
    if turn.error:
        print(f"  {one_line(turn.error)}")
    end = max([turn.started_at + (turn.duration_s or 0.0), *(step.ended_at for _, step in turn.walk())])
    rows = [_row(step, depth, turn.started_at, end) for depth, step in turn.walk()]
    print_table(rows, empty="  no steps", cut=["step", "notes"])


def _row(step: "Step", depth: int, started_at: float, ended_at: float) -> dict[str, Any]:
    used = step.usage
    tokens = used.input_tokens or used.output_tokens
    return {
        "step": "\N{NO-BREAK SPACE}" * 2 * depth + f"{_LABELS[step.kind]}{one_line(step.name)}",
        "start": f"{'~' if step.is_estimated else ''}{max(0.0, step.started_at - started_at):.2f}",
        "took": _seconds(step.duration_s),
        "in": f"{used.input_tokens:,}" if tokens else "",
        "out": f"{used.output_tokens:,}" if tokens else "",
        "cached": f"{used.cached_tokens:,}" if used.cached_tokens else "",
        "cost": format_cost(used.cost_usd),
        "": _bar(step, started_at, ended_at),
        "notes": ", ".join(_notes(step)),
    }


_LABELS = {"agent": "", "model_call": "model ", "tool": "tool ", "node": "node ", "message": "message "}


def _notes(step: "Step") -> Iterator[str]:
    if step.status != "done":
        yield step.status.replace("_", " ")
    if step.is_replayed:
        yield "replayed"
    if step.approved_by:
        yield f"approved by {step.approved_by}"
    failed = [attempt for attempt in step.attempts if attempt.error]
    for attempt in failed:
        yield f"attempt failed: {one_line(attempt.error, 80)}"
    for attempt in step.attempts:
        if attempt.request_id:
            yield f"request {attempt.request_id}"
    if step.seq is not None:
        yield f"message {step.seq}"


def _bar(step: "Step", started_at: float, ended_at: float) -> str:
    """Return the place of a step in its turn as a bar."""
    total = max(ended_at - started_at, 1e-9)
    first = min(_BAR_WIDTH - 1, max(0, int((step.started_at - started_at) / total * _BAR_WIDTH)))
    last = ended_at if step.status == "running" else step.ended_at
    width = max(1, min(_BAR_WIDTH - first, round((last - step.started_at) / total * _BAR_WIDTH)))
    sign = "\N{MEDIUM SHADE}" if step.kind in ("agent", "node") else "\N{FULL BLOCK}"
    return ("\N{MIDDLE DOT}" * first + sign * width).ljust(_BAR_WIDTH, "\N{MIDDLE DOT}")


def _seconds(duration_s: float | None) -> str:
    return "" if duration_s is None else f"{duration_s:.2f} s"
