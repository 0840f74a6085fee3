"""Concurrent first requests of an event loop share one client of a vendor's SDK."""

import asyncio
import threading

from lango.providers.sdk.sdk_client import ClientPerLoop


class Sdk:
    """Makes clients, each once it is released."""

    def __init__(self) -> None:
        self.made = 0
        self.begun, self.may_end = threading.Event(), threading.Event()

    def make(self) -> int:
        self.made += 1
        self.begun.set()
        self.may_end.wait()
        return self.made

    async def close(self, client: int) -> None:
        del client


async def test_many_first_requests_share_one_client() -> None:
    sdk = Sdk()
    clients = ClientPerLoop(sdk.make, sdk.close)
    requests = [asyncio.create_task(clients.get()) for _ in range(20)]
    await asyncio.to_thread(sdk.begun.wait)
    sdk.may_end.set()
    assert await asyncio.gather(*requests) == [1] * 20
    assert sdk.made == 1


async def test_a_first_request_that_is_cancelled_leaves_the_client_to_the_next_one() -> None:
    sdk = Sdk()
    clients = ClientPerLoop(sdk.make, sdk.close)
    first, second = asyncio.create_task(clients.get()), asyncio.create_task(clients.get())
    await asyncio.to_thread(sdk.begun.wait)
    first.cancel()
    await asyncio.wait([first])
    sdk.may_end.set()
    assert await second == await clients.get()
    assert first.cancelled()
