"""API keys, on every database: found by their hash only, gone when revoked, counted by the day."""

import pytest

from lango.errors import Unstorable
from lango.store import Store
from lango.store.api_keys import seconds_until_tomorrow


async def test_a_key_is_found_until_it_is_revoked(store: Store) -> None:
    key, secret = await store.keys.add("alice", requests_per_minute=60, tokens_per_day=1_000)
    other, _ = await store.keys.add("bob")
    assert await store.keys.find(secret) == key
    assert (key.user_id, key.requests_per_minute, key.tokens_per_day) == ("alice", 60, 1_000)
    assert await store.keys.find(secret[:-1]) is None
    assert await store.keys.find("' OR 1=1 --") is None
    assert await store.keys.find("\ud800\0") is None
    assert await store.keys.list() == [key, other]
    assert await store.keys.revoke(key.id)
    assert not await store.keys.revoke(key.id)
    assert await store.keys.find(secret) is None
    [revoked, _] = await store.keys.list()
    assert revoked.revoked_at
    assert secret not in str(revoked)


async def test_tokens_are_counted_by_key_and_day(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 86_400.0 * 20_000 - 10
    monkeypatch.setattr("lango.store.store.time.time", lambda: now)
    key, _ = await store.keys.add("alice")
    assert await store.keys.spent_tokens(key.id) == 0
    await store.keys.spend_tokens(key.id, 30)
    now += 9
    await store.keys.spend_tokens(key.id, 12)
    assert await store.keys.spent_tokens(key.id) == 42
    assert await store.keys.spent_tokens("another") == 0
    now += 1
    assert await store.keys.spent_tokens(key.id) == 0, "it is the next day"


async def test_a_key_needs_a_user(store: Store) -> None:
    for user in ("", "nul\0"):
        with pytest.raises(Unstorable):
            await store.keys.add(user)


def test_the_day_ends_at_midnight_utc() -> None:
    assert seconds_until_tomorrow(86_400 * 3) == 86_401
    assert seconds_until_tomorrow(86_400 * 3 - 1) == 2
