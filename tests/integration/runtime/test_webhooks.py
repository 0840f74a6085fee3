"""Webhooks: every end of a turn is told, signed, at least once and by one sender at a time."""

import asyncio
import base64
from collections.abc import Awaitable, Callable, Iterator
from itertools import pairwise
from typing import Any

import pytest

from lango import Settings, open_runtime
from lango.errors import ProviderRejected, WebhookRefused
from lango.messages import ToolCall
from lango.runtime.execution.webhook_sender import next_delay_s
from lango.runtime.runtime import Runtime
from lango.store import Store
from lango.store.credentials.secret_box import KEY_VARIABLE, new_key
from lango.store.engine.database import Operation
from lango.store.turns import ending
from lango.submissions import SubmittedMessage
from lango.testing import ScriptedProvider
from lango.tools import Tool, tool
from tests.agents.parts import TIMEOUT_S
from tests.integration.server.test_turn_costs import counted
from tests.support.runtimes import store_of
from tests.support.servers.webhook_receiver import Receiver, receiving

SECRET = "whsec_" + base64.b64encode(b"the secret of these tests").decode()


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with receiving() as running:
        yield running


@pytest.fixture(autouse=True)
def _secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOOK_SECRET", SECRET)
    monkeypatch.setenv(KEY_VARIABLE, new_key())


def settings_of(url: str, receiver: Receiver, *, allow: bool = True, **webhook: Any) -> Settings:
    hook = {"url": f"{receiver.url}/ops", "secret_env": "HOOK_SECRET"} | webhook
    server = {"webhook_addresses": [receiver.address] if allow else []}
    return Settings.model_validate({"store": {"url": url}, "webhooks": {"ops": hook}, "server": server})


@tool(level="dangerous")
def wipe() -> str:
    """Wipe."""
    return "wiped"


TOOLS: list[Tool] = [wipe]


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(TIMEOUT_S):
        while not await condition():
            await asyncio.sleep(0.01)


async def all_received(runtime: Runtime) -> bool:
    return not sum(one.pending for one in await runtime.webhooks.list())


def _make_due() -> Operation[None]:
    yield "UPDATE webhook_deliveries SET next_at = 0 WHERE next_at IS NOT NULL", ()


def _make_old() -> Operation[None]:
    yield "UPDATE webhook_deliveries SET created_at = created_at - 86400, next_at = 0", ()


async def test_each_end_of_a_turn_is_told_signed_and_without_its_text(store_url: str, receiver: Receiver) -> None:
    script = ["the answer", ToolCall("c1", "wipe", {}), ProviderRejected("no, my secret text"), "of another session"]
    provider = ScriptedProvider(script)
    async with open_runtime(settings_of(store_url, receiver), tools=TOOLS, provider=provider) as runtime:
        await runtime.run("s", "hello")
        done = await receiver.next()
        common = {"app": "lango", "user_id": "user", "session_id": "s"}
        assert done.verified(SECRET)["type"] == "turn.done"
        assert done.data == {**common, "turn": 1, "status": "done"}

        own = await runtime.webhooks.add(f"{receiver.url}/own", session_id="s", user_id="user", include_text=True)
        await runtime.run("s", "wipe it")
        told = {one.path: one for one in [await receiver.next(), await receiver.next()]}
        [approval] = await runtime.waits("s")
        waits = [{"id": approval.id, "kind": "approval"}]
        assert told["/ops"].verified(SECRET)["data"] == {**common, "turn": 2, "status": "waiting", "waits": waits}
        assert told["/own"].verified(own.secret)["data"]["waits"] == waits
        assert told["/own"].id != told["/ops"].id

        with pytest.raises(ProviderRejected):
            await runtime.run("s", "now fail")
        told = {one.path: one for one in [await receiver.next(), await receiver.next()]}
        failed = {**common, "turn": 3, "status": "failed", "error": "ProviderRejected"}
        assert told["/ops"].verified(SECRET)["data"] == failed
        assert told["/own"].verified(own.secret)["data"] == {**failed, "text": "no, my secret text"}

        await runtime.run("another", "hello")
        assert (await receiver.next()).path == "/ops", "the other one is of its session alone"
        await until(lambda: all_received(runtime))
        assert own.secret not in str(await store_of(runtime).read(_every_webhook))


async def test_two_processes_send_each_delivery_once(store_url: str, receiver: Receiver) -> None:
    settings, provider = settings_of(store_url, receiver), ScriptedProvider(["yes"] * 20)
    async with open_runtime(settings, provider=provider) as one, open_runtime(settings, provider=provider) as other:
        await asyncio.gather(*((one, other)[n % 2].run(f"s{n}", "hello") for n in range(20)))
        received = [await receiver.next() for _ in range(20)]
        await until(lambda: all_received(one))
    assert len({request.id for request in received}) == len({request.data["session_id"] for request in received}) == 20
    assert receiver.requests.empty()


