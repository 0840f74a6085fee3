"""Join the pieces of an export's file contents, and check them.

A file can use only a content that comes with it: a hash alone gives no access to bytes that others have stored.
"""

import binascii
import hashlib
from typing import Any

from lango.errors import InvalidExport
from lango.store.contents import CHUNK_BYTES
from lango.store.transfer.export_format import ContentLine

_MOST_BYTES = 1_000_000_000


class ContentCheck:
    """The contents of an export: the pieces of each come in order, without gaps, and have the hash that names them."""

    def __init__(self) -> None:
        self.sizes: dict[str, int] = {}
        self._used: set[str] = set()
        self._hash: str | None = None
        self._digest: Any = None
        self._pieces = 0
        self._last_is_full = False

    def add(self, line: ContentLine) -> None:
        """Check the next piece. Raise `InvalidExport`."""
        data = piece_of(line)
        if line.hash != self._hash:
            self._end()
            if line.number or line.hash in self.sizes:
                raise InvalidExport("number: the pieces of a content come in order, from 0")
            self._hash, self._digest, self._pieces = line.hash, hashlib.sha256(), 0
            self.sizes[line.hash] = 0
        elif line.number != self._pieces or not self._last_is_full:
            raise InvalidExport("number: the pieces of a content come in order, and all but the last are full")
        self._digest.update(data)
        self._pieces += 1
        self._last_is_full = len(data) == CHUNK_BYTES
        self.sizes[line.hash] += len(data)
        if self.sizes[line.hash] > _MOST_BYTES:
            raise InvalidExport(f"data: a file has more than {_MOST_BYTES} bytes")

    def use(self, hash_: str, size: int) -> None:
        """Note that a message or an artifact uses a content. Raise `InvalidExport` if it did not come before."""
        self._end()
        if self.sizes.get(hash_) != size:
            raise InvalidExport("hash: the export has no content with this hash and size before this line")
        self._used.add(hash_)

    def finish(self) -> None:
        """Check that every content is used."""
        self._end()
        if self._used != self.sizes.keys():
            raise InvalidExport("no message and no artifact uses one of the contents")

    def _end(self) -> None:
        if self._hash is not None and self._digest.hexdigest() != self._hash:
            raise InvalidExport("hash: the content before this line does not match its hash")
        self._hash = None


def piece_of(line: ContentLine) -> bytes:
    """Decode a piece. Raise `InvalidExport`."""
    try:
        data = binascii.a2b_base64(line.data, strict_mode=True)
    except binascii.Error as error:
        raise InvalidExport("data: not valid base64") from error
    if len(data) > CHUNK_BYTES:
        raise InvalidExport(f"data: a piece has at most {CHUNK_BYTES} bytes")
    return data
