"""H2 and M6 in sessions that are longer than their window: omissions are logged once, and ids stay unique."""

from collections.abc import AsyncGenerator
from typing import Any

import pytest
from google.adk.agents import LlmAgent
from google.adk.models import BaseLlm
from google.adk.models.llm_request import LlmRequest
from google.adk.models.llm_response import LlmResponse
from google.adk.runners import Runner
from google.adk.tools import FunctionTool
from google.genai import types

from lango import open_runtime
from lango.adk import ProviderLlm, SqlSessionService
from lango.config import Settings
from lango.errors import ProviderRejected
from lango.messages import ToolCall
from lango.sessions import SessionId
from lango.store import Store
from lango.store.sessions.sessions import find_session
from lango.store.sessions.window import read_session_events
from lango.testing import ScriptedProvider
from tests.agents.memory_parts import Roles, remembering
from tests.agents.parts import broken_for, messages, settings_for
from tests.support.runtimes import store_of

LONG = "word " * 60


class Own(BaseLlm):
    """A user's own model, which calls `look` in every turn with the same id."""

    content_counts: list[int] = []  # noqa: RUF012 - pydantic copies it

    async def generate_content_async(
        self, llm_request: LlmRequest, stream: bool = False
    ) -> AsyncGenerator[LlmResponse, None]:
        self.content_counts.append(len(llm_request.contents))
        last = (llm_request.contents[-1].parts or [])[0]
        call = types.FunctionCall(id="call_0", name="look", args={})
        part = types.Part(text="seen") if last.function_response else types.Part(function_call=call)
        yield LlmResponse(content=types.Content(role="model", parts=[part]))


def look() -> str:
    """Look."""
    return LONG


def small(url: str) -> Settings:
    return settings_for(url).model_copy(
        update={"history": Settings.model_validate({"history": {"max_message_token_budget": 300}}).history}
    )


def warnings_in(caplog: pytest.LogCaptureFixture) -> list[str]:
    found = [record.getMessage() for record in caplog.records if "left out" in record.getMessage()]
    caplog.clear()
    return found


async def in_all(store: Store, app_name: str, user_id: str = "user") -> int:
    session = await store.read(find_session, SessionId(app_name, user_id, "s"))
    assert session
    return session.last_seq


class Talk:
    """A session in a user's own Runner, on our service."""

    def __init__(self, service: SqlSessionService, model: BaseLlm) -> None:
        agent = LlmAgent(name="mine", model=model, tools=[FunctionTool(look)])
        self._runner = Runner(app_name="app", agent=agent, session_service=service)
        self._service = service

    async def begin(self) -> None:
        await self._service.create_session(app_name="app", user_id="user", session_id="s")

    async def say(self, text: str) -> None:
        message = types.Content(role="user", parts=[types.Part(text=text)])
        async for _ in self._runner.run_async(user_id="user", session_id="s", new_message=message):
            pass


async def call_ids(store: Store, app_name: str) -> list[str]:
    found = await store.read(read_session_events, SessionId(app_name, "user", "s"))
    assert found
    stored = [row.message for row in found[1] if row.message]
    made = [call.id for message in stored if message.role == "assistant" for call in message.tool_calls]
    answered = [call.id for message in stored if message.role == "tool" for call in message.tool_calls]
    assert made == answered
    return made


# H2


