"""A2A against a real server, through the protocol's own client: over JSON-RPC, REST and gRPC, and as version 0.3."""

import asyncio
import base64
import json
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from a2a.client import A2ACardResolver, Client
from a2a.types import (
    AgentCard,
    AuthenticationInfo,
    CancelTaskRequest,
    DeleteTaskPushNotificationConfigRequest,
    GetExtendedAgentCardRequest,
    GetTaskPushNotificationConfigRequest,
    GetTaskRequest,
    ListTaskPushNotificationConfigsRequest,
    ListTasksRequest,
    Message,
    Part,
    Role,
    StreamResponse,
    SubscribeToTaskRequest,
    TaskPushNotificationConfig,
    TaskState,
)
from a2a.utils.constants import PROTOCOL_VERSION_0_3
from a2a.utils.errors import (
    A2AError,
    InvalidParamsError,
    PushNotificationNotSupportedError,
    TaskNotCancelableError,
    TaskNotFoundError,
    UnsupportedOperationError,
)
from a2a.utils.signing import create_signature_verifier
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from lango.store import Store
from lango.store.credentials.secret_box import new_key
from tests.agents.parts import add_api_key
from tests.support.servers.a2a_client import AGENT, GRPC, answer_of, begin, connected, message, run, send
from tests.support.servers.server_process import TIMEOUT_S, Server, serving
from tests.support.servers.webhook_receiver import Received, receiving

BINDINGS = ["JSONRPC", "HTTP+JSON", "GRPC"]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("a2a")
    with serving(folder, f"sqlite:///{folder}/lango.db", server="heartbeat_s = 0.2", rest=GRPC) as running:
        yield running


@pytest.mark.parametrize("binding", BINDINGS)
async def test_a_message_is_a_task_whose_updates_stream_and_that_reads_the_same_afterwards(
    server: Server, binding: str
) -> None:
    async with connected(server, binding) as client:
        responses = await send(client, message("words 3 0"))
        task = responses[0].task
        assert task.status.state == TaskState.TASK_STATE_SUBMITTED
        assert [part.text for one in task.history for part in one.parts] == ["words 3 0"]
        states = [one.status_update.status.state for one in responses if one.HasField("status_update")]
        assert states == [TaskState.TASK_STATE_WORKING, TaskState.TASK_STATE_COMPLETED]
        pieces = [one.artifact_update for one in responses if one.HasField("artifact_update")]
        assert [one.append for one in pieces] == [False, *[True] * (len(pieces) - 2), False]
        assert [one.last_chunk for one in pieces] == [*[False] * (len(pieces) - 1), True]
        streamed = "".join(part.text for one in pieces[:-1] for part in one.artifact.parts)
        assert pieces[-1].artifact.parts[0].text == streamed
        stored = await client.get_task(GetTaskRequest(id=task.id))
        assert stored.status.state == TaskState.TASK_STATE_COMPLETED
        assert answer_of(stored) == streamed == "w0 w1 w2 "
        assert stored.context_id == task.context_id


async def test_a_context_is_a_session_and_its_history_counts(server: Server) -> None:
    async with connected(server) as client:
        first = await run(client, message("my name is Ada"))
        second = await run(client, message("recite", context_id=first.context_id))
        assert "my name is Ada" in answer_of(second)
        assert second.id != first.id
        listed = await client.list_tasks(ListTasksRequest(context_id=first.context_id, page_size=1))
        assert [one.id for one in listed.tasks] == [second.id]
        assert listed.total_size == 2
        rest = await client.list_tasks(
            ListTasksRequest(context_id=first.context_id, page_token=listed.next_page_token, include_artifacts=True)
        )
        assert [answer_of(one) for one in rest.tasks] == [answer_of(first)]
        assert not listed.tasks[0].artifacts


async def test_a_message_that_is_sent_again_gets_the_same_task(server: Server) -> None:
    async with connected(server) as client:
        once = message("only once")
        tasks = [await run(client, once), await run(client, once)]
        assert tasks[0] == tasks[1]
        assert (await client.list_tasks(ListTasksRequest(context_id=tasks[0].context_id))).total_size == 1


@pytest.mark.parametrize("binding", BINDINGS)
@pytest.mark.parametrize(("answer", "said"), [("yes", "wipe"), ("no", "not run")])
async def test_an_approval_is_input_that_the_task_requires(
    server: Server, binding: str, answer: str, said: str
) -> None:
    async with connected(server, binding) as client:
        asked = await run(client, message("call wipe"))
        assert asked.status.state == TaskState.TASK_STATE_INPUT_REQUIRED
        question = asked.status.message
        assert "wipe" in question.parts[0].text
        with pytest.raises(InvalidParamsError, match="yes or no"):
            await send(client, message("perhaps", task_id=asked.id))
        done = await run(client, message(answer, task_id=asked.id, context_id=asked.context_id))
        assert done.id == asked.id
        assert done.status.state == TaskState.TASK_STATE_COMPLETED
        assert said in answer_of(done)
        assert [one.parts[0].text for one in done.history][:1] == ["call wipe"]
        with pytest.raises(UnsupportedOperationError, match="has ended"):
            await send(client, message("more", task_id=asked.id))


