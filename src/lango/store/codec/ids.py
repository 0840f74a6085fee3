"""Shorten ADK's UUIDs for storage, and make any call id a key for both databases, or a part of an address.

ADK's ids are UUIDs of 36 characters, and an event has two, one of them also in an index: a tenth of the size of an
average event. They are stored as `~` and 22 characters. Other ids are stored unchanged.
"""

import binascii
import hashlib
import re
from functools import lru_cache

from lango.json_values import storable_text

_UUID_LENGTH, _UUID_BYTES = 36, 16
_INVOCATION_PREFIX = "e-"  # ADK's prefix of invocation ids
_SHORT_PREFIX = "~"
# of bytes: translating text takes ten times as long
_TO_URL = bytes.maketrans(b"+/", b"-_")
_FROM_URL = bytes.maketrans(b"-_", b"+/")


def shorten(id_: str) -> str:
    """Return the stored form of an id."""
    if len(id_) == _UUID_LENGTH and (packed := _pack_uuid(id_)):
        return _SHORT_PREFIX + packed
    if len(id_) == _UUID_LENGTH + 2 and id_.startswith(_INVOCATION_PREFIX) and (packed := _pack_uuid(id_[2:])):
        return f"{_INVOCATION_PREFIX}{_SHORT_PREFIX}{packed}"
    # an id that looks like a shortened one
    return _SHORT_PREFIX * 2 + id_ if id_.startswith((_SHORT_PREFIX, _INVOCATION_PREFIX + _SHORT_PREFIX)) else id_


@lru_cache(64)
def shorten_cached(id_: str) -> str:
    """Shorten an id that is in many events, as that of an invocation."""
    return shorten(id_)


def _pack_uuid(uuid: str) -> str:
    """Shorten a UUID in the form that ADK writes; return None for any other id."""
    if not (uuid[8] == uuid[13] == uuid[18] == uuid[23] == "-"):
        return ""
    digits = uuid.replace("-", "")
    try:
        bits = binascii.a2b_hex(digits)
    except ValueError:
        return ""
    if bits.hex() != digits or len(bits) != _UUID_BYTES:  # capitals, or more dashes
        return ""
    return binascii.b2a_base64(bits, newline=False)[:22].translate(_TO_URL).decode()


def expand(stored: str) -> str:
    """Return the id of a stored form."""
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
_UNSAFE_IN_ADDRESS = re.compile(r"[^A-Za-z0-9._~-]+")
_MAX_READABLE_LENGTH = 64


def call_key(call_id: str) -> str:
    """Return a key for a call's id that both databases can index, whatever a model or a foreign event used as id."""
    shown = storable_text(call_id)
    if shown == call_id and len(call_id) <= _MAX_CALL_ID_LENGTH:
        return call_id
    return "sha256:" + hashlib.sha256(call_id.encode("utf-8", "surrogatepass")).hexdigest()


def is_address_safe(call_id: str) -> bool:
    """Whether an id can be a segment of an address as it is: clients need not escape it."""
    in_range = 0 < len(call_id) <= _MAX_CALL_ID_LENGTH
    return in_range and bool(call_id.strip(".")) and _UNSAFE_IN_ADDRESS.search(call_id) is None


def wait_id(call_id: str) -> str:
    """Return the id of the wait that a call opens: the call's own, or one derived from an unsafe one.

    The `call_key` of the call has the same. ADK's workflows use paths of nodes as ids, and their authors any text.
    """
    key = call_key(call_id)
    if is_address_safe(key):
        return key
    readable = _UNSAFE_IN_ADDRESS.sub("-", key[:_MAX_READABLE_LENGTH])
    return f"{readable}~{hashlib.sha256(key.encode()).hexdigest()[:16]}"
