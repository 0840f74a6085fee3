"""Features of an ADK app: each is honoured by the runtime and survives a kill at every commit, or is refused."""

from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest
from google.adk.agents import LlmAgent
from google.adk.agents.callback_context import CallbackContext
from google.adk.agents.context_cache_config import ContextCacheConfig
from google.adk.agents.invocation_context import InvocationContext
from google.adk.apps import App
from google.adk.apps.app import EventsCompactionConfig, ResumabilityConfig
from google.adk.apps.base_events_summarizer import BaseEventsSummarizer
from google.adk.apps.llm_event_summarizer import LlmEventSummarizer
from google.adk.code_executors import BuiltInCodeExecutor
from google.adk.events import Event, EventActions
from google.adk.events.event_actions import EventCompaction
from google.adk.models import BaseLlm, Gemini
from google.adk.models.llm_request import LlmRequest
from google.adk.models.llm_response import LlmResponse
from google.adk.plugins import BasePlugin
from google.adk.tools import BaseTool, LongRunningFunctionTool, ToolContext, google_search
from google.adk.workflow import START, Workflow
from google.genai import types
from typing_extensions import override

from lango import open_runtime
from lango.errors import ConfigError, FeatureRefused
from lango.events import TurnDone
from lango.messages import ToolCall
from lango.testing import ScriptedProvider
from tests.agents.answers import submit_results
from tests.agents.parts import collect, settings_for, text_of
from tests.support.agent_shapes import SHAPES, agent, call, fetch
from tests.support.kill_points import Journal, check_every_kill, go_on, run_and_copy

pytestmark = [
    pytest.mark.filterwarnings("ignore::UserWarning"),  # of ADK: experimental features
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]


# -- plugins and callbacks ------------------------------------------------------------------------------------------


class Counting(BasePlugin):
    """Counts in the state, changes results, and adds an event."""

    def __init__(self) -> None:
        super().__init__(name="counting")

    @override
    async def before_model_callback(self, *, callback_context: CallbackContext, llm_request: LlmRequest) -> None:
        callback_context.state["model_calls"] = callback_context.state.get("model_calls", 0) + 1

    @override
    async def after_tool_callback(
        self, *, tool: BaseTool, tool_args: dict[str, Any], tool_context: ToolContext, result: dict[str, Any]
    ) -> dict[str, Any]:
        return {**result, "checked": True}

    @override
    async def on_event_callback(self, *, invocation_context: InvocationContext, event: Event) -> Event | None:
        return None


async def test_an_apps_own_plugins_run(tmp_path: Path) -> None:
    def make(journal: Journal) -> App:
        root = agent(journal, "a", call("fetch", x="1"), "done", tools=[fetch(journal)])
        return App(name="app", root_agent=root, plugins=[Counting()])

    story = await check_every_kill(make, tmp_path)
    assert story[2] == (
        'a tool: {"fetched":"1","checked":true} [{"name": "fetch", "output": {"fetched": "1", "checked": true}}]'
    )


async def test_a_plugin_may_answer_in_place_of_the_model(sqlite_url: str) -> None:
    class Refusing(BasePlugin):
        @override
        async def before_model_callback(
            self, *, callback_context: CallbackContext, llm_request: LlmRequest
        ) -> LlmResponse:
            return LlmResponse(content=types.Content(role="model", parts=[types.Part(text="not today")]))

    app = App(name="app", root_agent=LlmAgent(name="a"), plugins=[Refusing(name="refusing")])
    provider = ScriptedProvider(["never"])
    async with open_runtime(settings_for(sqlite_url), provider=provider, root_agent=app) as runtime:
        assert await runtime.run("s", "hello") == "not today"
        assert provider.requests == []


# -- resumability ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", ["three calls", "transfer", "sequence", "workflow of function, agent, function"])
async def test_a_resumable_app_goes_on_like_any_other(tmp_path: Path, shape: str) -> None:
    def make(journal: Journal) -> App:
        config = ResumabilityConfig(is_resumable=True)
        return App(name="app", root_agent=SHAPES[shape](journal), resumability_config=config)

    await check_every_kill(make, tmp_path)


