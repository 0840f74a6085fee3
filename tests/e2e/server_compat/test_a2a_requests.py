"""What A2A's compatibility kit found: requests that must be refused, and tasks that are cancelled while they wait."""

import asyncio
import json
import uuid
from pathlib import Path
from typing import Any

import pytest
from a2a.client import Client
from a2a.types import CancelTaskRequest, GetTaskRequest, Task, TaskState
from a2a.utils.constants import PROTOCOL_VERSION_1_0
from a2a.utils.errors import TaskNotCancelableError
from google.protobuf.json_format import MessageToDict

from tests.support.servers.a2a_client import AGENT, GRPC, answer_of, connected, message, run, send
from tests.support.servers.server_process import TIMEOUT_S, Server, serving
from tests.support.servers.wire_server import Exchange, wire_server


async def test_a_task_that_waits_for_a_long_running_tool_cannot_be_cancelled(server: Server) -> None:
    async with connected(server) as client:
        task = await run(client, message("call order"))
        assert task.status.state == TaskState.TASK_STATE_WORKING
        with pytest.raises(TaskNotCancelableError, match="cannot be stopped"):
            await client.cancel_task(CancelTaskRequest(id=task.id))
        assert (await client.get_task(GetTaskRequest(id=task.id))).status.state == TaskState.TASK_STATE_WORKING


PAYING = """
from google.adk.workflow import START, Workflow
from lango.adk import event_data, wait_for_event

def payment():
    return wait_for_event("payment", timeout=3600)

def ship(node_input):
    return f"paid {event_data(node_input)['amount']}"

root_agent = Workflow(name="shop", edges=[(START, payment, ship)])
"""


async def until_ended(client: Client, task: Task) -> Task:
    async with asyncio.timeout(TIMEOUT_S):
        while (found := await client.get_task(GetTaskRequest(id=task.id))).status.state == TaskState.TASK_STATE_WORKING:
            await asyncio.sleep(0.05)
    return found


async def test_a_task_that_waits_for_an_event_is_cancelled_or_continues_whatever_came_in_between(
    tmp_path: Path,
) -> None:
    (tmp_path / "shop.py").write_text(PAYING)
    with serving(tmp_path, f"sqlite:///{tmp_path}/lango.db", agent='module = "shop.py"') as server:
        async with connected(server) as client:
            stopped = await run(client, message("a shirt"))
            assert stopped.status.state == TaskState.TASK_STATE_WORKING
            cancelled = await client.cancel_task(CancelTaskRequest(id=stopped.id))
            assert cancelled.status.state == TaskState.TASK_STATE_CANCELED
            with pytest.raises(TaskNotCancelableError):
                await client.cancel_task(CancelTaskRequest(id=stopped.id))

            first = await run(client, message("a coat"))
            second = await run(client, message("a hat", context_id=first.context_id))
            cancelled = await client.cancel_task(CancelTaskRequest(id=second.id))
            assert cancelled.status.state == TaskState.TASK_STATE_CANCELED
            async with server.client() as http:
                sent = await http.post("/v1/events/payment", json={"data": {"amount": 30}})
                assert sent.status_code == 202, sent.text
            ended = await until_ended(client, first)
            assert ended.status.state == TaskState.TASK_STATE_COMPLETED, (sent.json(), ended)
            assert answer_of(ended) == "paid 30"
            assert (await until_ended(client, stopped)).status.state == TaskState.TASK_STATE_CANCELED


async def call(server: Server, method: str, **params: Any) -> dict[str, Any]:
    """Call an operation over JSON-RPC with what the protocol's own client would not send; return the response."""
    body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
    async with server.client(**{"A2A-Version": PROTOCOL_VERSION_1_0}) as http:
        return (await http.post(f"/a2a/{AGENT}", json=body)).json()


@pytest.mark.parametrize("status", ["TASK_STATE_RUNNING", "working", 99])
async def test_a_list_by_an_unknown_status_is_refused(server: Server, status: str | int) -> None:
    refused = (await call(server, "ListTasks", status=status))["error"]
    assert refused["code"] == -32602
    assert repr(status) in refused["message"]
    async with server.client(**{"A2A-Version": PROTOCOL_VERSION_1_0}) as http:
        over_rest = await http.get(f"/a2a/{AGENT}/v1/tasks", params={"status": status})
    assert over_rest.status_code == 400
    assert "TASK_STATE_WORKING" in over_rest.json()["error"]["message"]


async def test_a_list_by_no_status_has_all_tasks(server: Server) -> None:
    async with connected(server) as client:
        task = await run(client, message("hello"))
    for filters in ({}, {"status": ""}, {"status": "TASK_STATE_UNSPECIFIED"}, {"status": "TASK_STATE_COMPLETED"}):
        listed = await call(server, "ListTasks", contextId=task.context_id, **filters)
        assert [one["id"] for one in listed["result"]["tasks"]] == [task.id], filters


