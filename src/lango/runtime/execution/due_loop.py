"""Do what is due: waits that end, slots of schedules, deliveries to webhooks. One loop and one query in every process.

The query runs at most once per second while nothing is due; several processes may find the same work, and the database
lets one of them do it.
"""

from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Literal, Protocol

from msgspec.structs import asdict

from lango.errors import LangoError
from lango.store import Store
from lango.store.waits.due import read_next_due

_POLL_S = 1.0
"""Another process may have stored what is due sooner than what is known here."""
_MIN_WAIT_S = 0.05

DueKind = Literal["waits", "schedules", "deliveries"]


class DueWork(Protocol):
    """Work of a kind that is due at times that the store knows."""

    async def run_due(self) -> bool:
        """Do what is due; return whether more of it may be due now."""
        ...


async def run_due_work(
    store: Store, app_name: str, work: Mapping[DueKind, DueWork], spawn: Callable[[Coroutine[Any, Any, None]], object]
) -> None:
    """Do what is due of an app until cancelled, each kind in its own task: none waits for another."""
    under_way: set[str] = set()

    async def run_due(kind: str, due: DueWork) -> None:
        try:
            if await due.run_due():
                store.notify_due()
        except LangoError as error:
            store.outages.warn(f"{kind} that are due must wait: {error}")
        finally:
            under_way.discard(kind)

    with store.watch_due() as wait:
        while True:
            wait_s = _POLL_S
            try:
                next_due = asdict(await store.read(read_next_due, app_name))
            except LangoError as error:
                store.outages.warn(f"the store could not be asked what is due: {error}")
                next_due = {}
            for kind, due in work.items():
                left_s = next_due.get(kind)
                if left_s is None or kind in under_way:
                    continue
                if left_s > 0:
                    wait_s = min(wait_s, max(_MIN_WAIT_S, left_s))
                else:
                    under_way.add(kind)
                    spawn(run_due(kind, due))
            await wait(wait_s)
