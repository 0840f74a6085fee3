"""Observations: which are current after rewinds, who may store them, and what is deleted with a session."""

import asyncio
import time
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from lango.messages import Message
from lango.runtime.sessions.sessions import Sessions
from lango.sessions import SessionId, SessionInfo
from lango.store import NewEvent, Store
from lango.store.memory.observations import (
    Batch,
    Observation,
    current_batches,
    find_floor,
    next_live_seq,
    read_all_batches,
    read_memory,
    read_unobserved_of,
    read_window_with_memory,
)
from lango.store.memory.observer_lease import (
    ObserverLease,
    acquire_observer_lease,
    release_observer_lease,
    store_batch,
    take_over_observer_lease,
)
from lango.store.memory.user_facts import Fact, delete_fact, read_facts
from lango.store.sessions.lineage import live_ranges
from lango.store.sessions.sessions import create_session, find_session

NAME = SessionId("app", "ann", "s")


async def talk(store: Store, turns: int, *, start: int = 0, tokens: int = 10) -> SessionInfo:
    """Append turns of two messages, each with its own invocation."""
    session = await store.read(find_session, NAME) or await store.write(create_session, NAME, None, time.time())
    revision = session.revision
    for number in range(start, start + turns):
        for role in ("user", "assistant"):
            entry = NewEvent(f"{role}{number}", float(number), Message(role, f"{role} {number}"), tokens, f"i{number}")
            revision = (await store.append(session.key, NAME, revision, entry)).revision
    return await now(store)


async def now(store: Store) -> SessionInfo:
    session = await store.read(find_session, NAME)
    assert session
    return session


async def rewind(store: Store, turn: int) -> SessionInfo:
    session = await now(store)
    entry = NewEvent(f"rewind{session.last_seq}", 1.0, Message("event"), rewind_before=f"i{turn}")
    await store.append(session.key, NAME, session.revision, entry)
    return await now(store)


async def claimed(store: Store, owner: str = "me") -> ObserverLease:
    claim = await store.write(acquire_observer_lease, (await now(store)).key, owner)
    assert claim
    assert claim.held
    return claim


async def observe(store: Store, first: int, last: int, **fields: Any) -> int:
    session = await now(store)
    held = await claimed(store)
    note = Observation(f"noted {first}-{last}", first, last, "high", "2026-11-15")
    batch = Batch(first, last, (note,), floor_seq=last + 1, rewinds=len(session.rewinds), tokens=5, **fields)
    number = await store.write(store_batch, held, NAME, batch, (), time.time())
    await store.write(release_observer_lease, held)
    assert number
    return number


async def fork(store: Store, session_id: str, at: int | None) -> SessionInfo:
    return await Sessions(store, NAME.app_name).fork(NAME.id, user_id=NAME.user_id, at=at, new_id=session_id)


async def texts(store: Store) -> list[str]:
    recalled = await store.read(read_memory, await now(store))
    return [note.text for batch in recalled.batches for note in batch.observations]


async def test_o2_an_observation_is_read_as_it_was_stored(store: Store) -> None:
    await talk(store, 3)
    held = await claimed(store)
    notes = (Observation("one", 1, 2, "low", "2026-01-02", 1), Observation("two ☃ \0", 3, 4, "high", "2026-01-03"))
    batch = Batch(1, 4, notes, floor_seq=3, model="m/x", input_tokens=100, output_tokens=20, tokens=9)
    assert await store.write(store_batch, held, NAME, batch, (), time.time()) == 1
    [stored] = (await store.read(read_memory, await now(store))).batches
    assert [note.text for note in stored.observations] == ["one", "two ☃ �"]
    assert stored.observations[0] == notes[0]
    assert (stored.model, stored.input_tokens, stored.output_tokens, stored.tokens) == ("m/x", 100, 20, 9)
    assert stored.created_at > 0


async def test_o3_the_window_starts_at_the_floor_of_the_newest_batch(store: Store) -> None:
    await talk(store, 6)
    await observe(store, 1, 8)
    found = await store.read(read_window_with_memory, NAME, 1_000)
    assert found
    assert [one.seq for one in found[1]] == [9, 10, 11, 12]
    assert found[2].observed_seq == 8
    small = await store.read(read_window_with_memory, NAME, 20)
    assert small
    assert [one.seq for one in small[1]] == [12], "the budget holds, and the notes take their part of it"