async def test_what_is_not_received_is_sent_again_for_a_day_and_then_listed(
    store_url: str, receiver: Receiver, caplog: pytest.LogCaptureFixture
) -> None:
    receiver.answers += [(500, {}), (302, {"Location": f"{receiver.url}/elsewhere"}), (503, {})]
    async with open_runtime(settings_of(store_url, receiver), provider=ScriptedProvider(["yes", "yes"])) as runtime:
        store, hooks = store_of(runtime), runtime.webhooks
        await runtime.run("s", "hello")
        ids = [(await receiver.next()).id]
        for make, attempts in ((_make_due, 2), (_make_old, 3)):
            await until(lambda seen=attempts - 1: noted(store, seen))
            await store.write(make)
            request = await receiver.next()
            assert request.path == "/ops", "no redirect is followed"
            ids.append(request.id)
        assert len(set(ids)) == 1, "the same id each time"

        async def is_dead() -> bool:
            return bool(await hooks.dead())

        await until(is_dead)
        [dead] = await hooks.dead()
        assert (dead.session_id, dead.turn, dead.event, dead.attempts, dead.problem) == ("s", 1, "done", 3, "HTTP 503")
        [listed] = await hooks.list()
        assert (listed.pending, listed.dead) == (0, 1)
        assert not await hooks.resend(dead.id, user_id="a user whose webhook it is not")
        assert await hooks.resend(dead.id)
        assert (await receiver.next()).id == dead.id
        await until(lambda: all_received(runtime))
        assert not await hooks.dead()

        receiver.answers.append((410, {}))
        await runtime.run("s", "again")
        await receiver.next()
        await until(is_dead)  # at once: the receiver said that it is gone
    assert SECRET not in caplog.text


async def test_an_address_that_is_not_public_is_not_connected_to(sqlite_url: str, receiver: Receiver) -> None:
    settings = settings_of(sqlite_url, receiver, allow=False)
    async with open_runtime(settings, provider=ScriptedProvider(["yes"])) as runtime:
        await runtime.run("s", "hello")
        await until(lambda: noted(store_of(runtime), 1))
        [[problem]] = await store_of(runtime).read(_problems)
        assert "is not public" in problem
        assert receiver.requests.empty()
        for url in ("file:///etc/passwd", "http://name:password@example.com/", "http://"):
            with pytest.raises(WebhookRefused):
                await runtime.webhooks.add(url)


async def test_webhooks_of_a_key_and_changed_settings(store_url: str, receiver: Receiver) -> None:
    provider = ScriptedProvider(["yes"] * 3)
    async with open_runtime(settings_of(store_url, receiver, events=["failed"]), provider=provider) as runtime:
        await runtime.webhooks.add(f"{receiver.url}/key", quota_id="k1", user_id="alice", secret_env="HOOK_SECRET")
        for quota in (None, "k2", "k1"):
            turn = await runtime.accept(f"s-{quota}", SubmittedMessage("hello"), user_id="alice", quota_id=quota)
            await turn.collect_answer()
        request = await receiver.next()
        assert (request.path, request.data["session_id"]) == ("/key", "s-k1")
        await until(lambda: all_received(runtime))
        assert receiver.requests.empty()
        assert [one.id for one in await runtime.webhooks.list()][:1] == ["ops"]
        [own] = await runtime.webhooks.list(user_id="alice")
        assert not await runtime.webhooks.delete(own.id, user_id="bob")
        assert await runtime.webhooks.delete(own.id, user_id="alice")
    async with open_runtime(Settings.model_validate({"store": {"url": store_url}}), provider=provider) as runtime:
        assert not await runtime.webhooks.list(), "those that the settings no longer have are gone"


async def test_a_turn_with_webhooks_takes_no_write_more_and_one_without_no_statement_more(
    sqlite_url: str, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    statements: list[str] = []
    real = ending.report_end

    def noted_report(*args: Any) -> Operation[bool]:
        statements.append("report")
        return (yield from real(*args))

    monkeypatch.setattr(ending, "report_end", noted_report)
    plain = Settings.model_validate({"store": {"url": sqlite_url}})
    async with open_runtime(plain, provider=ScriptedProvider(["yes"])) as runtime:
        await runtime.run("s", "hello")
    assert not statements
    writes: list[str] = []
    counted(monkeypatch, Store, "end_turn", writes)
    async with open_runtime(settings_of(sqlite_url, receiver), provider=ScriptedProvider(["yes"])) as runtime:
        await runtime.run("s", "hello")
        await receiver.next()
    assert (statements, writes) == (["report"], ["end_turn"])


async def noted(store: Store, attempts: int) -> bool:
    """Whether an attempt has failed, and that is stored."""
    rows = await store.read(_attempts)
    return any(attempt == attempts and problem for attempt, problem in rows)


def _attempts() -> Operation[list[Any]]:
    return (yield "SELECT attempts, problem FROM webhook_deliveries WHERE next_at > 1000", ())


def _problems() -> Operation[list[Any]]:
    return (yield "SELECT problem FROM webhook_deliveries", ())


def _every_webhook() -> Operation[list[Any]]:
    return (yield "SELECT * FROM webhooks", ())


def test_the_delay_doubles_and_ends_after_a_day() -> None:
    delays = [next_delay_s(attempts, 0.0) for attempts in range(1, 30)]
    for earlier, later in pairwise(delays[:13]):
        assert earlier is not None
        assert later is not None
        assert 1.5 * earlier < later < 2.5 * earlier
    assert delays[-1] == 86_400.0
    assert next_delay_s(20, 86_000.0) == 400.0, "the last one comes when the day is over"
    assert next_delay_s(20, 86_400.0) is None
    assert next_delay_s(1, 0.0, retry_after_s=3600.0) == 3600.0
    assert next_delay_s(1, 0.0, retry_after_s=1e9) == 86_400.0
