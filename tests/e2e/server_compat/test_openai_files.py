"""Images and files that the `openai` SDK sends reach the model, are stored, and are found again."""

import base64
import json
import uuid
from collections.abc import AsyncIterator, Iterator
from typing import Any

import openai
import pytest
from openai import AsyncOpenAI
from openai.types.chat import ChatCompletionMessageParam

from tests.e2e.server_compat.test_openai import assistant, complete, user
from tests.integration.runtime.test_attachments import PNG
from tests.support.servers.command_agent import file_summary
from tests.support.servers.server_process import TIMEOUT_S, Server, serving

OTHER = PNG + b"other"
PDF = b"%PDF-1.7 and more"
LIMITS = """limits.max_body_bytes = 1000
limits.max_conversation_bytes = 1000000
limits.max_attachment_bytes = 300000
limits.max_attachments = 3"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("openai-files")
    with serving(folder, f"sqlite:///{folder}/lango.db", server=LIMITS) as running:
        yield running


@pytest.fixture
async def client(server: Server) -> AsyncIterator[AsyncOpenAI]:
    async with AsyncOpenAI(base_url=f"{server.url}/v1", api_key="none", timeout=TIMEOUT_S) as made:
        yield made


def url_of(data: bytes, mime_type: str = "image/png") -> str:
    return f"data:{mime_type};base64,{base64.b64encode(data).decode()}"


def text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}


def picture(url: str) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": url, "detail": "low"}}


def file(**fields: str) -> dict[str, Any]:
    return {"type": "file", "file": fields}


def user_parts(*parts: dict[str, Any]) -> ChatCompletionMessageParam:
    return {"role": "user", "content": list(parts)}  # pyright: ignore[reportReturnType] - wrong ones, too


def fresh() -> str:
    return f"see {uuid.uuid4().hex}"


async def stored(server: Server, session: str) -> list[dict[str, Any]]:
    async with server.client() as http:
        return (await http.get(f"/v1/sessions/{session}/messages")).json()["messages"]


async def count(server: Server) -> int:
    async with server.client() as http:
        return len((await http.get("/v1/sessions", params={"limit": 200})).json()["sessions"])


async def test_a_picture_and_a_file_reach_the_model_and_are_stored(client: AsyncOpenAI, server: Server) -> None:
    pdf = file(filename="paper \u2603.pdf", file_data=url_of(PDF, "Application/PDF"))
    answer, session = await complete(client, user_parts(text("see "), picture(url_of(PNG)), text("both"), pdf))
    shown = [file_summary("file 1", "image/png", PNG), file_summary("paper \u2603.pdf", "application/pdf", PDF)]
    assert answer == f"seen: {', '.join(shown)}"
    question = (await stored(server, session))[0]
    assert question["content"] == "see both"
    assert [(one["name"], one["mime_type"]) for one in question["attachments"]] == [
        ("file 1", "image/png"),
        ("paper \u2603.pdf", "application/pdf"),
    ]
    async with server.client() as http:
        place = f"/v1/sessions/{session}/messages/{question['seq']}/attachments"
        assert [(await http.get(f"{place}/{index}")).content for index in (0, 1)] == [PNG, PDF]


async def test_a_file_needs_no_text_and_streams_as_well(client: AsyncOpenAI, server: Server) -> None:
    named = file(filename="../up.txt", file_data=url_of(b"hello", "text/plain;charset=utf-8"))
    stream = await client.chat.completions.create(model="obedient", messages=[user_parts(named)], stream=True)
    answered = "".join([chunk.choices[0].delta.content or "" async for chunk in stream])
    assert answered == f"seen: {file_summary('file 1', 'text/plain', b'hello')}", "with a valid default name"
    session = f"s-{uuid.uuid4().hex[:8]}"
    assert (await complete(client, user_parts(picture(url_of(PNG))), X_Session_Id=session))[1] == session
    answer, _ = await complete(client, user("see"), X_Session_Id=session)
    assert answer == f"seen: {file_summary('file 1', 'image/png', PNG)}", "kept with the history"


async def test_a_session_with_images_is_found_by_the_resent_history(client: AsyncOpenAI, server: Server) -> None:
    words = fresh()
    start = user_parts(text(words), picture(url_of(PNG)))
    first, session = await complete(client, start)
    talk = [
        start,
        assistant(first),
        user_parts(text("see"), file(filename="a.pdf", file_data=url_of(PDF, "application/pdf"))),
    ]
    second, found = await complete(client, *talk)
    assert found == session
    assert second.endswith(file_summary("a.pdf", "application/pdf", PDF))
    third, found = await complete(client, *talk, assistant(second), user("and now?"))
    assert found == session, "with files in two messages"

    same = file(filename="the same.png", file_data=url_of(PNG))
    talk[0] = user_parts(same, text(words[:7]), text(words[7:] + "\n"))
    _, found = await complete(client, *talk, assistant(second), user("and now?"), assistant(third), user("so?"))
    assert found == session, "a file is its type and its bytes, in whichever part it comes"
    assert [len(one["attachments"]) for one in await stored(server, session) if one["role"] == "user"] == [1, 1, 0, 0]


@pytest.mark.parametrize(
    "parts",
    [
        [],
        [picture(url_of(OTHER))],
        [picture(url_of(PNG, "image/jpeg"))],
        [picture(url_of(PNG)), picture(url_of(PNG))],
        [picture(url_of(OTHER)), picture(url_of(PNG))],
        [picture("https://example.com/cat.png")],
        [{"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}}],
    ],
)
@pytest.mark.parametrize("place", [0, 2])
async def test_another_picture_is_another_conversation(
    client: AsyncOpenAI, parts: list[dict[str, Any]], place: int
) -> None:
    pictured = [user_parts(text(fresh()), picture(url_of(PNG))), user_parts(text("then"), picture(url_of(PNG)))]
    first, session = await complete(client, pictured[0])
    second, found = await complete(client, pictured[0], assistant(first), pictured[1])
    assert found == session
    talk = [pictured[0], assistant(first), pictured[1], assistant(second), user("and now?")]
    content: Any = talk[place].get("content")
    talk[place] = user_parts(content[0], *parts)
    answer, other = await complete(client, *talk)
    assert other != session
    _, found = await complete(client, *talk, assistant(answer), user("so?"))
    assert found == other, "unreadable files in earlier messages differ, too"


async def test_a_refused_picture_does_not_spoil_its_conversation(client: AsyncOpenAI) -> None:
    start = user_parts(text(fresh()), picture(url_of(PNG)))
    first, session = await complete(client, start)
    wrong = user_parts(text("see"), picture("https://example.com/cat.png"))
    with pytest.raises(openai.BadRequestError):
        await complete(client, start, assistant(first), wrong)
    assert (await complete(client, start, assistant(first), wrong, user("better")))[1] == session


async def test_a_long_conversation_is_found_whole(client: AsyncOpenAI, server: Server) -> None:
    start = user_parts(text(fresh()), picture(url_of(PNG)))
    first, session = await complete(client, start)
    talk = [start, assistant(first)]
    for number in range(12):
        answer, _ = await complete(client, user(str(number)), X_Session_Id=session)
        talk += [user(str(number)), assistant(answer)]
    assert (await complete(client, *talk, user("and now?")))[1] == session, "longer than the first page of 20"
    assert (await complete(client, *talk[:2], user("and now?")))[1] != session


async def test_a_file_name_with_a_lone_surrogate_is_repaired(server: Server) -> None:
    half = {"messages": [user_parts(file(filename="\ud800.pdf", file_data=url_of(PDF, "application/pdf")))]}
    async with server.client(**{"Content-Type": "application/json"}) as http:
        answer = await http.post("/v1/chat/completions", content=json.dumps(half))
    assert answer.json()["choices"][0]["message"]["content"] == f"seen: {file_summary('?.pdf', 'application/pdf', PDF)}"


@pytest.mark.parametrize(
    ("parts", "why", "code"),
    [
        ([picture("http://127.0.0.1/cat.png")], "its address is not public", "invalid_file_url"),
        ([picture("file:///etc/passwd")], "file 1 cannot be read: send it as a data: URL", "BadRequest"),
        ([picture("data:image/svg+xml,<svg/>")], "as a data: URL (data:image/png;base64,...)", "BadRequest"),
        ([picture("")], "as a data: URL", "BadRequest"),
        ([picture(url_of(PNG)), picture("data:image/png;base64,a\u00e9b=")], "file 2 is not base64", "BadRequest"),
        ([picture("data:image/png;base64,not base64!")], "file 1 is not base64", "BadRequest"),
        ([file(filename="a.pdf", file_data=base64.b64encode(PDF).decode())], "as a data: URL", "BadRequest"),
        ([file(filename="a.pdf", file_data="http://10.0.0.1/a.pdf")], "is not public", "invalid_file_url"),
        ([file(filename="a.pdf")], "a file needs file_data", "BadRequest"),
        (
            [{"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}}],
            "of the types text",
            "BadRequest",
        ),
        ([{"type": "image_url"}], "text, image_url and file only", "BadRequest"),
        ([{"type": "image_url", "image_url": "https://example.com/cat.png"}], "image_url", "BadRequest"),
        ([picture(url_of(PNG, ""))], "its type '' is not valid", "AttachmentRefused"),
        ([picture(url_of(PNG, "picture"))], "its type 'picture' is not valid", "AttachmentRefused"),
        ([picture(url_of(PNG, "image/png\r\nX-Evil: 1"))], "is not valid", "AttachmentRefused"),
        ([picture(url_of(b""))], "is empty", "AttachmentRefused"),
        ([picture(url_of(PNG))] * 4, "server.limits.max_attachments", "AttachmentRefused"),
        ([picture(url_of(bytes(300_001)))], "server.limits.max_attachment_bytes", "AttachmentRefused"),
        ([picture(url_of(bytes(150_001)))] * 2, "server.limits.max_attachment_bytes", "AttachmentRefused"),
    ],
)
async def test_invalid_files_are_refused_and_store_nothing(
    client: AsyncOpenAI, server: Server, parts: list[dict[str, Any]], why: str, code: str
) -> None:
    before = await count(server)
    with pytest.raises(openai.BadRequestError) as raised:
        await complete(client, user_parts(text("see"), *parts))
    assert (raised.value.type, raised.value.code) == ("invalid_request_error", code)
    assert why in raised.value.message
    assert await count(server) == before


async def test_a_conversation_of_pictures_has_a_limit(client: AsyncOpenAI) -> None:
    with pytest.raises(openai.APIStatusError) as raised:
        await complete(client, *[user_parts(picture(url_of(bytes(200_000))))] * 4, user("see"))
    assert raised.value.status_code == 413
    assert "server.limits.max_conversation_bytes" in raised.value.message
