"""Keep the files that a user uploads in the store of artifacts: of the user alone, and for all agents of the server."""

import asyncio
import re
import uuid
from collections.abc import Sequence
from typing import Any
from weakref import WeakValueDictionary

from msgspec import Struct

from lango.errors import ArtifactNotFound
from lango.messages import FILE_NAME, MIME_TYPE, Attachment, StoredBytes
from lango.runtime.artifacts import Artifact, base_name
from lango.server.context import AgentUser
from lango.server.errors import ApiError, bad_request

_APP = "/v1/files"
"""Where uploads are among the artifacts: no agent has such a name, so no agent lists them as its own."""
_ID = re.compile(r"file-[0-9a-f]{32}")
_PURPOSES = ("assistants", "user_data", "vision")
_LEAST_BYTES = 100_000
"""What each file counts for at least: otherwise there could be any number of small ones."""
_locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()


class UploadedFile(Struct, frozen=True):
    """A file that a user uploaded."""

    artifact: Artifact

    @property
    def id(self) -> str:
        """Its id."""
        return base_name(self.artifact.name)

    @property
    def name(self) -> str:
        """The name that it was uploaded with."""
        return self.artifact.metadata["filename"]

    @property
    def mime_type(self) -> str:
        """The type that it was uploaded with."""
        return self.artifact.mime_type or "application/octet-stream"

    @property
    def purpose(self) -> str:
        """What the client uploaded it for."""
        return self.artifact.metadata["purpose"]

    @property
    def stored_bytes(self) -> StoredBytes:
        """Its bytes, not loaded."""
        return StoredBytes(self.artifact.hash or "", self.artifact.size)

    def shown(self) -> dict[str, Any]:
        """Return it as OpenAI's API shows it."""
        return {
            "id": self.id,
            "object": "file",
            "bytes": self.artifact.size,
            "created_at": int(self.artifact.created_at),
            "expires_at": None,
            "filename": self.name,
            "purpose": self.purpose,
            "status": "processed",
            "status_details": None,
        }


class UploadedFiles:
    """The files of one user."""

    def __init__(self, user: AgentUser) -> None:
        self._artifacts = user.runtime.artifacts.of_app(_APP)
        self._user_id = user.id
        self._max_bytes = user.settings.server.limits.max_uploaded_bytes

    async def save(self, name: str, mime_type: str, purpose: str, data: bytes) -> UploadedFile:
        """Save a new file. Raise `ApiError` for one that cannot be kept, or `ArtifactRefused` if it is too large.

        Several processes that save files of one user at once may exceed the user's total, each by one file.
        """
        if purpose not in _PURPOSES:
            raise bad_request(f"purpose: {purpose!r} is not supported; send one of {', '.join(_PURPOSES)}")
        if not FILE_NAME.fullmatch(name):
            raise bad_request("file: its name must have 1 to 200 characters, without slashes")
        if not MIME_TYPE.fullmatch(mime_type):
            raise bad_request("file: its Content-Type is not a valid media type")
        if not data:
            raise bad_request("file: it is empty")
        id_ = f"file-{uuid.uuid4().hex}"
        async with _locks.setdefault(self._user_id, asyncio.Lock()):
            used = sum(max(file.artifact.size, _LEAST_BYTES) for file in await self.list())
            if used + max(len(data), _LEAST_BYTES) > self._max_bytes:
                raise ApiError(
                    413,
                    "storage_limit_exceeded",
                    f"file: your files have {used} bytes, and may have {self._max_bytes} together: delete some "
                    "(setting server.limits.max_uploaded_bytes)",
                )
            about = {"filename": name, "purpose": purpose}
            await self._artifacts.save(None, id_, data, mime_type=mime_type, metadata=about, user_id=self._user_id)
        return await self.get(id_)

    async def list(self) -> Sequence[UploadedFile]:
        """Return all files, the oldest first."""
        found = await self._artifacts.list(None, user_id=self._user_id)
        return sorted(map(UploadedFile, found), key=lambda file: (file.artifact.created_at, file.id))

    async def get(self, id_: str) -> UploadedFile:
        """Find a file. Raise `ApiError` if the user has none of this id."""
        if _ID.fullmatch(id_):
            try:
                return UploadedFile(await self._artifacts.read(None, id_, user_id=self._user_id))
            except ArtifactNotFound:
                pass
        raise _no_file(id_)

    async def load(self, id_: str, max_bytes: int) -> Attachment:
        """Load a file for a message. Raise `ApiError` if there is none, or it is larger than a message may have."""
        file = await self.get(id_)
        if file.artifact.size > max_bytes:
            raise ApiError(400, "file_too_large", f"messages: file {id_!r} has more than {max_bytes} bytes")
        try:
            pieces = [piece async for piece in self._artifacts.chunks(file.artifact)]
        except ArtifactNotFound as error:
            raise _no_file(id_) from error
        return Attachment(file.name, file.mime_type, b"".join(pieces))

    async def delete(self, id_: str) -> None:
        """Delete a file. Raise `ApiError` if there is none. Messages that were sent with it keep it."""
        if not (_ID.fullmatch(id_) and await self._artifacts.delete(None, id_, user_id=self._user_id)):
            raise _no_file(id_)


def _no_file(id_: str) -> ApiError:
    return ApiError(404, "file_not_found", f"there is no file {id_!r}")
