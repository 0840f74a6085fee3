"""S11: ADK's own server and runner work on our session service, unchanged and unmocked."""

import asyncio
import os
import re
import textwrap
import time
from collections.abc import AsyncGenerator, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from google.adk.agents import (
    LlmAgent,
    ParallelAgent,  # pyright: ignore[reportDeprecated]
)
from google.adk.models.base_llm import BaseLlm
from google.adk.models.llm_request import LlmRequest
from google.adk.models.llm_response import LlmResponse
from google.adk.runners import Runner
from google.adk.tools.tool_context import ToolContext
from google.genai import types

from lango.adk.services.session_service import SqlSessionService
from tests.support.processes import TIMEOUT_S, ForkedProcess

AGENT = '''
from google.adk.agents import LlmAgent
from google.adk.models import BaseLlm, LlmResponse
from google.genai import types


def count(city: str, tool_context) -> dict:
    """Count something in a city."""
    tool_context.state["counted"] = tool_context.state.get("counted", 0) + 1
    return {"city": city, "count": 42}


class Scripted(BaseLlm):
    async def generate_content_async(self, llm_request, stream=False):
        parts = [part for content in llm_request.contents for part in content.parts]
        if parts[-1].text and "count" in parts[-1].text:
            part = types.Part(function_call=types.FunctionCall(id="c1", name="count", args={"city": "Bern"}))
        else:
            heard = " | ".join(part.text for part in parts if part.text)
            part = types.Part(text=f"heard {len(parts)} parts: {heard}")
        yield LlmResponse(content=types.Content(role="model", parts=[part]))


root_agent = LlmAgent(name="helper", model=Scripted(model="scripted"), tools=[count])
'''


@pytest.fixture
def agents(tmp_path: Path) -> Path:
    """Make an agents folder for `adk`, with a line that registers our URIs."""
    folder = tmp_path / "agents"
    (folder / "helper").mkdir(parents=True)
    (folder / "helper" / "__init__.py").write_text("from . import agent\n")
    (folder / "helper" / "agent.py").write_text(textwrap.dedent(AGENT))
    (folder / "services.py").write_text("import lango.adk.registry\n")
    return folder


@contextmanager
def api_server(agents: Path, uri: str) -> Generator[httpx.Client]:
    """Run the real command until the block ends."""
    command = ("adk", "api_server", "--port", "0", "--session_service_uri", uri, str(agents))
    log = agents.parent / "log.txt"  # not a pipe, which would fill up unread
    with log.open("w") as output, Path(os.devnull).open() as nothing:
        streams = nothing.fileno(), output.fileno(), output.fileno()
        process = ForkedProcess(command, agents.parent, os.environ, streams)
        try:
            with httpx.Client(base_url=_address(process, log), timeout=TIMEOUT_S) as client:
                yield client
        finally:
            process.terminate()
            process.wait(TIMEOUT_S)


def _address(process: ForkedProcess, log: Path) -> str:
    while not (found := re.search(r"running on (http://\S+)\s", log.read_text())):
        assert process.poll() is None, log.read_text()
        time.sleep(0.02)
    return found[1]


def message(text: str) -> dict[str, Any]:
    names = {"app_name": "helper", "user_id": "user", "session_id": "s1"}
    return names | {"new_message": {"role": "user", "parts": [{"text": text}]}}


def texts(events: list[dict[str, Any]]) -> list[str]:
    parts: list[dict[str, Any]] = [part for event in events for part in event["content"]["parts"]]
    return [part["text"] for part in parts if "text" in part]


SESSION = "/apps/helper/users/user/sessions/s1"


@pytest.mark.long
async def test_s11_adk_api_server_runs_turns_on_our_store_and_finds_them_after_a_restart(
    agents: Path, store_url: str
) -> None:
    uri = f"lango+{store_url}"
    with api_server(agents, uri) as client:
        assert client.post(SESSION, json={"user:name": "Ada"}).json()["state"] == {"user:name": "Ada"}
        first = client.post("/run", json=message("please count")).json()
        assert texts(first) == ["heard 3 parts: please count"]
        with client.stream("POST", "/run_sse", json=message("hello") | {"streaming": True}) as response:
            streamed = "".join(response.iter_text())
        assert "heard 5 parts: please count | heard 3 parts: please count | hello" in streamed
        before = client.get(SESSION).json()
    assert before["state"] == {"user:name": "Ada", "counted": 1}
    calls = [part for event in before["events"] for part in event["content"]["parts"] if "functionCall" in part]
    assert [part["functionCall"]["id"] for part in calls] == ["c1"]

    async with SqlSessionService(store_url) as service:
        session = await service.get_session(app_name="helper", user_id="user", session_id="s1")
        assert session
        assert [event.id for event in session.events] == [event["id"] for event in before["events"]]
        assert [event.author for event in session.events] == ["user", "helper", "helper", "helper", "user", "helper"]
        assert session.state == before["state"]

    with api_server(agents, uri) as client:
        assert client.get(SESSION).json() == before
        [again] = texts(client.post("/run", json=message("still there?")).json())
        assert again.startswith("heard 7 parts: please count | ")
        assert [session["id"] for session in client.get("/apps/helper/users/user/sessions").json()] == ["s1"]
        client.delete(SESSION).raise_for_status()
        assert client.get(SESSION).status_code == 404


