"""Triggers: an event of another system is one turn, however often and wherever it arrives."""

import asyncio
import hashlib
import hmac
import json
from typing import Any

import pytest
from google.adk.workflow import START, Workflow

from lango import Settings, open_runtime
from lango.adk import event_data, wait_for_event
from lango.errors import InvalidPayload, PayloadTooLarge, TooManyEvents, TriggerRefused
from lango.runtime.runtime import Runtime
from lango.runtime.submissions.triggers import TriggerOutcome
from lango.store import Store
from lango.testing import ScriptedProvider
from tests.agents.parts import TIMEOUT_S

SECRET = "a-secret-of-this-test"


def settings_of(url: str, **trigger: Any) -> Settings:
    github = {"verify": "github", "secret_env": "HOOK_SECRET", "session": "issue-{issue.number}"}
    github |= {"message": "Triage {issue.title}", "where": {"action": ["opened", "reopened"]}}
    return Settings.model_validate({"store": {"url": url}, "triggers": {"github": github | trigger}})


async def deliver(runtime: Runtime, payload: Any, delivery: str = "d-1", *, secret: str = SECRET) -> TriggerOutcome:
    """Send an event as GitHub does."""
    body = payload if isinstance(payload, bytes) else json.dumps(payload).encode()
    signature = "sha256=" + hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()
    headers = {"Content-Type": "application/json", "X-Hub-Signature-256": signature, "X-GitHub-Delivery": delivery}
    async with asyncio.timeout(TIMEOUT_S):
        outcome = await runtime.triggers.receive("github", headers, body)
        if outcome.running is not None:
            await outcome.running.collect_answer()
        return outcome


def issue(number: int, title: str = "Crash", action: str = "opened") -> dict[str, Any]:
    return {"action": action, "issue": {"number": number, "title": title}}


def count_own(monkeypatch: pytest.MonkeyPatch, name: str, calls: list[str]) -> None:
    """Record every call of a method of stores by this task, not by the loops beside it."""
    real, own = getattr(Store, name), asyncio.current_task()

    async def noted(*args: Any, **kwargs: Any) -> Any:
        if asyncio.current_task() is own:
            calls.append(name)
        return await real(*args, **kwargs)

    monkeypatch.setattr(Store, name, noted)


@pytest.fixture(autouse=True)
def _secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOOK_SECRET", SECRET)


