"""Two agents that speak at once, and one that speaks after them."""

# pyright: reportDeprecated=false

import asyncio
import warnings
from collections.abc import AsyncGenerator

from google.adk.agents import LlmAgent, ParallelAgent, SequentialAgent

from lango.adk import ProviderLlm
from lango.messages import ToolCall
from lango.providers import Request
from lango.providers.protocol import Delta, Finish, TextDelta
from lango.testing import ScriptedProvider

warnings.filterwarnings("ignore", ".*deprecated in favor of Workflow", DeprecationWarning)


class _Speaker:
    """A model that says its words one by one, and lets others speak in between; it may begin after another one."""

    name = "speaker"

    def __init__(self, text: str, after: "_Speaker | None" = None) -> None:
        self._words = text.split(" ")
        self._after = after
        self.begun = asyncio.Semaphore(0)
        """Released by the first word of each turn."""

    async def stream(self, request: Request) -> AsyncGenerator[Delta, None]:
        if self._after is not None:
            await self._after.begun.acquire()
        for number, word in enumerate(self._words):
            await asyncio.sleep(0)
            yield TextDelta(f" {word}" if number else word)
            if not number:
                self.begun.release()
        yield Finish("stop")


def _agent(name: str, speaker: _Speaker) -> LlmAgent:
    return LlmAgent(name=name, model=ProviderLlm(provider=speaker, model="words"))


def _transfer(_: Request) -> ToolCall:
    return ToolCall("t", "transfer_to_agent", {"agent_name": "review"})


anna = _Speaker("I am Anna and agree.")
ben = _Speaker("I am Ben and do not.", after=anna)
both = ParallelAgent(name="both", sub_agents=[_agent("anna", anna), _agent("ben", ben)])
review = SequentialAgent(name="review", sub_agents=[both, _agent("critic", _Speaker("Both have a point."))])
root_agent = LlmAgent(
    name="chair",
    model=ProviderLlm(provider=ScriptedProvider([_transfer] * 1000), model="scripted"),
    sub_agents=[review],
)
