"""An error that an agent reports without a code reaches the client of each protocol, from a real server."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.servers.failing_agent import REPORTED
from tests.support.servers.server_process import Server, serving

AGENT = Path(__file__).parents[2] / "support" / "servers" / "failing_agent.py"
CHAT = {"model": "failing", "messages": [{"role": "user", "content": "go"}]}
MESSAGE = CHAT | {"max_tokens": 9}
RESPONSE = {"model": "failing", "input": "go"}
RUN = {"appName": "obedient", "userId": "user", "newMessage": {"role": "user", "parts": [{"text": "go"}]}}
AGUI = {"threadId": "agui", "runId": "r", "messages": [{"id": "1", "role": "user", "content": "go"}]}
REQUESTS: dict[str, tuple[str, dict[str, Any], int]] = {
    "messages": ("/v1/sessions/own/messages", {"text": "go"}, 200),
    "chat": ("/v1/chat/completions", CHAT, 500),
    "chat stream": ("/v1/chat/completions", CHAT | {"stream": True}, 200),
    "Anthropic": ("/v1/messages", MESSAGE, 500),
    "Anthropic stream": ("/v1/messages", MESSAGE | {"stream": True}, 200),
    "responses": ("/v1/responses", RESPONSE, 500),
    "responses stream": ("/v1/responses", RESPONSE | {"stream": True}, 200),
    "ADK": ("/run", RUN | {"sessionId": "run"}, 500),
    "ADK stream": ("/run_sse", RUN | {"sessionId": "sse"}, 200),
    "AG-UI": ("/agui", AGUI | {"state": {}, "tools": [], "context": [], "forwardedProps": {}}, 200),
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("failing")
    module = f"module = {json.dumps(str(AGENT))}"
    with serving(folder, f"sqlite:///{folder}/lango.db", agent=module) as running:
        yield running


@pytest.mark.parametrize("name", REQUESTS)
async def test_every_protocol_shows_a_reported_error(server: Server, name: str) -> None:
    path, body, status = REQUESTS[name]
    async with server.client() as client:
        for session in ("run", "sse") if path.startswith("/run") else ():
            await client.post(f"/apps/obedient/users/user/sessions/{session}", json={})
        response = await client.post(path, json=body)
    assert response.status_code == status
    assert REPORTED in response.text
    assert "AgentFailed" in response.text or '"status":"failed"' in response.text