async def test_a_resumable_app_pauses_for_a_long_running_tool(sqlite_url: str) -> None:
    def order(item: str) -> None:
        """Order something."""

    def make() -> App:
        root = LlmAgent(name="clerk", tools=[LongRunningFunctionTool(order)])
        return App(name="app", root_agent=root, resumability_config=ResumabilityConfig(is_resumable=True))

    provider = ScriptedProvider([ToolCall("c1", "order", {"item": "boat"}), "It has come."])
    async with open_runtime(settings_for(sqlite_url), provider=provider, root_agent=make()) as runtime:
        await collect((await runtime.submit("s", "go")).follow())
    async with open_runtime(settings_for(sqlite_url), provider=provider, root_agent=make()) as runtime:
        events = await collect((await submit_results(runtime, "s", {"c1": {"delivered": True}})).follow())
        assert text_of(events) == "It has come."


# -- compaction -----------------------------------------------------------------------------------------------------


async def test_old_turns_are_compacted_with_the_agents_own_model(sqlite_url: str) -> None:
    def make() -> App:
        config = EventsCompactionConfig(compaction_interval=2, overlap_size=0)
        return App(name="app", root_agent=root, events_compaction_config=config)

    root = LlmAgent(name="a")
    app = make()
    provider = ScriptedProvider(["Hello Ann.", "Nice boat.", "Ann has a boat.", "Nina."])
    for texts in (["I am Ann.", "I have a boat."], ["Her name?"]):  # a new runtime uses its own model
        async with open_runtime(settings_for(sqlite_url), provider=provider, root_agent=app) as runtime:
            for text in texts:
                await runtime.run("s", text)
    assert app.events_compaction_config
    assert app.events_compaction_config.summarizer is None
    shown = [message.content for message in provider.requests[3].messages]
    assert "Ann has a boat." in "".join(shown)
    assert "I am Ann." not in "".join(shown)


@pytest.mark.parametrize("own", [False, True], ids=["the agent's model", "a model of its own"])
async def test_the_tokens_of_summaries_are_in_the_usage_of_their_turn(sqlite_url: str, own: bool) -> None:
    class Counted(BaseLlm):
        async def generate_content_async(
            self, llm_request: LlmRequest, stream: bool = False
        ) -> AsyncGenerator[LlmResponse, None]:
            is_summary = len(llm_request.contents) == 1 and "I have a boat." in str(llm_request.contents)
            text = "Ann has a boat." if is_summary else "Nice."
            used = types.GenerateContentResponseUsageMetadata(
                prompt_token_count=1000 if is_summary else 10, candidates_token_count=100 if is_summary else 1
            )
            content = types.Content(role="model", parts=[types.Part(text=text)])
            yield LlmResponse(content=content, usage_metadata=used, model_version=self.model)

    summarizer = LlmEventSummarizer(llm=Counted(model="gpt-5-mini")) if own else None
    config = EventsCompactionConfig(compaction_interval=2, overlap_size=0, summarizer=summarizer)
    root = LlmAgent(name="a", model=Counted(model="gpt-5"))
    app = App(name="app", root_agent=root, events_compaction_config=config)
    async with open_runtime(settings_for(sqlite_url), root_agent=app) as runtime:
        await runtime.run("s", "I am Ann.")
        done = (await collect(runtime.stream("s", "I have a boat.")))[-1]
        assert isinstance(done, TurnDone)
        used = done.usage
        assert (used.input_tokens, used.output_tokens, used.model_calls) == (1010, 101, 2)
        assert used.cost_usd is not None
        [turn] = (await runtime.sessions.usage("s")).turns[-1:]
        calls = [(call.agent, call.model, call.input_tokens) for call in turn.model_calls]
        assert calls == [("a", "gpt-5", 10), ("compaction", "gpt-5-mini" if own else "gpt-5", 1000)]


class Summarizer(BaseEventsSummarizer):
    """Keeps of the compacted events how many results they had."""

    def __init__(self, journal: Journal) -> None:
        self.journal = journal

    @override
    async def maybe_summarize_events(self, *, events: list[Event]) -> Event | None:
        self.journal.effects.append("summarize")
        done = sum(len(event.get_function_responses()) for event in events)
        done += sum(_count_done(event.content) for event in events)  # an earlier summary is one of them
        content = types.Content(role="model", parts=[types.Part(text="done " * done)])
        compaction = EventCompaction(
            start_timestamp=events[0].timestamp, end_timestamp=events[-1].timestamp, compacted_content=content
        )
        return Event(author="user", invocation_id=Event.new_id(), actions=EventActions(compaction=compaction))


def _count_done(content: types.Content | None) -> int:
    return sum((part.text or "").count("done ") for part in (content and content.parts) or [])


