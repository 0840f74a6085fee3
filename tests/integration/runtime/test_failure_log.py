"""A failure of the user's own code is logged once, with its traceback and without secrets."""

import json
import logging
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from google.adk.agents import LlmAgent
from google.adk.apps import App
from google.adk.plugins import BasePlugin
from google.adk.workflow import START, Workflow

from lango import open_runtime
from lango.adk import AdkTool
from lango.errors import AgentFailed, ProviderRejected
from lango.messages import ToolCall
from lango.testing import ScriptedProvider
from lango.tools import Tool
from tests.agents.parts import settings_for

SECRET = "hunter2hunter2"


class Boom(Exception):
    """What the user's code raises."""


def fall(*_: Any, **__: Any) -> Any:
    """Fail."""
    raise Boom(f"no such drawer, {SECRET}")


def fall_as_tool() -> str:
    """Fail."""
    return fall()


class FailingPlugin(BasePlugin):
    async def before_model_callback(self, **_: Any) -> None:
        fall()


def agent(**more: Any) -> LlmAgent:
    return LlmAgent(name="mine", model="openai/x", **more)


def inner_flow() -> Workflow:
    return Workflow(name="outer", edges=[(START, Workflow(name="inner", edges=[(START, fall_as_tool)]))])


CASES: dict[str, tuple[Callable[[], Any], str, str]] = {
    "a tool of Lango's class": (
        lambda: agent(tools=[AdkTool(Tool("fall_as_tool", "Fail.", {"type": "object"}, fall))]),
        "tool fall_as_tool failed",
        "c1",
    ),
    "a tool of ADK's class": (
        lambda: agent(tools=[fall_as_tool]),
        "tool fall_as_tool failed in turn 1 of session s",
        "c1",
    ),
    "a callback": (lambda: agent(before_model_callback=fall), "the agent failed in turn 1 of session s", ""),
    "a plugin": (
        lambda: App(name="mine", root_agent=agent(), plugins=[FailingPlugin(name="own")]),
        "the agent failed in turn 1 of session s",
        "",
    ),
    "a node inside a workflow inside a workflow": (
        inner_flow,
        "node fall_as_tool failed in turn 1 of session s",
        "outer@1/inner@1/fall_as_tool@1",
    ),
}


@pytest.mark.parametrize(("root", "line", "step"), CASES.values(), ids=CASES.keys())
async def test_a_failure_is_logged_once_with_its_traceback(
    sqlite_url: str,
    root: Callable[[], Any],
    line: str,
    step: str,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SHOP_API_KEY", SECRET)
    provider = ScriptedProvider([ToolCall("c1", "fall_as_tool", {}), "a pity"])
    async with open_runtime(settings_for(sqlite_url), provider=provider, root_agent=root()) as runtime:
        with suppress(AgentFailed):  # a failed tool does not fail its turn
            await runtime.run("s", "go")
        [failure] = await runtime.sessions.failures("s")
    assert (failure.turn, failure.step, failure.what) == (1, step, line)
    assert (Path(failure.file).name, failure.function) == (Path(__file__).name, "fall")
    assert f"line {failure.line}, in fall\n" in failure.traceback
    assert SECRET not in failure.folded + failure.traceback + failure.error
    assert "of libraries]" in failure.folded
    assert "site-packages" not in failure.folded
    [record] = [one for one in caplog.records if one.name == "lango.failures"]
    assert (record.levelno, record.getMessage()) == (logging.ERROR, line)
    assert "in fall\n    raise Boom(" in str(record.exc_text), "the frame of the user's code"
    assert "Boom: no such drawer, [secret]" in str(record.exc_text)
    assert SECRET not in str(record.exc_text)
    assert "site-packages" not in str(record.exc_text), "frames of libraries are folded"


async def test_debug_logs_the_frames_of_libraries_too(sqlite_url: str, caplog: pytest.LogCaptureFixture) -> None:
    provider = ScriptedProvider([ToolCall("c1", "fall_as_tool", {}), "a pity"])
    root = agent(tools=[fall_as_tool])
    with caplog.at_level(logging.DEBUG, "lango.failures"):
        async with open_runtime(settings_for(sqlite_url), provider=provider, root_agent=root) as runtime:
            await runtime.run("s", "go")
    [record] = [one for one in caplog.records if one.name == "lango.failures"]
    assert "site-packages" in str(record.exc_text)


async def test_a_failure_without_code_of_the_users_own_shows_all_its_frames(sqlite_url: str) -> None:
    provider = ScriptedProvider([ToolCall("c1", "parse", {}), "a pity"])
    parse = AdkTool(Tool("parse", "Parse.", {"type": "object"}, json.loads))  # it takes no arguments of a tool
    async with open_runtime(settings_for(sqlite_url), provider=provider, root_agent=agent(tools=[parse])) as runtime:
        await runtime.run("s", "go")
        [failure] = await runtime.sessions.failures("s")
    assert (failure.file, failure.line) == ("", 0)
    assert failure.folded == failure.traceback


async def test_an_error_of_a_provider_is_no_failure_of_the_users_code(
    sqlite_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    provider = ScriptedProvider([ProviderRejected("no", provider="x", status=400)])
    async with open_runtime(settings_for(sqlite_url), provider=provider) as runtime:
        with pytest.raises(ProviderRejected):
            await runtime.run("s", "go")
    assert [one for one in caplog.records if one.name == "lango.failures"] == []
