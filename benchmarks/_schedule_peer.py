"""Run a replica of the schedules benchmark on DBOS: `python -m benchmarks._schedule_peer URL NUMBER [COUNT CRON]`.

It runs until it is killed. One that is given a count creates so many schedules before it is ready.
"""

import sys
import threading
from datetime import datetime
from typing import Any

from dbos import DBOS  # pyright: ignore[reportMissingImports]

APP = "lango-schedules"


@DBOS.workflow()
def tick(at: datetime, context: Any) -> str:
    """Answer at once, as the model of the benchmark does."""
    del at, context
    return "ok"


def main(url: str, number: str, count: str = "0", cron: str = "") -> None:
    """Launch DBOS, create schedules if asked to, and say that it is ready."""
    DBOS(config={"name": APP, "system_database_url": url, "executor_id": f"replica-{number}", "log_level": "ERROR"})
    DBOS.launch()
    for at in range(int(count)):
        DBOS.create_schedule(schedule_name=f"due-{at}", workflow_fn=tick, schedule=cron, cron_timezone="UTC")
    print("ready", flush=True)
    threading.Event().wait()


if __name__ == "__main__":
    main(*sys.argv[1:])
