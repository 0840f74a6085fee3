"""The metrics at /metrics, read with Prometheus' own parser."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.support.servers.server_process import TIMEOUT_S, Server, resume, send, send_until, serving

Scraped = dict[tuple[str, str], float]


@pytest.fixture
def two_servers(tmp_path: Path, store_url: str) -> Iterator[tuple[Server, Server]]:
    with serving(tmp_path / "a", store_url) as first, serving(tmp_path / "b", store_url) as second:
        yield first, second


async def scraped(client: httpx.AsyncClient) -> Scraped:
    """Return every sample by its name and label."""
    answer = await client.get("/metrics")
    assert answer.status_code == 200
    families = list(text_string_to_metric_families(answer.text))
    assert all(family.documentation and family.type in ("counter", "gauge", "histogram") for family in families)
    return {
        (sample.name, ",".join(sample.labels.values())): sample.value
        for family in families
        for sample in family.samples
    }


async def until(client: httpx.AsyncClient, wanted: Scraped) -> Scraped:
    """Scrape until the samples have these values."""
    async with asyncio.timeout(TIMEOUT_S):
        while not wanted.items() <= (found := await scraped(client)).items():
            await asyncio.sleep(0.02)
    return found


async def test_metrics_count_turns_tokens_tools_leases_and_queue(
    two_servers: tuple[Server, Server], tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    async with two_servers[0].client() as first, two_servers[1].client() as second:
        idle = await scraped(first)
        assert idle["lango_leases", "here"] == idle["lango_leases", "elsewhere"] == idle["lango_queue", ""] == 0
        seen = await send_until(first, "s", f"hold {gate}")
        waits = await send_until(second, "s", "note", "accepted")
        assert waits[-1].data["waiting"]
        held = {("lango_leases", "here"): 1.0, ("lango_leases", "elsewhere"): 0.0, ("lango_queue", ""): 1.0}
        samples = await until(first, held)
        assert (samples["lango_turns_running", ""], samples["lango_turns_waiting", ""]) == (1, 0)
        samples = await until(second, {("lango_leases", "elsewhere"): 1.0, ("lango_leases", "here"): 0.0})
        assert (samples["lango_turns_running", ""], samples["lango_turns_waiting", ""]) == (0, 1)
        gate.touch()
        await resume(first, "s", seen[-1].id)
        done = await until(second, {("lango_turns_total", "done"): 1.0})
        assert done["lango_tools_total", "ok"] == 1
        assert done["lango_model_calls_total", ""] == 2
        assert (done["lango_tokens_total", "input"], done["lango_tokens_total", "output"]) == (20, 10)
        assert done["lango_turn_seconds_bucket", "+Inf"] == done["lango_turn_seconds_count", ""] == 1
        assert done["lango_cost_usd_total", ""] == 0
        assert done["lango_leases", "here"] == done["lango_leases", "elsewhere"] == done["lango_queue", ""] == 0


async def test_resumed_and_abandoned_turns_are_counted(tmp_path: Path, sqlite_url: str) -> None:
    gate, env = tmp_path / "gate", {"LANGO_AGENT__RETRY_DELAY_S": "0.01", "LANGO_AGENT__MAX_ATTEMPTS": "2"}
    with serving(tmp_path / "a", sqlite_url, env=env) as server:
        async with server.client() as client:
            await send(client, "failed", f"fail once {tmp_path / 'failed'} done")
            await until(client, {("lango_turns_resumed_total", "failure"): 1.0, ("lango_turns_total", "done"): 1.0})
            await send_until(client, "killed", f"hold {gate}")
        server.kill()
    with serving(tmp_path / "b", sqlite_url, env=env) as server:
        async with server.client() as client:
            taken = await until(client, {("lango_turns_resumed_total", "crash"): 1.0})
            assert taken["lango_take_over_seconds_count", ""] == 1
            assert taken["lango_take_over_seconds_sum", ""] < 1
            assert taken["lango_turns_abandoned_total", ""] == 0
        server.kill()
    with serving(tmp_path / "c", sqlite_url, env=env) as server:
        async with server.client() as client:
            await until(client, {("lango_turns_abandoned_total", ""): 1.0})
            assert (await resume(client, "killed"))[-1].data["error"] == "TurnAbandoned"


async def test_series_do_not_grow_with_requests(tmp_path: Path, sqlite_url: str) -> None:
    with serving(tmp_path, sqlite_url) as server:
        async with server.client() as client:
            await send(client, "s-0", "note")
            before = set(await until(client, {("lango_turns_total", "done"): 1.0}))
            for number in range(1, 6):
                await send(client, f"s-{number}", f"hello {number}")
            assert set(await until(client, {("lango_turns_total", "done"): 6.0})) == before
