"""`GET /v1/live` streams turns of other clients once, and queued messages are listed and withdrawn."""

import asyncio
import uuid
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest

from tests.support.servers.server_process import (
    TIMEOUT_S,
    ReceivedEvent,
    Server,
    events_of,
    lango,
    resume,
    send,
    send_until,
    serving,
    text_of,
)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("live")
    with serving(folder, f"sqlite:///{folder}/lango.db", server="heartbeat_s = 0.5") as running:
        yield running


@pytest.fixture
def session() -> str:
    return f"s-{uuid.uuid4().hex[:8]}"


class Live:
    """An open stream and the events it received."""

    def __init__(self, response: httpx.Response) -> None:
        self._events = events_of(response)
        self.turns: list[ReceivedEvent] = []
        self.hints: list[str] = []

    async def until(self, kind: str, count: int = 1) -> list[ReceivedEvent]:
        """Read until so many events of a kind have arrived; return all events."""
        async with asyncio.timeout(TIMEOUT_S):
            while sum(event.type == kind for event in self.turns) < count:
                await self._read()
        return self.turns

    async def hint(self, what: str) -> None:
        """Read until a `changed` event."""
        async with asyncio.timeout(TIMEOUT_S):
            while what not in self.hints:
                await self._read()
        self.hints.remove(what)

    async def _read(self) -> None:
        event = await anext(self._events)
        if event.type == "changed":
            assert event.id == 0
            self.hints.append(event.data["what"])
        else:
            self.turns.append(event)


@asynccontextmanager
async def live(client: httpx.AsyncClient, session: str | None, after: int | None = None) -> AsyncGenerator[Live]:
    headers = {} if after is None else {"Last-Event-ID": str(after)}
    params = {} if session is None else {"session": session}
    async with client.stream("GET", "/v1/live", headers=headers, params=params) as response:
        opened = Live(response)
        await opened.hint("sessions")
        yield opened


async def waiting(client: httpx.AsyncClient, session: str) -> list[tuple[int, str]]:
    answer = await client.get(f"/v1/sessions/{session}/waiting")
    assert answer.status_code == 200, answer.text
    return [(item["turn"], item["content"]) for item in answer.json()["waiting"]]


async def test_turns_of_other_clients_stream_whole_and_once(server: Server, session: str) -> None:
    async with server.client() as client:
        first = await send(client, session, "hello")
        async with live(client, session) as page:
            assert await page.until("done") == first, "the newest turn, with the same events as in its own stream"
            second, third = await send(client, session, "note"), await send(client, session, "words 5 0.01")
            assert await page.until("done", 3) == [*first, *second, *third]
        async with live(client, session, second[1].id) as page:
            assert await page.until("done", 2) == [*second[2:], *third]
            fourth = await send(client, session, "again")
            assert await page.until("done", 3) == [*second[2:], *third, *fourth]


async def test_a_reader_that_comes_in_mid_turn_hears_it_from_its_beginning_and_then_those_that_waited(
    server: Server, session: str, tmp_path: Path
) -> None:
    async with server.client() as client:
        begun = await send_until(client, session, f"hold {tmp_path / 'gate'}")
        await send_until(client, session, "second", "accepted")
        async with live(client, session) as page:
            assert (await page.until("text_delta"))[:2] == begun
            (tmp_path / "gate").touch()
            received = await page.until("done", 2)
            assert [event.data["turn"] for event in received if event.type == "accepted"] == [1, 2]
            assert text_of(received) == "begun endedsecond"
            assert [event.id for event in received] == sorted({event.id for event in received})


async def test_a_message_that_waits_is_shown_and_taken_back(server: Server, session: str, tmp_path: Path) -> None:
    async with server.client() as client:
        await send_until(client, session, f"hold {tmp_path / 'gate'}")
        async with live(client, session) as page:
            await page.hint("waiting")
            for text in ("second", "third"):
                await send_until(client, session, text, "accepted")
            await page.hint("waiting")
            assert await waiting(client, session) == [(2, "second"), (3, "third")]
            taken = [await client.delete(f"/v1/sessions/{session}/waiting/2") for _ in ("once", "again")]
            assert [answer.status_code for answer in taken] == [204, 204]
            assert await waiting(client, session) == [(3, "third")]
            for turn, status in ((1, 409), (99, 404)):
                answer = await client.delete(f"/v1/sessions/{session}/waiting/{turn}")
                assert answer.status_code == status, answer.text
            (tmp_path / "gate").touch()
            received = await page.until("done", 2)
        ends = [(event.type, event.data.get("error")) for event in received if event.type in ("done", "turn_error")]
        assert ends == [("done", None), ("turn_error", "TurnCancelled"), ("done", None)]
        messages = (await client.get(f"/v1/sessions/{session}/messages")).json()["messages"]
        assert [item["content"] for item in messages if item["role"] == "user"][1:] == ["third"]
        assert await resume(client, session, received[-1].id) == []


