"""A client of A2A for tests: the protocol's own, which knows nothing but the address of an agent."""

import uuid
from collections.abc import AsyncGenerator
from contextlib import aclosing, asynccontextmanager
from typing import Any, cast

import httpx
from a2a.client import A2ACardResolver, Client, ClientCallContext, ClientConfig, ClientFactory
from a2a.client.auth import AuthInterceptor, CredentialService
from a2a.types import (
    GetTaskRequest,
    Message,
    Part,
    Role,
    SendMessageConfiguration,
    SendMessageRequest,
    StreamResponse,
    Task,
)
from grpc import aio

from tests.support.servers.server_process import TIMEOUT_S, Server

AGENT = "obedient"
GRPC = "[server.a2a]\ngrpc_port = 0"
"""The configuration of a server that has gRPC, too."""


class _Key(CredentialService):
    """The key of the client, for the bindings that do not share its HTTP client."""

    def __init__(self, key: str) -> None:
        self._key = key

    async def get_credentials(self, security_scheme_name: str, context: ClientCallContext | None) -> str | None:
        return self._key


@asynccontextmanager
async def connected(
    server: Server, binding: str = "JSONRPC", *, key: str = "", agent: str = AGENT
) -> AsyncGenerator[Client]:
    """Connect as a client that knows nothing but the address of the agent, and a key."""
    async with httpx.AsyncClient(timeout=TIMEOUT_S) as http:
        card = await A2ACardResolver(http, f"{server.url}/a2a/{agent}").get_agent_card()
        config = ClientConfig(
            httpx_client=http, grpc_channel_factory=aio.insecure_channel, supported_protocol_bindings=[binding]
        )
        async with ClientFactory(config).create(card, [AuthInterceptor(_Key(key))] if key else None) as client:
            yield client


def message(*parts: str | Part, **fields: Any) -> Message:
    made = [Part(text=part) if isinstance(part, str) else part for part in parts]
    return Message(message_id=uuid.uuid4().hex, role=Role.ROLE_USER, parts=made, **fields)


async def send(client: Client, sent: Message, **config: Any) -> list[StreamResponse]:
    request = SendMessageRequest(message=sent, configuration=SendMessageConfiguration(**config))
    return [response async for response in client.send_message(request)]


async def begin(client: Client, sent: Message) -> StreamResponse:
    """Send a message and leave its stream after the first response."""
    stream = cast("AsyncGenerator[StreamResponse]", client.send_message(SendMessageRequest(message=sent)))
    async with aclosing(stream):
        return await anext(stream)


async def run(client: Client, sent: Message) -> Task:
    """Send a message; return its task as it is stored afterwards."""
    first = (await send(client, sent))[0].task
    return await client.get_task(GetTaskRequest(id=first.id))


def answer_of(task: Task) -> str:
    return "".join(part.text for artifact in task.artifacts for part in artifact.parts)
