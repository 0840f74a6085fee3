"""Store the credentials of users: what each is for can be read, the secrets are encrypted."""

from collections.abc import Callable, Sequence

from msgspec import Struct

from lango.sessions import check_id, is_id
from lango.store.codec.json_text import dumps, loads
from lango.store.engine.database import Operation, Row

_COLUMNS = "credential_key, kind, scopes, label, expires_at, refreshable, created_at, updated_at"
_SAVE = """
INSERT INTO credentials (app_name, user_id, credential_key, kind, scopes, label, expires_at, refreshable, created_at,
    updated_at, secret)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $9, $10)
ON CONFLICT (app_name, user_id, credential_key) DO UPDATE SET kind = excluded.kind, scopes = excluded.scopes,
    label = excluded.label, expires_at = excluded.expires_at, refreshable = excluded.refreshable,
    updated_at = excluded.updated_at, secret = excluded.secret
"""
_LOAD = "SELECT secret FROM credentials WHERE app_name = $1 AND user_id = $2 AND credential_key = $3"
_LIST = f"""
SELECT {_COLUMNS} FROM credentials WHERE app_name = $1 AND user_id = $2 ORDER BY created_at, credential_key
"""  # noqa: S608 - constants
_LIST_ALL = f"""
SELECT app_name, user_id, {_COLUMNS} FROM credentials ORDER BY app_name, user_id, created_at, credential_key
"""  # noqa: S608
_DELETE = """
DELETE FROM credentials WHERE app_name = $1 AND user_id = $2 AND credential_key = $3 RETURNING credential_key
"""
_DELETE_ALL = "DELETE FROM credentials WHERE app_name = $1 AND user_id = $2 RETURNING credential_key"
_SECRETS = "SELECT app_name, user_id, credential_key, secret FROM credentials ORDER BY app_name, user_id"
_REPLACE = """
UPDATE credentials SET secret = $1 WHERE app_name = $2 AND user_id = $3 AND credential_key = $4 AND secret = $5
RETURNING credential_key
"""
_WAIT_SECRETS = """
SELECT session_key, id, secret, answer FROM waits
WHERE kind = 'credential' AND (secret IS NOT NULL OR answer IS NOT NULL) ORDER BY session_key
"""
_REPLACE_IN_WAIT = "UPDATE waits SET secret = $1, answer = $2 WHERE session_key = $3 AND id = $4"


class StoredCredential(Struct, frozen=True):
    """A stored credential of a user, without its secret."""

    key: str
    """ADK's name of the credential: tools that give the same one share it."""
    kind: str
    """ADK's type: `oauth2`, `apiKey`, `http`, ..."""
    scopes: tuple[str, ...]
    label: str
    """What it is for, as people read it."""
    expires_at: float | None
    """When its access token expires, or None if that is not known."""
    refreshable: bool
    """It has a refresh token, and is refreshed when it is used after it expired."""
    created_at: float
    updated_at: float


class Owned(Struct, frozen=True):
    """A credential, and whose it is."""

    app_name: str
    user_id: str
    credential: StoredCredential


class NewCredential(Struct, frozen=True):
    """A credential to be stored."""

    key: str
    kind: str
    secret: str
    """Encrypted."""
    scopes: Sequence[str] = ()
    label: str = ""
    expires_at: float | None = None
    refreshable: bool = False


def save_credential(app_name: str, user_id: str, new: NewCredential, now: float) -> Operation[None]:
    """Store a credential, or replace the one of the same name."""
    for what, value in (("app_name", app_name), ("user_id", user_id), ("credential_key", new.key)):
        check_id(what, value)
    about = (new.kind, dumps([*new.scopes]), new.label, new.expires_at, int(new.refreshable))
    yield _SAVE, (app_name, user_id, new.key, *about, now, new.secret)


def load_credential(app_name: str, user_id: str, key: str) -> Operation[str | None]:
    """Return a credential, encrypted, or None if there is none."""
    rows = (yield _LOAD, (app_name, user_id, key)) if _are_ids(app_name, user_id, key) else []
    return rows[0][0] if rows else None


def list_credentials(app_name: str, user_id: str) -> Operation[list[StoredCredential]]:
    """List the credentials of a user, the oldest first."""
    rows = (yield _LIST, (app_name, user_id)) if _are_ids(app_name, user_id) else []
    return [_credential(row) for row in rows]


def list_all() -> Operation[list[Owned]]:
    """List the credentials of all users, by app and user."""
    return [Owned(row[0], row[1], _credential(row[2:])) for row in (yield _LIST_ALL, ())]


def delete_credential(app_name: str, user_id: str, key: str) -> Operation[bool]:
    """Delete a credential; return False if there is none."""
    return _are_ids(app_name, user_id, key) and bool((yield _DELETE, (app_name, user_id, key)))


def delete_all_credentials(app_name: str, user_id: str) -> Operation[int]:
    """Delete every credential of a user; return how many there were."""
    return len((yield _DELETE_ALL, (app_name, user_id))) if _are_ids(app_name, user_id) else 0


def replace_secrets(again: Callable[[str], str]) -> Operation[int]:
    """Encrypt every secret again; return how many credentials there are."""
    rows = yield _SECRETS, ()
    for app_name, user_id, key, secret in rows:
        yield _REPLACE, (again(secret), app_name, user_id, key, secret)
    for session_key, wait_id, secret, answer in (yield _WAIT_SECRETS, ()):
        yield _REPLACE_IN_WAIT, (secret and again(secret), answer and again(answer), session_key, wait_id)
    return len(rows)


def _are_ids(*values: str) -> bool:
    return all(is_id(value) for value in values)


def _credential(row: Row) -> StoredCredential:
    key, kind, scopes, label, expires_at, refreshable, created_at, updated_at = row
    return StoredCredential(
        key, kind, tuple(loads(scopes)), label, expires_at, bool(refreshable), created_at, updated_at
    )
