"""Verify the signatures of webhooks as their senders document them, and sign outgoing ones by Standard Webhooks.

Every signature is an HMAC of the body, in most cases together with a time: an old request that was recorded is refused.
"""

import base64
import binascii
import hashlib
import hmac
from collections.abc import Mapping, Sequence
from typing import Literal

from msgspec import Struct

from lango.errors import ConfigError

SignatureKind = Literal["standard", "github", "slack", "stripe", "hmac"]

_STANDARD_PREFIX = "whsec_"
_HEADERS: Mapping[SignatureKind, str] = {
    "standard": "webhook-signature",
    "github": "x-hub-signature-256",
    "slack": "x-slack-signature",
    "stripe": "stripe-signature",
}
_MOST_SIGNATURES = 10
"""A sender that changes its secret signs with two; more than this many are not compared."""


class _Signed(Struct, frozen=True):
    """What a request says of its signature."""

    prefix: bytes
    """What the sender signed before the body."""
    signatures: Sequence[bytes]
    sent_at: int | None = None
    """Seconds since 1970, or None if the sender signs no time."""


def signature_header(kind: SignatureKind, header: str) -> str:
    """Return the header that holds a signature, in lower case; `header` is that of a plain HMAC."""
    return _HEADERS.get(kind, header.lower())


def signing_key(kind: SignatureKind, secret: str, variable: str) -> bytes:
    """Return the bytes that sign. Raise `ConfigError` for one of Standard Webhooks that is not `whsec_<base64>`."""
    if kind != "standard":
        return secret.encode()
    try:
        return base64.b64decode(secret.removeprefix(_STANDARD_PREFIX), validate=True)
    except (binascii.Error, ValueError):
        raise ConfigError(f"{variable} must hold a secret of Standard Webhooks: whsec_ and base64") from None


def is_signed_by(
    kind: SignatureKind,
    keys: Sequence[bytes],
    headers: Mapping[str, str],
    body: bytes,
    *,
    header: str = "",
    tolerance_s: float,
    now: float,
) -> bool:
    """Whether one of the keys signed a request within the tolerated time. `headers` have names in lower case.

    The work is the same for every answer, and signatures are compared in constant time: how long it takes tells a
    sender nothing.
    """
    signed = _read(kind, headers, signature_header(kind, header))
    content = signed.prefix + body if signed else body
    given = signed.signatures[:_MOST_SIGNATURES] if signed else ()
    in_time = signed is not None and (signed.sent_at is None or abs(now - signed.sent_at) <= tolerance_s)
    fits = False
    for key in keys:
        digest = hmac.digest(key, content, hashlib.sha256)
        expected = (digest,) if kind == "standard" else (digest.hex().encode(), base64.b64encode(digest))
        for signature in given or (b"",):
            for one in expected:
                fits |= hmac.compare_digest(signature, one)
    return fits and in_time


def _read(kind: SignatureKind, headers: Mapping[str, str], header: str) -> _Signed | None:
    """Read the signatures of a request, or return None if it has none that can be read."""
    value = headers.get(header, "")
    if not value.isascii():
        return None
    match kind:
        case "standard":
            message_id, sent_at = headers.get("webhook-id", ""), _seconds(headers.get("webhook-timestamp"))
            if sent_at is None:
                return None
            versions = (one.partition(",") for one in value.split())
            given = [_from_base64(signature) for version, _, signature in versions if version == "v1"]
            return _Signed(f"{message_id}.{sent_at}.".encode(), given, sent_at)
        case "slack":
            sent_at = _seconds(headers.get("x-slack-request-timestamp"))
            if sent_at is None or not value.startswith("v0="):
                return None
            return _Signed(f"v0:{sent_at}:".encode(), [value[3:].encode()], sent_at)
        case "stripe":
            fields = [field.strip().partition("=") for field in value.split(",")]
            sent_at = _seconds(next((value for name, _, value in fields if name == "t"), None))
            if sent_at is None:
                return None
            given = [value.encode() for name, _, value in fields if name == "v1"]
            return _Signed(f"{sent_at}.".encode(), given, sent_at)
        case "github":
            return _Signed(b"", [value[7:].encode()]) if value.startswith("sha256=") else None
        case "hmac":
            return _Signed(b"", [value.removeprefix("sha256=").encode()]) if value else None


def _seconds(value: str | None) -> int | None:
    """Parse a time in whole seconds, written as senders write it: it is signed as text."""
    if value is None or not value.isascii() or not value.isdigit() or len(value) > 12 or value != str(int(value)):
        return None
    return int(value)


def _from_base64(value: str) -> bytes:
    try:
        return base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError):
        return b""


def sign(key: bytes, message_id: str, sent_at: int, body: bytes) -> dict[str, str]:
    """Return the headers of Standard Webhooks for a body."""
    digest = hmac.digest(key, f"{message_id}.{sent_at}.".encode() + body, hashlib.sha256)
    return {
        "webhook-id": message_id,
        "webhook-timestamp": str(sent_at),
        "webhook-signature": f"v1,{base64.b64encode(digest).decode()}",
    }
