"""Store API keys as hashes, and count the tokens that each has used."""

import hashlib
import secrets

from msgspec import Struct

from lango.errors import Unstorable
from lango.sessions import check_id, is_id
from lango.store.engine.database import Operation

KEY_PREFIX = "lango_"
_DAY_S = 86_400

_COLUMNS = "id, user_id, created_at, revoked_at, requests_per_minute, tokens_per_day"
_INSERT = """
INSERT INTO api_keys (id, hash, user_id, created_at, requests_per_minute, tokens_per_day)
VALUES ($1, $2, $3, $4, $5, $6)
"""
_FIND = f"SELECT {_COLUMNS} FROM api_keys WHERE hash = $1 AND revoked_at IS NULL"  # noqa: S608 - constants
_LIST = f"SELECT {_COLUMNS} FROM api_keys ORDER BY created_at, id"  # noqa: S608
_REVOKE = "UPDATE api_keys SET revoked_at = $1 WHERE id = $2 AND revoked_at IS NULL RETURNING id"
_SPEND = """
INSERT INTO api_key_usage (key_id, day, tokens) VALUES ($1, $2, $3)
ON CONFLICT (key_id, day) DO UPDATE SET tokens = api_key_usage.tokens + excluded.tokens
"""
_SPENT = "SELECT tokens FROM api_key_usage WHERE key_id = $1 AND day = $2"


class ApiKey(Struct, frozen=True):
    """The user of a key, and its limits. The key itself is not stored."""

    id: str
    user_id: str
    created_at: float
    revoked_at: float | None = None
    requests_per_minute: int | None = None
    tokens_per_day: int | None = None


def new_secret() -> str:
    """Generate a key of 256 random bits."""
    return KEY_PREFIX + secrets.token_urlsafe(32)


def _hash(secret: str) -> str:
    """Hash a key: it is random, so a plain hash cannot be guessed."""
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()


def add_key(
    user_id: str, secret: str, now: float, *, requests_per_minute: int | None = None, tokens_per_day: int | None = None
) -> Operation[ApiKey]:
    """Store the hash of a user's key."""
    check_id("user_id", user_id)
    if not user_id:
        raise Unstorable("an API key needs a user: its id is empty")
    hash_ = _hash(secret)
    yield _INSERT, (hash_[:8], hash_, user_id, now, requests_per_minute, tokens_per_day)
    return ApiKey(hash_[:8], user_id, now, None, requests_per_minute, tokens_per_day)


def find_key(secret: str) -> Operation[ApiKey | None]:
    """Return the key with this secret, unless it was revoked."""
    rows = yield _FIND, (_hash(secret),)
    return ApiKey(*rows[0]) if rows else None


def list_keys() -> Operation[list[ApiKey]]:
    """Return all keys, the revoked ones too."""
    rows = yield _LIST, ()
    return [ApiKey(*row) for row in rows]


def revoke_key(key_id: str, now: float) -> Operation[bool]:
    """Revoke a key; return False if there is no valid key of that id."""
    return is_id(key_id) and bool((yield _REVOKE, (now, key_id)))


def spend_tokens(key_id: str, tokens: int, now: float) -> Operation[None]:
    """Add the tokens of a turn to the usage of a key."""
    yield _SPEND, (key_id, int(now // _DAY_S), tokens)


def spent_tokens(key_id: str, now: float) -> Operation[int]:
    """Return the tokens that a key has used on this day, UTC."""
    rows = yield _SPENT, (key_id, int(now // _DAY_S))
    return rows[0][0] if rows else 0


def seconds_until_tomorrow(now: float) -> int:
    """Return the seconds until the next day, UTC."""
    return int(_DAY_S - now % _DAY_S) + 1
