"""The README's table, row by row: the same thing is tried on ADK alone and on Lango.

ADK's column describes what these tests observe. If a newer ADK makes a row untrue, its test fails: remove the row.
"""

import asyncio
import json
import math
import re
import textwrap
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from google.adk.agents import LlmAgent
from google.adk.events import Event
from google.adk.memory import SqliteMemoryService
from google.adk.models.base_llm import BaseLlm
from google.adk.models.llm_request import LlmRequest
from google.adk.models.llm_response import LlmResponse
from google.adk.runners import Runner
from google.adk.sessions import BaseSessionService, DatabaseSessionService, InMemorySessionService
from google.adk.sessions.sqlite_session_service import SqliteSessionService
from google.adk.tools import FunctionTool
from google.genai import types

from lango import open_runtime, tool
from lango.adk import ProviderLlm, SqlSessionService
from lango.errors import WaitNotOpen
from lango.messages import ToolCall
from lango.providers.anthropic import AnthropicProvider
from lango.testing import ScriptedProvider
from tests.agents.answers import approve
from tests.agents.parts import TIMEOUT_S, Gate, collect, results_in, settings_for
from tests.e2e.adk.test_adk_api_server import api_server
from tests.support import wire_rules
from tests.support.servers.server_process import resume, send_until, serving

if TYPE_CHECKING:
    from llmock.pytest_plugin import LLMock

NAMES: Any = {"app_name": "app", "user_id": "user", "session_id": "s"}
Service = BaseSessionService


class Scripted(BaseLlm):
    """A model for ADK that returns its parts in order, and keeps the requests."""

    script: list[Any]
    requests: list[list[types.Content]]

    async def generate_content_async(
        self, llm_request: LlmRequest, stream: bool = False
    ) -> AsyncGenerator[LlmResponse, None]:
        self.requests.append([content.model_copy(deep=True) for content in llm_request.contents])
        answer = self.script.pop(0)
        part: types.Part = answer if isinstance(answer, types.Part) else await answer()
        yield LlmResponse(content=types.Content(role="model", parts=[part]))


def scripted(*script: types.Part | Callable[[], Any]) -> Scripted:
    return Scripted(model="scripted", script=list(script), requests=[])


def text(value: str) -> types.Part:
    return types.Part(text=value)


def call(name: str, id_: str = "c1", **args: Any) -> types.Part:
    return types.Part(function_call=types.FunctionCall(id=id_, name=name, args=args))


def text_content(value: str, role: str = "user") -> types.Content:
    return types.Content(role=role, parts=[text(value)])


def parts_of(contents: list[types.Content]) -> list[types.Part]:
    return [part for content in contents for part in content.parts or ()]


@pytest.fixture(params=["DatabaseSessionService", "SqliteSessionService"])
async def service(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Service]:
    """Each of ADK's own services on a file."""
    if request.param == "SqliteSessionService":
        yield SqliteSessionService(f"{tmp_path}/adk.db")
        return
    database = DatabaseSessionService(f"sqlite+aiosqlite:///{tmp_path}/adk.db")
    yield database
    await database.close()


def test_every_row_has_its_test() -> None:
    readme = (Path(__file__).parents[3] / "README.md").read_text()
    table = readme.partition("## What it does that ADK alone does not")[2].partition("\n\n`tests/")[0]
    rows: list[str] = re.findall(r"^\| (\w[^|]+?) \|", table, re.MULTILINE)
    wanted = [f"test_{re.sub(r'[^a-z]+', '_', row.lower())}" for row in rows]
    there = [name for name in globals() if name.startswith("test_") and name != "test_every_row_has_its_test"]
    assert wanted == there


async def adk(service: Service, model: BaseLlm, **agent: Any) -> Runner:
    """ADK's Runner with one agent and an empty session."""
    await service.create_session(**NAMES)
    return Runner(app_name="app", agent=LlmAgent(name="helper", model=model, **agent), session_service=service)


async def run(runner: Runner, message: str | types.Content) -> list[Event]:
    content = text_content(message) if isinstance(message, str) else message
    return [event async for event in runner.run_async(user_id="user", session_id="s", new_message=content)]


async def events_in(service: Service) -> list[Event]:
    session = await service.get_session(**NAMES)
    assert session
    return session.events


