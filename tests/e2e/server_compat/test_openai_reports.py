"""What responses report besides the answer: thoughts, the provider's rate limit, request ids, written cache tokens."""

import json
import re
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
from openai import AsyncOpenAI

from tests.support.servers.failing_agent import REPORTED
from tests.support.servers.server_process import TIMEOUT_S, Server, lango, send, serving, text_of
from tests.support.servers.wire_server import Exchange, wire_server

FAILING_AGENT = Path(__file__).parents[2] / "support" / "servers" / "failing_agent.py"
REFUSED = f"AgentFailed: the agent reported an error: {REPORTED}"
REQUEST_ID = re.compile("req_[0-9a-f]{32}")


async def create(client: AsyncOpenAI, *texts: Any, **more: Any) -> Any:
    untyped: Any = client.chat.completions
    messages = [{"role": "user", "content": text} if isinstance(text, str) else text for text in texts]
    return await untyped.create(model="obedient", messages=messages, **more)


async def test_thoughts_are_reasoning_content_whole_streamed_and_resent(client: AsyncOpenAI) -> None:
    message = (await create(client, "think")).choices[0].message
    assert (message.reasoning_content, message.content) == ("hm, well", "thought")
    deltas = [chunk.choices[0].delta async for chunk in await create(client, "think", stream=True)]
    assert "".join(getattr(delta, "reasoning_content", "") for delta in deltas) == "hm, well"
    assert "".join(delta.content or "" for delta in deltas) == "thought"
    assert not hasattr((await create(client, "Rome")).choices[0].message, "reasoning_content")
    answer = {"role": "assistant", "content": "thought", "reasoning_content": "hm, well"}
    recited = await create(client, "think", answer, "recite")
    assert recited.choices[0].message.content.count("think") == 1


async def test_tokens_written_to_the_cache_are_in_the_usage_of_every_protocol(client: AsyncOpenAI) -> None:
    whole = await create(client, "think")
    assert whole.usage.prompt_tokens_details.cache_write_tokens == 2
    response: Any = await client.responses.create(model="obedient", input="think")
    assert response.usage.input_tokens_details.cache_write_tokens == 2
    async with httpx.AsyncClient(base_url=str(client.base_url).removesuffix("v1/"), timeout=TIMEOUT_S) as http:
        assert (await send(http, "cache", "think"))[-1].data["usage"]["cache_write_tokens"] == 2
        messages = [{"id": "1", "role": "user", "content": "think"}]
        run: dict[str, Any] = {
            "forwardedProps": {},
            "threadId": "t",
            "runId": "r",
            "messages": messages,
            "tools": [],
            "context": [],
            "state": {},
        }
        assert '"cacheWriteInputTokens":2' in (await http.post("/agui", json=run)).text


async def test_every_response_names_its_request(server: Server) -> None:
    found: list[str] = []
    async with server.client() as http:
        for method, path, headers in (
            ("GET", "/healthz", {"X-Request-Id": "mine\tforged"}),
            ("GET", "/v1/models", {}),
            ("GET", "/v1/sessions/none", {}),
            ("POST", "/v1/chat/completions", {}),
            ("GET", "/", {"Host": "evil.example"}),
            ("GET", "/nowhere", {}),
        ):
            found.append((await http.request(method, path, headers=headers)).headers["x-request-id"])
        answer = {"messages": [{"role": "user", "content": "Rome"}], "stream": True}
        found.append((await http.post("/v1/chat/completions", json=answer)).headers["x-request-id"])
    assert all(map(REQUEST_ID.fullmatch, found)), found
    assert len({*found}) == len(found)


@pytest.mark.parametrize("log_format", ["text", "json"])
async def test_the_log_of_a_failed_request_has_its_id(tmp_path: Path, log_format: str) -> None:
    agent, logging = f"module = {json.dumps(str(FAILING_AGENT))}", f'log_format = "{log_format}"'
    with serving(tmp_path, f"sqlite:///{tmp_path}/lango.db", agent=agent, server=logging) as server:
        async with server.client() as http:
            body = {"messages": [{"role": "user", "content": "go"}]}
            turn = await http.post("/v1/chat/completions", json=body, headers={"X-Session-Id": "kept"})
            stream = await http.post(
                "/v1/chat/completions", json=body | {"stream": True}, headers={"X-Session-Id": "streamed"}
            )
            with closing(sqlite3.connect(tmp_path / "lango.db")) as store, store:
                store.execute("UPDATE messages SET content = x'ff'")
            damaged = await http.get("/v1/sessions/kept/messages")
            assert (await http.get("/healthz")).status_code == 200, "the connection stays open"
        assert damaged.headers["x-content-type-options"] == "nosniff"
        assert (turn.status_code, damaged.status_code, stream.status_code) == (500, 500, 200)
        server.terminate()
        lines = server.log.read_text().splitlines()
    assert "".join(lines).count("Traceback (most recent call last)") == 1
    for response, logged in (
        (turn, ["turn 1 of session kept accepted ({})", f"turn 1 of session kept failed ({{}}): {REFUSED}"]),
        (damaged, ["GET /v1/sessions/kept/messages failed ({})"]),
        (stream, ["turn 1 of session streamed accepted ({})", f"turn 1 of session streamed failed ({{}}): {REFUSED}"]),
    ):
        request_id = response.headers["x-request-id"]
        found = [line for line in lines if request_id in line]
        if log_format == "json":
            records = [json.loads(line) for line in found]
            assert {record["request_id"] for record in records} == {request_id}
            found = [record["message"] for record in records]
        assert [line.rpartition("lango.server: ")[2] for line in found] == [text.format(request_id) for text in logged]


