"""A model that repeats what it hears, under its own name. `hold FILE` waits until the file exists."""

import asyncio
from collections.abc import AsyncGenerator
from pathlib import Path

from lango.providers import Request
from lango.providers.protocol import Delta, Finish, TextDelta, UsageDelta


class Echo:
    """The model of an agent."""

    name = "echo"

    def __init__(self, agent: str) -> None:
        self._agent = agent

    async def stream(self, request: Request) -> AsyncGenerator[Delta, None]:
        """Repeat the last message."""
        text = request.messages[-1].content
        yield TextDelta(f"{self._agent} heard ")
        if text.startswith("hold "):
            while not Path(text.removeprefix("hold ")).exists():
                await asyncio.sleep(0.01)
        yield TextDelta(text)
        yield UsageDelta(10, 5)
        yield Finish("stop")