async def test_a_crash_or_a_cancel_inside_a_tool(service: Service, sqlite_url: str) -> None:
    """A cancel in a tool; `benchmarks/crash.py` crashes both hundreds of times."""
    began = asyncio.Event()

    async def pay() -> None:
        """Pay."""
        began.set()
        await asyncio.Event().wait()

    model = scripted(call("pay"), text("fine"))
    runner = await adk(service, model, tools=[pay])
    task = asyncio.create_task(run(runner, "pay"))
    await asyncio.wait_for(began.wait(), TIMEOUT_S)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await run(runner, "and now?")
    stored = parts_of([event.content for event in await events_in(service) if event.content])
    assert [bool(part.function_call) for part in stored] == [False, True, False, False], "the call is stored"
    assert not any(part.function_response for part in stored), "and stays open"
    assert [part.text for part in parts_of(model.requests[-1])] == ["pay", "and now?"], "the model does not learn of it"

    gate = Gate()
    provider = ScriptedProvider([ToolCall("c1", gate.tool.name, {}), "fine"])
    async with open_runtime(settings_for(sqlite_url), provider=provider, tools=[gate.tool]) as runtime:
        turn = await runtime.submit("s", "pay")
        await gate.wait()
        assert await runtime.cancel("s")
        await collect(turn.follow())
        await runtime.run("s", "and now?")
    assert "outcome is unknown" in results_in(provider.requests[-1])["c1"]["error"]


async def test_two_messages_at_once(service: Service, sqlite_url: str) -> None:
    in_memory = InMemorySessionService()
    together = asyncio.Barrier(2)

    async def meet() -> types.Part:
        await asyncio.wait_for(together.wait(), TIMEOUT_S)
        return text("answer")

    runner = await adk(in_memory, scripted(meet, meet))
    await asyncio.gather(run(runner, "one"), run(runner, "two"))  # at the same time
    content_texts = [
        part.text for part in parts_of([event.content for event in await events_in(in_memory) if event.content])
    ]
    assert content_texts == ["one", "two", "answer", "answer"]

    began, may_end = asyncio.Event(), asyncio.Event()

    async def wait() -> types.Part:
        began.set()
        await asyncio.wait_for(may_end.wait(), TIMEOUT_S)
        return text("answer")

    runner = await adk(service, scripted(wait, text("answer")))
    first = asyncio.create_task(run(runner, "one"))
    await asyncio.wait_for(began.wait(), TIMEOUT_S)
    await run(runner, "two")  # it runs during the first
    may_end.set()
    with pytest.raises(ValueError, match=r"session|stale") as stale:
        await first
    assert type(stale.value).__name__ == "StaleSessionError"
    content_texts = [
        part.text for part in parts_of([event.content for event in await events_in(service) if event.content])
    ]
    assert content_texts == ["one", "two", "answer"], "the first one's answer is lost"

    provider = ScriptedProvider(["answer", "answer"])
    async with open_runtime(settings_for(sqlite_url), provider=provider) as runtime:
        await asyncio.gather(runtime.run("s", "one"), runtime.run("s", "two"))
        stored_texts = [
            (message.message.role, message.message.content)
            for message in await runtime.sessions.messages("s")
            if message.message
        ]
    assert stored_texts == [("user", "one"), ("assistant", "answer"), ("user", "two"), ("assistant", "answer")]


HOLDING = '''
import asyncio
from pathlib import Path

from google.adk.agents import LlmAgent
from google.adk.models import BaseLlm, LlmResponse
from google.genai import types


def piece(text, partial):
    return LlmResponse(content=types.Content(role="model", parts=[types.Part(text=text)]), partial=partial)


class Holding(BaseLlm):
    """A model that streams a word, and then waits until a file exists."""

    async def generate_content_async(self, llm_request, stream=False):
        folder = Path(llm_request.contents[-1].parts[-1].text)
        yield piece("begun ", True)
        try:
            while not (folder / "go").exists():
                await asyncio.sleep(0.01)
        except BaseException as error:  # a cancel, or the generator is closed
            (folder / "broken off").write_text(type(error).__name__)
            raise
        yield piece("ended", True)
        yield piece("begun ended", False)


root_agent = LlmAgent(name="helper", model=Holding(model="holding"))
'''


