"""Define what ADK's services on our store share: they open and close it."""

from typing import Self

from lango.store import Store


class StoredService:
    """A service of ADK that keeps its data in a store; a context manager that opens and closes it."""

    _store: Store

    @property
    def store(self) -> Store:
        """The store, for other services on the same database."""
        return self._store

    async def __aenter__(self) -> Self:
        """Open the database now, not at the first use."""
        await self._store.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close the database."""
        await self.close()

    async def close(self) -> None:
        """Finish pending writes and close the database."""
        await self._store.close()
