"""A turn in a process of its own that a test holds for a while."""

from multiprocessing.connection import Connection
from typing import Any

from lango.store.engine.postgres import postgres_database
from tests.support.turn_worker import run_a_turn


def run_a_held_turn(pipe: Connection, *args: Any) -> None:
    """Run a turn whose locks PostgreSQL takes back after a second.

    A hold stops the event loop, sometimes in a transaction of the other tool: the processes beside it would wait for
    its locks for ten or thirty seconds.
    """
    postgres_database._IDLE_IN_TRANSACTION_S = postgres_database._TRANSACTION_S = 1.0  # pyright: ignore[reportPrivateUsage] - of this process
    run_a_turn(pipe, *args)
