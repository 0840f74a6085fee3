"""Results of long-running tools over HTTP: to any replica, also after a kill."""

from pathlib import Path

from tests.support.servers.server_process import give, send, serving, wait_path, waits_of


async def test_another_replica_takes_the_results_after_a_kill(tmp_path: Path, store_url: str) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    with serving(tmp_path / "one", store_url) as first:
        async with first.client() as client:
            events = await send(client, "s", "call order")
        assert events[-1].data["status"] == "waiting"
        call_id = next(event.data["call_id"] for event in events if event.type == "tool_start")
        first.process.kill()
    with serving(tmp_path / "two", store_url) as second:
        async with second.client() as client:
            [wait] = await waits_of(client, "s")
            assert (wait["kind"], wait["call_id"], wait["tool"]) == ("long_running_result", call_id, "order")
            update = {"type": "result", "result": {"at": "sea"}, "will_continue": True}
            events = await give(client, wait, update, **{"Idempotency-Key": "first"})
            assert [event.type for event in events] == ["accepted", "text_delta", "text_end", "done"]
            assert events[1].data["text"] == "the tool said {'at': 'sea'}"
            events = await give(client, wait, {"type": "result", "result": {"at": "home"}})
            assert [event.type for event in events] == ["accepted", "wait_closed", "text_delta", "text_end", "done"]
            assert events[2].data["text"] == "the tool said {'at': 'home'}"
            assert await waits_of(client, "s") == []
            assert (await client.post(wait_path(wait), json={"type": "result", "result": {}})).status_code == 409
            assert (await client.post(wait_path(wait), json={"type": "result", "result": "text"})).status_code == 400
