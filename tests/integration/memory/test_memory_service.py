"""ADK's memory tools in the runtime, and in a user's own Runner."""

import json
from pathlib import Path
from typing import Any

from google.adk import Runner
from google.adk.agents import LlmAgent
from google.adk.agents.callback_context import CallbackContext
from google.adk.tools import ToolContext, load_memory, preload_memory  # pyright: ignore[reportUnknownVariableType]
from google.genai import types

from lango import Settings, open_runtime
from lango.adk import ProviderLlm, SqlMemoryService, SqlSessionService
from lango.messages import ToolCall
from lango.store.memory.user_facts import Fact, add_facts
from lango.testing import ScriptedProvider
from tests.agents.parts import results_in, rows, settings_for
from tests.support.kill_points import Journal, PlannedModel, check_resumed, go_on, left_behind, run_and_copy
from tests.support.runtimes import store_of


def agent(*tools: Any, **fields: Any) -> LlmAgent:
    return LlmAgent(name="helper", tools=list(tools), **fields)


def memories_in(result: Any) -> list[str]:
    result = result.get("result", result)  # as ADK itself stores it
    assert "null" not in json.dumps(result)
    return [entry["content"]["parts"][0]["text"] for entry in result["memories"]]


async def test_load_memory_finds_other_conversations_and_facts_of_the_user(store_url: str) -> None:
    asks = ToolCall("c1", "load_memory", {"query": "what is the name of my boat?"})
    provider = ScriptedProvider(["Nice boat!", "Hello, Bob.", asks, "She is called Nina."])
    async with open_runtime(settings_for(store_url), provider=provider, root_agent=agent(load_memory)) as runtime:
        await runtime.run("first", "My boat is called Nina.")
        await runtime.run("his", "My boat is called Otto.", user_id="bob")
        [[key]] = await rows(store_of(runtime), "SELECT session_key FROM sessions WHERE id = 'first'")
        await store_of(runtime).write(add_facts, runtime.app_name, "user", key, [Fact("boat", "a ketch", 1, 1)], 1.0)
        assert await runtime.run("second", "what is the name of my boat?") == "She is called Nina."
    found = memories_in(results_in(provider.requests[-1])["c1"])
    assert found == ["Nice boat!", "My boat is called Nina.", "boat: a ketch"]


async def test_preload_memory_quotes_what_is_known_and_not_the_question_itself(store_url: str) -> None:
    provider = ScriptedProvider(["Noted.", "Green.", "Still green."])
    async with open_runtime(settings_for(store_url), provider=provider, root_agent=agent(preload_memory)) as runtime:
        await runtime.run("first", "My boat is green.")
        await runtime.run("second", "Which color has my boat?")
        await runtime.run("second", "And the color of the boat now?")
    texts = ["\n".join(message.content for message in request.messages) for request in provider.requests]
    assert "PAST_CONVERSATIONS" not in texts[0]
    assert "user: My boat is green." in texts[1]
    assert texts[2].count("Which color has my boat?") == 1  # the model is shown the session anyway


async def test_what_did_not_fit_the_window_is_recalled(sqlite_url: str) -> None:
    asks = ToolCall("c1", "load_memory", {"query": "harbour"})
    provider = ScriptedProvider([*["Yes."] * 4, asks, "In Kiel."])
    settings = Settings.model_validate({"store": {"url": sqlite_url}, "history": {"max_message_token_budget": 3000}})
    async with open_runtime(settings, provider=provider, root_agent=agent(load_memory)) as runtime:
        await runtime.run("s", "The harbour is Kiel.")
        for _ in range(3):
            await runtime.run("s", "words " * 1200)
        await runtime.run("s", "Which harbour?")
    assert memories_in([*results_in(provider.requests[-1]).values()][-1]) == ["The harbour is Kiel."]


async def test_a_tool_and_a_callback_add_and_search_memories(store_url: str) -> None:
    async def remember(text: str, tool_context: ToolContext) -> str:
        """Remember a text."""
        from google.adk.memory.memory_entry import MemoryEntry

        content = types.Content(role="user", parts=[types.Part(text=text)])
        await tool_context.add_memory(memories=[MemoryEntry(content=content)])
        found = await tool_context.search_memory(text)
        return str(len(found.memories))

    async def add_session(callback_context: CallbackContext) -> None:
        await callback_context.add_session_to_memory()

    provider = ScriptedProvider([ToolCall("c1", "remember", {"text": "likes rowing"}), "Done."])
    root = agent(remember, after_agent_callback=add_session)
    async with open_runtime(settings_for(store_url), provider=provider, root_agent=root) as runtime:
        await runtime.run("s", "remember this")
        assert results_in(provider.requests[-1])["c1"] == {"result": "1"}
        assert await rows(store_of(runtime), "SELECT text FROM memory_entries") == [("likes rowing",)]


async def test_a_users_own_runner_recalls_what_it_added(store_url: str) -> None:
    asks = ToolCall("c1", "load_memory", {"query": "boat"})
    provider = ScriptedProvider(["Nice!", asks, "Nina."])
    root = agent(load_memory, model=ProviderLlm(provider, "m"))
    async with SqlSessionService(store_url) as sessions, SqlMemoryService(store_url) as memory:
        runner = Runner(app_name="a", agent=root, session_service=sessions, memory_service=memory)
        for id_, text in (("one", "My boat is called Nina."), ("two", "The name of my boat?")):
            await sessions.create_session(app_name="a", user_id="u", session_id=id_)
            message = types.Content(role="user", parts=[types.Part(text=text)])
            async for _ in runner.run_async(user_id="u", session_id=id_, new_message=message):
                pass
            made = await sessions.get_session(app_name="a", user_id="u", session_id=id_)
            assert made
            await memory.add_session_to_memory(made)
    assert memories_in(results_in(provider.requests[-1])["c1"]) == ["My boat is called Nina."]


async def test_a_search_survives_a_kill_at_every_commit(tmp_path: Path) -> None:
    """It is harmless to search again: the model never reads that the outcome is unknown."""

    def make(journal: Journal) -> LlmAgent:
        plan = [{"name": "load_memory", "args": {"query": "boat"}}, "Nina."]
        return agent(
            load_memory, preload_memory, model=PlannedModel(model="m", plan=plan, agent="helper", journal=journal)
        )

    whole, copies = await run_and_copy(make, tmp_path)
    for copy in copies:
        before = left_behind(copy)
        resumed = await go_on(make, copy)
        check_resumed(copy.name, whole, before, resumed, in_order=True)
        assert not any("outcome is unknown" in line for line in resumed.story)


async def test_notes_about_other_conversations_are_found(store_url: str) -> None:
    asks = ToolCall("c1", "load_memory", {"query": "vessel"})
    provider = ScriptedProvider(["Nice!", "- [high] (1-1) The user's vessel is green.", asks, "Green."])
    settings = Settings.model_validate(
        {"store": {"url": store_url}, "memory": {"enabled": True, "observe_at_tokens": 10, "reflect_at_tokens": 500}}
    )
    async with open_runtime(settings, provider=provider, root_agent=agent(load_memory)) as runtime:
        await runtime.run("first", "I have a boat. She is called Nina, and she is green.")
        await runtime.memory.settle()
        await runtime.run("second", "color?")
    assert memories_in(results_in(provider.requests[3])["c1"]) == ["The user's vessel is green."]