async def test_the_client_goes_away(tmp_path: Path, sqlite_url: str) -> None:
    agent = tmp_path / "agents" / "helper"
    agent.mkdir(parents=True)
    (agent / "__init__.py").write_text("from . import agent\n")
    (agent / "agent.py").write_text(textwrap.dedent(HOLDING))
    theirs, ours = tmp_path / "theirs", tmp_path / "ours"
    theirs.mkdir()
    with api_server(agent.parent, f"sqlite+aiosqlite:///{tmp_path}/adk.db") as client:
        place = "/apps/helper/users/user/sessions/s"
        client.post(place, json={}).raise_for_status()
        body = {
            "app_name": "helper",
            "user_id": "user",
            "session_id": "s",
            "streaming": True,
            "new_message": {"role": "user", "parts": [{"text": str(theirs)}]},
        }
        await asyncio.to_thread(leave_early, client, body)
        events: list[dict[str, Any]] = []
        async with asyncio.timeout(TIMEOUT_S):
            while len(events) < 2 or not (theirs / "broken off").exists():
                events = await asyncio.to_thread(lambda: client.get(place).json()["events"])
    assert events[1]["errorCode"] == "INVOCATION_ABORTED", "it ends with its connection"
    assert "content" not in events[1], "and there is no answer"

    ours.mkdir()
    with serving(ours, sqlite_url, agent=f"module = {json.dumps(str(agent / 'agent.py'))}") as server:
        async with server.client() as one:
            first = await send_until(one, "s", str(ours))
        (ours / "go").touch()
        async with server.client() as another:
            rest = await resume(another, "s", first[-1].id)
    assert "".join(event.data.get("text", "") for event in first + rest) == "begun ended"
    assert not (ours / "broken off").exists()


def leave_early(client: httpx.Client, body: dict[str, Any]) -> None:
    with client.stream("POST", "/run_sse", json=body) as response:
        for line in response.iter_lines():
            if "begun" in line:
                return


async def test_long_sessions(service: Service, sqlite_url: str) -> None:
    count = 40
    loaded: dict[str, int] = {}

    def look(name: str) -> Callable[..., None]:
        def note(callback_context: Any) -> None:
            loaded[name] = len(callback_context.session.events)

        return note

    model = scripted(text("fine"))
    runner = await adk(service, model, before_agent_callback=look("adk"))
    async with SqlSessionService(sqlite_url, budget_tokens=100) as windowed:
        ours = await adk(windowed, scripted(text("fine")), before_agent_callback=look("lango"))
        for place in (service, windowed):
            session = await place.get_session(**NAMES)
            assert session
            for number in range(count):
                content = text_content(f"message {number}", "model" if number % 2 else "user")
                await place.append_event(session, Event(author="helper" if number % 2 else "user", content=content))
        await run(runner, "go on")
        await run(ours, "go on")
    assert loaded["adk"] == count + 1, "every event is loaded"
    assert len(model.requests[-1]) == count + 1, "and sent"
    assert 1 < loaded["lango"] < count


async def test_order_of_events(service: Service, sqlite_url: str) -> None:
    async with SqlSessionService(sqlite_url) as lango:
        for place, order in ((service, ["2", "0", "3", "1"]), (lango, ["0", "1", "2", "3"])):
            session = await place.create_session(**NAMES)
            for number, moment in enumerate([1000.0, 1001.0, 999.0, 1000.5]):  # a clock that goes back
                await place.append_event(
                    session, Event(author="user", timestamp=moment, content=text_content(str(number)))
                )
            found = [event.content for event in await events_in(place) if event.content]
            assert [part.text for part in parts_of(found)] == order


SIGNATURES = {"a text": b"gemini-signed-this", "bytes, as Gemini's are": b"\x12\xff\x00signed"}