async def test_o2_a_rewind_invalidates_observations_and_their_live_messages_are_unobserved_again(store: Store) -> None:
    await talk(store, 6)
    await observe(store, 1, 4)
    await observe(store, 5, 8)
    await rewind(store, 3)  # takes back messages 7 to 12
    assert await texts(store) == ["noted 1-4"], "the batch that spans the point is not used"
    found = await store.read(read_unobserved_of, NAME)
    assert found
    assert [one.seq for one in found[1].messages] == [5, 6]
    assert found[1].tokens == 20
    await talk(store, 1, start=10)
    await observe(store, 5, 15)  # 5, 6 and 14, 15: what is between was taken back
    assert await texts(store) == ["noted 1-4", "noted 5-15"]
    standings = [batch.standing for batch in await store.read(read_all_batches, await now(store))]
    assert standings == ["current", "rewound", "current"]


async def test_o2_a_rewind_into_a_reflection_makes_its_sources_current_again(store: Store) -> None:
    await talk(store, 6)
    numbers = [await observe(store, 1, 4), await observe(store, 5, 8)]
    await observe(store, 1, 8, generation=1, sources=tuple(numbers))
    assert await texts(store) == ["noted 1-8"]
    await rewind(store, 3)
    assert await texts(store) == ["noted 1-4"]


async def test_o2_messages_of_a_running_turn_are_not_observed_yet(store: Store) -> None:
    session = await talk(store, 2)
    entry = NewEvent("asked", 9.0, Message("user", "a question"), 10, "i9")
    turn = await store.submit_turn(session, entry, "me")
    found = await store.read(read_unobserved_of, NAME)
    assert found
    assert [one.seq for one in found[1].messages] == [1, 2, 3, 4]
    await store.end_turn(NAME, turn, "done")
    found = await store.read(read_unobserved_of, NAME)
    assert found
    assert [one.seq for one in found[1].messages] == [1, 2, 3, 4, 5]


async def test_o1_one_observer_at_a_time_and_a_lost_lease_writes_nothing(store: Store) -> None:
    session = await talk(store, 2)
    first = await claimed(store, "first")
    second = await store.write(acquire_observer_lease, session.key, "second")
    assert second
    assert not second.held
    assert second.owner == "first"
    taken = await store.write(take_over_observer_lease, second, "second")
    assert taken
    assert await store.write(take_over_observer_lease, second, "third") is None, "it was taken over meanwhile"
    assert await store.write(store_batch, first, NAME, Batch(1, 2), (), time.time()) is None
    await store.write(release_observer_lease, first)
    assert await store.write(store_batch, taken, NAME, Batch(1, 4), (), time.time()) == 1
    assert [batch.last_seq for batch in await store.read(read_all_batches, await now(store))] == [4]


async def test_o1_an_unreleased_lease_is_acquired_again_by_its_owner(store: Store) -> None:
    """As after an outage, in which the lease could not be released."""
    session = await store.write(create_session, NAME, None, time.time())
    lost = await store.write(acquire_observer_lease, session.key, "owner")
    again = await store.write(acquire_observer_lease, session.key, "owner")
    assert lost
    assert again
    assert again.held
    assert await store.write(store_batch, lost, NAME, Batch(1, 2), (), time.time()) is None
    assert await store.write(store_batch, again, NAME, Batch(1, 2), (), time.time()) == 1


async def test_o1_of_many_owners_at_once_one_acquires_the_lease(store: Store) -> None:
    session = await talk(store, 1)
    claims = await asyncio.gather(
        *(store.write(acquire_observer_lease, session.key, f"owner {number}") for number in range(10))
    )
    assert sum(claim.held for claim in claims if claim) == 1


async def test_o2_deleting_a_session_deletes_its_memory_and_its_facts(store: Store) -> None:
    session = await talk(store, 2)
    await observe(store, 1, 4)
    held = await claimed(store)
    await store.write(store_batch, held, NAME, Batch(1, 4), [Fact("home", "Bern", 1, 2)], time.time())
    assert await store.read(read_facts, "app", "ann")
    assert await store.delete_session(NAME)
    assert await store.write(acquire_observer_lease, session.key, "me") is None
    assert await store.write(store_batch, held, NAME, Batch(1, 4), (), time.time()) is None, (
        "nothing is left behind by a late observer"
    )
    assert await store.read(read_facts, "app", "ann") == []
    await talk(store, 1)
    assert await texts(store) == []


