"""A2A over gRPC, through the protocol's own client: keys, limits, agents, the end. test_a2a.py has the rest."""

import asyncio
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from a2a.client.errors import A2AClientError
from a2a.types import (
    CancelTaskRequest,
    GetExtendedAgentCardRequest,
    GetTaskRequest,
    ListTasksRequest,
    SendMessageRequest,
    SubscribeToTaskRequest,
    TaskState,
)
from a2a.utils.errors import InvalidParamsError, TaskNotCancelableError, TaskNotFoundError
from a2a.utils.grpc_status import status_from_call
from google.rpc.error_details_pb2 import RetryInfo
from grpc import StatusCode, aio

from lango.store import Store
from tests.agents.parts import add_api_key
from tests.support.servers.a2a_client import GRPC, answer_of, begin, connected, message, run, send
from tests.support.servers.server_process import TIMEOUT_S, Server, configure, lango, serving
from tests.support.servers.trace_collector import collecting

FOLDER = Path(__file__).parents[2] / "support" / "servers" / "agent_folder"
GET_TASK = "lf.a2a.v1.A2AService/GetTask"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("a2a")
    with serving(folder, f"sqlite:///{folder}/lango.db", rest=GRPC) as running:
        yield running


async def grpc_address(server: Server) -> str:
    async with server.client() as http:
        card = (await http.get("/.well-known/agent-card.json")).json()
    (address,) = [one["url"] for one in card["supportedInterfaces"] if one["protocolBinding"] == "GRPC"]
    return address


def retry_delay_s(error: A2AClientError) -> int:
    """When a call may be repeated, by the standard detail of its status."""
    assert isinstance(error.__cause__, aio.AioRpcError)
    status = status_from_call(error.__cause__)
    assert status is not None
    retry = RetryInfo()
    assert any(detail.Unpack(retry) for detail in status.details)
    return retry.retry_delay.seconds


async def test_tasks_are_listed_and_cancelled(server: Server, tmp_path: Path) -> None:
    async with connected(server, "GRPC") as client:
        done = await run(client, message("hello"))
        listed = await client.list_tasks(ListTasksRequest(context_id=done.context_id, include_artifacts=True))
        assert [answer_of(one) for one in listed.tasks] == ["hello"]
        with pytest.raises(TaskNotCancelableError, match="has ended"):
            await client.cancel_task(CancelTaskRequest(id=done.id))
        with pytest.raises(InvalidParamsError, match="99 is not a state"):
            await client.list_tasks(ListTasksRequest(status=99))  # pyright: ignore[reportArgumentType]
        with pytest.raises(TaskNotFoundError):
            await client.get_task(GetTaskRequest(id="unknown"))

        held = await begin(client, message(f"hold {tmp_path / 'never'}"))
        cancelled = await client.cancel_task(CancelTaskRequest(id=held.task.id))
        assert cancelled.status.state == TaskState.TASK_STATE_CANCELED


async def test_a_message_that_cannot_be_parsed_is_the_clients_fault(server: Server) -> None:
    for method in ("GetTask", "SubscribeToTask"):
        async with aio.insecure_channel(await grpc_address(server)) as channel:
            with pytest.raises(aio.AioRpcError, match="wire format") as refused:
                await channel.unary_unary(f"/lf.a2a.v1.A2AService/{method}")(b"\xff\xff")
        assert refused.value.code() == StatusCode.INVALID_ARGUMENT
    assert "Traceback" not in server.log.read_text()


async def test_a_message_over_the_limit_of_a_body_is_refused(tmp_path: Path, sqlite_url: str) -> None:
    with serving(tmp_path, sqlite_url, rest=f"{GRPC}\n[server.limits]\nmax_body_bytes = 10_000") as server:
        async with connected(server, "GRPC") as client:
            with pytest.raises(A2AClientError, match="RESOURCE_EXHAUSTED"):
                await send(client, message("x" * 10_001))
            assert answer_of(await run(client, message("small"))) == "small"