class CountingModel(BaseLlm):
    """Calls a tool three times, by what it reads of results and summaries."""

    journal: Any = None

    @override
    async def generate_content_async(
        self, llm_request: LlmRequest, stream: bool = False
    ) -> AsyncGenerator[LlmResponse, None]:
        parts = [part for content in llm_request.contents for part in content.parts or []]
        done = sum(bool(part.function_response) for part in parts)
        done += sum(_count_done(content) for content in llm_request.contents)
        self.journal.model_calls.append(f"a {done}")
        part = types.Part(text="finished")
        if done < 3:
            part = types.Part(function_call=types.FunctionCall(name="fetch", args={"x": str(done)}))
        yield LlmResponse(
            content=types.Content(role="model", parts=[part]),
            usage_metadata=types.GenerateContentResponseUsageMetadata(prompt_token_count=1_000),
        )


async def test_a_turn_that_is_compacted_while_it_runs_survives_a_kill(tmp_path: Path) -> None:
    def make(journal: Journal) -> App:
        root = LlmAgent(name="a", model=CountingModel(model="m", journal=journal), tools=[fetch(journal)])
        config = EventsCompactionConfig(token_threshold=500, event_retention_size=1, summarizer=Summarizer(journal))
        return App(name="app", root_agent=root, events_compaction_config=config)

    whole, copies = await run_and_copy(make, tmp_path)
    assert whole.status == "done"
    assert whole.journal.effects_by_name["summarize"] >= 1
    for copy in copies:
        resumed = await go_on(make, copy)
        assert (resumed.status, resumed.story[-1]) == ("done", whole.story[-1]), copy.name
        assert resumed.story == whole.story or any("outcome is unknown" in line for line in resumed.story), copy.name


# -- refused --------------------------------------------------------------------------------------------------------


def _workflow() -> Workflow:
    return Workflow(name="w", edges=[(START, LlmAgent(name="a"))])


REFUSED: dict[str, tuple[Any, str]] = {
    "a cache of Gemini's for a model of Lango's": (
        App(name="app", root_agent=LlmAgent(name="a"), context_cache_config=ContextCacheConfig()),
        "context_cache_config: the model of agent 'a' is one of Lango's",
    ),
    "a compaction without a model": (
        App(
            name="app",
            root_agent=_workflow(),
            events_compaction_config=EventsCompactionConfig(compaction_interval=1, overlap_size=0),
        ),
        "events_compaction_config: 'w' has no model to summarize with",
    ),
    "code inside of Gemini": (
        LlmAgent(name="a", code_executor=BuiltInCodeExecutor()),
        "BuiltInCodeExecutor runs code inside Gemini",
    ),
    "a tool inside of Gemini": (
        LlmAgent(name="a", sub_agents=[LlmAgent(name="b", tools=[google_search])]),
        "agent 'b': the tool google_search runs inside Gemini",
    ),
    "a live model": (
        LlmAgent(name="a", model=Gemini(model="gemini-2.5-flash-native-audio-preview")),
        "is a model for ADK's Live mode",
    ),
    "another live model": (LlmAgent(name="a", model="gemini-live-2.5-flash"), "is a model for ADK's Live mode"),
}


@pytest.mark.parametrize("case", REFUSED)
async def test_what_would_be_ignored_is_refused_at_start(sqlite_url: str, case: str) -> None:
    root, sentence = REFUSED[case]
    assert issubclass(FeatureRefused, ConfigError)
    provider = None if "live" in case else ScriptedProvider(["never"])
    with pytest.raises(FeatureRefused, match=sentence.replace("'", ".")):
        async with open_runtime(settings_for(sqlite_url), provider=provider, root_agent=root):
            pass


async def test_a_cache_stays_with_adks_own_models(sqlite_url: str) -> None:
    seen: list[Any] = []

    class Own(BaseLlm):
        @override
        async def generate_content_async(
            self, llm_request: LlmRequest, stream: bool = False
        ) -> AsyncGenerator[LlmResponse, None]:
            seen.append(llm_request.cache_config)
            yield LlmResponse(content=types.Content(role="model", parts=[types.Part(text="hi")]))

    config = ContextCacheConfig(ttl_seconds=60)
    app = App(name="app", root_agent=LlmAgent(name="a", model=Own(model="m")), context_cache_config=config)
    async with open_runtime(settings_for(sqlite_url), root_agent=app) as runtime:
        assert await runtime.run("s", "hello") == "hi"
    assert seen == [config]
