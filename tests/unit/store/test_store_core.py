"""The parts of the store that need no database."""

import importlib
import pkgutil
import re
import traceback
from importlib import resources
from pathlib import Path
from urllib.parse import quote

import pytest
from google.adk.events import Event, EventActions
from google.adk.events._rewind_events import _apply_rewinds  # pyright: ignore[reportPrivateUsage] - what we must agree with
from hypothesis import given
from hypothesis import strategies as st

from lango import store
from lango.errors import StoreUrlError
from lango.store import Store
from lango.store.codec.records import is_address_safe, wait_id
from lango.store.engine.schema import load_migrations
from lango.store.sessions import lineage


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 12)), max_size=14))
def test_live_ranges_equal_those_of_adk(script: list[tuple[bool, int]]) -> None:
    """A script of events (each its own invocation) and rewinds to one of them, in any order."""
    events: list[Event] = []
    rewinds: list[tuple[int, int]] = []
    for seq, (is_rewind, target) in enumerate(script, 1):
        event = Event(author="a", invocation_id=f"i{seq}", id=str(seq))
        if is_rewind:
            event.actions = EventActions(rewind_before_invocation_id=f"i{target}")
            if 1 <= target < seq:
                rewinds.append((seq, target))
        events.append(event)
    live = {int(event.id) for event in _apply_rewinds(events)}
    # a rewind to nowhere is an event without content, and may stay
    nowhere = {seq for seq, (is_rewind, _) in enumerate(script, 1) if is_rewind} - {at for at, _ in rewinds}
    ours = {seq for first, last in lineage.live_ranges(len(events), rewinds) for seq in range(first, last + 1)}
    assert ours - nowhere == live


@given(st.text() | st.from_regex(r"[A-Za-z0-9._~-]{1,128}", fullmatch=True))
def test_an_id_in_an_address_needs_no_escape(id_: str) -> None:
    safe = wait_id(id_)
    assert quote(safe, safe="") == safe
    assert safe.strip("."), "a client would resolve a segment of dots"
    assert wait_id(safe) == safe
    assert (safe == id_) == is_address_safe(id_)


def test_unsafe_ids_stay_different_and_readable() -> None:
    ids = ["wf_auth:shop@1/pay@1", "wf_auth:shop@1/pay@2", "wf_auth:shop@1?pay@1", "a" * 200, "a" * 201, "..", "é"]
    assert len({wait_id(id_) for id_ in ids}) == len(ids)
    assert wait_id(ids[0]).startswith("wf_auth-shop-1-pay-1~")


def all_statements() -> list[str]:
    """Return all statements of the store that SQLite runs; those with `::` are only for PostgreSQL."""
    found = pkgutil.walk_packages(store.__path__, "lango.store.")
    modules = [importlib.import_module(one.name) for one in found if not one.name.startswith("lango.store.engine")]
    named = [(name, value) for module in modules for name, value in vars(module).items() if isinstance(value, str)]
    return sorted({value for name, value in named if name.isupper() and "$1" in value and "::" not in value})


@pytest.mark.parametrize("statement", all_statements())
def test_parameters_first_appear_in_order(statement: str) -> None:
    """SQLite numbers `$2` by its first appearance."""
    firsts = list(dict.fromkeys(re.findall(r"\$(\d+)", statement)))
    assert firsts == [str(number) for number in range(1, len(firsts) + 1)]


def test_migrations_are_numbered_without_a_gap() -> None:
    steps = load_migrations().steps
    assert [step.version for step in steps] == list(range(1, len(steps) + 1))
    files = (resources.files("lango.store") / "migrations").iterdir()
    assert sorted(file.name for file in files) == [step.file_name for step in steps]


def test_every_primary_key_begins_with_the_sessions_key() -> None:
    statements = [statement for step in load_migrations().steps for statement in step.statements]
    tables = [found for each in statements for found in re.findall(r"CREATE TABLE (\w+) \((.*?)\n\)", each, re.DOTALL)]
    assert len(tables) > 10
    for table, body in tables:
        if "session_key" in body and "PRIMARY KEY (app_name" not in body:  # users, apps and keys belong to no session
            assert re.search(r"session_key\s+BIGINT PRIMARY KEY|PRIMARY KEY \(session_key", body), table


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("", "unknown scheme"),
        ("mysql://u:secret@h/d", "unknown scheme"),
        ("lango.db", "unknown scheme"),
        ("sqlite://lango.db", "sqlite:///lango.db"),
        ("postgresql://h:port/d", "port"),
        ("postgresql://h/d?schema=a;b", "schema"),
        ("postgresql://[::1/d", "cannot be read"),
        ("postgresql://u:secret@[::1/d", "cannot be read"),
        ("postgresql://u:secret@h\u2100/d", "cannot be read"),
        ("postgresql://u:secret/1@h/d", "%2F"),
        ("sqlite://u:secret@lango.db", "sqlite:///lango.db"),
    ],
)
def test_a_wrong_url_is_explained_in_one_sentence(url: str, says: str) -> None:
    with pytest.raises(StoreUrlError, match=re.escape(says)) as caught:
        Store(url)
    assert "secret" not in "".join(traceback.format_exception(caught.value, limit=0))
    assert "\n" not in str(caught.value)


def test_what_the_store_exports() -> None:
    assert all(hasattr(store, name) for name in store.__all__)
    assert sorted(store.__all__) == store.__all__


def test_a_missing_folder_is_not_created(tmp_path: Path) -> None:
    assert Store(f"sqlite:///{tmp_path}/none/x.db")
    assert not (tmp_path / "none").exists()
