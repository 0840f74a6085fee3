"""Make any call id a key for both databases, and a part of an address."""

import hashlib
import re

from lango.json_values import storable_text

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
