"""Attachments are stored without loss, sent in each vendor's form, and counted with realistic tokens."""

import asyncio
import base64
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from msgspec.structs import replace

from lango import Attachment, Settings, open_runtime
from lango.config import ServerLimits, ServerSettings
from lango.errors import AttachmentRefused, IdempotencyKeyReused
from lango.history.tokens import IMAGE_TOKENS
from lango.messages import Media, Message, ToolCall
from lango.testing import ScriptedProvider
from tests.agents.parts import Gate, broken_for, collect, rows, settings_for, stored, text_of
from tests.support import wire_rules
from tests.support.runtimes import store_of
from tests.support.servers.wire_server import Answer, Exchange, WireServer, wire_server

PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
CAT = Attachment("cat \u2603.png", "image/png", PNG)
NOTES = Attachment("notes.txt", "text/plain", b"buy milk")
ALL_BYTES = Attachment("all.bin", "application/octet-stream", bytes(range(256)))


async def test_files_are_stored_without_loss_and_sent_with_their_message(store_url: str) -> None:
    provider = ScriptedProvider(["a cat", "still a cat"])
    async with open_runtime(settings_for(store_url), provider=provider) as runtime:
        assert await runtime.run("s", "What is this?", attachments=[CAT, NOTES, ALL_BYTES]) == "a cat"
    async with open_runtime(settings_for(store_url), provider=provider) as runtime:
        assert await runtime.run("s", "Sure?") == "still a cat"
        first = (await stored(runtime))[0]
        assert first.attachments == [CAT, NOTES, ALL_BYTES]
        assert first.message
        assert first.message.content == "What is this?"
    sent = Message(
        "user",
        "What is this?",
        media=tuple(Media(file.mime_type, file.data, name=file.name) for file in (CAT, NOTES, ALL_BYTES)),
    )
    assert [request.messages[0] for request in provider.requests] == [sent, sent]
    assert [broken_for(request) for request in provider.requests] == [[], []]


async def test_a_message_may_be_a_file_alone_and_may_wait_for_its_turn(sqlite_url: str) -> None:
    gate = Gate()
    provider = ScriptedProvider([ToolCall("c1", "wait_here", {}), "waited", "a cat"])
    async with open_runtime(settings_for(sqlite_url), provider=provider, tools=[gate.tool]) as runtime:
        first = await runtime.submit("s", "wait")
        await gate.wait()
        second = await runtime.submit("s", "", attachments=[CAT])
        gate.may_end.set()
        await collect(first.follow())
        assert text_of(await collect(second.follow())) == "a cat"
        [message] = [row for row in await stored(runtime) if row.attachments]
        assert message.attachments == [CAT]
    assert provider.requests[2].messages[-1].media == (Media("image/png", PNG, name=CAT.name),)


async def test_the_same_request_again_stores_no_second_message(sqlite_url: str) -> None:
    provider = ScriptedProvider(["a cat"])
    async with open_runtime(settings_for(sqlite_url), provider=provider) as runtime:
        first, second = await asyncio.gather(
            *(runtime.run("s", "What?", idempotency_key="k", attachments=[CAT]) for _ in range(2))
        )
        assert first == second == "a cat"
        assert await runtime.run("s", "What?", idempotency_key="k", attachments=[CAT]) == "a cat"
        for files in ([], [CAT, CAT], [replace(CAT, data=PNG + b"!")], [replace(CAT, name="dog.png")]):
            with pytest.raises(IdempotencyKeyReused):
                await runtime.run("s", "What?", idempotency_key="k", attachments=files)
        assert len(await stored(runtime)) == 2


async def test_a_picture_has_the_tokens_of_a_picture_and_not_of_its_base64(sqlite_url: str) -> None:
    provider = ScriptedProvider(["big", "still there"])
    big = Attachment("big.png", "image/png", PNG + bytes(3_000_000))
    async with open_runtime(settings_for(sqlite_url), provider=provider) as runtime:
        await runtime.run("s", "Look.", attachments=[big])
        first = (await stored(runtime))[0]
        assert IMAGE_TOKENS < first.tokens < IMAGE_TOKENS + 20
        await runtime.run("s", "And now?")
    assert provider.requests[1].messages[0].media, "it does not push itself out of the window"


@pytest.mark.parametrize(
    ("files", "about"),
    [
        ([CAT] * 3, "max_attachments"),
        ([Attachment("a", "image/png", bytes(1001))], "max_attachment_bytes"),
        ([Attachment("a", "image/png", bytes(501))] * 2, "max_attachment_bytes"),
        ([Attachment("a", "picture", b"x")], "type 'picture'"),
        ([Attachment("a", "image/png", b"")], "empty"),
    ],
)
async def test_attachments_over_the_limits_are_refused_before_anything_is_stored(
    sqlite_url: str, files: list[Attachment], about: str
) -> None:
    server = ServerSettings(limits=ServerLimits(max_attachments=2, max_attachment_bytes=1000))
    settings = settings_for(sqlite_url).model_copy(update={"server": server})
    async with open_runtime(settings, provider=ScriptedProvider([])) as runtime:
        with pytest.raises(AttachmentRefused, match=about):
            await runtime.run("s", "Look.", attachments=files)
        assert await rows(store_of(runtime), "SELECT COUNT(*) FROM sessions") == [(0,)]


