"""System and developer messages of chat completions: the model reads them after the agent's own instruction."""

from typing import Any

import httpx
import openai
import pytest
from openai import AsyncOpenAI

from tests.support.servers.server_process import TIMEOUT_S, Server, serving

MARK = "The client that sent this request added these instructions."


def says(role: str, content: Any) -> dict[str, Any]:
    return {"role": role, "content": content}


async def create(client: AsyncOpenAI, *messages: dict[str, Any], **more: Any) -> Any:
    untyped: Any = client.chat.completions
    return await untyped.create(model="obedient", messages=list(messages), **more)


async def system_of(client: AsyncOpenAI, *messages: dict[str, Any], **more: Any) -> str:
    """Return the system prompt that the model read."""
    return (await create(client, *messages, says("user", "system"), **more)).choices[0].message.content


async def test_the_model_reads_them_in_order_after_the_agents_own_marked_as_the_clients(client: AsyncOpenAI) -> None:
    own = await system_of(client)
    assert MARK not in own
    parts = [{"type": "text", "text": "Be "}, {"type": "text", "text": "kind."}]
    read = await system_of(
        client,
        says("system", "Be brief."),
        says("user", "one"),
        says("developer", parts),
        says("assistant", "one"),
        says("system", "  "),
        says("system", "Be quick."),
    )
    added = read.removeprefix(own)
    assert read != added, "the agent's own come first"
    assert added.lstrip().startswith(MARK)
    assert added.endswith("\n\nBe brief.\n\nBe kind.\n\nBe quick.")


async def test_they_may_come_last_and_a_stream_reads_them(client: AsyncOpenAI) -> None:
    messages = says("user", "system"), says("system", "Be brief.")
    assert (await create(client, *messages)).choices[0].message.content.endswith("\n\nBe brief.")
    pieces = [one.choices[0].delta.content or "" async for one in await create(client, *messages, stream=True)]
    assert "".join(pieces).endswith("\n\nBe brief.")


async def test_they_hold_for_one_request_and_are_no_part_of_the_session(client: AsyncOpenAI, server: Server) -> None:
    kept = {"extra_headers": {"X-Session-Id": "kept"}}
    assert (await system_of(client, says("system", "It is ten."), **kept)).endswith("\n\nIt is ten.")
    later = await system_of(client, says("developer", "It is noon."), **kept)
    assert (later.endswith("\n\nIt is noon."), "It is ten." in later) == (True, False)
    assert MARK not in await system_of(client, **kept)
    async with server.client() as http:
        stored = (await http.get("/v1/sessions/kept/messages")).json()["messages"]
    assert [one["content"] for one in stored if one["role"] == "user"] == ["system"] * 3


async def test_a_file_in_one_is_refused_and_so_is_a_request_with_nothing_else(client: AsyncOpenAI) -> None:
    picture = [{"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}}]
    with pytest.raises(openai.BadRequestError, match="system and developer messages are text"):
        await system_of(client, says("system", picture))
    with pytest.raises(openai.BadRequestError, match="the last message must be the user's"):
        await create(client, says("system", "Be brief."))


def test_a_setting_refuses_them(tmp_path: Any) -> None:
    with serving(tmp_path, f"sqlite:///{tmp_path}/lango.db", server="client_instructions = false") as server:
        sent: list[tuple[str, dict[str, Any]]] = [
            ("/v1/chat/completions", {"messages": [says("developer", "Be brief."), says("user", "hello")]}),
            ("/v1/responses", {"input": "hello", "instructions": "Be brief."}),
            ("/v1/conversations", {"items": [says("system", "Be brief.")]}),
            ("/v1/responses", {"input": [says("system", "Be brief."), says("user", "hello")]}),
        ]
        for path, body in sent:
            refused = httpx.post(f"{server.url}{path}", json=body, timeout=TIMEOUT_S)
            error = refused.json()["error"]
            assert (refused.status_code, error["code"]) == (400, "ClientInstructionsRefused")
            assert "setting server.client_instructions" in error["message"]
        empty = {"messages": [says("system", ""), says("user", "hello")]}
        assert httpx.post(f"{server.url}/v1/chat/completions", json=empty, timeout=TIMEOUT_S).status_code == 200
        sessions = httpx.get(f"{server.url}/v1/sessions", timeout=TIMEOUT_S).json()["sessions"]
        assert len(sessions) == 1, "a refused request stores nothing"
