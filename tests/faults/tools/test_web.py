"""Attack 11: web fetch reaches public addresses only, checked on the address that is connected to."""

import asyncio
import gzip
import ipaddress
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from lango.tools import Tool, ToolOutcome, run_tool
from lango.tools.builtin.public_fetch import is_public
from lango.tools.builtin.web import WebLimits, web_tool

PAGE = """<html><head><title> A &amp; B </title><style>p {}</style></head><body><script>steal()</script>
<h1>Hello</h1><p>One <a href="/next">link</a> and <a href="javascript:x()">none</a>.</p><ul><li>a<li>b</ul>
</body></html>"""


class Server:
    """A real HTTP server on loopback that answers from a table and counts its visitors."""

    def __init__(self) -> None:
        self.pages: dict[str, bytes | Callable[[asyncio.StreamWriter], object]] = {}
        self.requests: list[str] = []
        self.port = 0

    def page(self, path: str, body: bytes | str = b"", *, status: str = "200 OK", **headers: str) -> None:
        data = body.encode() if isinstance(body, str) else body
        given = {"Content-Type": "text/plain", "Content-Length": str(len(data)), "Connection": "close"}
        given |= {name.replace("_", "-"): value for name, value in headers.items()}
        lines = "".join(f"{name}: {value}\r\n" for name, value in given.items())
        self.pages[path] = f"HTTP/1.1 {status}\r\n{lines}\r\n".encode() + data

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        self.requests.append(head)
        page = self.pages.get(head.split()[1], b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n")
        try:
            if callable(page):
                page(writer)
                await reader.read()  # until the other side goes
            else:
                writer.write(page)
                await writer.drain()
        finally:
            writer.close()

    @asynccontextmanager
    async def running(self) -> AsyncGenerator["Server"]:
        async with await asyncio.start_server(self.serve, "127.0.0.1", 0) as server:
            self.port = server.sockets[0].getsockname()[1]
            yield self


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    async with Server().running() as server:
        yield server


def allowed(server: Server, limits: WebLimits | None = None) -> Tool:
    return web_tool(allow={f"127.0.0.1:{server.port}"}, limits=limits)


async def fetch(tool: Tool, url: str) -> ToolOutcome:
    return await run_tool(tool, {"url": url})


def lookup(table: dict[str, list[list[str]]]) -> Callable[[str, int], "asyncio.Future[list[str]]"]:
    """Return a resolver that returns each host's answers in turn."""

    def resolve(host: str, port: int) -> "asyncio.Future[list[str]]":
        del port
        answers = table[host]
        answer: asyncio.Future[list[str]] = asyncio.get_running_loop().create_future()
        answer.set_result(answers.pop(0) if len(answers) > 1 else answers[0])
        return answer

    return resolve


@pytest.mark.parametrize(
    "address",
    [
        *(
            "127.0.0.1",
            "127.8.8.8",
            "0.0.0.0",
            "10.0.0.1",
            "172.16.0.1",
            "192.168.1.1",
            "169.254.169.254",
            "100.64.0.1",
        ),
        *("224.0.0.1", "255.255.255.255", "192.0.2.1", "198.18.0.1", "240.0.0.1", "168.63.129.16"),
        *(
            "::1",
            "::",
            "fe80::1",
            "fe80::1%eth0",
            "fec0::1",
            "feff::1",
            "fc00::1",
            "fd00:ec2::254",
            "ff02::1",
            "2001:db8::1",
        ),
        *("::ffff:127.0.0.1", "::ffff:169.254.169.254", "::127.0.0.1", "64:ff9b::7f00:1", "64:ff9b:1::1"),
        *("192.0.0.192", "192.0.0.9", "192.88.99.1", "3fff::1", "3fff:fff::1", "5f00::1", "100::1", "2001:2::1"),
        *("2002:7f00:1::", "2002:a9fe:a9fe::", "2001:0:4136:e378:8000:63bf:80ff:fffe", "not-an-address", ""),
    ],
)
def test_attack_11_these_are_not_public(address: str) -> None:
    assert not is_public(address)


def test_attack_11_special_ranges_do_not_depend_on_what_this_python_takes_for_global(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Versions of Python disagree: some take 192.0.0.192, a metadata server, and 3fff::/20 for global."""
    for kind in (ipaddress.IPv4Address, ipaddress.IPv6Address):
        monkeypatch.setattr(kind, "is_global", True)
    special = ("192.0.0.192", "3fff::1", "10.0.0.1", "169.254.169.254", "fd00:ec2::254", "::ffff:192.0.0.192", "::1")
    assert [address for address in special if is_public(address)] == []
    assert is_public("8.8.8.8")


@pytest.mark.parametrize("address", ["8.8.8.8", "1.1.1.1", "2606:4700::1111", "::ffff:8.8.8.8", "64:ff9b::808:808"])
def test_attack_11_these_are_public(address: str) -> None:
    assert is_public(address)


@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1",
        "localhost",
        "[::1]",
        "[::ffff:127.0.0.1]",
        "[::ffff:7f00:1]",
        "2130706433",
        "0x7f.1",
        "017700000001",
        "127.1",
        "0",
    ],
)
async def test_attack_11_no_spelling_of_loopback_gets_through(server: Server, host: str) -> None:
    outcome = await fetch(web_tool(), f"http://{host}:{server.port}/")
    assert not outcome.ok
    assert server.requests == []


@pytest.mark.parametrize("host", ["169.254.169.254", "[fe80::1]", "[fd00:ec2::254]", "10.0.0.1"])
async def test_attack_11_link_local_and_private_addresses_are_refused(host: str) -> None:
    outcome = await fetch(web_tool(), f"http://{host}/latest/meta-data/")
    assert "is not a public address" in outcome.result["error"]


@pytest.mark.parametrize(
    "url",
    [
        "file:///etc/passwd",
        "ftp://example.com/",
        "gopher://x/",
        "http:///x",
        "data:text/plain,x",
        "http://u:p@example.com/",
        "//x",
        "http://a\0b/",
    ],
)
async def test_attack_11_only_plain_web_addresses(url: str) -> None:
    outcome = await fetch(web_tool(), url)
    assert not outcome.ok


async def test_attack_11_a_redirect_is_checked_again(server: Server) -> None:
    async with Server().running() as inner:
        inner.page("/secret", "the-secret-inside")
        for target in (
            f"http://127.0.0.1:{inner.port}/secret",
            f"http://localhost:{inner.port}/secret",
            f"http://[::ffff:127.0.0.1]:{inner.port}/secret",
            "file:///etc/passwd",
        ):
            server.page("/go", status="302 Found", Location=target)
            outcome = await fetch(allowed(server), f"http://127.0.0.1:{server.port}/go")
            assert not outcome.ok
            assert "not allowed" in outcome.result["error"]
        assert inner.requests == []
    assert len(server.requests) == 4


async def test_attack_11_one_private_address_among_public_ones_is_enough(server: Server) -> None:
    tool = web_tool(resolve=lookup({"mixed.example": [["93.184.216.34", "127.0.0.1"]]}))
    outcome = await fetch(tool, f"http://mixed.example:{server.port}/")
    assert "127.0.0.1 is not a public address" in outcome.result["error"]
    assert server.requests == []


async def test_attack_11_rebinding_the_connection_goes_to_the_address_that_was_checked(server: Server) -> None:
    """The name resolves to an allowed address at the check, and to another one right after."""
    server.page("/", "fine")
    table = {"rebind.example": [["127.0.0.1"], ["127.0.0.2"]]}
    tool = web_tool(allow={f"127.0.0.1:{server.port}"}, resolve=lookup(table))
    url = f"http://rebind.example:{server.port}/"
    outcome = await fetch(tool, url)
    assert (outcome.ok, outcome.result.get("text")) == (True, "fine")
    assert f"host: rebind.example:{server.port}" in server.requests[0].lower()
    assert "127.0.0.2 is not a public address" in (await fetch(tool, url)).result["error"]
    assert len(server.requests) == 1


async def test_attack_11_a_proxy_of_the_environment_is_not_used(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, f"http://127.0.0.1:{server.port}")
    assert not (await fetch(web_tool(), "http://169.254.169.254/")).ok
    assert server.requests == []


# What it is for, and its limits.


async def test_a_page_becomes_text(server: Server) -> None:
    server.page("/page", PAGE, Content_Type="text/html; charset=utf-8")
    server.page("/moved", status="301 Moved", Location="/page#part")
    outcome = await fetch(allowed(server), f"http://127.0.0.1:{server.port}/moved")
    assert outcome.ok
    assert outcome.result == {
        "url": f"http://127.0.0.1:{server.port}/page",
        "status": 200,
        "content_type": "text/html",
        "title": "A & B",
        "text": f"# Hello\n\nOne [link](http://127.0.0.1:{server.port}/next) and [none](javascript:x()).\n\n- a\n- b",
    }


async def test_other_texts_and_values(server: Server) -> None:
    server.page("/json", '{"a": 1}', Content_Type="application/json")
    server.page("/latin", "é".encode("latin-1"), Content_Type="text/plain; charset=latin-1")
    server.page("/meta", '<meta charset="latin-1">é'.encode("latin-1"), Content_Type="text/html")
    server.page("/packed", gzip.compress(b"packed"), Content_Encoding="gzip")
    server.page("/odd", "x", Content_Encoding="br")
    server.page("/picture", b"\x89PNG", Content_Type="image/png")
    tool = allowed(server)
    at = f"http://127.0.0.1:{server.port}"
    texts = [(await fetch(tool, at + path)).result["text"] for path in ("/json", "/latin", "/meta", "/packed")]
    assert texts == ['{"a": 1}', "é", "é", "packed"]
    assert "encoded as br" in (await fetch(tool, at + "/odd")).result["error"]
    assert (await fetch(tool, at + "/picture")).result["error"] == "the page is image/png, not text"
    assert (await fetch(tool, at + "/nowhere")).result["status"] == 404


async def test_an_endless_page_and_a_zip_bomb_are_cut(server: Server) -> None:
    limits = WebLimits(max_bytes=10_000)
    server.page("/bomb", gzip.compress(b"x" * 50_000_000), Content_Encoding="gzip")
    server.page("/long", "y" * 1_000_000)
    for path in ("/bomb", "/long"):
        result = (await fetch(allowed(server, limits=limits), f"http://127.0.0.1:{server.port}{path}")).result
        assert len(result["text"]) == 10_000
        assert "only the first 10000 bytes" in result["note"]


async def test_a_silent_server_is_given_up(server: Server) -> None:
    server.pages["/silent"] = lambda writer: writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\nbegin")
    tool = allowed(server, limits=WebLimits(timeout_s=0.3))
    outcome = await fetch(tool, f"http://127.0.0.1:{server.port}/silent")
    assert outcome.result["error"] == "no complete response within 0.3 s"


async def test_redirects_without_end_and_broken_servers(server: Server) -> None:
    server.page("/again", status="302 Found", Location="/again")
    server.pages["/broken"] = b"NONSENSE\r\n\r\n"
    tool = allowed(server)
    assert "redirects" in (await fetch(tool, f"http://127.0.0.1:{server.port}/again")).result["error"]
    assert "could not fetch" in (await fetch(tool, f"http://127.0.0.1:{server.port}/broken")).result["error"]
    table = lookup({"nobody.example": [[]]})
    assert "no address" in (await fetch(web_tool(resolve=table), "http://nobody.example/")).result["error"]


# -- 16: pages that burn CPU or memory --------------------------------------------------------------------------------

_BYTES = 1_900_000
HOSTILE_PAGES = {
    "open tags": "<" * _BYTES,
    "declarations": "<!" * (_BYTES // 2),
    "attributes": "<a " * (_BYTES // 3),
    "deep": "<div>" * (_BYTES // 5),
    "tables in links": "<a><table>" * (_BYTES // 10),
    "formatting": "<b><i><p>" * (_BYTES // 9),
    "comments": "<!--" * (_BYTES // 4),
    "wide cells": "<table>" + "<tr><td rowspan=65000 colspan=1000>x" * 1000,
}


@pytest.mark.long
@pytest.mark.parametrize("name", HOSTILE_PAGES)
async def test_attack_16_a_hostile_page_is_converted_in_a_child_process_or_fails(
    server: Server, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lango.tools.builtin.web.READ_TIMEOUT_S", 2.0)
    server.page("/", HOSTILE_PAGES[name], Content_Type="text/html")
    outcome = await fetch(allowed(server), f"http://127.0.0.1:{server.port}/")
    assert outcome.ok or "could not read the page's HTML: it took" in outcome.result["error"], outcome.result


async def test_attack_16_a_page_that_takes_too_long_is_aborted(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lango.tools.builtin.web.READ_TIMEOUT_S", 0.0)
    server.page("/", "<p>Hello", Content_Type="text/html")
    outcome = await fetch(allowed(server), f"http://127.0.0.1:{server.port}/")
    assert outcome.result["error"] == "could not read the page's HTML: it took more than 0 s"


async def test_attack_16_one_bad_address_leaves_a_page_readable(server: Server) -> None:
    server.page("/", '<p>One <a href="http://[bad">bad</a> <a href="/good">good</a>', Content_Type="text/html")
    server.page("/moved", status="302 Found", Location="http://[bad")
    outcome = await fetch(allowed(server), f"http://127.0.0.1:{server.port}/")
    assert outcome.result["text"] == f"One [bad](http://[bad) [good](http://127.0.0.1:{server.port}/good)"
    assert "not a valid URL" in (await fetch(allowed(server), f"http://127.0.0.1:{server.port}/moved")).result["error"]


@pytest.mark.parametrize("charset", ["punycode", "idna", "unicode_escape", "rot13", "zlib", "nothing", "utf-7"])
async def test_attack_16_only_known_charsets_are_decoded(server: Server, charset: str) -> None:
    server.page("/head", "a-" + "é" * 100, Content_Type=f"text/plain; charset={charset}")
    server.page("/meta", f'<meta charset="{charset}"><p>{"é" * 100}', Content_Type="text/html")
    for path, text in (("/head", "a-" + "é" * 100), ("/meta", "é" * 100)):
        assert (await fetch(allowed(server), f"http://127.0.0.1:{server.port}{path}")).result["text"] == text


async def test_attack_16_common_charsets_are_decoded(server: Server) -> None:
    for charset, text in {
        "windows-1251": "привет",
        "koi8-r": "привет",
        "iso-8859-7": "γεια",
        "gb18030": "你好",
        "big5": "你好",
        "shift_jis": "こんにちは",
        "euc-kr": "안녕",
        "utf-16": "hello",
    }.items():
        server.page("/", text.encode(charset), Content_Type=f"text/plain; charset={charset}")
        assert (await fetch(allowed(server), f"http://127.0.0.1:{server.port}/")).result["text"] == text