async def test_h2_a_load_in_a_users_runner_logs_once_what_it_leaves_out(
    store_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with SqlSessionService(store_url, budget_tokens=300) as service:
        talk = Talk(service, Own(model="own"))
        await talk.begin()
        await talk.say("look")
        assert warnings_in(caplog) == [], "nothing was left out"
        for _ in range(4):
            await talk.say("look")
        caplog.clear()
        stored = await in_all(service.store, "app")
        session = await service.get_session(app_name="app", user_id="user", session_id="s")
        assert session
        left_out = stored - len(session.events)
        warning = f"the history is larger than its budget: left out {left_out} of {stored} messages"
        assert warnings_in(caplog) == [warning]
        await talk.say("look")
        assert warnings_in(caplog) == [warning], "a single warning, though the model was called twice"


async def test_h2_a_lango_model_does_not_log_again_what_the_load_left_out(
    sqlite_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with SqlSessionService(sqlite_url, budget_tokens=300) as service:
        provider = ScriptedProvider([LONG] * 6)
        talk = Talk(service, ProviderLlm(provider, "m"))
        await talk.begin()
        for _ in range(5):
            await talk.say(LONG)
        caplog.clear()
        await talk.say(LONG)
        assert len(warnings_in(caplog)) == 1


async def test_h2_the_runtime_logs_what_a_users_own_model_does_not_get(
    sqlite_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    root = LlmAgent(name="mine", model=Own(model="own"), tools=[FunctionTool(look)])
    async with open_runtime(small(sqlite_url), root_agent=root) as runtime:
        for _ in range(6):
            await runtime.run("s", "look")
        await runtime.run("other", "look")
    [warning] = warnings_in(caplog)
    assert warning.startswith("session s: "), "one per session"
    assert "at most 300 tokens of messages, which `history.max_message_token_budget`" in warning


async def test_h2_messages_left_out_besides_the_memory_are_logged(
    sqlite_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The observer fails, and the budget is too small for the messages that are not observed yet."""
    roles = Roles(agent=lambda _: LONG, observer=lambda _: ProviderRejected("no"))
    async with open_runtime(
        remembering(sqlite_url, history={"max_message_token_budget": 300}), provider=roles.provider
    ) as runtime:
        warnings: list[str] = []
        while not warnings:
            await runtime.run("s", LONG)
            await runtime.memory.settle()
            warnings = warnings_in(caplog)
        stored = await in_all(store_of(runtime), runtime.app_name) - 1
        sent = len(roles.agent[-1].messages)
        await runtime.run("s", LONG)
        assert warnings_in(caplog) == [], "one per session"
    [warning] = warnings
    assert f"left out {stored - sent} of {stored} messages" in warning


async def test_h2_observed_messages_are_quoted_and_do_not_count_as_left_out(
    sqlite_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    roles = Roles()
    async with open_runtime(remembering(sqlite_url), provider=roles.provider) as runtime:
        for _ in range(4):
            await runtime.run("s", LONG)
            await runtime.memory.settle()
        assert roles.observer
        assert len(roles.agent[-1].messages) < await in_all(store_of(runtime), runtime.app_name)
    assert warnings_in(caplog) == []


# M6

AGAIN = [part for _ in range(6) for part in (ToolCall("call_0", "look", {}), LONG)]


async def test_m6_one_id_for_every_call_is_made_unique_beyond_the_window(store_url: str) -> None:
    provider = ScriptedProvider(AGAIN)
    root = LlmAgent(name="mine", model="openai/x", tools=[FunctionTool(look)])
    async with open_runtime(small(store_url), provider=provider, root_agent=root) as runtime:
        for _ in range(6):
            await runtime.run("s", LONG)
        made = await call_ids(store_of(runtime), runtime.app_name)
    assert len(set(made)) == 6, made
    assert made[0] == "call_0", "while the whole session is loaded, a new id is kept"
    assert all(broken_for(request) == [] for request in provider.requests)


async def test_m6_calls_of_a_users_own_model_get_unique_ids_beyond_the_window(sqlite_url: str) -> None:
    root = LlmAgent(name="mine", model=Own(model="own"), tools=[FunctionTool(look)])
    async with open_runtime(small(sqlite_url), root_agent=root) as runtime:
        for _ in range(6):
            await runtime.run("s", LONG)
        assert len(set(await call_ids(store_of(runtime), runtime.app_name))) == 6


async def test_m6_ids_are_unique_beyond_the_window_in_a_users_runner(store_url: str) -> None:
    async with SqlSessionService(store_url, budget_tokens=300) as service:
        talk = Talk(service, ProviderLlm(ScriptedProvider(AGAIN), "m"))
        await talk.begin()
        for _ in range(6):
            await talk.say(LONG)
        assert len(set(await call_ids(service.store, "app"))) == 6


async def test_m6_ids_are_unique_among_observed_calls_too(sqlite_url: str) -> None:
    script = iter(AGAIN)
    roles = Roles(agent=lambda _: next(script))
    root = LlmAgent(name="mine", model="openai/x", tools=[FunctionTool(look)])
    async with open_runtime(remembering(sqlite_url), provider=roles.provider, root_agent=root) as runtime:
        for _ in range(6):
            await runtime.run("s", LONG)
            await runtime.memory.settle()
        assert roles.observer
        assert len(set(await call_ids(store_of(runtime), runtime.app_name))) == 6


async def test_m6_an_id_of_a_rewound_call_is_not_used_again(sqlite_url: str) -> None:
    provider = ScriptedProvider(AGAIN)
    root = LlmAgent(name="mine", model="openai/x", tools=[FunctionTool(look)])
    async with open_runtime(settings_for(sqlite_url), provider=provider, root_agent=root) as runtime:
        await runtime.run("s", "look")
        await runtime.sessions.rewind("s", before=1)
        await runtime.run("s", "look")
        assert len(set(await call_ids(store_of(runtime), runtime.app_name))) == 2


@pytest.mark.parametrize("kind", ["sub-agents", "no contents"])
async def test_m6_ids_of_calls_outside_of_the_request_are_not_used_again(sqlite_url: str, kind: str) -> None:
    """ADK quotes the calls of other agents as text, and shows an agent without contents its own turn alone."""
    tools: list[Any] = [FunctionTool(look)]
    call = ToolCall("call_0", "look", {})
    if kind == "sub-agents":
        poet = LlmAgent(name="poet", model="openai/x", description="Writes.", tools=tools)
        root = LlmAgent(name="mine", model="openai/x", tools=tools, sub_agents=[poet])
        moved = ToolCall("call_9", "transfer_to_agent", {"agent_name": "poet"})
        script: list[Any] = [call, "seen", moved, call, "seen"]
    else:
        root = LlmAgent(name="mine", model="openai/x", tools=tools, include_contents="none")
        script = [call, "seen", call, "seen"]
    async with open_runtime(settings_for(sqlite_url), provider=ScriptedProvider(script), root_agent=root) as runtime:
        await runtime.run("s", "look")
        await runtime.run("s", "look again")
        made = [call.id for m in await messages(runtime) if m.role == "assistant" for call in m.tool_calls]
    assert len(set(made)) == len(made), made


@pytest.mark.parametrize(
    "given",
    [
        "call_Zk3mQ9xTb7Lw2Rp5Vn8Hc4Yd",
        "toolu_01A09q90qw90lq917835lq9",
        "chatcmpl-tool-4b5c8f0de2a94f6f8f3c7d1e5a6b7c8d",
        "D681PevKs",
        "0199c2f1-6d1e-7bb2-9c51-2f0a4de1b9a7",
    ],
)
async def test_m6_a_random_id_is_kept(sqlite_url: str, given: str) -> None:
    provider = ScriptedProvider([*[LONG] * 4, ToolCall(given, "look", {}), "seen"])
    root = LlmAgent(name="mine", model="openai/x", tools=[FunctionTool(look)])
    async with open_runtime(small(sqlite_url), provider=provider, root_agent=root) as runtime:
        for _ in range(5):
            await runtime.run("s", LONG)
        assert await call_ids(store_of(runtime), runtime.app_name) == [given]


@pytest.mark.parametrize("given", ["0", "call_7", "functions.look:3", "call_look", "call_transfer_to_agent_2", "c12"])
async def test_m6_a_counted_id_or_a_name_is_replaced(sqlite_url: str, given: str) -> None:
    provider = ScriptedProvider([*[LONG] * 4, ToolCall(given, "look", {}), "seen"])
    root = LlmAgent(name="mine", model="openai/x", tools=[FunctionTool(look)])
    async with open_runtime(small(sqlite_url), provider=provider, root_agent=root) as runtime:
        for _ in range(5):
            await runtime.run("s", LONG)
        assert given not in await call_ids(store_of(runtime), runtime.app_name)
