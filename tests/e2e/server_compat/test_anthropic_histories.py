"""What the model reads of a conversation that a client of Anthropic's API resends, with tools and files."""

import base64
import json
import uuid
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Any

import anthropic
import pytest
from anthropic import AsyncAnthropic, beta_async_tool, omit

from lango.server.compat.resent_history import FILE_LEFT_OUT
from tests.e2e.server_compat.test_openai_files import PNG
from tests.support.servers.command_agent import file_summary
from tests.support.servers.server_process import TIMEOUT_S, Server, serving

SCHEMA: dict[str, Any] = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
PICK, DRAW = ({"name": name, "description": f"{name} it", "input_schema": SCHEMA} for name in ("pick", "draw"))


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("anthropic-tools")
    with serving(folder, f"sqlite:///{folder}/lango.db") as running:
        yield running


class Chat:
    """A client that keeps the conversation and sends the whole of it with every request."""

    def __init__(self, server: Server, *messages: dict[str, Any]) -> None:
        self.server = server
        self.sdk = AsyncAnthropic(base_url=server.url, api_key="none", timeout=TIMEOUT_S, max_retries=0)
        self.messages: list[Any] = [*messages]
        self.session = ""

    async def send(self, content: Any, tools: Sequence[Any] = (PICK, DRAW), **options: Any) -> tuple[str, list[Any]]:
        """Send the conversation with a new message; return the text and the calls of the answer."""
        self.messages.append({"role": "user", "content": content})
        create: Any = self.sdk.messages.with_raw_response.create
        raw: Any = await create(
            model="obedient", max_tokens=1000, messages=self.messages, tools=tools or omit, **options
        )
        self.session = raw.headers["x-session-id"]
        answer = await raw.parse()
        self.messages.append({"role": "assistant", "content": answer.content})
        calls = [block for block in answer.content if block.type == "tool_use"]
        assert answer.stop_reason == ("tool_use" if calls else "end_turn")
        return "".join(block.text for block in answer.content if block.type == "text"), calls

    async def stored(self) -> list[tuple[str, str]]:
        async with self.server.client() as http:
            page = (await http.get(f"/v1/sessions/{self.session}/messages")).json()["messages"]
        return [(one["role"], one["content"]) for one in page]


@pytest.fixture
async def chat(server: Server) -> AsyncIterator[Chat]:
    made = Chat(server)
    async with made.sdk:
        yield made


def result(call: Any, content: Any, **more: Any) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": call.id, "content": content, **more}


def text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}


def fresh(word: str = "hello") -> str:
    return f"{word} {uuid.uuid4().hex}"


PICTURE = {
    "type": "image",
    "source": {"type": "base64", "media_type": "image/png", "data": base64.b64encode(PNG).decode()},
}


async def test_a_call_ends_the_message_and_its_result_continues_the_same_session(chat: Chat) -> None:
    await chat.send(fresh())
    session = chat.session
    words, [call] = await chat.send("first pick")
    assert (words, call.name, call.input) == ("wait ", "pick", {"text": "pick"})
    assert await chat.send([result(call, '{"color": "red"}')]) == ("the tool said {'color': 'red'}", [])
    _, calls = await chat.send("call pick draw")
    assert await chat.send([result(calls[0], [text("a "), PICTURE]), result(calls[1], "broken", is_error=True)]) == (
        f"the tool said {{'result': 'a {FILE_LEFT_OUT}'}} and the tool said {{'error': 'broken'}}",
        [],
    )
    assert chat.session == session, "found by what was resent, each time"
    assert [role for role, _ in await chat.stored()].count("tool") == 2


async def test_a_message_may_hold_results_and_a_text(chat: Chat) -> None:
    _, [call] = await chat.send("call pick")
    answer, _ = await chat.send([result(call, "red"), text("recite"), text("all")])
    assert json.loads(answer)[-2:] == [["tool", {call.id: {"result": "red"}}], ["user", ["recite\nall"]]]


async def test_every_call_needs_its_result(chat: Chat) -> None:
    _, calls = await chat.send("call pick draw")
    with pytest.raises(anthropic.BadRequestError, match=f"there is none for {calls[1].id}"):
        await chat.send([result(calls[0], "red")])
    with pytest.raises(anthropic.BadRequestError, match="needs the tool_use_id"):
        await chat.send([{"type": "tool_result", "tool_use_id": "", "content": "red"}])