async def test_a_call_needs_a_key_and_reaches_the_tasks_of_its_user_only(tmp_path: Path, sqlite_url: str) -> None:
    async with Store(sqlite_url) as store:
        _, ada = await add_api_key(store, "ada")
        _, ben = await add_api_key(store, "ben", requests_per_minute=2)
        _, cleo = await add_api_key(store, "cleo", tokens_per_day=1)
    with serving(tmp_path, sqlite_url, server='auth = "keys"', rest=GRPC) as server:
        for key in ("", "wrong"):
            async with connected(server, "GRPC", key=key) as stranger:
                with pytest.raises(A2AClientError, match="UNAUTHENTICATED: a valid API key is required"):
                    await send(stranger, message("hello"))
                with pytest.raises(A2AClientError, match="UNAUTHENTICATED"):
                    await stranger.get_task(GetTaskRequest(id="any"))
        async with connected(server, "GRPC", key=ada) as client:
            task = await run(client, message("hello"))
            card = await client.get_extended_agent_card(GetExtendedAgentCardRequest())
        assert "obedient.wipe" in {skill.id for skill in card.skills}
        assert [one.protocol_binding for one in card.supported_interfaces] == [
            "JSONRPC",
            "HTTP+JSON",
            "GRPC",
            "JSONRPC",
        ]
        async with connected(server, "GRPC", key=ben) as other:
            with pytest.raises(TaskNotFoundError):
                await other.get_task(GetTaskRequest(id=task.id))
            assert not (await other.list_tasks(ListTasksRequest())).tasks
            with pytest.raises(
                A2AClientError, match="RESOURCE_EXHAUSTED: this key may make at most 2 requests"
            ) as many:
                await other.list_tasks(ListTasksRequest())
            assert 0 < retry_delay_s(many.value) <= 60
        async with connected(server, "GRPC", key=cleo) as client:
            await run(client, message("hello"))
            with pytest.raises(A2AClientError, match="RESOURCE_EXHAUSTED: this key may use at most 1 tokens") as used:
                await send(client, message("hello"))
            assert 0 < retry_delay_s(used.value) <= 24 * 60 * 60


async def test_the_open_calls_of_an_address_are_limited(tmp_path: Path, sqlite_url: str) -> None:
    limits = "limits.max_connections_per_client = 2"
    with serving(tmp_path, sqlite_url, server=limits, rest=GRPC) as server:
        async with connected(server, "GRPC") as client:  # its calls are on one connection
            gates = [tmp_path / "first", tmp_path / "second"]
            requests = [SendMessageRequest(message=message(f"hold {gate}")) for gate in gates]
            streams = [client.send_message(request) for request in requests]
            first, second = [(await anext(stream)).task.id for stream in streams]
            with pytest.raises(A2AClientError, match="RESOURCE_EXHAUSTED: too many open calls from this addr") as many:
                await client.get_task(GetTaskRequest(id=first))
            assert retry_delay_s(many.value) > 0
            with pytest.raises(A2AClientError, match="RESOURCE_EXHAUSTED"):
                await anext(client.subscribe(SubscribeToTaskRequest(id=first)))
            gates[0].touch()
            async for _ in streams[0]:
                pass
            assert (await client.get_task(GetTaskRequest(id=first))).status.state == TaskState.TASK_STATE_COMPLETED
            assert (await client.cancel_task(CancelTaskRequest(id=second))).id == second
            async for _ in streams[1]:
                pass


async def test_connections_that_call_nothing_are_limited_and_closed(tmp_path: Path, sqlite_url: str) -> None:
    limits = "limits.max_connections = 3\nlimits.head_timeout_s = 1"
    with serving(tmp_path, sqlite_url, server=limits, rest=GRPC) as server:
        host, _, port = (await grpc_address(server)).rpartition(":")
        opened = [await asyncio.open_connection(host, int(port)) for _ in range(6)]
        try:
            async with asyncio.timeout(TIMEOUT_S):
                received = [await reader.read() for reader, _ in opened]  # to the end of each
        finally:
            for _, writer in opened:
                writer.close()
        assert sum(map(bool, received)) == 3, "beyond the limit, nothing is sent"
        async with connected(server, "GRPC") as client:
            assert answer_of(await run(client, message("hello"))) == "hello"


async def test_a_stream_ends_when_its_key_is_revoked(tmp_path: Path, sqlite_url: str) -> None:
    async with Store(sqlite_url) as store:
        made, key = await add_api_key(store, "ada")
    with serving(tmp_path, sqlite_url, server='auth = "keys"\nheartbeat_s = 0.2', rest=GRPC) as server:
        async with connected(server, "GRPC", key=key) as client:
            sending = asyncio.create_task(send(client, message(f"hold {tmp_path / 'never'}")))
            assert lango("keys", "revoke", made.id, cwd=tmp_path).returncode == 0
            with pytest.raises(A2AClientError, match="UNAUTHENTICATED"):
                await sending


