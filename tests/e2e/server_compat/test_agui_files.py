"""Files of AG-UI clients reach the model and are stored, if a part holds the bytes."""

import base64
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import httpx
import pytest
from ag_ui.core import (
    AudioPart,
    BinaryInputContent,
    ContentPart,
    DataSource,
    DocumentPart,
    ImagePart,
    RunAgentInput,
    TextMessageContentEvent,
    TextPart,
    UrlSource,
    UserMessage,
    VideoPart,
)
from pydantic import BaseModel, TypeAdapter

from tests.e2e.server_compat.test_agui import EVENT, run, run_input
from tests.integration.runtime.test_attachments import PNG
from tests.support.clients.packages import AGUI_CLIENT, run_javascript
from tests.support.servers.command_agent import file_summary
from tests.support.servers.server_process import Server, serving

SCRIPT = Path(__file__).parents[2] / "support" / "servers" / "agui_client.mjs"
LIMITS = """limits.max_body_bytes = 1000
limits.max_conversation_bytes = 1000000
limits.max_attachment_bytes = 300000
limits.max_attachments = 4"""
ENCODED = base64.b64encode(PNG).decode()
SOURCE = DataSource(value=ENCODED, mime_type="image/png")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("agui-files")
    with serving(folder, f"sqlite:///{folder}/lango.db", server=LIMITS) as running:
        yield running


@pytest.fixture
def thread() -> str:
    return f"t-{uuid.uuid4().hex[:8]}"


def source(data: bytes, mime_type: str) -> DataSource:
    return DataSource(value=base64.b64encode(data).decode(), mime_type=mime_type)


def run_with_parts(thread: str, *parts: ContentPart) -> RunAgentInput:
    message = UserMessage(id=uuid.uuid4().hex, content=list(parts))
    return RunAgentInput(thread_id=thread, run_id=uuid.uuid4().hex, messages=[message])


async def answer(client: httpx.AsyncClient, request: RunAgentInput) -> str:
    texts = [event for event in await run(client, request) if isinstance(event, TextMessageContentEvent)]
    return "".join(event.delta for event in texts)


def older(thread: str, *parts: BaseModel | dict[str, Any]) -> dict[str, Any]:
    """Return a request of a client before 1.0, whose parts the protocol's type no longer accepts."""
    content = [part if isinstance(part, dict) else part.model_dump(by_alias=True, mode="json") for part in parts]
    body = run_input(thread, "see").model_dump(by_alias=True, mode="json")
    body["messages"][0]["content"] = [{"type": "text", "text": "see"}, *content]
    return body


async def messages_of(client: httpx.AsyncClient, thread: str) -> list[dict[str, Any]]:
    return (await client.get(f"/v1/sessions/{thread}/messages")).json()["messages"]


async def test_every_media_part_that_carries_its_bytes_reaches_the_model(server: Server, thread: str) -> None:
    request = run_with_parts(
        thread,
        TextPart(text="see "),
        ImagePart(source=SOURCE, metadata={"filename": "cat \u2603.png"}),
        AudioPart(source=source(b"sound", "audio/wav"), metadata="loud"),
        TextPart(text="all"),
        VideoPart(source=source(b"film", "Video/MP4"), metadata={"filename": "../up.mp4"}),
        DocumentPart(source=UrlSource(value="data:text/plain;charset=utf-8;base64,aGVsbG8=")),
    )
    files = [
        ("cat \u2603.png", "image/png", PNG),
        ("file 2", "audio/wav", b"sound"),
        ("file 3", "video/mp4", b"film"),
        ("file 4", "text/plain", b"hello"),
    ]
    async with server.client() as client:
        answered = await answer(client, request)
        assert answered == f"seen: {', '.join(file_summary(*file) for file in files)}"
        assert await answer(client, request) == answered, "a repeated run streams again"
        [message, _] = await messages_of(client, thread)
        assert message["content"] == "see all"
        assert [(one["name"], one["mime_type"]) for one in message["attachments"]] == [file[:2] for file in files]
        place = f"/v1/sessions/{thread}/messages/{message['seq']}/attachments"
        assert [(await client.get(f"{place}/{index}")).content for index in range(4)] == [file[2] for file in files]


async def test_a_conversation_with_a_picture_goes_on(server: Server, thread: str) -> None:
    first, second = run_with_parts(thread, ImagePart(source=SOURCE)), run_input(thread, "see")
    async with server.client() as client:
        answered = await answer(client, first)
        assert answered == f"seen: {file_summary('file 1', 'image/png', PNG)}", "an image needs no text"
        second.messages = [*first.messages, *second.messages]
        assert await answer(client, second) == answered, "a resent image is in the session once"
        other = first.model_copy(deep=True)
        other.messages = run_with_parts(thread, ImagePart(source=source(PNG + b"other", "image/png"))).messages
        other.messages[0].id = first.messages[0].id
        assert await answer(client, other) != answered
        assert len(await messages_of(client, thread)) == 2, "a run with another picture is another turn, and an edit"


