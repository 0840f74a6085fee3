"""Run `lango schedules`: add, list, show, pause, resume, delete and run schedules. Running servers run their slots."""

from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

import typer

from lango.cli.options import Json, SessionOptions, complete_hints, with_shared_options
from lango.cli.session_target import LOCAL_USER
from lango.cli.tables import print_table, print_values, struct_json
from lango.cli.terminal_text import format_time, one_line, printable
from lango.errors import ScheduleNotFound, UsageError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from lango.runtime.stored_data import StoredData
    from lango.runtime.submissions.schedules import ListedSchedule, ScheduledRun, Schedules

T = TypeVar("T")

app = typer.Typer(help="Schedules: messages that are sent at certain times.", no_args_is_help=True)

ScheduleArgument = Annotated[str, typer.Argument(metavar="ID", help="The schedule's id or its beginning, or its name.")]


@app.command()
@with_shared_options
def add(
    chosen: SessionOptions,
    name: Annotated[str, typer.Argument(help="The name of the schedule.")],
    message: Annotated[str, typer.Argument(help="The message; {slot}, {date}, {time}, {weekday} are filled in.")],
    cron: Annotated[str, typer.Option("--cron", help="Five fields as '30 7 * * 1-5', or @daily and the like.")] = "",
    every: Annotated[str, typer.Option("--every", help="An interval, such as 15m, 2h or 1d.")] = "",
    at: Annotated[list[str] | None, typer.Option("--at", help="A time, such as 2026-03-01T07:30; repeat it.")] = None,
    timezone: Annotated[str, typer.Option("--timezone", help="An IANA name, such as Europe/Berlin.")] = "UTC",
    start: Annotated[str, typer.Option("--start", help="No slot is before this time.")] = "",
    end: Annotated[str, typer.Option("--end", help="No slot is after this time.")] = "",
    jitter: Annotated[str, typer.Option("--jitter", help="Delay each slot by up to this time, such as 5m.")] = "0",
    missed: Annotated[
        Literal["skip", "one", "all"],
        typer.Option("--missed", help="Which missed slots run later: skip means none."),
    ] = "one",
    max_missed: Annotated[int, typer.Option("--max-missed", help="How many run with --missed all.")] = 10,
    overlap: Annotated[
        Literal["queue", "skip", "cancel"],
        typer.Option("--overlap", help="If the last run is still running: queue waits for it, cancel stops it."),
    ] = "queue",
    session: Annotated[
        Literal["one", "each", "day"], typer.Option("--session", help="One session for all runs, each, or one a day.")
    ] = "one",
    session_id: Annotated[str, typer.Option("--session-id", help="An existing session for all runs.")] = "",
    as_json: Json = False,
) -> None:
    """Add a schedule for a user, by default `user`; processes that serve its app run it."""
    from lango.schedules import spec_from_texts

    spec = spec_from_texts(
        name,
        message,
        cron=cron,
        every=every,
        times=at or (),
        timezone=timezone,
        start=start,
        end=end,
        jitter=jitter,
        missed=missed,
        max_missed=max_missed,
        overlap=overlap,
        session=session,
        session_id=session_id,
    )
    app_name = chosen.app_name()
    added = chosen.run(lambda data: data.app(app_name).schedules.add(spec, user_id=chosen.user or LOCAL_USER))
    print_values([added], schedule_json, row=_row, as_json=as_json, empty="")


@app.command("list")
@with_shared_options
def list_schedules(chosen: SessionOptions, as_json: Json = False) -> None:
    """List schedules, with the next time of each."""
    found = [one for one in chosen.run(lambda data: data.schedules()) if chosen.include(one.app, one.user)]
    print_values(found, schedule_json, row=_row, as_json=as_json, empty="no schedules", cut=("name", "message"))


@app.command()
@with_shared_options
def show(chosen: SessionOptions, schedule: ScheduleArgument, as_json: Json = False) -> None:
    """Show a schedule, its next ten times, and what became of its newest slots."""

    async def read(schedules: "Schedules", found: "ListedSchedule") -> "tuple[ListedSchedule, list[ScheduledRun]]":
        return found, [*await schedules.runs(found.id, user_id=found.user)]

    found, runs = _run_on(chosen, schedule, read)
    if as_json:
        print_values(
            [found],
            lambda one: schedule_json(one) | {"runs": [struct_json(run) for run in runs]},
            as_json=True,
            empty="",
        )
        return
    for name, value in schedule_json(found).items():
        if name == "next_times":
            continue
        print(f"{name}: {printable(str(value))}")
    print("next: " + ("\n      ".join(found.next_times) or "none"))
    print_table([_run_row(run) for run in runs], empty="no slot has passed yet", cut=("reason",))