# -- a user's own Runner --------------------------------------------------------------------------------------------


class Echo(BaseLlm):
    """A model that calls a tool for a message about counting, and otherwise repeats what it was sent."""

    async def generate_content_async(
        self, llm_request: LlmRequest, stream: bool = False
    ) -> AsyncGenerator[LlmResponse, None]:
        parts = [part for content in llm_request.contents for part in content.parts or ()]
        if (parts[-1].text or "").startswith("count"):
            call = types.FunctionCall(name="count", args={"city": parts[-1].text})
            yield LlmResponse(content=types.Content(role="model", parts=[types.Part(function_call=call)]))
            return
        heard = [part.text or (part.function_call and "<call>") or "<result>" for part in parts]
        yield LlmResponse(content=types.Content(role="model", parts=[types.Part(text=f"[{' '.join(heard)}]")]))


def count(city: str, tool_context: ToolContext) -> dict[str, object]:
    """Count something in a city."""
    tool_context.state["counted"] = city
    return {"count": len(city)}


def runner_on(service: SqlSessionService) -> Runner:
    agent = LlmAgent(name="helper", model=Echo(model="echo"), tools=[count])
    return Runner(app_name="app", agent=agent, session_service=service)


async def run_turn(runner: Runner, text: str) -> tuple[str, str]:
    """Run a turn; return its last text and its invocation."""
    content = types.Content(role="user", parts=[types.Part(text=text)])
    last, invocation = "", ""
    async for event in runner.run_async(user_id="user", session_id="s", new_message=content):
        invocation = event.invocation_id
        if event.content and event.content.parts and event.content.parts[0].text:
            last = event.content.parts[0].text
    return last, invocation


@pytest.mark.parametrize("budget_tokens", [None, 32_000])
async def test_s11_a_runner_with_a_tool_and_a_rewind(store_url: str, budget_tokens: int | None) -> None:
    # without a budget, ADK computes the restored state from events only, and forgets the session's first state
    kept = {"kept": 1} if budget_tokens else {}
    async with SqlSessionService(store_url, budget_tokens=budget_tokens) as service:
        await service.create_session(app_name="app", user_id="user", session_id="s", state=dict(kept))
        async with runner_on(service) as runner:
            assert (await run_turn(runner, "one"))[0] == "[one]"
            answer, invocation = await run_turn(runner, "count this")
            assert answer == "[one [one] count this <call> <result>]"
            session = await service.get_session(app_name="app", user_id="user", session_id="s")
            assert session
            assert session.state == kept | {"counted": "count this"}
            await runner.rewind_async(user_id="user", session_id="s", rewind_before_invocation_id=invocation)
            assert (await run_turn(runner, "two"))[0] == "[one [one] two]", "what was taken back is not shown"
            session = await service.get_session(app_name="app", user_id="user", session_id="s")
            assert session
            assert {key: value for key, value in session.state.items() if value is not None} == kept
            assert (await run_turn(runner, "three"))[0] == "[one [one] two [one [one] two] three]"


def test_s11_adks_synchronous_run_uses_another_event_loop_each_time(store_url: str) -> None:
    service = SqlSessionService(store_url)
    asyncio.run(service.create_session(app_name="app", user_id="user", session_id="s"))
    runner = runner_on(service)
    answers: list[str] = []
    for text in ("one", "two", "three"):
        content = types.Content(role="user", parts=[types.Part(text=text)])
        for event in runner.run(user_id="user", session_id="s", new_message=content):
            assert event.content
            assert event.content.parts
            answers.append(event.content.parts[0].text or "")
    assert answers[:2] == ["[one]", "[one [one] two]"]
    assert answers[2] == "[one [one] two [one [one] two] three]"
    session = asyncio.run(service.get_session(app_name="app", user_id="user", session_id="s"))
    assert session
    assert len(session.events) == 6
    asyncio.run(service.close())


@pytest.mark.filterwarnings("ignore:ParallelAgent is deprecated:DeprecationWarning")
async def test_s11_agents_in_parallel_share_a_session(service: SqlSessionService) -> None:
    branches = [LlmAgent(name=f"a{n}", model=Echo(model="echo"), tools=[count]) for n in range(5)]
    agent = ParallelAgent(name="all", sub_agents=[*branches])  # pyright: ignore[reportDeprecated]
    await service.create_session(app_name="app", user_id="user", session_id="s")
    async with Runner(app_name="app", agent=agent, session_service=service) as runner:
        await run_turn(runner, "count")
    found = await service.get_session(app_name="app", user_id="user", session_id="s")
    assert found
    assert len(found.events) == 1 + 5 * 3, "a call, a result and an answer of each"
    assert sorted(event.author for event in found.events[1:]) == sorted(f"a{n}" for n in range(5) for _ in range(3))
    assert {event.branch for event in found.events[1:]} == {f"all.a{n}" for n in range(5)}
    for event in found.events:
        assert event.content