# --- through the vendors' SDKs


def _answers(*events: Any, named: bool = False) -> Answer:
    async def answer(exchange: Exchange) -> None:
        await exchange.events(*events, named=named)
        await exchange.end()

    return answer


def _refuses(exchange: Exchange) -> Any:
    return exchange.status(400, {"error": {"message": "this model does not take image_url", "type": "invalid"}})


CHAT = _answers(
    {
        "id": "1",
        "object": "chat.completion.chunk",
        "created": 1,
        "model": "m",
        "choices": [{"index": 0, "delta": {"content": "a cat"}, "finish_reason": "stop"}],
    },
    "[DONE]",
)
CLAUDE = _answers(
    {
        "type": "message_start",
        "message": {
            "id": "m",
            "type": "message",
            "role": "assistant",
            "model": "claude-opus-4-6",
            "content": [],
            "stop_reason": None,
            "stop_sequence": None,
            "usage": {"input_tokens": 1, "output_tokens": 1},
        },
    },
    {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
    {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "a cat"}},
    {"type": "content_block_stop", "index": 0},
    {
        "type": "message_delta",
        "delta": {"stop_reason": "end_turn", "stop_sequence": None},
        "usage": {"output_tokens": 2},
    },
    {"type": "message_stop"},
    named=True,
)
GEMINI = _answers(
    {"candidates": [{"content": {"role": "model", "parts": [{"text": "a cat"}]}, "finishReason": "STOP"}]}
)


@asynccontextmanager
async def runtime_with_server(
    monkeypatch: pytest.MonkeyPatch, url: str, model: str, *answers: Answer
) -> AsyncGenerator[tuple[Any, WireServer], None]:
    monkeypatch.setenv("TEST_KEY", "key")
    async with wire_server(*answers) as server:
        vendor = model.partition("/")[0]
        path = "/v1" if vendor == "openai" else ""
        table = {"type": vendor, "api_key_env": "TEST_KEY", "base_url": server.url + path}
        settings = Settings.model_validate(
            {"store": {"url": url}, "agent": {"model": model}, "providers": {vendor: table}}
        )
        async with open_runtime(settings) as runtime:
            yield runtime, server


async def test_openai_gets_a_picture_and_a_text(monkeypatch: pytest.MonkeyPatch, sqlite_url: str) -> None:
    async with runtime_with_server(monkeypatch, sqlite_url, "openai/gpt-4o", CHAT) as (runtime, server):
        assert await runtime.run("s", "What is this?", attachments=[CAT, NOTES]) == "a cat"
    body = server.requests[0].body
    assert wire_rules.openai_chat(body) == []
    picture, notes = body["messages"][-1]["content"][1:]
    assert base64.b64decode(picture["image_url"]["url"].removeprefix("data:image/png;base64,")) == PNG
    assert notes == {"type": "text", "text": "[notes.txt]\nbuy milk"}


async def test_anthropic_gets_a_picture_and_a_text(monkeypatch: pytest.MonkeyPatch, sqlite_url: str) -> None:
    async with runtime_with_server(monkeypatch, sqlite_url, "anthropic/claude-opus-4-6", CLAUDE) as (runtime, server):
        assert await runtime.run("s", "What is this?", attachments=[CAT, NOTES]) == "a cat"
    body = server.requests[0].body
    assert wire_rules.anthropic(body, frozenset()) == []
    picture, notes = body["messages"][-1]["content"][1:]
    assert picture["source"]["media_type"] == "image/png"
    assert base64.b64decode(picture["source"]["data"]) == PNG
    assert notes["text"] == "[notes.txt]\nbuy milk"


async def test_gemini_gets_a_picture_and_a_text(monkeypatch: pytest.MonkeyPatch, sqlite_url: str) -> None:
    async with runtime_with_server(monkeypatch, sqlite_url, "gemini/gemini-3.5-flash", GEMINI) as (runtime, server):
        assert await runtime.run("s", "What is this?", attachments=[CAT, NOTES]) == "a cat"
    body = server.requests[0].body
    picture, notes = body["contents"][-1]["parts"][1:]
    assert picture["inlineData"]["mime_type"] == "image/png", "the API takes both spellings"
    assert base64.urlsafe_b64decode(picture["inlineData"]["data"]) == PNG
    assert notes == {"text": "[notes.txt]\nbuy milk"}


async def test_m8_a_server_that_takes_only_text_gets_a_note_in_the_pictures_place(
    monkeypatch: pytest.MonkeyPatch, sqlite_url: str
) -> None:
    async with runtime_with_server(monkeypatch, sqlite_url, "openai/gpt-4o", _refuses, CHAT) as (runtime, server):
        assert await runtime.run("s", "What is this?", attachments=[CAT]) == "a cat"
    [*_, last] = server.requests[1].body["messages"]
    assert last["content"] == f"What is this?\n[{CAT.name}: a file of type image/png that this model cannot read]"
