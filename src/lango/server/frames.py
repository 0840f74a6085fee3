"""A turn's events in somebody else's words: server-sent frames that another protocol's client reads."""

import json
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from typing import Any

from typing_extensions import override

from lango.errors import LangoError
from lango.server.errors import Refused
from lango.server.streaming.sse import Stream, name_of, one_line
from lango.store.turns.event_log import ToldEvent

_STATUS = {
    "BudgetTooSmall": 400,  # a message that is too long: no failure of the server's, and no use to send again
    "StoreUnavailable": 503,
    "OutcomeUnknown": 503,
    "ProviderUnavailable": 503,
    "TurnTimeout": 504,
    "TurnCancelled": 409,
}


def status_of(error: str) -> int:
    """Return the status for an error that a turn ended with, by its name."""
    return _STATUS.get(error, 500)


class FrameStream(Stream[str]):
    """Frames as another protocol's client reads them.

    `failed` says in the protocol's words that the stream ends here, though its turn may not.
    """

    def __init__(
        self,
        frames: AsyncGenerator[str | None, None],
        write_timeout_s: float,
        failed: Callable[[str, str], str],
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(frames, write_timeout_s)
        self.headers.update(headers or {})
        self._failed = failed

    @override
    def _frame(self, event: str) -> bytes:
        return one_line(event).encode()

    @override
    def _cut(self, error: LangoError | Refused) -> bytes:
        return self._failed(name_of(error), str(error)).encode()


async def read(events: AsyncGenerator[ToldEvent | None, None]) -> AsyncGenerator[dict[str, Any] | None, None]:
    """Read events as their fields; None where nothing came for a while."""
    async with aclosing(events):
        async for told in events:
            yield None if told is None else json.loads(told.data)