async def test_facts_of_one_name_replace_each_other_and_can_be_deleted(store: Store) -> None:
    await talk(store, 4)
    held = await claimed(store)
    await store.write(
        store_batch, held, NAME, Batch(1, 4), [Fact("home", "Bern", 1, 2), Fact("name", "Ann", 3, 4)], time.time()
    )
    await store.write(store_batch, held, NAME, Batch(5, 8), [Fact("home", "Basel", 5, 6)], time.time())
    assert [(fact.name, fact.text) for fact in await store.read(read_facts, "app", "ann")] == [
        ("name", "Ann"),
        ("home", "Basel"),
    ]
    every = await store.read(read_facts, "app", "ann", replaced=True)
    assert [(fact.text, fact.replaced_by, fact.session_id) for fact in every] == [
        ("Bern", 3, "s"),
        ("Ann", None, "s"),
        ("Basel", None, "s"),
    ]
    assert await store.read(read_facts, "app", "bob") == []
    assert not await store.write(delete_fact, "app", "bob", 3), "not another user's"
    assert await store.write(delete_fact, "app", "ann", 3)
    left = await store.read(read_facts, "app", "ann", replaced=True)
    assert [fact.text for fact in left] == ["Ann"], "the older ones of that name are gone, too"


async def test_o2_a_rewind_deletes_facts_and_their_predecessors_are_valid_again(store: Store) -> None:
    await talk(store, 4)
    held = await claimed(store)
    await store.write(store_batch, held, NAME, Batch(1, 4), [Fact("home", "Bern", 1, 2)], time.time())
    await store.write(store_batch, held, NAME, Batch(5, 8), [Fact("home", "Basel", 5, 6)], time.time())
    await rewind(store, 2)
    assert [fact.text for fact in await store.read(read_facts, "app", "ann")] == ["Bern"]


@given(st.lists(st.integers(0, 5), max_size=4), st.lists(st.tuples(st.integers(1, 6), st.integers(0, 3)), max_size=8))
def test_o2_after_any_rewinds_the_chain_covers_live_messages_from_the_first_on(
    cuts: list[int], made: list[tuple[int, int]]
) -> None:
    """Rewinds and batches in any order: the current batches are a chain without gaps, and cover no rewound message."""
    last_seq, rewinds, batches = 6, list[tuple[int, int]](), list[Batch]()
    steps = [("rewind", cut, 0) for cut in cuts] + [("batch", size, after) for size, after in made]
    for kind, size, _ in sorted(steps, key=lambda step: (step[2], step[0])):
        if kind == "rewind":
            last_seq += 1
            rewinds.append((last_seq, max(1, last_seq - 1 - size)))
            last_seq += 3
            continue
        held = current_batches(batches, last_seq, rewinds)
        live = [seq for first, last in sorted(live_ranges(last_seq, rewinds)) for seq in range(first, last + 1)]
        left = [seq for seq in live if seq > (held[-1].last_seq if held else 0)][:size]
        if left:
            batches.append(Batch(left[0], left[-1], rewinds=len(rewinds), batch=len(batches) + 1))
        held = current_batches(batches, last_seq, rewinds)
        ranges = sorted(live_ranges(last_seq, rewinds))
        position = 0
        for batch in held:
            assert batch.first_seq == next_live_seq(ranges, position)
            position = batch.last_seq
        assert not left or (held and held[-1].last_seq == left[-1]), "what was just observed holds"


async def test_o2_a_fork_has_the_observations_up_to_its_fork_point(store: Store) -> None:
    await talk(store, 6)
    numbers = [await observe(store, 1, 4), await observe(store, 5, 8)]
    await observe(store, 1, 8, generation=1, sources=tuple(numbers))
    whole = await fork(store, "whole", None)
    assert await store.read(read_all_batches, whole) == await store.read(read_all_batches, await now(store))
    part = await fork(store, "part", 6)
    recalled = await store.read(read_memory, part)
    assert [note.text for batch in recalled.batches for note in batch.observations] == ["noted 1-4"]
    found = await store.read(read_unobserved_of, part.name)
    assert found
    assert [one.seq for one in found[1].messages] == [5, 6]
    assert found[1].tokens == 20
    window = await store.read(read_window_with_memory, part.name, 1_000)
    assert window
    assert [one.seq for one in window[1]] == [5, 6]
    assert await store.read(find_floor, part, 6, 2, 1_000) == 3, "a floor in what it shares"
    await store.delete_session(NAME)
    assert (await store.read(read_memory, whole)).observed_seq == 8, "what is shared outlives its source"
    assert await store.read(read_facts, "app", "ann") == []


async def test_o2_a_fork_of_a_rewound_session_has_its_current_observations(store: Store) -> None:
    await talk(store, 4)
    await observe(store, 1, 8)
    await rewind(store, 2)  # takes back 5 to 8; the rewind is 9
    await observe(store, 1, 4)
    before = await fork(store, "before", 8)
    assert (await store.read(read_memory, before)).observed_seq == 8, "where nothing was taken back"
    after = await fork(store, "after", None)
    assert (await store.read(read_memory, after)).observed_seq == 4
