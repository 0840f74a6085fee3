"""Sessions belong to an app with the agent's name; those of earlier versions stay where they are."""

from pathlib import Path

import pytest
from google.adk.agents import LlmAgent
from google.adk.apps import App

from lango import open_runtime
from lango.errors import ConfigError
from lango.runtime.opening import open_runtimes
from lango.testing import ScriptedProvider
from tests.agents.parts import settings_for

SOLO = str(Path(__file__).parents[2] / "agents" / "solo.py")
FOLDER = Path(__file__).parents[2] / "support" / "servers" / "agent_folder"


async def test_the_app_has_the_name_of_its_agent_unless_it_is_named(sqlite_url: str) -> None:
    own = LlmAgent(name="own", model="openai/gpt-x")
    for settings, given, expected in (
        (settings_for(sqlite_url), None, "lango"),
        (settings_for(sqlite_url, module=SOLO), None, "solo"),
        (settings_for(sqlite_url, module=SOLO, name="notes"), None, "notes"),
        (settings_for(sqlite_url), own, "own"),
        (settings_for(sqlite_url), App(name="whole", root_agent=own), "whole"),
    ):
        async with open_runtime(settings, provider=ScriptedProvider([]), root_agent=given) as runtime:
            assert runtime.app_name == expected


async def test_sessions_under_the_former_default_name_are_kept(store_url: str) -> None:
    """Earlier versions stored the sessions of every agent under `lango`."""
    former = settings_for(store_url, module=SOLO, name="lango")
    async with open_runtime(former, provider=ScriptedProvider(["first"])) as runtime:
        await runtime.run("s", "hi")
    async with open_runtime(settings_for(store_url, module=SOLO), provider=ScriptedProvider(["second"])) as runtime:
        assert runtime.app_name == "lango"
        await runtime.run("s", "and now?")
        assert [stored.message and stored.message.content for stored in await runtime.sessions.messages("s")][
            -1
        ] == "second"
    other = LlmAgent(name="other", model="openai/gpt-x")
    async with open_runtime(settings_for(store_url), provider=ScriptedProvider([]), root_agent=other) as runtime:
        assert runtime.app_name == "other", "these sessions are not its own"


async def test_agents_of_one_folder_share_the_store_and_no_session(sqlite_url: str) -> None:
    paths = [str(FOLDER / name) for name in ("anna", "ben")]
    async with open_runtimes(settings_for(sqlite_url), paths) as (anna, ben):
        assert await anna.run("s", "hi") == "anna heard hi"
        assert await ben.run("s", "hi") == "ben heard hi"
        assert anna.store is ben.store
        assert [one.message and one.message.author for one in await ben.sessions.messages("s")] == ["user", "ben"]
    with pytest.raises(ConfigError, match=r"agent\.name cannot name several agents"):
        async with open_runtimes(settings_for(sqlite_url, name="both"), paths):
            pass
