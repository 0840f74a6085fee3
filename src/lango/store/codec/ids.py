"""A shorter spelling for the ids that ADK makes.

ADK's ids are UUIDs of 36 characters, and an event has two, one of them in an index too: a tenth of what an average
event takes on disk. They are stored as `~` and 22 characters. Any other id is stored as it is.
"""

import binascii
import hashlib
from functools import lru_cache

from lango.store.codec.json_text import printable_text

_UUID_LENGTH, _UUID_DIGITS = 36, 32
_INVOCATION_PREFIX = "e-"  # what ADK puts before the UUID of an invocation
_SHORT_PREFIX = "~"
# of bytes: to translate a text takes ten times as long
_TO_URL = bytes.maketrans(b"+/", b"-_")
_FROM_URL = bytes.maketrans(b"-_", b"+/")


def shorten(id_: str) -> str:
    """Return the stored spelling of an id."""
    if len(id_) == _UUID_LENGTH and (packed := _pack_uuid(id_)):
        return _SHORT_PREFIX + packed
    if len(id_) == _UUID_LENGTH + 2 and id_.startswith(_INVOCATION_PREFIX) and (packed := _pack_uuid(id_[2:])):
        return f"{_INVOCATION_PREFIX}{_SHORT_PREFIX}{packed}"
    # somebody's own id that looks like a short one
    return _SHORT_PREFIX * 2 + id_ if id_.startswith((_SHORT_PREFIX, _INVOCATION_PREFIX + _SHORT_PREFIX)) else id_


@lru_cache(64)
def shorten_cached(id_: str) -> str:
    """Do the same for an id that stands in many events, as that of an invocation does."""
    return shorten(id_)


def _pack_uuid(uuid: str) -> str:
    """Return the short spelling of a UUID, if it is one as ADK spells it."""
    digits = uuid.replace("-", "")
    if not (uuid[8] == uuid[13] == uuid[18] == uuid[23] == "-" and len(digits) == _UUID_DIGITS):
        return ""
    try:
        bits = bytes.fromhex(digits)
    except ValueError:
        return ""
    if bits.hex() != digits:  # capitals, or spaces between the digits
        return ""
    return binascii.b2a_base64(bits, newline=False)[:22].translate(_TO_URL).decode()


def expand(stored: str) -> str:
    """Return the id that a stored spelling stands for."""
    if stored.startswith(_SHORT_PREFIX * 2):
        return stored[2:]
    if stored.startswith(_SHORT_PREFIX):
        return _unpack_uuid(stored[1:])
    if stored.startswith(_INVOCATION_PREFIX + _SHORT_PREFIX):
        return _INVOCATION_PREFIX + _unpack_uuid(stored[3:])
    return stored


def _unpack_uuid(packed: str) -> str:
    text = binascii.a2b_base64(packed.encode().translate(_FROM_URL) + b"==").hex()
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


_MAX_CALL_ID_LENGTH = 128


def call_key(call_id: str) -> str:
    """Return a call's id as a key that both databases can index, whatever a model or a foreign event put there."""
    shown = printable_text(call_id)
    if shown == call_id and len(call_id) <= _MAX_CALL_ID_LENGTH:
        return call_id
    return "sha256:" + hashlib.sha256(call_id.encode("utf-8", "surrogatepass")).hexdigest()
