"""Whatever tree of agents runs, what is streamed of each agent is what is stored of it, and no texts are mixed."""

# pyright: reportDeprecated=false

import asyncio
import itertools
from collections.abc import AsyncGenerator, Iterator
from typing import Any, cast

import pytest
from google.adk.agents import BaseAgent, LlmAgent, LoopAgent, ParallelAgent, SequentialAgent
from google.adk.agents.callback_context import CallbackContext
from google.adk.models import BaseLlm
from google.adk.models.llm_request import LlmRequest
from google.adk.models.llm_response import LlmResponse
from google.adk.workflow import START, JoinNode, RetryConfig, Workflow
from google.genai import types
from hypothesis import example, given
from hypothesis import strategies as st

from lango import Settings, open_runtime
from lango.adk import ProviderLlm
from lango.config import StoreSettings
from lango.events import TextDelta, TextEnd, TextWithdrawn, ToolStart, TurnDone
from lango.events.text import StreamedText, TextOrder
from lango.messages import ToolCall
from lango.providers import Request
from lango.providers.protocol import CallDelta, Delta, Finish
from lango.providers.protocol import TextDelta as Piece
from lango.sessions import StoredEvent
from lango.testing import ScriptedProvider
from tests.support.examples import examples
from tests.support.runtimes import store_of

Tree = Any
"""A kind of agent and its children, or the pieces of a model's texts and whether it calls a tool before the last."""

WORDS = st.lists(st.sampled_from(["a", "bc ", "\n", "def", "é"]), max_size=3).map(lambda words: ["so ", *words])
LEAVES = st.fixed_dictionaries(
    {"pieces": WORDS, "pauses": st.integers(0, 3), "tool": st.booleans(), "callback": st.booleans()}
)
TREES: st.SearchStrategy[Tree] = st.recursive(
    LEAVES,
    lambda children: st.tuples(
        st.sampled_from(["parallel", "sequential", "loop"]), st.lists(children, min_size=1, max_size=3)
    ),
    max_leaves=6,
)


LAST = 1_000_000


class SlowWriter:
    """A model that writes its pieces with pauses, after a call of a tool if it is set so."""

    name = "slow"
    _places = itertools.count()  # a turn that makes the same call again and again is stopped

    def __init__(self, pieces: list[str], pauses: int, *, calls_tool: bool) -> None:
        self._pieces = pieces
        self._pauses = pauses
        self._calls_tool = calls_tool

    async def stream(self, request: Request) -> AsyncGenerator[Delta, None]:
        for piece in self._pieces:
            for _ in range(self._pauses):
                await asyncio.sleep(0)
            yield Piece(piece)
        if self._calls_tool and not any(message.role == "tool" for message in request.messages[-2:]):
            yield CallDelta(0, "", "look", f'{{"at": {next(self._places)}}}')
            yield Finish("tool_calls")
        else:
            yield Finish("stop")


def look(at: int) -> str:
    """Look."""
    return "seen"


def keep_text(callback_context: CallbackContext, llm_response: LlmResponse) -> None:
    """Change nothing."""


def build(tree: Tree, names: Iterator[str]) -> BaseAgent:
    name = next(names)
    if isinstance(tree, dict):
        leaf = cast("dict[str, Any]", tree)
        writer = SlowWriter(leaf["pieces"], leaf["pauses"], calls_tool=leaf["tool"])
        # a callback that may change the text makes the agent stream through ADK
        callback = keep_text if leaf["callback"] else None
        return LlmAgent(
            name=name, model=ProviderLlm(provider=writer, model="slow"), tools=[look], after_model_callback=callback
        )
    kind, children = tree
    agents = [build(child, names) for child in children]
    match kind:
        case "parallel":
            return ParallelAgent(name=name, sub_agents=agents)
        case "loop":
            return LoopAgent(name=name, sub_agents=agents, max_iterations=2)
        case _:
            return SequentialAgent(name=name, sub_agents=agents)


