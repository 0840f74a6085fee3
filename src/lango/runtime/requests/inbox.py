"""List what waits for a person across a user's sessions.

Each item is answered where it came from: an approval with `runtime.submit_approval`, an input with
`runtime.submit_input`, a credential with `runtime.submit_credential`, a result of a long-running tool with
`runtime.submit_results`.
"""

from collections.abc import Sequence

from lango.errors import UsageError
from lango.store import Store
from lango.store.tool_calls.inbox import InboxItem, read_inbox

_PAGE = 200


class Inbox:
    """What waits for the users of one app."""

    def __init__(self, store: Store, app_name: str) -> None:
        self._store = store
        self._app_name = app_name

    async def list(
        self, *, user_id: str = "user", after: InboxItem | None = None, limit: int = 50
    ) -> Sequence[InboxItem]:
        """Read what waits for a user, the newest first, or what follows `after`; not what has expired."""
        return await self._store.read(read_inbox, self._app_name, user_id, after=after and after.place, limit=limit)

    async def find(self, item_id: str, *, user_id: str = "user") -> InboxItem:
        """Find an item by its id, or by its first characters. Raise `UsageError` if none or several have it."""
        found: list[InboxItem] = []
        page = await self.list(user_id=user_id, limit=_PAGE)
        while page:
            found += [item for item in page if item_id and item.id.startswith(item_id)]
            page = await self.list(user_id=user_id, after=page[-1], limit=_PAGE)
        if len(found) != 1:
            several = f"{len(found)} items begin with" if found else "nothing waits with the id"
            raise UsageError(f"{several} {item_id!r}: see `lango inbox`")
        return found[0]
