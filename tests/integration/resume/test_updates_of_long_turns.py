"""What the model reads in a turn that continues after updates: the message that began it, once, within the budget."""

import asyncio
import re
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from google.adk.agents import (
    LlmAgent,
    SequentialAgent,  # pyright: ignore[reportDeprecated]
)

from lango import Runtime, Settings, open_runtime
from lango.adk import AdkTool, ProviderLlm
from lango.history import count_tokens
from lango.messages import ToolCall
from lango.providers import Request
from lango.sessions import UPDATE, SessionId
from lango.store.lifecycle.integrity import check_session
from lango.testing import ScriptedProvider
from lango.tools import Tool
from tests.agents.parts import TIMEOUT_S, broken_for, messages
from tests.support.agent_shapes import Own
from tests.support.kill_points import until_idle
from tests.support.runtimes import store_of

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of ADK: it still has these agents

BUDGET, PAYMENTS, PER_VERSION = 2_000, 15, 5
ORDER = "pay all of them"


class Shop:
    """An app of several versions, each stopped while its last tool runs, and what was paid in all of them."""

    def __init__(self, payments: int, per_version: int, result_words: int = 0) -> None:
        self.paid: list[int] = []
        self.requests: list[Request] = []
        self._payments, self._per_version, self._words = payments, per_version, result_words
        self._holds = asyncio.Event()
        self._may_end = asyncio.Event()

    async def _pay(self, n: int) -> str:
        self.paid.append(n)
        if n % self._per_version == 0 and n < self._payments and self.paid.count(n) == 1:
            self._holds.set()
            await self._may_end.wait()
        return f"paid {n} " + "word " * self._words

    def _answer(self, request: Request) -> Any:
        """Pay what comes after the newest result that stands behind the newest order."""
        self.requests.append(request)
        texts = [message.content + str([call.output for call in message.tool_calls]) for message in request.messages]
        ordered = max(at for at, text in enumerate(texts) if ORDER in text)
        paid = [int(n) for text in texts[ordered:] for n in re.findall(r"paid (\d+)", text)]
        n = max(paid, default=0) + 1
        return "done" if n > self._payments else ToolCall(f"c{n}", "pay", {"n": n})

    def agent(self, name: str) -> LlmAgent:
        """Make an agent that pays."""
        schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
        tool = AdkTool(Tool("pay", "Pay.", schema, self._pay, effect="once"))
        provider = ScriptedProvider([self._answer] * 3 * self._payments)
        return LlmAgent(name=name, model=ProviderLlm(provider, "scripted", budget_tokens=BUDGET), tools=[tool])

    async def stop(self, runtime: Runtime) -> None:
        """Stop a version when its last tool runs."""
        async with asyncio.timeout(TIMEOUT_S):
            await self._holds.wait()
        closing = asyncio.create_task(runtime.close())
        await asyncio.sleep(0)
        self._may_end.set()
        await closing
        self._holds.clear()
        self._may_end.clear()

    @asynccontextmanager
    async def run(self, url: str, *versions: Any) -> AsyncGenerator[Runtime]:
        """Run a turn in one version after the other; yield the last one."""
        history = {"max_message_token_budget": BUDGET}
        settings = Settings.model_validate({"store": {"url": url}, "agent": {"name": "app"}, "history": history})
        for at, root in enumerate(versions):
            async with open_runtime(settings, root_agent=root) as runtime:
                if at == 0:
                    await runtime.submit("s", ORDER)
                if at < len(versions) - 1:
                    await self.stop(runtime)
                    continue
                await until_idle(runtime)
                yield runtime


async def test_h4_h5_a_long_turn_that_continues_after_updates_keeps_its_message_within_the_budget(
    store_url: str,
) -> None:
    shop = Shop(PAYMENTS, PER_VERSION, result_words=400)
    async with shop.run(store_url, *map(shop.agent, ("shop", "store", "till"))) as runtime:
        assert shop.paid == [*range(1, PAYMENTS + 1)], "no payment is lost, none is made twice"
        for request in shop.requests:
            assert request.messages[0].content == ORDER
            assert count_tokens(request.messages) <= BUDGET
            assert broken_for(request) == []
        noted = [request for request in shop.requests if request.messages[-1].content.startswith(UPDATE)]
        assert len(noted) == 2, "the first request of each new version ends with the note"
        assert len(noted[1].messages) < len(await messages(runtime)) // 2, "the middle is left out"
        shown = [one.content[: len(UPDATE)] for one in await messages(runtime) if one.role in ("user", "system")]
        assert shown == [ORDER, UPDATE, UPDATE]
        problems = await store_of(runtime).read(check_session, SessionId("app", "user", "s"))
        assert problems == []


@pytest.mark.parametrize("wrapped_in_own", [False, True], ids=["a sequence", "an own class"])
async def test_a_request_that_is_read_again_after_an_update_pays_nothing_twice(
    tmp_path: Path, *, wrapped_in_own: bool
) -> None:
    shop = Shop(payments=2, per_version=1)
    sub: list[Any] = [shop.agent("shop")]
    outer: Any = (
        Own(name="outer", sub_agents=sub) if wrapped_in_own else SequentialAgent(name="outer", sub_agents=sub)  # pyright: ignore[reportDeprecated]
    )
    async with shop.run(f"sqlite:///{tmp_path}/lango.db", shop.agent("shop"), outer) as runtime:
        assert shop.paid == [1, 2]
        orders = [one for one in await messages(runtime) if ORDER in one.content]
        assert len(orders) == (2 if wrapped_in_own else 1), "a sequence reads nothing: its agents have the conversation"
