"""A request that is refused before its route runs gets the error of its protocol, as the vendors' clients read it."""

from collections.abc import Callable, Iterator
from typing import Any

import anthropic
import openai
import pytest
from a2a.client.errors import A2AClientError
from mcp.shared.exceptions import MCPError

from tests.e2e.server_compat.test_mcp_server import connected as mcp_connected
from tests.support.servers.a2a_client import connected, message, send
from tests.support.servers.server_process import TIMEOUT_S, Server, serving

LIMITS = "[server.limits]\nmax_body_bytes = 2_000\nmax_conversation_bytes = 2_000"
LARGE = "x" * 2_000
REFUSALS: dict[str, tuple[dict[str, Any], int, str]] = {
    "too large": ({"json": {"text": LARGE}}, 413, "TooLarge"),
    "not JSON": ({"content": b"x", "headers": {"Content-Type": "text/plain"}}, 415, "NotJson"),
    "another host": ({"json": {}, "headers": {"Host": "evil.example"}}, 403, "WrongHost"),
}


def of_openai(body: Any) -> str:
    assert set(body["error"]) == {"message", "type", "param", "code"}
    return body["error"]["code"]


def of_anthropic(body: Any) -> str:
    assert (body["type"], set(body["error"])) == ("error", {"type", "message", "code"})
    assert body["request_id"].startswith("req_")
    return body["error"]["code"]


def of_json_rpc(body: Any) -> str:
    assert (body["jsonrpc"], body["id"], body["error"]["code"]) == ("2.0", None, -32600)
    return body["error"]["data"][0]["reason"]


def of_a2a_rest(body: Any) -> str:
    assert {"code", "status", "message"} < set(body["error"])
    return body["error"]["details"][0]["reason"]


def of_adk(body: Any) -> str:
    assert body["detail"] == body["error"]["message"]
    return body["error"]["type"]


def of_lango(body: Any) -> str:
    assert set(body) == {"error"}
    return body["error"]["type"]


READERS: dict[str, Callable[[Any], str]] = {
    "/v1/chat/completions": of_openai,
    "/v1/embeddings": of_openai,
    "/v1/responses": of_openai,
    "/v1/conversations": of_openai,
    "/v1/messages": of_anthropic,
    "/v1/messages/count_tokens": of_anthropic,
    "/a2a/obedient": of_json_rpc,
    "/a2a/obedient/v1/message:send": of_a2a_rest,
    "/mcp": of_json_rpc,
    "/agui": of_lango,
    "/run_sse": of_adk,
    "/v1/sessions": of_lango,
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("refusals")
    limits = f"{LIMITS}\nmax_attachment_bytes = 0"
    with serving(folder, f"sqlite:///{folder}/lango.db", server='auth = "keys"', rest=limits) as running:
        yield running


@pytest.mark.parametrize("why", REFUSALS)
@pytest.mark.parametrize("path", READERS)
async def test_a_refusal_has_the_shape_of_its_protocol(server: Server, path: str, why: str) -> None:
    request, status, error = REFUSALS[why]
    async with server.client() as client:
        response = await client.post(path, **request)
        assert (response.status_code, READERS[path](response.json())) == (status, error)
        keyless = await client.post(path, json={})
        assert (keyless.status_code, READERS[path](keyless.json())) == (401, "Unauthorized")


async def test_the_vendors_clients_read_it(server: Server) -> None:
    said: list[Any] = [{"role": "user", "content": LARGE}]
    async with openai.AsyncOpenAI(base_url=f"{server.url}/v1", api_key="none", timeout=TIMEOUT_S) as client:
        with pytest.raises(openai.APIStatusError) as refused:
            await client.chat.completions.create(model="obedient", messages=said)
        assert (refused.value.status_code, refused.value.code) == (413, "TooLarge")
        with pytest.raises(openai.AuthenticationError):
            await client.models.list()
    async with anthropic.AsyncAnthropic(base_url=server.url, api_key="none", timeout=TIMEOUT_S) as client:
        with pytest.raises(anthropic.APIStatusError) as large:
            await client.messages.create(model="obedient", max_tokens=9, messages=said)
        assert (large.value.status_code, large.value.type) == (413, "request_too_large")
    keyless = pytest.RaisesExc(MCPError, match="a valid API key is required")
    with pytest.RaisesGroup(keyless, flatten_subgroups=True):
        async with mcp_connected(server, "legacy"):
            pass
    for binding in ("JSONRPC", "HTTP+JSON"):
        async with connected(server, binding) as agent:
            with pytest.raises(A2AClientError, match="413"):
                await send(agent, message(LARGE))
