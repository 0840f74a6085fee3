"""Sessions belong to an app with the agent's name."""

from pathlib import Path

import pytest
from google.adk.agents import LlmAgent
from google.adk.apps import App

from lango import open_runtime
from lango.errors import ConfigError
from lango.runtime.opening import open_runtimes
from lango.testing import ScriptedProvider
from tests.agents.parts import settings_for
from tests.support.runtimes import store_of

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


async def test_agents_of_one_folder_share_the_store_and_no_session(sqlite_url: str) -> None:
    paths = [str(FOLDER / name) for name in ("anna", "ben")]
    async with open_runtimes(settings_for(sqlite_url), paths) as opened:
        anna, ben = opened.runtimes
        assert await anna.run("s", "hi") == "anna heard hi"
        assert await ben.run("s", "hi") == "ben heard hi"
        assert store_of(anna) is store_of(ben)
        assert [one.message and one.message.author for one in await ben.sessions.messages("s")] == ["user", "ben"]
    with pytest.raises(ConfigError, match=r"agent\.name cannot name several agents"):
        async with open_runtimes(settings_for(sqlite_url, name="both"), paths):
            pass
