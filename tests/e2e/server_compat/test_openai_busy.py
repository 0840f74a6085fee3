"""The header `X-When-Busy` decides what becomes of a message of the `openai` SDK while a turn of its session runs."""

import asyncio
import uuid
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import openai
import pytest
from openai import AsyncOpenAI

from tests.e2e.server_compat.test_openai import user

Send = Callable[[AsyncOpenAI, str, str], Coroutine[Any, Any, str]]
"""Sends a text to a session, with a value of the header; returns the answer."""


async def by_chat(client: AsyncOpenAI, session: str, when_busy: str) -> str:
    headers = {"X-Session-Id": session, "X-When-Busy": when_busy}
    answer = await client.chat.completions.create(model="any", messages=[user("second")], extra_headers=headers)
    return answer.choices[0].message.content or ""


async def by_responses(client: AsyncOpenAI, session: str, when_busy: str) -> str:
    headers = {"X-When-Busy": when_busy}
    answer = await client.responses.create(model="any", input="second", conversation=session, extra_headers=headers)
    return answer.output_text


@pytest.mark.parametrize("send", [by_chat, by_responses])
async def test_a_message_is_refused_or_interrupts_the_turn(client: AsyncOpenAI, tmp_path: Path, send: Send) -> None:
    session = f"s-{uuid.uuid4().hex}"
    held = await client.chat.completions.create(
        model="any",
        messages=[user(f"hold {tmp_path / 'go'}")],
        extra_headers={"X-Session-Id": session},
        stream=True,
    )
    chunks = aiter(held)
    while not (await anext(chunks)).choices[0].delta.content:
        pass
    with pytest.raises(openai.ConflictError) as refused:
        await send(client, session, "refuse")
    assert refused.value.code == "TurnRunning"
    with pytest.raises(openai.BadRequestError, match="X-When-Busy: send one of") as invalid:
        await send(client, session, "soon")
    assert invalid.value.type == "invalid_request_error"
    interrupting = asyncio.create_task(send(client, session, "interrupt"))
    with pytest.raises(openai.APIError):
        [_ async for _ in chunks]
    assert await interrupting == "second"