async def test_the_binary_parts_of_older_clients_are_read(server: Server, thread: str) -> None:
    parts = [
        BinaryInputContent(mime_type="image/png", data=ENCODED, filename="cat.png"),
        BinaryInputContent(mime_type="application/pdf", data="aGVsbG8=", url="https://example.com/a.pdf"),
        BinaryInputContent(mime_type="image/png", url=f"data:image/png;base64,{ENCODED}"),
    ]
    files = [("cat.png", "image/png", PNG), ("file 2", "application/pdf", b"hello"), ("file 3", "image/png", PNG)]
    body = older(thread, *parts)
    gone = [{"type": "binary", "mimeType": "image/png", name: "x"} for name in ("id", "url")]
    body["messages"].insert(0, {"id": "m0", "role": "user", "content": gone})
    async with server.client() as client:
        answered = await client.post("/agui", json=body)
        assert answered.status_code == 200, "in earlier messages, they are not read"
        events = [EVENT.validate_json(line[6:]) for line in answered.text.splitlines() if line.startswith("data: ")]
        texts = [event.delta for event in events if isinstance(event, TextMessageContentEvent)]
        assert "".join(texts) == f"seen: {', '.join(file_summary(*file) for file in files)}"
        [above, message, _] = await messages_of(client, thread)
        assert above["attachments"] == []
        assert [one["name"] for one in message["attachments"]] == [file[0] for file in files]


def test_agui_s_own_client_sends_a_picture(server: Server, thread: str) -> None:
    parts = TypeAdapter(list[ContentPart]).dump_python(
        [TextPart(text="see"), ImagePart(source=SOURCE, metadata={"filename": "cat.png"})],
        by_alias=True,
        mode="json",
        exclude_none=True,
    )
    answered = run_javascript(SCRIPT, AGUI_CLIENT, url=server.url, thread=thread, says=[parts, "see"])
    answers = [one["content"] for one in answered["messages"] if one["role"] == "assistant"]
    assert answers == [f"seen: {file_summary('cat.png', 'image/png', PNG)}"] * 2


def media(kind: str, value: str, mime_type: str = "image/png") -> dict[str, Any]:
    return {"type": "image", "source": {"type": kind, "value": value, "mimeType": mime_type}}


def picture(data: bytes) -> dict[str, Any]:
    return media("data", base64.b64encode(data).decode())


@pytest.mark.parametrize(
    ("parts", "status", "why"),
    [
        ([media("url", "http://10.0.0.1/cat.png")], 400, "its address is not public"),
        ([media("url", "file:///etc/passwd")], 400, "file 1 cannot be read: send it as a data: URL"),
        ([media("file", "file-123")], 400, "file ids are not supported"),
        ([BinaryInputContent(mime_type="image/png", url="http://10.0.0.1/a")], 400, "its address is not public"),
        ([BinaryInputContent(mime_type="image/png", id="a")], 400, "file ids are not supported"),
        ([{"type": "binary", "mimeType": "image/png"}], 400, "this is not a valid AG-UI RunAgentInput"),
        ([{"type": "binary", "data": ENCODED}], 400, "this is not a valid AG-UI RunAgentInput"),
        ([{"type": "binary", "mimeType": "image/png", "data": 7}], 400, "this is not a valid AG-UI RunAgentInput"),
        ([7], 400, "this is not a valid AG-UI RunAgentInput"),
        ([media("data", ENCODED), media("data", "not base64!")], 400, "file 2 is not base64"),
        ([media("data", ENCODED, "picture")], 413, "its type 'picture' is not valid"),
        ([media("data", "")], 413, "is empty"),
        ([media("data", ENCODED)] * 5, 413, "server.limits.max_attachments"),
        ([picture(bytes(300_001))], 413, "server.limits.max_attachment_bytes"),
        ([picture(bytes(150_001))] * 2, 413, "server.limits.max_attachment_bytes"),
        ([picture(bytes(200_000))] * 4, 413, "server.limits.max_conversation_bytes"),
    ],
)
async def test_invalid_files_are_refused_and_store_nothing(
    server: Server, thread: str, parts: Sequence[Any], status: int, why: str
) -> None:
    body = older(thread)
    body["messages"][0]["content"] += [part.model_dump() if isinstance(part, BaseModel) else part for part in parts]
    async with server.client() as client:
        refused = await client.post("/agui", json=body)
        assert refused.status_code == status
        assert why in refused.json()["error"]["message"]
        assert (await client.get(f"/v1/sessions/{thread}")).status_code == 404