async def test_a_stream_has_calls_that_the_sdk_puts_together(chat: Chat) -> None:
    async with chat.sdk.messages.stream(
        model="obedient",
        max_tokens=99,
        messages=[{"role": "user", "content": "first pick draw"}],
        tools=[PICK, DRAW],  # pyright: ignore[reportArgumentType]
    ) as stream:
        final = await stream.get_final_message()
    assert [block.type for block in final.content] == ["text", "tool_use", "tool_use"]
    assert [block.input for block in final.content if block.type == "tool_use"] == [{"text": "pick"}, {"text": "draw"}]
    assert final.stop_reason == "tool_use"


async def test_the_sdks_own_loop_runs_its_tools(chat: Chat) -> None:
    ran: list[str] = []

    @beta_async_tool
    async def pick(text: str) -> str:
        """Pick something."""
        ran.append(text)
        return "red"

    runner = chat.sdk.beta.messages.tool_runner(
        model="obedient", max_tokens=99, messages=[{"role": "user", "content": "call pick"}], tools=[pick]
    )
    final = await runner.until_done()
    assert ran == ["pick"]
    assert [block.text for block in final.content if block.type == "text"] == ["the tool said {'result': 'red'}"]


@pytest.mark.parametrize(
    ("choice", "called"),
    [({"type": "any"}, ["pick"]), ({"type": "tool", "name": "draw"}, ["draw"]), ({"type": "none"}, [])],
)
async def test_a_call_is_forced_or_forbidden(chat: Chat, choice: Any, called: list[str]) -> None:
    _, calls = await chat.send("Rome", tool_choice=choice)
    assert [call.name for call in calls] == called


async def test_pictures_and_documents_reach_the_model(chat: Chat) -> None:
    notes = {"type": "text", "media_type": "text/plain", "data": "Buy milk."}
    parts = {"type": "content", "content": [text("Buy"), text("milk.")]}
    seen, _ = await chat.send(
        [
            text("see"),
            PICTURE,
            {"type": "document", "title": "notes.txt", "source": notes},
            {"type": "document", "source": parts},
        ]
    )
    files = [
        file_summary("file 1", "image/png", PNG),
        file_summary("notes.txt", "text/plain", b"Buy milk."),
        file_summary("file 3", "text/plain", b"Buy\nmilk."),
    ]
    assert seen == f"seen: {', '.join(files)}"
    session = chat.session
    await chat.send("and on")
    assert chat.session == session, "found with its files"


@pytest.mark.parametrize(
    ("part", "why"),
    [
        ({"type": "image", "source": {"type": "url", "url": "http://127.0.0.1/a.png"}}, "its address is not public"),
        ({"type": "document", "source": {"type": "file", "file_id": "f"}}, "file ids are not supported"),
        ({"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "?"}}, "is not base64"),
        ({"type": "search_result", "source": "x", "title": "x", "content": [text("x")]}, "'search_result' is not"),
        (
            {
                "type": "document",
                "source": {"type": "text", "media_type": "text/plain", "data": "x"},
                "citations": {"enabled": True},
            },
            "citations are not supported",
        ),
    ],
)
async def test_an_unreadable_part_of_the_last_message_is_refused(chat: Chat, part: Any, why: str) -> None:
    with pytest.raises(anthropic.BadRequestError, match=why):
        await chat.send([text("see"), part])


async def test_a_changed_message_becomes_a_session_with_the_changed_history(chat: Chat) -> None:
    start = fresh()
    await chat.send(start)
    await chat.send("two")
    first = chat.session
    edited = Chat(chat.server, *chat.messages[:2])
    async with edited.sdk:
        answer, _ = await edited.send("recite")
        assert edited.session != first
    assert json.loads(answer) == [["user", [start]], ["assistant", [start]], ["user", ["recite"]]]
    assert [words for role, words in await chat.stored() if role == "user"] == [start, "two"], (
        "and the first is as it was"
    )


async def test_a_repeated_request_with_its_key_is_one_turn(chat: Chat) -> None:
    start = fresh()
    key: Any = {"extra_headers": {"Idempotency-Key": uuid.uuid4().hex}}
    first = await chat.send(start, **key)
    session, chat.messages = chat.session, []
    assert await chat.send(start, **key) == first
    assert chat.session == session
    assert await chat.stored() == [("user", start), ("assistant", start)]
    chat.messages = []
    with pytest.raises(anthropic.UnprocessableEntityError, match=r"(?i)idempotency.key"):
        await chat.send(fresh(), **key)
    named: Any = {"extra_headers": {"X-Session-Id": fresh("s"), "Idempotency-Key": "k"}}
    for _ in range(2):
        chat.messages = []
        await chat.send("one", **named)
    assert await chat.stored() == [("user", "one"), ("assistant", "one")]