async def test_the_turns_of_an_import_are_no_tasks(tmp_path: Path, store_url: str) -> None:
    """Finding the turns of a task takes a query for each: an import could say that it had any number of them."""
    with serving(tmp_path, store_url) as server:
        async with connected(server) as client:
            task = await run(client, message("hello"))
        async with server.client() as http:
            lines = (await http.get(f"/v1/sessions/{task.context_id}/export")).text.splitlines()
            [turn] = [json.loads(line) for line in lines if '"kind":"turn"' in line]
            more = [turn | {"turn": at, "idempotency_key": f"a2a forged-{at}"} for at in range(2, 50)]
            end = {"kind": "end", "lines": len(lines) - 1 + len(more)}
            body = "\n".join([*lines[:-1], *map(json.dumps, [*more, end])])
            headers = {"Content-Type": "application/x-ndjson"}
            made = await http.post("/v1/sessions/import?id=copy", content=body, headers=headers)
            assert made.status_code == 201, made.text
        listed = (await call(server, "ListTasks"))["result"]
        assert [(one["id"], one["contextId"]) for one in listed["tasks"]] == [(task.id, task.context_id)]
        assert (await call(server, "GetTask", id=task.id))["result"]["contextId"] == task.context_id
        assert "no task" in (await call(server, "GetTask", id="forged-2"))["error"]["message"]
        async with server.client() as http:
            assert (await http.delete(f"/v1/sessions/{task.context_id}")).status_code == 204
        assert "no task" in (await call(server, "GetTask", id=task.id))["error"]["message"]


async def test_an_empty_message_is_refused(server: Server) -> None:
    sent = {"messageId": uuid.uuid4().hex, "role": "ROLE_USER", "parts": [{"text": ""}]}
    refused = (await call(server, "SendMessage", message=sent))["error"]
    assert (refused["code"], "the message is empty" in refused["message"]) == (-32602, True)


@pytest.mark.parametrize("unknown", [{"file": {"name": "a.txt"}}, {}])
async def test_a_part_without_known_content_is_refused(server: Server, unknown: dict[str, Any]) -> None:
    sent = {"messageId": uuid.uuid4().hex, "role": "ROLE_USER", "parts": [{"text": "see"}, unknown]}
    refused = (await call(server, "SendMessage", message=sent))["error"]
    assert refused["code"] == -32602
    assert "part 2" in refused["message"]


async def test_wrong_requests_leave_no_traceback_in_the_log(server: Server) -> None:
    for params in ({"id": 5}, {"id": {"deep": [1]}}, {"id": "unknown"}):
        assert (await call(server, "GetTask", **params))["error"]["code"] in (-32602, -32001)
    async with server.client(**{"A2A-Version": PROTOCOL_VERSION_1_0}) as http:
        assert (await http.post(f"/a2a/{AGENT}", json={"jsonrpc": "2.0", "id": 1})).json()["error"]["code"] == -32600
    assert "a2a." not in server.log.read_text()


async def test_without_keys_there_is_no_extended_card(server: Server) -> None:
    async with server.client() as http:
        card = (await http.get(f"/a2a/{AGENT}/.well-known/agent-card.json")).json()
    assert not card["capabilities"].get("extendedAgentCard")
    assert (await call(server, "GetExtendedAgentCard"))["error"]["code"] == -32004


@pytest.mark.parametrize("binding", ["JSONRPC", "HTTP+JSON", "GRPC"])
async def test_a_task_that_failed_at_a_rate_limit_says_when_to_try_again(tmp_path: Path, binding: str) -> None:
    async def limit(exchange: Exchange) -> None:
        body = {"error": {"message": "slow down", "type": "rate_limit_error", "code": "rate_limit_exceeded"}}
        await exchange.status(429, body, {"retry-after": "7200"})

    async with wire_server(limit) as wire:
        provider = f'[providers.openai]\nbase_url = "{wire.url}/v1"\napi_key_env = "SOME_KEY"\napi = "chat"'
        agent = 'model = "openai/gpt-x"\nmax_attempts = 1'
        store, env = f"sqlite:///{tmp_path}/lango.db", {"SOME_KEY": "k"}
        with serving(tmp_path, store, env=env, agent=agent, rest=f"{provider}\n{GRPC}") as server:
            async with connected(server, binding) as client:
                responses = await send(client, message("hello"))
                read = await client.get_task(GetTaskRequest(id=responses[0].task.id))
    for status in (responses[-1].status_update.status, read.status):
        assert status.state == TaskState.TASK_STATE_FAILED
        assert "slow down" in status.message.parts[0].text
        assert MessageToDict(status.message.metadata) == {"error": "ProviderRateLimited", "retry_after_s": 7200}