@app.command()
@with_shared_options
def pause(chosen: SessionOptions, schedule: ScheduleArgument) -> None:
    """Pause a schedule: no slot runs until it is resumed. A run under way continues."""
    found = _run_on(chosen, schedule, lambda schedules, one: schedules.pause(one.id, user_id=one.user))
    print(f"paused {found.id}")


@app.command()
@with_shared_options
def resume(chosen: SessionOptions, schedule: ScheduleArgument) -> None:
    """Resume a schedule with its next slot; those that passed during the pause do not run."""
    found = _run_on(chosen, schedule, lambda schedules, one: schedules.resume(one.id, user_id=one.user))
    print(f"resumed {found.id}; next: {found.next_times[0] if found.next_times else 'none'}")


@app.command()
@with_shared_options
def delete(chosen: SessionOptions, schedule: ScheduleArgument) -> None:
    """Delete a schedule and its history. Its sessions stay."""

    async def remove(schedules: "Schedules", one: "ListedSchedule") -> str:
        await schedules.delete(one.id, user_id=one.user)
        return one.id

    print(f"deleted {_run_on(chosen, schedule, remove)}")


@app.command("run-now")
@with_shared_options
def run_now(chosen: SessionOptions, schedule: ScheduleArgument) -> None:
    """Ask for a run now, also of a paused schedule; a process that serves its app starts it within a second."""
    found = _run_on(chosen, schedule, lambda schedules, one: schedules.run_now(one.id, user_id=one.user))
    print(
        complete_hints(f"asked for a run of {found.id}; `lango schedules show {found.id}` shows it once it has started")
    )


def _run_on(chosen: SessionOptions, wanted: str, work: "Callable[[Schedules, ListedSchedule], Awaitable[T]]") -> T:
    async def run(data: "StoredData") -> T:
        shown = [one for one in await data.schedules() if chosen.include(one.app, one.user)]
        found = [one for one in shown if wanted in (one.id, one.spec.name)]
        found = found or [one for one in shown if len(wanted) >= 4 and one.id.startswith(wanted)]
        if not found:
            raise ScheduleNotFound(f"there is no schedule {wanted!r}; `lango schedules list` lists them")
        if len(found) > 1:
            raise UsageError(f"{len(found)} schedules fit {wanted!r}: give the id, or select one with --app and --user")
        return await work(data.app(found[0].app).schedules, found[0])

    return chosen.run(run)


def schedule_json(one: "ListedSchedule") -> dict[str, Any]:
    """Return a schedule as JSON."""
    fields = {name: value for name, value in struct_json(one.spec).items() if value not in (None, "", 0, ())}
    times = {"state": one.state, "created_at": format_time(one.created_at), "next_times": [*one.next_times]}
    return {"id": one.id, "app": one.app, "user": one.user, **fields, **times}


def _row(one: "ListedSchedule") -> dict[str, Any]:
    spec = one.spec
    when = spec.cron or (f"every {spec.every_s:,} s" if spec.every_s else f"{len(spec.times):,} times")
    return {
        "id": one.id,
        "name": one_line(spec.name),
        "when": when if spec.timezone == "UTC" else f"{when} {spec.timezone}",
        "state": one.state,
        "next": one.next_times[0] if one.next_times else "",
        "user": one.user,
        "app": one.app,
        "message": one_line(spec.message),
    }


def _run_row(run: "ScheduledRun") -> dict[str, Any]:
    slot = format_time(run.slot_at)
    return {
        "slot": f"{slot} (run now)" if run.manual else slot,
        "outcome": run.outcome if run.slots == 1 else f"{run.outcome}: {run.slots:,} slots",
        "session": run.session_id or "",
        "turn": "" if run.turn is None else str(run.turn),
        "reason": one_line(run.reason),
    }
