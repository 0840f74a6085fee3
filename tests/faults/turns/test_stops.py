"""Servers that stop while messages arrive: what was stored is handed over, what was not can be sent again."""

import asyncio
import json
from collections import Counter
from pathlib import Path

import httpx

from tests.support.servers.server_process import Server, events_of, send, serving, text_of

_STOPS = 3
_CLIENTS = 8
_BEFORE_A_STOP = 15


class Clients:
    """Clients that send one message after the other, each with its key, until the server does not take it."""

    def __init__(self) -> None:
        self.acknowledged: list[str] = []
        self.refused: list[str] = []
        self.unanswered: list[str] = []
        """The connection was closed before an answer: the client does not know."""
        self.other: list[tuple[int, str]] = []
        self.enough = asyncio.Event()
        self._count = 0

    def start_again(self) -> None:
        self._count = 0
        self.enough.clear()

    async def send_until_it_stops(self, client: httpx.AsyncClient, stop: int, number: int) -> None:
        for count in range(10_000):
            text = f"{stop}-{number}-{count}"
            try:
                if not await self._send(client, f"s{stop}-{number}", text):
                    return
            except httpx.TransportError:
                self.unanswered.append(text)
                return
            self._count += 1
            if self._count >= _BEFORE_A_STOP:
                self.enough.set()

    async def _send(self, client: httpx.AsyncClient, session: str, text: str) -> bool:
        request = client.stream(
            "POST", f"/v1/sessions/{session}/messages", json={"text": text}, headers={"Idempotency-Key": text}
        )
        async with request as response:
            if response.status_code == 503 and response.headers["Retry-After"]:
                self.refused.append(text)
                return False
            if response.status_code != 200:
                self.other.append((response.status_code, (await response.aread()).decode()))
                return False
            self.acknowledged.append(text)
            return [event.type async for event in events_of(response)][-1] == "done"


async def test_f1_messages_at_a_stop_are_stored_and_answered_or_can_be_sent_again(
    store_url: str, tmp_path: Path
) -> None:
    clients = Clients()
    for stop in range(_STOPS):
        clients.start_again()
        with serving(tmp_path, store_url) as server:
            async with server.client() as client, asyncio.TaskGroup() as group:
                for number in range(_CLIENTS):
                    group.create_task(clients.send_until_it_stops(client, stop, number))
                await clients.enough.wait()
                server.process.terminate()
            assert server.process.wait(120) == 0
    assert not clients.other, "a stop is no failure of a message"
    assert len(clients.acknowledged) >= _STOPS * _BEFORE_A_STOP
    with serving(tmp_path, store_url) as server:
        await _every_message_has_one_answer(server, clients)


async def _every_message_has_one_answer(server: Server, clients: Clients) -> None:
    sent = clients.acknowledged + clients.refused + clients.unanswered
    async with server.client() as client:
        for text in sent:
            session = f"s{text.rpartition('-')[0]}"
            answer = await send(client, session, text, **{"Idempotency-Key": text})
            assert answer[-1].type == "done", (text, answer)
            assert text_of(answer) == text
        stored: Counter[tuple[str, str]] = Counter()
        for session in {f"s{text.rpartition('-')[0]}" for text in sent}:
            page = (await client.get(f"/v1/sessions/{session}/messages", params={"limit": 100})).json()
            stored.update((one["role"], one["content"]) for one in page["messages"])
    assert stored == Counter((role, text) for text in sent for role in ("user", "assistant")), json.dumps(
        [text for text in sent if stored["user", text] != 1 or stored["assistant", text] != 1]
    )
