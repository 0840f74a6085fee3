"""API keys: found by their hash, invalid when revoked, with token counts by day."""

import time

import pytest

from lango.errors import Unstorable
from lango.store import Store
from lango.store.api_keys import find_key, list_keys, revoke_key, seconds_until_tomorrow, spend_tokens, spent_tokens
from tests.agents.parts import add_api_key


async def test_a_key_is_found_until_it_is_revoked(store: Store) -> None:
    key, secret = await add_api_key(store, "alice", requests_per_minute=60, tokens_per_day=1_000)
    other, _ = await add_api_key(store, "bob")
    assert await store.read(find_key, secret) == key
    assert (key.user_id, key.requests_per_minute, key.tokens_per_day) == ("alice", 60, 1_000)
    assert await store.read(find_key, secret[:-1]) is None
    assert await store.read(find_key, "' OR 1=1 --") is None
    assert await store.read(find_key, "\ud800\0") is None
    assert await store.read(list_keys) == [key, other]
    assert await store.write(revoke_key, key.id, time.time())
    assert not await store.write(revoke_key, key.id, time.time())
    assert await store.read(find_key, secret) is None
    [revoked, _] = await store.read(list_keys)
    assert revoked.revoked_at
    assert secret not in str(revoked)


async def test_tokens_are_counted_by_key_and_day(store: Store) -> None:
    now = 86_400.0 * 20_000 - 10
    key, _ = await add_api_key(store, "alice")
    assert await store.read(spent_tokens, key.id, now) == 0
    await store.write(spend_tokens, key.id, 30, now)
    await store.write(spend_tokens, key.id, 12, now + 9)
    assert await store.read(spent_tokens, key.id, now + 9) == 42
    assert await store.read(spent_tokens, "another", now + 9) == 0
    assert await store.read(spent_tokens, key.id, now + 10) == 0, "it is the next day"


async def test_a_key_needs_a_user(store: Store) -> None:
    for user in ("", "nul\0"):
        with pytest.raises(Unstorable):
            await add_api_key(store, user)


def test_the_day_ends_at_midnight_utc() -> None:
    assert seconds_until_tomorrow(86_400 * 3) == 86_401
    assert seconds_until_tomorrow(86_400 * 3 - 1) == 2
