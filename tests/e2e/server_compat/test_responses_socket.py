"""Responses over a WebSocket, by OpenAI's own SDK, unchanged, and by a plain socket for what the SDK does not send."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from openai import AsyncOpenAI
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from lango.store import Store
from tests.agents.parts import add_api_key
from tests.support.servers.server_process import TIMEOUT_S, Server, serving


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("responses-socket")
    with serving(folder, f"sqlite:///{folder}/lango.db") as running:
        yield running


@pytest.fixture
async def client(server: Server) -> AsyncIterator[AsyncOpenAI]:
    async with AsyncOpenAI(base_url=f"{server.url}/v1", api_key="none", timeout=TIMEOUT_S, max_retries=0) as made:
        yield made


async def events_of_one(connection: Any) -> list[Any]:
    """Read the events of one request to its last one."""
    events: list[Any] = []
    async with asyncio.timeout(TIMEOUT_S):
        while not events or events[-1].type not in ("error", "response.completed", "response.failed"):
            events.append(await connection.recv())
    return events


async def create(connection: Any, given: Any, **more: Any) -> list[Any]:
    await connection.response.create(model="obedient", input=given, **more)
    return await events_of_one(connection)


def said(events: list[Any]) -> Any:
    return json.loads(events[-1].response.output_text)


async def test_a_socket_streams_one_response_after_the_other_as_http_does(client: AsyncOpenAI) -> None:
    async with client.responses.connect() as connection:
        await connection.response.create(model="obedient", input="think")
        await connection.response.create(model="obedient", input="words 2 0.01", stream_id="lane")
        first, second = await events_of_one(connection), await events_of_one(connection)
    whole = first[-1].response
    again = [event async for event in await client.responses.retrieve(whole.id, stream=True)]
    assert [event.to_dict() for event in first] == [event.to_dict() for event in again]
    assert whole.usage.output_tokens_details.reasoning_tokens == 3
    assert second[-1].response.output_text == "w0 w1 "
    assert {event.to_dict()["stream_id"] for event in second} == {"lane"}


async def test_a_response_that_is_not_stored_is_continued_on_its_socket_alone(client: AsyncOpenAI) -> None:
    async with client.responses.connect() as connection:
        one = await create(connection, "one", store=False)
        newest: str = one[-1].response.id
        two = await create(connection, "recite", store=False, previous_response_id=newest)
        assert said(two) == [["user", ["one"]], ["assistant", ["one"]], ["user", ["recite"]]]
        [old] = await create(connection, "recite", store=False, previous_response_id=newest)
        assert old.error.code == "previous_response_not_found", "only the newest one is kept"
        newest = two[-1].response.id
        wrong = [{"type": "function_call_output", "call_id": "none", "output": "x"}]
        [refused] = await create(connection, wrong, store=False, previous_response_id=newest)
        assert (refused.status, refused.error.type) == (400, "invalid_request_error")
        assert "no call 'none' is waiting" in refused.error.message
        [gone] = await create(connection, "on", store=False, previous_response_id=newest)
        assert gone.error.code == "previous_response_not_found", "a continuation failed"
        kept = await create(connection, "kept")
    async with client.responses.connect() as other:
        [elsewhere] = await create(other, "recite", previous_response_id=one[-1].response.id)
        assert (elsewhere.status, elsewhere.error.param) == (400, "previous_response_id")
        then = await create(other, "recite", previous_response_id=kept[-1].response.id)
        assert said(then) == [["user", ["kept"]], ["assistant", ["kept"]], ["user", ["recite"]]]


async def test_an_approval_and_a_functions_output_continue_what_is_not_stored(client: AsyncOpenAI) -> None:
    parameters: dict[str, Any] = {"type": "object", "properties": {}}
    lookup: dict[str, Any] = {"type": "function", "name": "lookup", "parameters": parameters, "strict": False}
    async with client.responses.connect() as connection:
        asked = await create(connection, "ask", store=False)
        [request] = [item for item in asked[-1].response.output if item.type == "mcp_approval_request"]
        answer = {"type": "mcp_approval_response", "approval_request_id": request.id, "approve": True}
        done = await create(connection, [answer], store=False)
        assert "the tool said {'noted': 'this'}" in done[-1].response.output_text
        called = await create(connection, "call lookup", store=False, tools=[lookup])
        [call] = called[-1].response.output
        output = [{"type": "function_call_output", "call_id": call.call_id, "output": "42"}]
        ended = await create(connection, output, store=False, previous_response_id=called[-1].response.id)
        assert "42" in ended[-1].response.output_text


async def test_a_failure_is_one_last_event_and_the_socket_goes_on(client: AsyncOpenAI) -> None:
    async with client.responses.connect() as connection:
        failed = await create(connection, "fail")
        assert [event.type for event in failed] == ["response.created", "response.in_progress", "response.failed"]
        assert "the provider does not want to" in failed[-1].response.error.message
        assert (await create(connection, "still here"))[-1].response.output_text == "still here"


@pytest.mark.parametrize(
    ("sent", "message"),
    [
        ("{", "send JSON in a text message"),
        ("[]", 'send an object with "type": "response.create"'),
        ('{"input": "hello"}', "type: None is not supported"),
        ('{"type": "response.steer", "input": "x"}', "type: 'response.steer' is not supported"),
        ('{"type": "response.create", "input": "x", "generate": false}', "generate: false is not supported"),
        ('{"type": "response.create", "input": "x", "background": true}', "background: not supported on a WebSocket"),
        ('{"type": "response.create", "input": "x", "stream": false}', "stream: a WebSocket always streams"),
        ('{"type": "response.create", "input": "x", "nonsense": 1}', "nonsense: is not allowed here"),
        ('{"type": "response.create", "input": "x", "temperature": 3}', "temperature: "),
        ('{"type": "response.create", "input": "x", "prompt": {"id": "p"}}', "prompt: not supported"),
    ],
)
async def test_what_is_not_supported_gets_an_error_with_its_status(server: Server, sent: str, message: str) -> None:
    async with connect(f"ws://127.0.0.1:{server.port}/v1/responses") as socket:
        await socket.send(sent)
        error = json.loads(await asyncio.wait_for(socket.recv(), TIMEOUT_S))
        assert (error["type"], error["status"], error["error"]["code"]) == ("error", 400, "BadRequest")
        assert error["error"]["message"].startswith(message)


async def test_a_client_that_leaves_leaves_its_response_running(client: AsyncOpenAI, tmp_path: Path) -> None:
    async with client.responses.connect() as connection:
        await connection.response.create(model="obedient", input=f"hold {tmp_path}/go")
        response_id = ""
        async for event in connection:
            response_id = event.response.id if event.type == "response.created" else response_id
            if event.type == "response.output_text.delta":
                break
    (tmp_path / "go").touch()
    async with asyncio.timeout(TIMEOUT_S):
        events = [event async for event in await client.responses.retrieve(response_id, stream=True)]
    assert events[-1].type == "response.completed"
    assert events[-1].response.output_text == "begun ended"


async def test_a_socket_needs_a_key_and_finds_only_the_responses_of_its_user(tmp_path: Path, sqlite_url: str) -> None:
    async with Store(sqlite_url) as store:
        keys = [(await add_api_key(store, name))[1] for name in ("alice", "bob")]
    with serving(tmp_path, sqlite_url, server='auth = "keys"') as server:
        url = f"{server.url}/v1"
        async with AsyncOpenAI(base_url=url, api_key=keys[0]) as alice, alice.responses.connect() as connection:
            made = await create(connection, "secret")
        async with AsyncOpenAI(base_url=url, api_key=keys[1]) as bob, bob.responses.connect() as connection:
            [refused] = await create(connection, "recite", previous_response_id=made[-1].response.id)
            assert refused.error.code == "previous_response_not_found"
        with pytest.raises((InvalidStatus, ConnectionClosed)):
            async with connect(f"ws://127.0.0.1:{server.port}/v1/responses"):
                pass