@pytest.mark.parametrize("signature", SIGNATURES.values(), ids=list(SIGNATURES))
async def test_a_change_of_model(signature: bytes, sqlite_url: str, llmock: "LLMock") -> None:
    """Claude continues a conversation of Gemini that has signed thoughts."""
    from google.adk.models.anthropic_llm import AnthropicLlm  # 80 MB, which the other workers do not need

    thought = types.Part(text="I should greet.", thought=True, thought_signature=signature)
    began = [text_content("hello"), types.Content(role="model", parts=[thought, text("Hello!")])]
    llmock.reply("I am the other one.").reply("I am the other one.")

    async def continue_session(service: Service, model: BaseLlm) -> list[Event]:
        runner = await adk(service, model)
        session = await service.get_session(**NAMES)
        assert session
        for content, author in zip(began, ("user", "helper"), strict=True):
            await service.append_event(session, Event(author=author, content=content))
        return await run(runner, "who are you?")

    claude = AnthropicLlm(model="claude-test")
    if signature.isascii():
        await continue_session(InMemorySessionService(), claude)
        sent: Any = llmock.last_request.body
        assert signature.decode() in json.dumps(sent), "what Gemini signed goes to Claude as its own"
        assert wire_rules.anthropic(_blocks(sent)) != []
    else:
        with pytest.raises(UnicodeDecodeError):
            await continue_session(InMemorySessionService(), claude)
    if client := vars(claude).get("_anthropic_client"):
        await client.close()

    provider = AnthropicProvider("key", base_url=llmock.base_url("anthropic"))
    async with SqlSessionService(sqlite_url) as service:
        answer = await continue_session(service, ProviderLlm(provider=provider, model="claude-test"))
    await provider.aclose()
    assert answer[-1].content
    assert "".join(part.text or "" for part in answer[-1].content.parts or ()) == "I am the other one."
    body: Any = llmock.last_request.body
    assert wire_rules.anthropic(_blocks(body)) == []


def _blocks(body: dict[str, Any]) -> dict[str, Any]:
    """Return a request with all texts as blocks, which mean the same."""
    for message in body["messages"]:
        if isinstance(message["content"], str):
            message["content"] = [{"type": "text", "text": message["content"]}]
    return body


async def test_a_transfer_to_an_agent_that_does_not_exist(service: Service, sqlite_url: str) -> None:
    model = scripted(call("transfer_to_agent", agent_name="nobody"), text("fine"))
    poet = LlmAgent(name="poet", model=model, description="Writes.")
    runner = await adk(service, model, sub_agents=[poet])
    with pytest.raises(ValueError, match="'nobody' not found"):
        await run(runner, "a poem")

    provider = ScriptedProvider([ToolCall("c1", "transfer_to_agent", {"agent_name": "nobody"}), "fine"])
    settings = settings_for(sqlite_url, sub_agents={"poet": {"description": "Writes."}})
    async with open_runtime(settings, provider=provider) as runtime:
        assert await runtime.run("s", "a poem") == "fine"
    assert "does not exist" in provider.requests[-1].messages[-1].content


async def test_approval(service: Service, sqlite_url: str) -> None:
    wiped: list[str] = []

    def wipe(disk: str) -> str:
        """Wipe a disk."""
        wiped.append(disk)
        return "wiped"

    asking = FunctionTool(wipe, require_confirmation=True)
    runner = await adk(service, scripted(call("wipe", disk="a"), text("well"), text("done")), tools=[asking])
    events = await run(runner, "wipe a")
    [question] = [
        part.function_call
        for part in parts_of([event.content for event in events if event.content])
        if part.function_call and part.function_call.name == "adk_request_confirmation"
    ]
    await run(runner, "wait, what is the weather?")
    assert wiped == []
    yes = types.FunctionResponse(id=question.id, name=question.name, response={"confirmed": True})
    await run(runner, types.Content(role="user", parts=[types.Part(function_response=yes)]))
    assert wiped == ["a"], "an old approval is still valid after later messages"
    wiped.clear()

    silent = await adk(InMemorySessionService(), scripted(call("wipe", disk="b"), text("done")), tools=[wipe])
    await run(silent, "wipe b")
    assert wiped == ["b"], "a tool without a confirmation of its own runs without approval"
    wiped.clear()

    ours = tool(level="dangerous")(wipe)
    provider = ScriptedProvider([ToolCall("c1", "wipe", {"disk": "a"}), "well"])
    async with open_runtime(settings_for(sqlite_url), provider=provider, tools=[ours]) as runtime:
        await collect(runtime.stream("s", "wipe a"))
        await runtime.run("s", "wait, what is the weather?")
        with pytest.raises(WaitNotOpen):
            await collect(approve(runtime, "s", "c1", approved=True))
    assert wiped == []