def texts_of(stored: list[StoredEvent]) -> list[tuple[str, str]]:
    """Return the stored texts in the order in which they began."""
    begun = sorted(stored, key=lambda event: event.text_place or [event.seq - 1, LAST])
    return [
        (event.message.author, event.message.content)
        for event in begun
        if event.message and event.message.role == "assistant" and event.message.content
    ]


async def check(tree: Tree) -> None:
    inner = build(tree, (f"agent{number}" for number in itertools.count()))
    transfer = ScriptedProvider([ToolCall("t1", "transfer_to_agent", {"agent_name": inner.name})])
    root = LlmAgent(name="root", model=ProviderLlm(provider=transfer, model="scripted"), sub_agents=[inner])
    store = StoreSettings(url="sqlite:///:memory:")
    async with open_runtime(Settings(store=store), root_agent=root) as runtime:
        events = [event async for event in runtime.stream("s", "hi")]
        stored = texts_of([*await runtime.sessions.messages("s")])
    assert isinstance(events[-1], TurnDone), events[-1]
    blocks: dict[int, list[TextDelta]] = {}
    for event in events:
        if isinstance(event, TextDelta):
            blocks.setdefault(event.block, []).append(event)
    assert all(len({event.author for event in deltas}) == 1 for deltas in blocks.values())
    streamed = [(deltas[0].author, "".join(event.text for event in deltas)) for deltas in blocks.values()]
    assert streamed == stored, "each stored text is a block, and the order of their beginnings is known"
    assert StreamedText(events).by_author == [*_joined(streamed)]
    ends = [event.block for event in events if isinstance(event, TextEnd)]
    assert sorted(ends) == sorted(blocks)
    # for a reader that shows one text at a time, each text is one piece, before the calls that its message makes
    order = TextOrder()
    shown = [ready for event in events for ready in order.add(event) if isinstance(ready, TextDelta | ToolStart)]
    runs = [
        "".join(event.text for event in group if isinstance(event, TextDelta))
        for _, group in itertools.groupby(
            shown, lambda event: event.block if isinstance(event, TextDelta) else event.call_id
        )
    ]
    assert sorted(run for run in runs if run) == sorted(text for _, text in stored)


