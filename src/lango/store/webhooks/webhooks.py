"""Add, list and delete webhooks: those of an app, of the turns of an API key, and of a session."""

from collections.abc import Callable, Mapping, Sequence

from msgspec import Struct

from lango.store.codec.json_text import dumps, loads
from lango.store.engine.database import Operation, Row

_INSERT = """
INSERT INTO webhooks (app_name, id, session_key, quota_id, user_id, url, events, include_text, secret_env, secret,
    from_settings, task_id, created_at)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13)
ON CONFLICT (app_name, id) DO UPDATE SET url = excluded.url, events = excluded.events,
    include_text = excluded.include_text, secret_env = excluded.secret_env, secret = excluded.secret
"""
_LIST = """
SELECT w.id, w.url, w.events, w.include_text, s.id, w.quota_id, w.user_id, w.secret_env, w.from_settings, w.created_at,
    (SELECT COUNT(*) FROM webhook_deliveries d
        WHERE d.app_name = w.app_name AND d.webhook_id = w.id AND d.next_at IS NOT NULL),
    (SELECT COUNT(*) FROM webhook_deliveries d
        WHERE d.app_name = w.app_name AND d.webhook_id = w.id AND d.next_at IS NULL)
FROM webhooks w LEFT JOIN sessions s ON s.session_key = w.session_key
WHERE w.app_name = $1 AND ($2 = '' OR w.user_id = $2) AND w.task_id IS NULL ORDER BY w.created_at, w.id
"""
_COUNT_OF_USER = "SELECT COUNT(*) FROM webhooks WHERE app_name = $1 AND user_id = $2 AND task_id IS NULL"
_OF_TASK = """
SELECT id, url, secret FROM webhooks WHERE app_name = $1 AND session_key = $2 AND task_id = $3 ORDER BY created_at, id
"""
_DELETE = "DELETE FROM webhooks WHERE app_name = $1 AND id = $2 AND ($3 = '' OR user_id = $3) RETURNING id"
_DELETE_DELIVERIES = "DELETE FROM webhook_deliveries WHERE app_name = $1 AND webhook_id = $2"
_FROM_SETTINGS = (
    "SELECT id, url, events, include_text, secret_env FROM webhooks WHERE app_name = $1 AND from_settings = 1"
)
_SECRETS = "SELECT app_name, id, secret FROM webhooks WHERE secret IS NOT NULL"
_REPLACE = "UPDATE webhooks SET secret = $1 WHERE app_name = $2 AND id = $3"


class NewWebhook(Struct, frozen=True):
    """A webhook to store. `secret` is encrypted."""

    app_name: str
    id: str
    url: str
    events: Sequence[str]
    include_text: bool
    session_key: int = 0
    quota_id: str | None = None
    user_id: str | None = None
    secret_env: str | None = None
    secret: str | None = None
    from_settings: bool = False
    task_id: str | None = None


class StoredWebhook(Struct, frozen=True):
    """A webhook, without its secret."""

    id: str
    url: str
    events: Sequence[str]
    """Which ends of turns are reported."""
    include_text: bool
    """Whether the text of the answer, or of the error, is sent, too."""
    session_id: str | None
    """Only the turns of this session, or None for those of every session."""
    quota_id: str | None
    """Only turns that are counted against this quota: the id of an API key, or `user:` and a user of the issuer."""
    user_id: str | None
    """The user who added it, or None for an operator."""
    secret_env: str | None
    """The environment variable that holds its secret, or None if the store holds it, encrypted."""
    from_settings: bool
    """Whether it is in the settings, and can be changed only there."""
    created_at: float
    pending: int
    """How many deliveries are still to be sent."""
    dead: int
    """How many were given up."""


def add_webhook(new: NewWebhook, now: float) -> Operation[None]:
    """Store a webhook."""
    yield _INSERT, _row(new, now)


def _row(new: NewWebhook, now: float) -> tuple[object, ...]:
    scope = new.session_key, new.quota_id, new.user_id
    secret = new.secret_env, new.secret, int(new.from_settings)
    values = new.url, dumps([*new.events]), int(new.include_text), *secret, new.task_id
    return (new.app_name, new.id, *scope, *values, now)


def list_webhooks(app_name: str, user_id: str = "") -> Operation[list[StoredWebhook]]:
    """Read the webhooks of an app, or only those of a user, the oldest first."""
    return [
        StoredWebhook(id_, url, loads(events), bool(text), session, quota, user, env, bool(fixed), *rest)
        for id_, url, events, text, session, quota, user, env, fixed, *rest in (yield _LIST, (app_name, user_id))
    ]


def list_task_webhooks(app_name: str, session_key: int, task_id: str) -> Operation[Sequence[Row]]:
    """Read the ids, the addresses and the encrypted secrets of the webhooks of a task, the oldest first."""
    return (yield _OF_TASK, (app_name, session_key, task_id))


def count_webhooks(app_name: str, user_id: str) -> Operation[int]:
    """Count the webhooks that a user added."""
    [[count]] = yield _COUNT_OF_USER, (app_name, user_id)
    return count


def delete_webhook(app_name: str, id_: str, user_id: str = "") -> Operation[bool]:
    """Delete a webhook, with what was still to be sent to it; return False if there is none, or none of the user."""
    if not (yield _DELETE, (app_name, id_, user_id)):
        return False
    yield _DELETE_DELIVERIES, (app_name, id_)
    return True


def read_configured(app_name: str) -> Operation[Mapping[str, NewWebhook]]:
    """Read the webhooks of an app that settings brought, by their names."""
    rows = yield _FROM_SETTINGS, (app_name,)
    return {
        id_: NewWebhook(app_name, id_, url, loads(events), bool(text), secret_env=env, from_settings=True)
        for id_, url, events, text, env in rows
    }


def store_configured(
    app_name: str, webhooks: Sequence[NewWebhook], now: float, *, is_complete: bool
) -> Operation[None]:
    """Store the webhooks of the settings; if these are all, delete those that earlier settings had."""
    for new in webhooks:
        yield _INSERT, _row(new, now)
    known = {new.id for new in webhooks}
    for id_ in (yield from read_configured(app_name)) if is_complete else ():
        if id_ not in known:
            yield from delete_webhook(app_name, id_)


def replace_webhook_secrets(again: Callable[[str], str]) -> Operation[None]:
    """Encrypt every stored secret again."""
    for app_name, id_, secret in (yield _SECRETS, ()):
        yield _REPLACE, (again(secret), app_name, id_)
