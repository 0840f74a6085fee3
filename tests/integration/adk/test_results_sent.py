"""Every stored result reaches the model, in a turn of the runtime: as the result of its call, or quoted as text."""

import asyncio
import itertools
import json
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack
from typing import Any

import pytest
from google.adk.agents import LlmAgent
from google.adk.events import Event
from google.genai import types
from hypothesis import example, given
from hypothesis import strategies as st

from lango import Settings, open_runtime
from lango.adk import SqlSessionService
from lango.providers import anthropic, gemini, openai, openai_responses
from lango.providers.local import wire_format
from lango.providers.local.known_models import MODELS
from lango.providers.protocol import Request
from lango.runtime.runtime import Runtime
from lango.testing import ScriptedProvider
from tests.agents.parts import settings_for
from tests.support.examples import examples
from tests.support.histories import OTHER, ROOT, histories
from tests.support.sent_requests import Recorder, broken

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")  # of ADK: experimental features

ENCODERS: dict[str, Callable[[Request], Any]] = {
    "anthropic": anthropic.encode,
    "gemini": gemini.encode,
    "openai": openai.encode,
    "openai compatible": lambda request: openai.encode(request, compatible=True),
    "openai responses": openai_responses.encode,
    **{model.name: lambda request, model=model: wire_format.encode(request, model) for model in MODELS},
}

_ids = st.sampled_from([None, "", "a", "b", "c", "call_read"])
_names = st.sampled_from(["read", "find"])
_parts = st.one_of(
    st.tuples(st.just("text")),
    st.tuples(st.just("call"), _names, _ids),
    st.tuples(st.just("result"), _names | st.none(), _ids),
)
_events = st.tuples(
    st.sampled_from([ROOT, ROOT, OTHER, "user"]),
    st.sampled_from(["user", "model", "function", None]),
    st.lists(_parts, min_size=1, max_size=3),
)
Described = list[tuple[str, str | None, list[Any]]]


def build(described: Described) -> tuple[list[Event], list[str]]:
    """Make the events of a history, and the words by which its results are known."""
    words: list[str] = []
    events: list[Event] = []
    for author, role, parts in described:
        made: list[types.Part] = []
        for kind, *rest in parts:
            match kind:
                case "text":
                    made.append(types.Part(text="words"))
                case "call":
                    made.append(types.Part(function_call=types.FunctionCall(name=rest[0], id=rest[1], args={})))
                case _:
                    words.append(f"result{len(words)}q")
                    response = {"out": words[-1]}
                    answer = types.FunctionResponse(name=rest[0], id=rest[1], response=response)
                    made.append(types.Part(function_response=answer))
        events.append(Event(author=author, content=types.Content(role=role, parts=made)))
    return events, words


class Conversations:
    """A runtime in whose store histories are written, and what its model is sent after each."""

    def __init__(self, runtime: Runtime, service: SqlSessionService, provider: ScriptedProvider) -> None:
        self._runtime = runtime
        self._service = service
        self._provider = provider
        self._numbers = itertools.count()

    async def continued(self, events: list[Event]) -> Request:
        """Return the request of the next turn after a history."""
        session_id = f"s{next(self._numbers)}"
        app_name = self._runtime.app_name
        session = await self._service.create_session(app_name=app_name, user_id="user", session_id=session_id)
        for event in events:
            await self._service.append_event(session, event)
        await self._runtime.run(session.id, "and now?")
        return self._provider.requests[-1]


def agent() -> LlmAgent:
    return LlmAgent(name=ROOT, model="openai/x", sub_agents=[LlmAgent(name=OTHER, model="openai/x")])


@pytest.fixture(params=["without memory", "with memory"])
def conversations(request: pytest.FixtureRequest, sqlite_url: str) -> Iterator[tuple[asyncio.Runner, Conversations]]:
    memory = {"enabled": request.param == "with memory"}
    options = Settings.model_validate({"store": {"url": sqlite_url}, "memory": memory})
    provider = ScriptedProvider(itertools.repeat("yes"))

    async def opened() -> Conversations:
        runtime = await stack.enter_async_context(open_runtime(options, root_agent=agent(), provider=provider))
        service = await stack.enter_async_context(SqlSessionService(sqlite_url))
        return Conversations(runtime, service, provider)

    stack = AsyncExitStack()
    with asyncio.Runner() as loop:
        yield loop, loop.run(opened())
        loop.run(stack.aclose())


@examples(40, shrink=False)
@given(st.lists(_events, min_size=1, max_size=8))
@example([(ROOT, "user", [("result", "gone", "x")])])
@example(  # results of calls in two events: ADK showed them after both, and the first result was lost
    [
        (ROOT, None, [("result", None, "b"), ("call", "find", ""), ("call", "read", "a")]),
        (ROOT, "user", [("call", "find", None), ("result", "find", None), ("result", "read", None)]),
    ]
)
@example([(ROOT, "user", [("result", "read", "a")]), (ROOT, "model", [("call", "read", "a")])])
@example([(ROOT, "model", [("call", "read", "a")]), *[(ROOT, "user", [("result", "read", "a")])] * 2])
def test_every_stored_result_is_in_the_request_of_every_provider(
    conversations: tuple[asyncio.Runner, Conversations], described: Described
) -> None:
    loop, runtime = conversations
    events, words = build(described)
    request = loop.run(runtime.continued(events))
    assert broken(request) == []
    for name, encode in ENCODERS.items():
        sent = json.dumps(encode(request), default=str)
        assert [word for word in words if word not in sent] == [], name


async def test_a_users_own_model_gets_every_stored_result_in_a_turn(sqlite_url: str) -> None:
    model = Recorder(requests=[])
    root = LlmAgent(name=ROOT, model=model, sub_agents=[LlmAgent(name=OTHER, model=model)])
    async with open_runtime(settings_for(sqlite_url), root_agent=root) as runtime, SqlSessionService(sqlite_url) as own:
        for number, history in enumerate(histories(20, seed=3)):
            session = await own.create_session(app_name=runtime.app_name, user_id="user", session_id=str(number))
            for event in history.events:
                await own.append_event(session, event)
            await runtime.run(session.id, "and now?")
            sent = "\n".join(content.model_dump_json() for content in model.requests[-1].contents)
            assert [word for word in (*history.results, *history.texts) if word not in sent] == [], number