async def test_stop_stops_the_running_turn_and_the_next_one_begins(
    server: Server, session: str, tmp_path: Path
) -> None:
    async with server.client() as client:
        await send_until(client, session, f"hold {tmp_path / 'never'}")
        await send_until(client, session, "second", "accepted")
        async with live(client, session) as page:
            await page.until("text_delta")
            await client.post(f"/v1/sessions/{session}/cancel")
            received = await page.until("done")
            assert text_of(received) == "begun second"
        assert await waiting(client, session) == []


async def test_new_and_renamed_and_deleted_sessions_are_hinted_at(server: Server, session: str) -> None:
    async with server.client() as client, live(client, None) as page:
        await send(client, session, "hello")
        await page.hint("sessions")
        await client.patch(f"/v1/sessions/{session}", json={"title": "Greetings"})
        await page.hint("sessions")
        await client.delete(f"/v1/sessions/{session}")
        await page.hint("sessions")
        assert page.turns == []


async def test_a_session_that_is_deleted_ends_its_stream(server: Server, session: str) -> None:
    async with server.client() as client:
        await send(client, session, "hello")
        async with live(client, session) as page:
            await page.until("done")
            await client.delete(f"/v1/sessions/{session}")
            received = await page.until("turn_error")
            assert (received[-1].id, received[-1].data["error"]) == (0, "SessionNotFound")


async def test_turns_of_other_processes_stream_live(tmp_path: Path, sqlite_url: str, session: str) -> None:
    with serving(tmp_path / "a", sqlite_url) as here, serving(tmp_path / "b", sqlite_url) as there:
        async with here.client() as client, there.client() as other:
            first = await send(client, session, "hello")
            async with live(client, session) as page:
                await page.until("done")
                second = await send(other, session, "words 3 0.01")
                assert await page.until("done", 2) == [*first, *second]
                result = await asyncio.to_thread(lango, "run", "-r", session, "by hand", cwd=tmp_path / "a")
                assert result.returncode == 0, result.stderr
                received = await page.until("done", 3)
                assert text_of(received) == "hellow0 w1 w2 by hand"


async def test_a_server_that_stops_does_not_wait_for_readers(tmp_path: Path, sqlite_url: str, session: str) -> None:
    with serving(tmp_path, sqlite_url, server="drain_s = 600") as server:
        async with server.client() as client:
            await send(client, session, "hello")
            async with live(client, session) as page, live(client, None) as other:
                await page.until("done")
                stopping = asyncio.to_thread(server.terminate)
                code, received, ended = await asyncio.gather(
                    stopping, page.until("turn_error"), other.until("turn_error")
                )
                assert (code, received[-1].data["error"], ended[-1].data["error"]) == (0, "Stopping", "Stopping")


async def test_a_session_of_another_user_is_404(tmp_path: Path, sqlite_url: str, session: str) -> None:
    with serving(tmp_path, sqlite_url, server='auth = "keys"') as server:
        alice, bob = (_key(tmp_path, user) for user in ("alice", "bob"))
        async with server.client(Authorization=f"Bearer {alice}") as client:
            await client.post("/v1/sessions", json={"id": session})
            assert await waiting(client, session) == []
        async with server.client(Authorization=f"Bearer {bob}") as client:
            for method, path in (
                ("GET", f"/v1/live?session={session}"),
                ("GET", f"/v1/sessions/{session}/waiting"),
                ("DELETE", f"/v1/sessions/{session}/waiting/1"),
            ):
                assert (await client.request(method, path)).status_code == 404
        async with server.client() as client:
            assert (await client.get("/v1/live")).status_code == 401


def _key(folder: Path, user: str) -> str:
    made = lango("keys", "add", "--user", user, cwd=folder)
    assert made.returncode == 0, made.stderr
    return made.stdout.split()[-1]