async def test_each_agent_of_a_server_is_a_tenant(tmp_path: Path, sqlite_url: str) -> None:
    with serving(tmp_path, sqlite_url, str(FOLDER), name="", agent="max_turns = 5", rest=GRPC) as server:
        for agent in ("anna", "ben"):
            async with connected(server, "GRPC", agent=agent) as client:
                assert answer_of(await run(client, message("hello"))) == f"{agent} heard hello"


async def test_a_stopping_server_ends_its_streams_and_another_continues_the_task(
    tmp_path: Path, sqlite_url: str
) -> None:
    gate = tmp_path / "gate"
    with serving(tmp_path / "a", sqlite_url, "--drain-s", "0", rest=GRPC) as server:
        async with connected(server, "GRPC") as client:
            started = await begin(client, message(f"hold {gate}"))
            request = SubscribeToTaskRequest(id=started.task.id)
            stream = client.subscribe(request)
            assert (await anext(stream)).task.id == request.id
            stopping = asyncio.create_task(asyncio.to_thread(server.terminate))
            with pytest.raises(A2AClientError, match="UNAVAILABLE") as ended:
                async for _ in stream:
                    pass
            assert retry_delay_s(ended.value) > 0
            assert await stopping == 0
        assert "Traceback" not in server.log.read_text()
    with serving(tmp_path / "b", sqlite_url, rest=GRPC) as server:
        gate.touch()
        async with connected(server, "GRPC") as client:
            last = [one async for one in client.subscribe(request)][-1]
            assert last.status_update.status.state == TaskState.TASK_STATE_COMPLETED


async def test_a_call_has_a_span_and_the_card_the_public_address(tmp_path: Path, sqlite_url: str) -> None:
    with collecting() as collector:
        endpoint = f'[telemetry]\notlp_endpoint = "{collector.url}"'
        with serving(tmp_path, sqlite_url, env={"OTEL_BSP_SCHEDULE_DELAY": "50"}, rest=f"{GRPC}\n{endpoint}") as server:
            async with connected(server, "GRPC") as client:
                await send(client, message("hello"))
                with pytest.raises(TaskNotFoundError):
                    await client.get_task(GetTaskRequest(id="unknown"))
            spans = await asyncio.to_thread(
                collector.wait_for, lambda spans: {"turn", GET_TASK} <= {span.name for span in spans}
            )
    (asked,) = [span for span in spans if span.name == GET_TASK]
    (sent,) = [span for span in spans if span.name == "lf.a2a.v1.A2AService/SendStreamingMessage"]
    (turn,) = [span for span in spans if span.name == "turn"]
    assert turn.parent_id == sent.id
    statuses = [span.attributes["rpc.response.status_code"] for span in (sent, asked)]
    assert (statuses, asked.failed) == (["OK", "NOT_FOUND"], False)
    public = f'{GRPC}\ngrpc_address = "agents.example:443"'
    with serving(tmp_path / "public", sqlite_url, rest=public) as server:
        assert await grpc_address(server) == "agents.example:443"


def test_a_port_that_is_taken_and_a_missing_package_are_one_sentence(
    tmp_path: Path, sqlite_url: str, server: Server
) -> None:
    configure(tmp_path, sqlite_url, rest=f"[server.a2a]\ngrpc_port = {server.port}")
    taken = lango("serve", "--port", "0", cwd=tmp_path)
    assert (taken.returncode, "choose another port with server.a2a.grpc_port" in taken.stderr) == (2, True)
    assert "Traceback" not in taken.stderr
    checked = lango("doctor", "--offline", cwd=tmp_path, env={"LANGO_SERVER__PORT": "0"})
    assert re.search(r"note gRPC port: .*choose another with server.a2a.grpc_port", checked.stdout)
    code = "import sys; sys.modules['grpc'] = None; from lango.cli.main import main; main()"
    missing = subprocess.run(
        [sys.executable, "-c", code, "serve", "--port", "0"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert (missing.returncode, 'pip install "lango-adk[a2a-grpc]"' in missing.stderr) == (2, True)