def _joined(texts: list[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    for author, group in itertools.groupby(texts, lambda one: one[0]):
        yield author, "".join(text for _, text in group)


SPEAKER = {"pieces": ["I ", "am ", "a."], "pauses": 1, "tool": False, "callback": False}


@pytest.mark.filterwarnings("ignore:.*is deprecated in favor of Workflow")
@examples(25)
@given(TREES)
@example(("sequential", [("parallel", [SPEAKER, SPEAKER]), SPEAKER]))
def test_what_is_streamed_of_each_agent_is_what_is_stored(tree: Tree) -> None:
    asyncio.run(check(tree))


class Waiting:
    """A model that writes its first word, and its last one when a reader has seen the first words of all."""

    name = "waiting"

    def __init__(self, seen: asyncio.Event) -> None:
        self._seen = seen

    async def stream(self, request: Request) -> AsyncGenerator[Delta, None]:
        yield Piece("first ")
        await self._seen.wait()
        yield Piece("last")
        yield Finish("stop")


def in_parallel(speakers: list[LlmAgent]) -> BaseAgent:
    return ParallelAgent(name="both", sub_agents=list[BaseAgent](speakers))


def in_workflow(speakers: list[LlmAgent]) -> Any:
    return Workflow(name="flow", edges=[(START, tuple(speakers), JoinNode(name="join"))])


@pytest.mark.parametrize("build_root", [in_parallel, in_workflow])
@pytest.mark.parametrize("callback", [None, keep_text])
@pytest.mark.filterwarnings("ignore:.*is deprecated in favor of Workflow")
async def test_the_texts_of_parallel_agents_are_streamed_at_once(build_root: Any, callback: Any) -> None:
    seen, streamed = asyncio.Event(), dict[str, str]()
    speakers = [
        LlmAgent(name=name, model=ProviderLlm(provider=Waiting(seen), model="words"), after_model_callback=callback)
        for name in ("anna", "ben")
    ]
    store = StoreSettings(url="sqlite:///:memory:")
    async with open_runtime(Settings(store=store), root_agent=build_root(speakers)) as runtime:
        async for event in runtime.stream("s", "hi"):
            if isinstance(event, TextDelta) and event.author:
                streamed[event.author] = streamed.get(event.author, "") + event.text
            if {"anna", "ben"} <= streamed.keys():
                seen.set()
    assert (streamed["anna"], streamed["ben"]) == ("first last", "first last")


class Whole(BaseLlm):
    """A model that streams nothing."""

    async def generate_content_async(
        self, llm_request: LlmRequest, stream: bool = False
    ) -> AsyncGenerator[LlmResponse, None]:
        yield LlmResponse(content=types.ModelContent("whole"))


class Second:
    """A model that begins to write once the answer of another agent is stored."""

    name = "second"

    def __init__(self) -> None:
        self.may_begin, self.has_begun = asyncio.Event(), asyncio.Event()

    async def stream(self, request: Request) -> AsyncGenerator[Delta, None]:
        await self.may_begin.wait()
        yield Piece("first ")
        self.has_begun.set()
        yield Piece("last")
        yield Finish("stop")


@pytest.mark.filterwarnings("ignore:.*is deprecated in favor of Workflow")
async def test_a_text_that_begins_once_another_is_stored_comes_after_it(monkeypatch: pytest.MonkeyPatch) -> None:
    second = Second()
    speakers = [
        LlmAgent(name="ben", model=ProviderLlm(provider=second, model="words")),
        LlmAgent(name="anna", model=Whole(model="whole")),
    ]
    store = StoreSettings(url="sqlite:///:memory:")
    async with open_runtime(Settings(store=store), root_agent=in_parallel(speakers)) as runtime:
        append = store_of(runtime).append

        async def append_and_wait(*place: Any, **more: Any) -> Any:
            appended = await append(*place, **more)
            if not second.may_begin.is_set() and place[-1].message and place[-1].message.content == "whole":
                second.may_begin.set()
                await second.has_begun.wait()
            return appended

        monkeypatch.setattr(store_of(runtime), "append", append_and_wait)
        events = [event async for event in runtime.stream("s", "hi")]
        stored = texts_of([*await runtime.sessions.messages("s")])
    assert stored == [("anna", "whole"), ("ben", "first last")]
    assert [event.author for event in events if isinstance(event, TextDelta)] == ["anna", "ben", "ben"]


class Breaking:
    """A model that fails in the middle of its first response."""

    name = "breaking"

    def __init__(self) -> None:
        self.calls = 0

    async def stream(self, request: Request) -> AsyncGenerator[Delta, None]:
        self.calls += 1
        yield Piece("half of it" if self.calls == 1 else "all of it")
        if self.calls == 1:
            raise ConnectionError("gone")
        yield Finish("stop")


@pytest.mark.parametrize("callback", [None, keep_text])
async def test_the_text_of_a_node_that_failed_is_withdrawn_when_it_is_tried_again(callback: Any) -> None:
    retry = RetryConfig(max_attempts=2, initial_delay=0.01, jitter=0)
    model = ProviderLlm(provider=Breaking(), model="words")
    writer = LlmAgent(name="writer", model=model, retry_config=retry, after_model_callback=callback)
    flow = Workflow(name="flow", edges=[(START, writer)])
    store = StoreSettings(url="sqlite:///:memory:")
    async with open_runtime(Settings(store=store), root_agent=flow) as runtime:
        events = [event async for event in runtime.stream("s", "hi")]
        assert texts_of([*await runtime.sessions.messages("s")]) == [("writer", "all of it")]
    assert StreamedText(events).text == "all of it"
    [withdrawn] = [event for event in events if isinstance(event, TextWithdrawn)]
    assert [event.block for event in events if isinstance(event, TextEnd)] == [withdrawn.block + 1]
