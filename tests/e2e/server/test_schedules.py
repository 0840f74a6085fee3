"""Schedules over HTTP and on the command line, beside a running server."""

import asyncio
import json
import re
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.support.servers.server_process import TIMEOUT_S, Server, lango, serving

DAILY = {"name": "news", "message": "the news of {date}", "cron": "@daily", "timezone": "Europe/Berlin"}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("schedules")
    with serving(folder, f"sqlite:///{folder}/lango.db", server='auth = "keys"') as running:
        yield running


def client_of(server: Server, user: str) -> httpx.AsyncClient:
    made = lango("keys", "add", "--user", user, cwd=server.log.parent)
    key = re.search(r"lango_[\w-]+", made.stdout)
    assert key, made
    return server.client(Authorization=f"Bearer {key[0]}")


async def ended_run(client: httpx.AsyncClient, schedule_id: str) -> dict[str, Any]:
    async with asyncio.timeout(TIMEOUT_S):
        while True:
            found = (await client.get(f"/v1/schedules/{schedule_id}")).json()["runs"]
            if found and found[0]["outcome"] == "done":
                return found[0]
            await asyncio.sleep(0.05)


async def test_a_user_has_schedules_of_their_own_over_http(server: Server) -> None:
    async with client_of(server, "ada") as ada, client_of(server, "bob") as bob:
        added = await ada.post("/v1/schedules", json=DAILY, headers={"Idempotency-Key": "k1"})
        assert added.status_code == 200, added.text
        schedule = added.json()
        assert (schedule["user"], schedule["state"], len(schedule["next_times"])) == ("ada", "active", 10)
        again = await ada.post("/v1/schedules", json=DAILY, headers={"Idempotency-Key": "k1"})
        assert again.json()["id"] == schedule["id"]
        path = f"/v1/schedules/{schedule['id']}"
        assert (await bob.get("/v1/schedules")).json()["schedules"] == []
        for method, address in (("GET", ""), ("PATCH", ""), ("DELETE", ""), ("POST", "/run"), ("POST", "/pause")):
            refused = await bob.request(method, path + address, json={"name": "x"} if method == "PATCH" else None)
            assert refused.status_code == 404, refused.text
        changed = await ada.patch(path, json={"every_s": 3600, "end_at": "2099-01-01T00:00"})
        assert changed.json()["spec"]["every_s"] == 3600
        assert changed.json()["spec"]["end_at"] == "2098-12-31T23:00:00Z"
        assert (await ada.patch(path, json={"end_at": ""})).json()["spec"]["end_at"] is None
        assert (await ada.post(f"{path}/pause")).json()["state"] == "paused"
        await ada.post(f"{path}/run")
        run = await ended_run(ada, schedule["id"])
        assert run["manual"]
        messages = (await ada.get(f"/v1/sessions/{run['session_id']}/messages")).json()["messages"]
        assert re.fullmatch(r"the news of \d{4}-\d\d-\d\d", messages[0]["content"])
        assert (await ada.delete(path)).status_code == 204
        assert (await ada.get(path)).status_code == 404
        for fields, message in (
            ({"cron": "never"}, "five fields"),
            ({"timezone": "Mars"}, "no zone 'Mars'"),
            ({"start_at": "2027-01-02", "end_at": "2027-01-01"}, "before the start"),
            ({"message": "{planet}"}, "there is no field {planet}"),
        ):
            wrong = await ada.post("/v1/schedules", json=DAILY | fields)
            assert wrong.status_code == 422
            assert wrong.json()["error"]["type"] == "ScheduleRefused"
            assert message in wrong.json()["error"]["message"]


async def test_a_command_adds_a_schedule_that_the_server_runs(server: Server) -> None:
    folder = server.log.parent

    def run(*arguments: str) -> str:
        done = lango("schedules", *arguments, "--user", "eve", cwd=folder)
        assert done.returncode == 0, done.stderr
        return done.stdout

    [added] = [json.loads(line) for line in run("add", "probe", "look {time}", "--every", "1d", "--json").splitlines()]
    assert added["every_s"] == 86_400
    assert "probe" in run("list")
    assert "paused" in run("pause", "probe")
    run("run-now", added["id"][:6])
    async with client_of(server, "eve") as eve:
        await ended_run(eve, added["id"])
    shown = json.loads(run("show", "probe", "--json"))
    assert shown["state"] == "paused"
    assert shown["runs"][0]["outcome"] == "done"
    assert "(run now)" in run("show", "probe")
    assert "next: 20" in run("resume", "probe")
    assert added["id"] in run("delete", "probe")
    refused = lango("schedules", "show", "probe", cwd=folder)
    assert refused.returncode == 2
    assert "`lango schedules list` lists them" in refused.stderr
    refused = lango("schedules", "add", "x", "m", "--cron", "@daily", "--missed", "some", cwd=folder)
    assert refused.returncode == 2
    assert "'some' is not one of 'skip', 'one', 'all'" in refused.stderr
