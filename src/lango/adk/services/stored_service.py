"""Share what ADK's services on our store need: they open and close it, and load the files of messages for a model."""

from collections import OrderedDict
from collections.abc import Mapping
from typing import Self, TypeVar

from google.genai import types

from lango.messages import StoredBytes
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


_MAX_CACHED_BYTES = 64_000_000

Blob = TypeVar("Blob", types.Blob, types.FunctionResponseBlob)


class FileLoader:
    """Reads files from the store, and keeps those that were used last: each model call of a turn sends them again."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._cached: OrderedDict[str, bytes] = OrderedDict()
        self._cached_bytes = 0

    async def load(self, stored: StoredBytes) -> bytes:
        """Return the bytes of a file. Raise `StoreDamaged` if they are missing."""
        data = self._cached.get(stored.hash)
        if data is not None:
            self._cached.move_to_end(stored.hash)
            return data
        data = await self._store.load_content(stored)
        self.keep({stored.hash: data})
        return data

    def keep(self, contents: Mapping[str, bytes]) -> None:
        """Keep files, by their hashes, that are about to be sent; those that were used longest ago are dropped."""
        for hash_, data in contents.items():
            if hash_ not in self._cached and not isinstance(data, StoredBytes):
                self._cached[hash_] = data
                self._cached_bytes += len(data)
        while self._cached_bytes > _MAX_CACHED_BYTES:
            self._cached_bytes -= len(self._cached.popitem(last=False)[1])

    async def load_into(self, contents: list[types.Content]) -> None:
        """Replace the contents of a request that have files which are not loaded; the session's own stay."""
        for place, content in enumerate(contents):
            if any(_is_not_loaded(part) for part in content.parts or ()):
                parts = [await self._with_files(part) for part in content.parts or ()]
                contents[place] = content.model_copy(update={"parts": parts})

    async def _with_files(self, part: types.Part) -> types.Part:
        if not _is_not_loaded(part):
            return part
        update: dict[str, object] = {}
        if part.inline_data is not None:
            update["inline_data"] = await self._loaded(part.inline_data)
        if part.function_response is not None and part.function_response.parts:
            inner = [
                piece.model_copy(update={"inline_data": await self._loaded(piece.inline_data)})
                if piece.inline_data is not None
                else piece
                for piece in part.function_response.parts
            ]
            update["function_response"] = part.function_response.model_copy(update={"parts": inner})
        return part.model_copy(update=update)

    async def _loaded(self, blob: Blob) -> Blob:
        if not isinstance(blob.data, StoredBytes):
            return blob
        return blob.model_copy(update={"data": await self.load(blob.data)})


def _is_not_loaded(part: types.Part) -> bool:
    pieces = (part.function_response and part.function_response.parts) or []
    blobs = [part.inline_data, *(piece.inline_data for piece in pieces)]
    return any(blob is not None and isinstance(blob.data, StoredBytes) for blob in blobs)
