"""List what waits for a person across a user's sessions; `runtime.answer` answers each of them."""

from collections.abc import Sequence

from lango.errors import UsageError
from lango.store import Store
from lango.store.waits.inbox import read_inbox
from lango.waits import InboxItem

_PAGE = 200


class Inbox:
    """What waits for the users of one app."""

    def __init__(self, store: Store, app_name: str) -> None:
        self._store = store
        self._app_name = app_name

    async def list(
        self, *, user_id: str = "user", after: tuple[float, int, str] | None = None, limit: int = 50
    ) -> Sequence[InboxItem]:
        """Read what waits for a user, the newest first, or what follows a `place`; not what has expired."""
        return await self._store.read(read_inbox, self._app_name, user_id, after=after, limit=limit)

    async def every(self, *, user_id: str = "user") -> Sequence[InboxItem]:
        """Read everything that waits for a user, the newest first."""
        found: list[InboxItem] = []
        page = await self.list(user_id=user_id, limit=_PAGE)
        while page:
            found += page
            page = await self.list(user_id=user_id, after=page[-1].place, limit=_PAGE)
        return found

    async def find(self, item_id: str, *, user_id: str = "user") -> InboxItem:
        """Find an item by its id, or by its first characters. Raise `UsageError` if none or several have it."""
        every = await self.every(user_id=user_id)
        found = [item for item in every if item_id and item.id.startswith(item_id)]
        if len(found) != 1:
            several = f"{len(found)} items begin with" if found else "nothing waits with the id"
            raise UsageError(f"{several} {item_id!r}: see `lango inbox`")
        return found[0]
