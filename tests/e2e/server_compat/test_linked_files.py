"""Pictures and files by their address: the server fetches them from public addresses, within limits."""

import uuid
from collections.abc import AsyncIterator, Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any, ClassVar

import openai
import pytest
from anthropic import AsyncAnthropic
from openai import AsyncOpenAI

from tests.e2e.server_compat.test_openai import assistant, complete, user
from tests.e2e.server_compat.test_openai_files import count, file, picture, text, user_parts
from tests.integration.runtime.test_attachments import PNG
from tests.support.servers import thread_server
from tests.support.servers.command_agent import file_summary
from tests.support.servers.server_process import TIMEOUT_S, Server, serving

PDF = b"%PDF-1.7 and more"
LIMITS = "limits.max_attachment_bytes = 300000\nlimits.max_conversation_bytes = 400000\nlimits.max_body_bytes = 1000"


class Web(BaseHTTPRequestHandler):
    """A web server that the configuration allows."""

    pages: ClassVar[dict[str, tuple[int, dict[str, str], bytes]]] = {
        "/cat.png": (200, {"Content-Type": "image/png"}, PNG),
        "/a%20paper.pdf": (200, {"Content-Type": "application/octet-stream"}, PDF),
        "/login": (200, {"Content-Type": "text/html; charset=utf-8"}, b"<p>Please log in"),
        "/large": (200, {"Content-Type": "image/png"}, bytes(300_001)),
        "/half": (200, {"Content-Type": "image/png"}, bytes(210_000)),
        "/moved": (302, {"Location": "/cat.png"}, b""),
        "/round": (302, {"Location": "/round"}, b""),
        "/wrong": (302, {"Location": "file:///etc/passwd"}, b""),
        "/metadata": (302, {"Location": "http://169.254.169.254/latest/meta-data"}, b""),
        "/inside": (302, {}, b""),
    }

    def do_GET(self) -> None:
        status, headers, body = self.pages.get(self.path, (404, {}, b""))
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)


class Inside(BaseHTTPRequestHandler):
    """A server of the private network, which no client may reach through this one."""

    visits: ClassVar[list[str]] = []

    def do_GET(self) -> None:
        self.visits.append(self.path)
        self.send_response(200)
        self.send_header("Content-Type", "image/png")
        self.send_header("Content-Length", str(len(PNG)))
        self.end_headers()
        self.wfile.write(PNG)


@pytest.fixture(scope="module")
def inside() -> Iterator[str]:
    with thread_server.serving(Inside) as url:
        yield url


@pytest.fixture(scope="module")
def web(inside: str) -> Iterator[str]:
    Web.pages["/inside"] = 302, {"Location": f"{inside}/cat.png"}, b""
    with thread_server.serving(Web) as url:
        yield url


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, web: str) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("linked-files")
    allowed = f'{LIMITS}\nfile_addresses = ["{web.removeprefix("http://")}"]'
    with serving(folder, f"sqlite:///{folder}/lango.db", server=allowed) as running:
        yield running


@pytest.fixture
async def client(server: Server) -> AsyncIterator[AsyncOpenAI]:
    async with client_of(server) as made:
        yield made


def client_of(server: Server) -> AsyncOpenAI:
    return AsyncOpenAI(base_url=f"{server.url}/v1", api_key="none", timeout=TIMEOUT_S, max_retries=0)


def item(*parts: dict[str, Any]) -> Any:
    return [{"role": "user", "content": [{"type": "input_text", "text": "see"}, *parts]}]


async def test_a_picture_and_a_file_are_fetched(client: AsyncOpenAI, server: Server, web: str) -> None:
    seen = [file_summary("cat.png", "image/png", PNG), file_summary("a paper.pdf", "application/pdf", PDF)]
    paper = file(file_data=f"{web}/a%20paper.pdf")
    answer, _ = await complete(client, user_parts(text("see"), picture(f"{web}/moved"), paper))
    assert answer == f"seen: {', '.join(seen)}"
    parts: list[dict[str, Any]] = [
        {"type": "input_image", "image_url": f"{web}/cat.png"},
        {"type": "input_file", "file_url": f"{web}/a%20paper.pdf"},
    ]
    response = await client.responses.create(model="obedient", input=item(*parts))
    assert response.output_text == answer
    sources: list[dict[str, Any]] = [
        {"type": "image", "source": {"type": "url", "url": f"{web}/cat.png"}},
        {"type": "document", "source": {"type": "url", "url": f"{web}/a%20paper.pdf"}},
    ]
    async with AsyncAnthropic(base_url=server.url, api_key="none", timeout=TIMEOUT_S) as anthropic:
        create: Any = anthropic.messages.create
        message = await create(model="m", max_tokens=99, messages=[user_parts(text("see"), *sources)])
    assert message.content[0].text == answer


