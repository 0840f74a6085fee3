"""Every response can encode every accepted value: no stored value makes a session or a list unreadable."""

import asyncio
import json
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lango.adk import SqlSessionService
from tests.support.examples import examples
from tests.support.servers.server_process import TIMEOUT_S, Server, lango, serving

ODD = ["\ud800", "\udfff x", "a\0b", "\x1b[2J", "\u2028", "𝄞", "\ufeff", ""]
TEXT = st.sampled_from(ODD) | st.text(st.characters(), max_size=5)
NUMBERS = st.sampled_from([0, -1, 2**63, 10**300, 1e308, -0.0, 5e-324])
ONLY_IN_PYTHON = st.sampled_from([float("nan"), float("inf"), b"\xff\x00", 10**400])


def nested(leaves: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.recursive(leaves, lambda inner: st.lists(inner, max_size=2) | st.dictionaries(TEXT, inner, max_size=2))


JSON = nested(TEXT | NUMBERS | st.none() | st.booleans())


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("values")
    with serving(folder, f"sqlite:///{folder}/lango.db") as running:
        running.folder = folder  # pyright: ignore[reportAttributeAccessIssue]
        yield running


def folder_of(server: Server) -> Path:
    return vars(server)["folder"]


def read_everywhere(client: httpx.Client, server: Server, session: str) -> None:
    app = client.get("/v1/models").json()["data"][0]["id"]
    paths = [
        f"/v1/sessions/{session}",
        "/v1/sessions",
        f"/v1/sessions/{session}/messages",
        f"/v1/sessions/{session}/usage",
        f"/v1/sessions/{session}/export",
        f"/apps/{app}/users/user/sessions/{session}",
        f"/apps/{app}/users/user/sessions",
    ]
    for path in paths:
        answer = client.get(path)
        assert answer.status_code == 200, (path, answer.text)
        if "export" not in path:
            answer.json()


@examples(8)
@given(state=st.dictionaries(TEXT, JSON, min_size=1, max_size=3), title=TEXT, text=TEXT)
def test_what_http_accepts_every_way_out_can_say(server: Server, state: dict[str, Any], title: str, text: str) -> None:
    session = uuid.uuid4().hex
    with httpx.Client(base_url=f"http://127.0.0.1:{server.port}", timeout=TIMEOUT_S) as client:
        kind = {"Content-Type": "application/json"}
        body = json.dumps({"id": session, "state": state}).encode()  # as escapes, which httpx would not send
        made = client.post("/v1/sessions", content=body, headers=kind)
        assert made.status_code in (201, 400), made.text
        if made.status_code == 400:
            return
        renamed = client.patch(f"/v1/sessions/{session}", content=json.dumps({"title": title}).encode(), headers=kind)
        assert renamed.status_code in (200, 400), renamed.text
        response = client.post(
            f"/v1/sessions/{session}/messages", content=json.dumps({"text": text}).encode(), headers=kind
        )
        assert response.status_code in (200, 400), response.text
        read_everywhere(client, server, session)


@examples(6)
@given(
    state=st.dictionaries(st.text("ab", min_size=1), nested(TEXT | NUMBERS | ONLY_IN_PYTHON), min_size=1, max_size=3)
)
def test_what_python_stores_every_way_out_can_say(server: Server, state: dict[str, Any]) -> None:
    session = uuid.uuid4().hex

    async def store() -> None:
        async with SqlSessionService(f"sqlite:///{folder_of(server)}/lango.db") as service:
            await service.create_session(app_name="obedient", user_id="user", session_id=session, state=state)

    asyncio.run(store())
    with httpx.Client(base_url=f"http://127.0.0.1:{server.port}", timeout=TIMEOUT_S) as client:
        read_everywhere(client, server, session)


def test_the_command_line_can_say_them_too(server: Server) -> None:
    session = uuid.uuid4().hex
    with httpx.Client(base_url=f"http://127.0.0.1:{server.port}", timeout=TIMEOUT_S) as client:
        body = json.dumps({"id": session, "state": {"half": "\ud800"}}).encode()
        made = client.post("/v1/sessions", content=body, headers={"Content-Type": "application/json"})
        assert made.status_code == 201, made.text
        assert set(client.get(f"/v1/sessions/{session}").json()["state"]["half"]) == {"\ufffd"}, (
            "as any client reads it"
        )
    for command in (["sessions", "list"], ["sessions", "show", session], ["sessions", "export", session]):
        done = lango(*command, cwd=folder_of(server))
        assert done.returncode == 0, done
        assert "Traceback" not in done.stderr
