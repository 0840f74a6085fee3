"""A client of A2A for tests: the protocol's own, which knows nothing but the address of an agent."""

import uuid
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import httpx
from a2a.client import A2ACardResolver, Client, ClientConfig, ClientFactory
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

from tests.support.servers.server_process import TIMEOUT_S, Server

AGENT = "obedient"


@asynccontextmanager
async def connected(server: Server, binding: str = "JSONRPC", **headers: str) -> AsyncGenerator[Client]:
    """Connect as a client that knows nothing but the address of the agent."""
    async with httpx.AsyncClient(timeout=TIMEOUT_S, headers=headers) as http:
        card = await A2ACardResolver(http, f"{server.url}/a2a/{AGENT}").get_agent_card()
        yield ClientFactory(ClientConfig(httpx_client=http, supported_protocol_bindings=[binding])).create(card)


def message(*parts: str | Part, **fields: Any) -> Message:
    made = [Part(text=part) if isinstance(part, str) else part for part in parts]
    return Message(message_id=uuid.uuid4().hex, role=Role.ROLE_USER, parts=made, **fields)


async def send(client: Client, sent: Message, **config: Any) -> list[StreamResponse]:
    request = SendMessageRequest(message=sent, configuration=SendMessageConfiguration(**config))
    return [response async for response in client.send_message(request)]


async def run(client: Client, sent: Message) -> Task:
    """Send a message; return its task as it is stored afterwards."""
    first = (await send(client, sent))[0].task
    return await client.get_task(GetTaskRequest(id=first.id))


def answer_of(task: Task) -> str:
    return "".join(part.text for artifact in task.artifacts for part in artifact.parts)