async def test_a_resent_address_continues_its_session(client: AsyncOpenAI, web: str) -> None:
    first = user_parts(text(f"see {uuid.uuid4().hex}"), picture(f"{web}/cat.png"))
    answer, session = await complete(client, first)
    assert (await complete(client, first, assistant(answer), user("and?")))[1] == session


async def test_an_address_that_is_gone_is_a_note_in_an_earlier_message(client: AsyncOpenAI, web: str) -> None:
    first = user_parts(text("look"), picture(f"{web}/gone"))
    answer, _ = await complete(client, first, assistant("I did"), user("recite"))
    assert "[file omitted: it could not be read]" in answer


@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("/gone", "it answered with the status 404"),
        ("/login", "it is text/html, not an image"),
        ("/large", "has more than 300000 bytes"),
        ("/round", "more than 5 redirects"),
        ("/wrong", "use an http or https URL"),
        ("/metadata", "its address is not public (setting server.file_addresses)"),
        ("/inside", "its address is not public (setting server.file_addresses)"),
    ],
)
async def test_attack_what_cannot_be_fetched_is_refused_and_stores_nothing(
    client: AsyncOpenAI, server: Server, web: str, path: str, why: str
) -> None:
    await refused(client, server, web + path, why)
    assert Inside.visits == []


@pytest.mark.parametrize(
    "address",
    [
        "http://169.254.169.254/latest/meta-data",
        "http://[::1]:80/",
        "http://10.0.0.1/cat.png",
        "http://0x7f000001/cat.png",
        "HTTPS://127.0.0.1/cat.png",
        "http://localhost:1/cat.png",
    ],
)
async def test_attack_a_private_address_is_not_reached(client: AsyncOpenAI, server: Server, address: str) -> None:
    await refused(client, server, address, "its address is not public (setting server.file_addresses)")


async def test_attack_a_server_of_the_private_network_is_not_visited(
    client: AsyncOpenAI, server: Server, inside: str
) -> None:
    await refused(client, server, f"{inside}/cat.png", "its address is not public")
    await refused(client, server, inside.replace("127.0.0.1", "localhost"), "its address is not public")
    assert Inside.visits == []


async def refused(client: AsyncOpenAI, server: Server, address: str, why: str) -> None:
    before = await count(server)
    with pytest.raises(openai.BadRequestError) as raised:
        await complete(client, user_parts(text("see"), picture(address)))
    assert why in raised.value.message
    assert (raised.value.param, raised.value.type) == ("messages", "invalid_request_error")
    with pytest.raises(openai.BadRequestError) as raised:
        await client.responses.create(model="obedient", input=item({"type": "input_image", "image_url": address}))
    assert why in raised.value.message
    assert (raised.value.param, raised.value.type) == ("input", "invalid_request_error")
    assert await count(server) == before


async def test_attack_addresses_count_for_the_size_of_a_conversation(client: AsyncOpenAI, web: str) -> None:
    with pytest.raises(openai.BadRequestError, match=r"server\.limits\.max_conversation_bytes"):
        await complete(client, user_parts(text("see"), picture(f"{web}/half"), picture(f"{web}/half")))
    answer, _ = await complete(client, user_parts(text("see"), picture(f"{web}/half")))
    assert answer.startswith("seen: half image/png")


async def test_ag_ui_sends_pictures_by_their_address_too(server: Server, web: str, inside: str) -> None:
    def run(address: str) -> dict[str, Any]:
        source = {"type": "url", "value": address, "mimeType": "image/png"}
        content = [{"type": "text", "text": "see"}, {"type": "image", "source": source}]
        message = {"id": uuid.uuid4().hex, "role": "user", "content": content}
        ids = {"threadId": uuid.uuid4().hex, "runId": uuid.uuid4().hex}
        return {**ids, "messages": [message], "state": {}, "tools": [], "context": [], "forwardedProps": {}}

    async with server.client() as http:
        answered = await http.post("/agui", json=run(f"{web}/cat.png"))
        assert file_summary("cat.png", "image/png", PNG) in answered.text
        refused = await http.post("/agui", json=run(f"{inside}/cat.png"))
    assert refused.status_code == 400
    assert "its address is not public" in refused.json()["error"]["message"]
    assert Inside.visits == []


async def test_a_setting_turns_it_off(tmp_path: Path, web: str) -> None:
    off = f'fetch_files = false\nfile_addresses = ["{web.removeprefix("http://")}"]'
    with serving(tmp_path, f"sqlite:///{tmp_path}/lango.db", server=off) as server:
        async with client_of(server) as client:
            await refused(client, server, f"{web}/cat.png", "does not fetch URLs (setting server.fetch_files)")
