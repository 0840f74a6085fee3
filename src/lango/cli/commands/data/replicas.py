"""Run `lango replicas`: list the live processes that run turns, with the version of the agent that each runs."""

from lango.cli.options import Json, StoreOptions, with_shared_options
from lango.cli.tables import print_values
from lango.cli.terminal_text import printable


@with_shared_options
def replicas(chosen: StoreOptions, as_json: Json = False) -> None:
    """List the live processes that run turns of any app, with the version that each runs.

    A process is listed until it stops, or for some seconds after it died. Commands such as `lango run` are not listed.
    """
    print_values(
        chosen.run(lambda data: data.replicas()),
        lambda one: {
            "app": printable(one.app),
            "version": printable(one.version),
            "place": printable(one.place),
            "since": one.started_at.isoformat(timespec="seconds"),
            "turns": one.running_turns,
        },
        as_json=as_json,
        empty="no replica runs",
    )