async def test_a_rate_limit_of_the_provider_is_429_with_its_time(tmp_path: Path) -> None:
    async def limit(exchange: Exchange) -> None:
        body = {"error": {"message": "slow down", "type": "rate_limit_error", "code": "rate_limit_exceeded"}}
        await exchange.status(429, body, {"retry-after": "7200"})

    async with wire_server(limit) as wire:
        rest = f'[providers.openai]\nbase_url = "{wire.url}/v1"\napi_key_env = "SOME_KEY"\napi = "chat"'
        store = f"sqlite:///{tmp_path}/lango.db"
        agent = 'model = "openai/gpt-x"\nmax_attempts = 1'
        with serving(tmp_path / "s", store, env={"SOME_KEY": "k"}, agent=agent, rest=rest) as server:
            async with AsyncOpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0) as sdk:
                for kept in ({}, {"X-Session-Id": "kept"}):
                    with pytest.raises(openai.RateLimitError, match="slow down") as limited:
                        await create(sdk, "hello", extra_headers=kept | {"Idempotency-Key": "k"})
                    assert limited.value.response.headers["retry-after"] == "7200"
                    assert (limited.value.type, limited.value.code) == ("rate_limit_error", "ProviderRateLimited")
                    assert limited.value.request_id
                with pytest.raises(openai.APIError, match="slow down"):
                    [_ async for _ in await create(sdk, "hello", stream=True)]


async def test_a_rate_limit_of_the_provider_is_429_in_responses_too(tmp_path: Path) -> None:
    async def limit(exchange: Exchange) -> None:
        await exchange.status(
            429, {"error": {"message": "slow down", "type": "rate_limit_error"}}, {"retry-after": "9"}
        )

    async with wire_server(limit) as wire:
        rest = f'[providers.openai]\nbase_url = "{wire.url}/v1"\napi_key_env = "SOME_KEY"\napi = "chat"'
        agent = 'model = "openai/gpt-x"\nmax_attempts = 1'
        env = {"SOME_KEY": "k"}
        with serving(tmp_path, f"sqlite:///{tmp_path}/lango.db", env=env, agent=agent, rest=rest) as server:
            async with AsyncOpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0) as sdk:
                with pytest.raises(openai.RateLimitError, match="slow down") as limited:
                    await sdk.responses.create(model="lango", input="hello")
    assert limited.value.response.headers["retry-after"] == "9"
    assert REQUEST_ID.fullmatch(limited.value.request_id or "")


@pytest.mark.parametrize("name", ["wipe", "guarded", "pay"])
async def test_a_tool_that_waits_for_approval_does_not_look_executed(client: AsyncOpenAI, name: str) -> None:
    message = (await create(client, f"call {name}")).choices[0].message
    assert "[This needs approval: " in message.content
    assert not hasattr(message, "executed_tools")
    deltas = [chunk.choices[0].delta async for chunk in await create(client, f"call {name}", stream=True)]
    reported = [one for delta in deltas for one in getattr(delta, "executed_tools", ())]
    assert not any("output" in one or "ok" in one for one in reported)


async def test_with_keys_a_message_creates_the_callers_own_session(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/lango.db"
    with serving(tmp_path, url, server='auth = "keys"') as server:
        alice, bob = [lango("keys", "add", "--user", user, cwd=tmp_path).stdout.strip() for user in ("alice", "bob")]
        async with (
            server.client(Authorization=f"Bearer {alice}") as hers,
            server.client(Authorization=f"Bearer {bob}") as his,
        ):
            assert text_of(await send(hers, "mine", "secret")) == "secret"
            assert (await his.get("/v1/sessions/mine")).status_code == 404
            taken, unused = await send(his, "mine", "recite"), await send(his, "unused", "recite")
            assert text_of(taken) == text_of(unused) == '[["user", ["recite"]]]'
            assert [event.type for event in taken] == [event.type for event in unused]
            assert [one["content"] for one in (await hers.get("/v1/sessions/mine/messages")).json()["messages"]] == [
                "secret",
                "secret",
            ]
            body = {"messages": [{"role": "user", "content": "recite"}]}
            kept = await his.post("/v1/chat/completions", json=body, headers={"X-Session-Id": "by-chat"})
            assert kept.status_code == 200