async def test_a_client_leaves_and_subscribes_again_and_cancels(server: Server, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    async with connected(server) as client:
        task_id = (await begin(client, message(f"hold {gate}"))).task.id
        async with asyncio.TaskGroup() as group:
            followed = group.create_task(_collect(client, task_id))
            await _until_working(client, task_id)
            gate.touch()
        assert followed.result()[-1].status_update.status.state == TaskState.TASK_STATE_COMPLETED
        with pytest.raises(UnsupportedOperationError):
            await _collect(client, task_id)
        with pytest.raises(TaskNotCancelableError):
            await client.cancel_task(CancelTaskRequest(id=task_id))
        held = (await begin(client, message(f"hold {tmp_path / 'never'}"))).task
        await _until_working(client, held.id)
        cancelled = await client.cancel_task(CancelTaskRequest(id=held.id))
        assert cancelled.status.state == TaskState.TASK_STATE_CANCELED
        assert (await client.get_task(GetTaskRequest(id=held.id))).status.state == TaskState.TASK_STATE_CANCELED


async def _collect(client: Client, task_id: str) -> list[StreamResponse]:
    return [one async for one in client.subscribe(SubscribeToTaskRequest(id=task_id))]


async def _until_working(client: Client, task_id: str) -> None:
    """Wait until the agent has begun to answer."""
    async for one in client.subscribe(SubscribeToTaskRequest(id=task_id)):
        if one.task.artifacts or one.HasField("artifact_update"):
            return


async def test_a_failed_turn_is_a_failed_task_and_bad_requests_are_errors_of_the_protocol(server: Server) -> None:
    async with connected(server) as client:
        failed = await run(client, message("fail"))
        assert failed.status.state == TaskState.TASK_STATE_FAILED
        assert failed.status.message.parts[0].text
        with pytest.raises(TaskNotFoundError):
            await client.get_task(GetTaskRequest(id="unknown"))
        with pytest.raises(InvalidParamsError, match="not fetched"):
            await send(client, message(Part(url="https://example.com/a.png")))
        with pytest.raises(InvalidParamsError):
            await send(client, Message(message_id="m", role=Role.ROLE_USER, parts=[]))
        with pytest.raises(InvalidParamsError, match="context"):
            await send(client, message("x", task_id=failed.id, context_id="another"))


async def test_files_reach_the_model(server: Server) -> None:
    async with connected(server) as client:
        seen = await run(client, message("see", Part(raw=b"abc", filename="a.bin", media_type="image/png")))
        assert "a.bin image/png" in answer_of(seen)


async def test_clients_of_version_0_3_are_answered_in_their_shape(server: Server) -> None:
    async with httpx.AsyncClient(timeout=TIMEOUT_S) as http:
        body = {
            "jsonrpc": "2.0",
            "id": 1,
            "method": "message/send",
            "params": {
                "message": {
                    "kind": "message",
                    "messageId": uuid.uuid4().hex,
                    "role": "user",
                    "parts": [{"kind": "text", "text": "hello"}],
                }
            },
        }
        response = await http.post(f"{server.url}/a2a/{AGENT}", json=body)
        task = response.json()["result"]
        assert task["status"]["state"] == "completed"
        assert task["artifacts"][0]["parts"][0]["text"] == "hello"
        card = (await http.get(f"{server.url}/.well-known/agent-card.json")).json()
        assert card["name"] == AGENT
        assert card["protocolVersion"].startswith(PROTOCOL_VERSION_0_3)


async def test_keys_hold_and_the_extended_card_names_the_tools(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/lango.db"
    async with Store(url) as store:
        _, ada = await add_api_key(store, "ada")
        _, ben = await add_api_key(store, "ben")
    private = ec.generate_private_key(ec.SECP256R1())
    pem = private.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    rest = '[server.a2a]\nsigning_key_env = "CARD_KEY"\nurl = ""\norganization = "Acme"'
    with serving(tmp_path, url, server='auth = "keys"', rest=rest, env={"CARD_KEY": pem.decode()}) as server:
        async with connected(server) as stranger:
            with pytest.raises(Exception, match="401"):
                await send(stranger, message("hello"))
        async with connected(server, key=ada) as client:
            task = await run(client, message("hello"))
            card = await client.get_extended_agent_card(GetExtendedAgentCardRequest())
        async with connected(server, key=ben) as other:
            with pytest.raises(TaskNotFoundError):
                await other.get_task(GetTaskRequest(id=task.id))
            assert not (await other.list_tasks(ListTasksRequest())).tasks
        assert "obedient.wipe" in {skill.id for skill in card.skills}
        public = AgentCard()
        async with httpx.AsyncClient(timeout=TIMEOUT_S) as http:
            public = await A2ACardResolver(http, f"{server.url}/a2a/{AGENT}").get_agent_card()
        assert len(public.skills) == 1
        verify = create_signature_verifier(lambda _kid, _jku: private.public_key(), ["ES256"])  # pyright: ignore[reportArgumentType]
        for signed in (public, card):
            verify(signed)


async def test_errors_are_a2a_errors(server: Server) -> None:
    async with connected(server) as client:
        with pytest.raises(A2AError):
            await client.list_tasks(ListTasksRequest(page_size=1000))


def verify(received: Received, token: str) -> dict[str, Any]:
    """Return the update that came, if the token signed it."""
    secret = "whsec_" + base64.b64encode(token.encode()).decode()
    return received.verified(secret)["statusUpdate"]


async def test_an_address_is_told_each_time_a_task_ends_or_waits(tmp_path: Path) -> None:
    with receiving() as receiver:
        allowed = f"webhook_addresses = [{json.dumps(receiver.address)}]"
        url = f"sqlite:///{tmp_path}/lango.db"
        with serving(tmp_path, url, server=allowed, env={"LANGO_CREDENTIAL_KEY": new_key()}) as running:
            async with connected(running) as client, connected(running, "HTTP+JSON") as rest:
                card = await client.get_extended_agent_card(GetExtendedAgentCardRequest())
                assert card.capabilities.push_notifications
                config = TaskPushNotificationConfig(
                    url=f"{receiver.url}/told",
                    token="of the client",
                    authentication=AuthenticationInfo(scheme="Bearer", credentials="abc"),
                )
                responses = await send(client, message("call wipe"), task_push_notification_config=config)
                task = responses[0].task
                told = await receiver.next()
                assert (told.path, told.headers["authorization"]) == ("/told", "Bearer abc")
                assert told.headers["x-a2a-notification-token"] == "of the client"
                update = verify(told, "of the client")
                assert (update["taskId"], update["contextId"]) == (task.id, task.context_id)
                assert update["status"]["state"] == "TASK_STATE_INPUT_REQUIRED"

                await send(client, message("yes", task_id=task.id, context_id=task.context_id))
                update = verify(await receiver.next(), "of the client")
                assert (update["taskId"], update["status"]["state"]) == (task.id, "TASK_STATE_COMPLETED")

                await run(client, message("words 1 0", context_id=task.context_id))  # of another task: nobody is told
                listed = await rest.list_task_push_notification_configs(
                    ListTaskPushNotificationConfigsRequest(task_id=task.id)
                )
                [kept] = listed.configs
                assert (kept.url, kept.token, kept.authentication.credentials) == (config.url, config.token, "abc")
                again = GetTaskPushNotificationConfigRequest(task_id=task.id, id=kept.id)
                assert await client.get_task_push_notification_config(again) == kept
                assert await rest.get_task_push_notification_config(again) == kept
                named = TaskPushNotificationConfig(task_id=task.id, id="second", url=f"{receiver.url}/late")
                await rest.create_task_push_notification_config(named)
                late = await receiver.next()
                assert (late.path, "webhook-signature" in late.headers) == ("/late", False), "told at once, unsigned"
                for id_ in ("second", "none"):
                    await client.delete_task_push_notification_config(
                        DeleteTaskPushNotificationConfigRequest(task_id=task.id, id=id_)
                    )
                left = await client.list_task_push_notification_configs(
                    ListTaskPushNotificationConfigsRequest(task_id=task.id)
                )
                assert [one.id for one in left.configs] == [kept.id]


async def test_without_a_key_there_are_no_push_notifications(server: Server) -> None:
    async with connected(server) as client:
        assert not (await client.get_extended_agent_card(GetExtendedAgentCardRequest())).capabilities.push_notifications
        config = TaskPushNotificationConfig(url="https://example.com/told")
        before = (await client.list_tasks(ListTasksRequest())).total_size
        with pytest.raises(PushNotificationNotSupportedError):
            await send(client, message("words 1 0"), task_push_notification_config=config)
        assert (await client.list_tasks(ListTasksRequest())).total_size == before, "nothing was submitted"
