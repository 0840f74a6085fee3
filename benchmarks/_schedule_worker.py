"""Run a replica of the schedules benchmark: `python -m benchmarks._schedule_worker URL`. It runs until it is killed."""

import asyncio
import os
import sys
from collections.abc import AsyncGenerator

from lango import Settings, open_runtime
from lango.providers import Delta, Finish, Request, TextDelta

APP = "lango"


class Answering:
    """A provider that answers at once."""

    name = "answering"

    async def stream(self, request: Request) -> AsyncGenerator[Delta, None]:
        del request
        yield TextDelta("ok")
        yield Finish("stop")


async def main(url: str) -> None:
    """Open a runtime on the store, run a turn, which imports ADK, and say so."""
    async with open_runtime(Settings.model_validate({"store": {"url": url}}), provider=Answering()) as runtime:
        await runtime.run(f"first-{os.getpid()}", "hello")
        print("ready", flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
