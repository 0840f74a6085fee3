"""A session has the model and the instruction that were chosen for it, where the settings allow a choice."""

import itertools
from pathlib import Path
from typing import Any

import pytest
from google.adk.agents import LlmAgent
from google.adk.workflow import Workflow

from lango import Settings, Tool, open_runtime
from lango.errors import ConfigError, SessionNotFound, SessionOptionsRefused
from lango.messages import ToolCall
from lango.providers import Request
from lango.store.sessions.sessions import SessionOptions, read_options
from lango.testing import Answer, ScriptedProvider
from tests.agents.parts import settings_for
from tests.support.kill_points import copy_after_each_commit, until_idle
from tests.support.runtimes import store_of


def note(text: str) -> str:
    return text


NOTE = Tool("note", "Note a text.", {"type": "object", "properties": {"text": {"type": "string"}}}, note)
CHOSEN: dict[str, str | None] = {"model": "openai/large", "instruction": "Answer in {rhyme}."}


def allowing(url: str, **agent: Any) -> Settings:
    chosen: dict[str, Any] = {
        "choices": {"models": ["openai/large"], "instruction": True},
        "instruction": "Be {mood?}kind.",
    } | agent
    return settings_for(url, model="openai/small", **chosen)


def answer(request: Request) -> Answer:
    return "done" if request.messages[-1].role == "tool" else ToolCall("c1", "note", {"text": "x"})


def seen(provider: ScriptedProvider) -> list[tuple[str, str]]:
    return [(request.model, request.system.splitlines()[0]) for request in provider.requests]


async def test_a_choice_holds_for_its_session_and_its_forks_until_it_is_undone(store_url: str) -> None:
    provider = ScriptedProvider(["answer"] * 6)
    async with open_runtime(allowing(store_url), provider=provider) as runtime:
        await runtime.run("s", "before")
        await runtime.options.change("s", CHOSEN)
        await runtime.run("s", "chosen")
        await runtime.sessions.fork("s", new_id="fork")
        await runtime.run("fork", "as its source")
        await runtime.run("other", "not chosen")
        await runtime.options.change("s", {"model": None})
        await runtime.run("s", "the instruction stays")
        assert (await runtime.options.read("s")).instruction == CHOSEN["instruction"]
        key = (await runtime.sessions.read("s")).key
        await runtime.sessions.delete("s")
        assert await store_of(runtime).read(read_options, key) == SessionOptions(), "nothing is left"
        await runtime.sessions.create("s")
        await runtime.run("s", "another session of that name")
    configured, chosen = ("small", "Be kind."), ("large", "Answer in {rhyme}.")
    assert seen(provider) == [configured, chosen, chosen, configured, ("small", chosen[1]), configured]


async def test_another_process_goes_on_with_what_was_chosen(tmp_path: Path) -> None:
    provider = ScriptedProvider(itertools.repeat(answer))
    async with open_runtime(allowing(f"sqlite:///{tmp_path}/first.db"), tools=[NOTE], provider=provider) as first:
        await first.sessions.create("s")
        await first.options.change("s", CHOSEN)

        async def run() -> None:
            await first.run("s", "go")

        copies = await copy_after_each_commit(first, tmp_path, run)
    left = set[int]()
    for copy in copies:
        later_provider = ScriptedProvider(itertools.repeat(answer))
        async with open_runtime(allowing(f"sqlite:///{copy}"), tools=[NOTE], provider=later_provider) as later:
            await until_idle(later)
        assert {*seen(later_provider)} <= {("large", "Answer in {rhyme}.")}, copy.name
        left.add(len(later_provider.requests))
    assert {0, 1, 2} <= left, "killed before the first model call, between the two, and after both"


async def test_what_the_settings_do_not_allow_is_refused_with_a_sentence(sqlite_url: str) -> None:
    async with open_runtime(settings_for(sqlite_url), provider=ScriptedProvider([])) as runtime:
        await runtime.sessions.create("s")
        with pytest.raises(SessionOptionsRefused, match=r"in the setting agent\.choices\.models"):
            await runtime.options.change("s", {"model": "openai/large"})
        with pytest.raises(SessionOptionsRefused, match=r"set agent\.choices\.instruction = true"):
            await runtime.options.change("s", {"instruction": "Be rude."})
    async with open_runtime(allowing(sqlite_url), provider=ScriptedProvider(["answer"])) as runtime:
        with pytest.raises(
            SessionOptionsRefused, match=r"'openai/huge' is not one of agent\.choices\.models: openai/large"
        ):
            await runtime.options.change("s", {"model": "openai/huge"})
        with pytest.raises(SessionNotFound):
            await runtime.options.change("missing", CHOSEN)
        await runtime.options.change("s", CHOSEN)
    narrower = allowing(sqlite_url, choices={"models": ["openai/other"], "instruction": True})
    async with open_runtime(narrower, provider=ScriptedProvider(["answer"])) as runtime:
        with pytest.raises(SessionOptionsRefused, match="'openai/large' is not one of"):
            await runtime.run("s", "hi")


async def test_an_agent_that_cannot_be_changed_is_known_at_the_start(
    sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "k")
    own = LlmAgent(name="own", model="gemini-flash-latest")
    workflow = Workflow(name="steps", edges=[("START", LlmAgent(name="one", model="openai/small"))])
    for settings, root, sentence in (
        (
            settings_for(sqlite_url, choices={"models": ["openai/large"]}),
            own,
            "the model of own is a custom model object",
        ),
        (settings_for(sqlite_url, choices={"instruction": True}), workflow, "steps is a workflow"),
    ):
        with pytest.raises(ConfigError, match=sentence):
            async with open_runtime(settings, root_agent=root):
                pass
