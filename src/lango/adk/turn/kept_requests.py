"""Keep the requests to models within the bounds of the settings."""

from collections.abc import Sequence

from lango.config import TraceSettings
from lango.store import Store, Turn
from lango.store.turns.model_requests import ModelRequest, add_requests, delete_oldest

_UNCHECKED_SHARE = 0.05


class KeptRequests:
    """Stores the requests of all turns of a runtime, within the bounds of the settings."""

    def __init__(self, store: Store, settings: TraceSettings) -> None:
        self._store = store
        self.settings = settings
        self._unchecked: float = settings.max_total_bytes  # the first request finds what is there

    async def add(self, lease: Turn, requests: Sequence[ModelRequest]) -> None:
        """Store requests of a turn.

        The bound of all sessions is checked after each twentieth of it, because all that is kept must be summed up.
        """
        bound = self.settings.max_total_bytes
        self._unchecked += await self._store.write(add_requests, lease, requests, self.settings.max_session_bytes)
        if self._unchecked >= bound * _UNCHECKED_SHARE:
            self._unchecked = 0
            while await self._store.write_long(delete_oldest, int(bound * (1 - _UNCHECKED_SHARE))):
                pass