async def test_redeliveries_of_an_event_are_one_turn_and_one_read_each(
    store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    provider = ScriptedProvider(["first", "second"])
    calls: list[str] = []
    async with open_runtime(settings_of(store_url), provider=provider) as here:
        async with open_runtime(settings_of(store_url), provider=provider) as elsewhere:
            first = await asyncio.gather(*(deliver(one, issue(7)) for one in (here, elsewhere) for _ in range(4)))
            assert {(one.status, one.turn) for one in first} == {("accepted", 1)}
        for name in ("read", "write", "submit_turn"):
            count_own(monkeypatch, name, calls)
        for _ in range(1000):
            assert (await deliver(here, issue(7, "Crash, once more"))).repeated
        monkeypatch.undo()
        assert calls == ["read"] * 1000
        assert (await deliver(here, issue(7, "Still"), "d-2")).turn == 2, "another event of the same session"
    [sent, *_] = [message.content for message in provider.requests[0].messages if message.role == "user"]
    assert sent.endswith("Triage <payload>Crash</payload>")
    assert len(provider.requests) == 2


async def test_what_a_filter_excludes_and_what_lacks_a_value_starts_nothing(sqlite_url: str) -> None:
    async with open_runtime(settings_of(sqlite_url, max_bytes=200), provider=ScriptedProvider([])) as runtime:
        assert (await deliver(runtime, issue(7, action="closed"))).status == "ignored"
        for broken, error in [
            ({"action": "opened"}, "no issue.number"),
            (b"no JSON", "not JSON"),
            (b"[" * 150, "not JSON"),
            (b'{"action": NaN}', "not JSON"),
        ]:
            with pytest.raises(InvalidPayload, match=error):
                await deliver(runtime, broken)
        with pytest.raises(PayloadTooLarge):
            await deliver(runtime, issue(7, "x" * 200))
        with pytest.raises(TriggerRefused):
            await deliver(runtime, issue(7), secret="another")
        assert not await runtime.sessions.list()


async def test_the_limit_counts_new_events_only(sqlite_url: str) -> None:
    async with open_runtime(
        settings_of(sqlite_url, limit_per_minute=2), provider=ScriptedProvider(["1", "2"])
    ) as runtime:
        for number in (1, 2):
            assert (await deliver(runtime, issue(number), f"d-{number}")).status == "accepted"
        with pytest.raises(TooManyEvents) as refused:
            await deliver(runtime, issue(3), "d-3")
        assert refused.value.retry_after_s
        assert (await deliver(runtime, issue(2), "d-2")).repeated


@pytest.mark.parametrize(
    ("delivery_id", "payload", "other"),
    [
        ("header:X-GitHub-Delivery", issue(1), issue(1, "x")),
        ("issue.title", issue(1, "t"), issue(1, "t", "reopened")),
    ],
)
async def test_the_id_of_an_event_comes_from_a_header_or_the_payload(
    sqlite_url: str, delivery_id: str, payload: Any, other: Any
) -> None:
    settings = settings_of(sqlite_url, delivery_id=delivery_id)
    async with open_runtime(settings, provider=ScriptedProvider(["yes"])) as runtime:
        assert not (await deliver(runtime, payload)).repeated
        assert (await deliver(runtime, other)).repeated


def paid(node_input: Any) -> Any:
    return wait_for_event("payment", {"issue.number": 7})


def ship(node_input: Any) -> str:
    return f"shipped after {event_data(node_input)['issue']['title']}"


async def test_an_event_continues_the_turn_that_waits_for_it(store_url: str) -> None:
    github = {"verify": "github", "secret_env": "HOOK_SECRET", "event": "payment", "limit_per_minute": 2}
    settings = Settings.model_validate({"store": {"url": store_url}, "triggers": {"github": github}})
    shop = Workflow(name="shop", edges=[(START, paid, ship)])
    async with open_runtime(settings, root_agent=shop) as runtime:
        waiting = await runtime.submit("s", "order")
        await waiting.collect_answer()
        other = await deliver(runtime, issue(8), "d-0")
        assert (other.status, other.answered) == ("sent", 0)
        outcomes = [await deliver(runtime, issue(7, title), "d-1") for title in ("the money", "the money", "again")]
        assert [one.answered for one in outcomes] == [1, 0, 0]
        assert [one.repeated for one in outcomes] == [False, True, True]
        session = await runtime.sessions.read("s")
        async with asyncio.timeout(TIMEOUT_S):
            while await runtime.turns.newest(session) != 2 or await runtime.turns.is_busy(session):
                await asyncio.sleep(0.01)
        [*_, last] = [event async for event in runtime.turns.follow(session, 2) if event]
        assert "shipped after the money" in str(last.event)


async def test_a_form_is_read_as_its_sender_writes_it(sqlite_url: str) -> None:
    body = b"payload=%7B%22action%22%3A%22opened%22%2C%22issue%22%3A%7B%22number%22%3A7%2C%22title%22%3A%22a+b%22%7D%7D"
    signature = "sha256=" + hmac.new(SECRET.encode(), body, hashlib.sha256).hexdigest()
    headers = {"content-type": "application/x-www-form-urlencoded", "x-hub-signature-256": signature}
    provider = ScriptedProvider(["yes"])
    async with open_runtime(settings_of(sqlite_url), provider=provider) as runtime:
        outcome = await runtime.triggers.receive("github", headers, body)
        assert outcome.session is not None
        assert outcome.session.id == "issue-7"
        assert outcome.running is not None
        await outcome.running.collect_answer()
    assert provider.requests[0].messages[-1].content.endswith("<payload>a b</payload>")