async def test_fork_and_rewind(service: Service, sqlite_url: str) -> None:
    model = scripted(text("one"), text("two"), text("three"))
    runner = await adk(service, model)
    await run(runner, "first")
    [second] = {event.invocation_id for event in await run(runner, "second")}
    await runner.rewind_async(user_id="user", session_id="s", rewind_before_invocation_id=second)
    await run(runner, "third")
    assert [part.text for part in parts_of(model.requests[-1])] == ["first", "one", "third"], "ADK rewinds, too"
    assert not [name for place in (runner, service) for name in dir(place) if "fork" in name.lower()]

    @tool(effect="none")
    def count() -> str:
        """Count."""
        return "counted"

    provider = ScriptedProvider(["one", "two", "other"])
    async with open_runtime(settings_for(sqlite_url), provider=provider, tools=[count]) as runtime:
        await runtime.run("s", "first")
        await runtime.run("s", "second")
        fork = await runtime.sessions.fork("s", at=2)
        await runtime.run(fork.name.id, "another second")
        assert len(await runtime.sessions.messages("s")) == 4
    assert [message.content for message in provider.requests[-1].messages] == ["first", "one", "another second"]


async def test_search_and_memory(service: Service, sqlite_url: str, tmp_path: Path) -> None:
    runner = await adk(service, scripted(text("Bern is on the Aare.")))
    memory = SqliteMemoryService(f"{tmp_path}/memory.db")
    runner.memory_service = memory
    await run(runner, "tell me of Bern")

    async def find() -> list[Any]:
        return list((await memory.search_memory(app_name="app", user_id="user", query="Aare")).memories)

    assert await find() == [], "nothing is found until the application adds the session"
    session = await service.get_session(**NAMES)
    assert session
    await memory.add_session_to_memory(session)
    [found] = await find()
    await service.delete_session(**NAMES)
    assert await find() == [found], "and it is found when the conversation is deleted"

    async with open_runtime(settings_for(sqlite_url), provider=ScriptedProvider(["Bern is on the Aare."])) as runtime:
        await runtime.run("s", "tell me of Bern")
    async with open_runtime(settings_for(sqlite_url), provider=ScriptedProvider([])) as runtime:
        [hit] = await runtime.sessions.search("Aare")
        assert (hit.session_id, hit.seq) == ("s", 2), "another process finds it, without code of the application"
        await runtime.sessions.delete("s")
        assert await runtime.sessions.search("Aare") == []


ODD: dict[str, Any] = {"NUL": "a\0b", "a lone surrogate": "a\ud800b", "NaN": math.nan, "bytes": b"\xff\x00"}


async def test_nul_lone_surrogates_nan_bytes(tmp_path: Path, postgres_url: str, sqlite_url: str) -> None:
    address = postgres_url.partition("&schema=")[0].replace("postgresql://", "postgresql+asyncpg://")
    theirs: dict[str, Service] = {
        "DatabaseSessionService, SQLite": DatabaseSessionService(f"sqlite+aiosqlite:///{tmp_path}/a.db"),
        "DatabaseSessionService, PostgreSQL": DatabaseSessionService(address),
        "SqliteSessionService": SqliteSessionService(f"{tmp_path}/b.db"),
    }
    kept_values = {name: {odd: await value_in_tool(place, odd) for odd in ODD} for name, place in theirs.items()}
    for place in theirs.values():
        if isinstance(place, DatabaseSessionService):
            await place.close()
    on_all = {"NaN": "became None", "bytes": "became '_wA='"}
    assert kept_values == {
        "DatabaseSessionService, SQLite": {"NUL": "kept", "a lone surrogate": "kept", **on_all},
        "DatabaseSessionService, PostgreSQL": {"NUL": "DBAPIError", "a lone surrogate": "DBAPIError", **on_all},
        "SqliteSessionService": {"NUL": "kept", "a lone surrogate": "PydanticSerializationError", **on_all},
    }
    for url in (sqlite_url, postgres_url):
        async with SqlSessionService(url) as ours:
            assert {odd: await value_in_tool(ours, odd) for odd in ODD} == dict.fromkeys(ODD, "kept")


async def value_in_tool(service: Service, odd: str) -> str:
    """Return what a tool gets of a value that the model calls it with."""
    names: Any = {"app_name": "odd", "user_id": "user", "session_id": odd}
    session = await service.create_session(**names)
    content = types.Content(role="model", parts=[call("f", value=ODD[odd])])
    try:
        await service.append_event(session, Event(author="helper", content=content))
        found = await service.get_session(**names)
    except Exception as error:  # noqa: BLE001 - the errors differ
        return type(error).__name__
    assert found
    [part] = parts_of([event.content for event in found.events if event.content])
    assert part.function_call
    value = (part.function_call.args or {})["value"]
    return "kept" if repr(value) == repr(ODD[odd]) else f"became {value!r}"
