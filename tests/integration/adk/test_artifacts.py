"""Agents save and load artifacts through ADK's own contexts and tools, in a runtime and in a user's own Runner."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from google.adk.agents import LlmAgent
from google.adk.agents.callback_context import CallbackContext
from google.adk.runners import Runner
from google.adk.tools import ToolContext, load_artifacts
from google.genai import types

from lango import open_runtime
from lango.adk import SqlArtifactService, SqlSessionService
from lango.errors import ArtifactNotFound, ArtifactRefused, SessionNotFound, Unstorable
from lango.events import ToolEnd
from lango.messages import ToolCall
from lango.runtime.runtime import Runtime
from lango.store.engine.database import Operation
from lango.store.lifecycle.integrity import check_database
from lango.store.turns.submit import NEW_EPOCH
from lango.testing import ScriptedProvider
from tests.agents.parts import TIMEOUT_S, collect, rows, settings_for
from tests.support.kill_points import Journal, PlannedModel
from tests.support.runtimes import store_of

PNG = b"\x89PNG" + bytes(2_000)


async def draw(x: str, tool_context: ToolContext) -> dict[str, Any]:
    """Draw something."""
    picture = types.Part(inline_data=types.Blob(data=PNG + x.encode(), mime_type="image/png"))
    version = await tool_context.save_artifact(f"{x}.png", picture, custom_metadata={"x": x})
    await tool_context.save_artifact("user:last", types.Part(text=x))
    found = await tool_context.get_artifact_version(f"{x}.png")
    assert found
    loaded = await tool_context.load_artifact(f"{x}.png")
    assert loaded == picture
    return {"version": version, "type": found.mime_type, "all": await tool_context.list_artifacts()}


def script(*steps: Any) -> ScriptedProvider:
    return ScriptedProvider(list(steps))


@pytest.fixture
async def runtime(store_url: str) -> AsyncIterator[Runtime]:
    """A runtime whose agent draws a cat twice, and then looks at it."""
    provider = script(
        ToolCall("c1", "draw", {"x": "cat"}),
        ToolCall("c2", "draw", {"x": "cat"}),
        "drawn",
        ToolCall("c3", "load_artifacts", {"artifact_names": ["cat.png", "last", "../secret"]}),
        "I see a cat",
    )
    agent = LlmAgent(name="a", model="scripted/x", tools=[draw, load_artifacts])
    async with open_runtime(settings_for(store_url), provider=provider, root_agent=agent) as runtime:
        vars(runtime)["provider"] = provider
        yield runtime
        assert await store_of(runtime).read(check_database, store_of(runtime).dialect) == []


async def test_a_tool_saves_and_a_model_reads_artifacts(runtime: Runtime) -> None:
    events = await collect((await runtime.submit("s", "draw a cat")).follow())
    results = [event.result for event in events if isinstance(event, ToolEnd)]
    assert results == [{"version": number, "type": "image/png", "all": ["cat.png", "user:last"]} for number in range(2)]
    assert await runtime.run("s", "what is it?") == "I see a cat"
    provider: ScriptedProvider = vars(runtime)["provider"]
    media = [file.data for message in provider.requests[-1].messages for file in message.media]
    assert media == [PNG + b"cat"]
    assert any("Artifact last is:" in message.content for message in provider.requests[-1].messages)
    listed = await runtime.artifacts.list("s")
    assert [(one.name, one.version, one.size, one.metadata) for one in listed] == [
        ("cat.png", 1, len(PNG) + 3, {"x": "cat"}),
        ("user:last", 1, 3, {}),
    ]
    assert await runtime.artifacts.load("s", "cat.png") == PNG + b"cat"
    stored = await rows(
        store_of(runtime), "SELECT extra FROM messages WHERE extra LIKE '%artifact_delta%' ORDER BY seq"
    )
    assert len(stored) == 2, "the events say what was saved"


async def test_artifacts_can_be_saved_read_and_deleted_from_python(runtime: Runtime) -> None:
    await runtime.sessions.create("s")
    artifacts = runtime.artifacts
    assert await artifacts.save("s", "a", "text", metadata={"by": "me"}) == 0
    assert await artifacts.save("s", "a", b"bytes", mime_type="image/png") == 1
    assert await artifacts.load("s", "a", 0) == b"text"
    assert [one.mime_type for one in await artifacts.versions("s", "a")] == ["text/plain", "image/png"]
    assert (await artifacts.read("s", "a")).version == 1
    for wrong in (artifacts.read("s", "b"), artifacts.load("s", "a", 2), artifacts.versions("s", "b")):
        with pytest.raises(ArtifactNotFound):
            await wrong
    for missing in (artifacts.list("none"), artifacts.save("none", "a", b"x"), artifacts.list("s", user_id="bob")):
        with pytest.raises(SessionNotFound):
            await missing
    with pytest.raises(ArtifactRefused, match="50000001 bytes; the limit is 50000000"):
        await artifacts.save("s", "a", bytes(50_000_001))
    for name in ("../a", "", "user:", "C:a", "a\0", "a" * 600):
        with pytest.raises(Unstorable):
            await artifacts.save("s", name, b"x")
    assert await artifacts.delete("s", "a")
    assert not await artifacts.delete("s", "a")
    assert await artifacts.list("s") == []


async def test_a_turn_that_lost_its_lease_saves_nothing(store_url: str) -> None:
    outcomes: list[str] = []
    ended = asyncio.Event()

    def new_epoch(key: int) -> Operation[None]:
        yield NEW_EPOCH, (key,)

    async def late(tool_context: ToolContext) -> dict[str, Any]:
        """Save something when it is too late."""
        [(key,)] = await rows(store_of(runtime), "SELECT session_key FROM sessions")
        await store_of(runtime).write(new_epoch, key)
        try:
            await tool_context.save_artifact("late", types.Part(text="x"))
            outcomes.append("saved")
        except Exception as error:
            outcomes.append(type(error).__name__)
            raise
        finally:
            ended.set()
        return {}

    agent = LlmAgent(name="a", model="scripted/x", tools=[late])
    provider = script(ToolCall("c1", "late", {}), "never", "never")
    async with open_runtime(settings_for(store_url), provider=provider, root_agent=agent) as runtime:
        await runtime.submit("s", "go")
        await asyncio.wait_for(ended.wait(), TIMEOUT_S)
        assert outcomes == ["FencedWrite"]
        assert await runtime.artifacts.list("s") == []


async def save_note(callback_context: CallbackContext) -> None:
    text = "".join(part.text or "" for part in (callback_context.user_content or types.Content()).parts or ())
    if "nothing" not in text:
        await callback_context.save_artifact("note", types.Part(text=text))
    if "new" in text:
        await callback_context.save_artifact("new", types.Part(text=text))


async def test_a_users_own_runner_saves_and_rewinds_artifacts(store_url: str) -> None:
    journal = Journal()
    model = PlannedModel(model="planned", plan=["done"], agent="a", journal=journal)
    agent = LlmAgent(name="a", model=model, before_agent_callback=save_note)
    async with SqlSessionService(store_url) as sessions:
        artifacts = SqlArtifactService("", store=sessions.store)
        runner = Runner(
            app_name="app", agent=agent, session_service=sessions, artifact_service=artifacts, auto_create_session=True
        )
        where: Any = {"user_id": "alice", "session_id": "s"}
        invocations: list[str] = []
        for text in ("first", "second, new", "nothing"):
            message = types.Content(role="user", parts=[types.Part(text=text)])
            async for event in runner.run_async(**where, new_message=message):
                invocations.append(event.invocation_id)
        named: Any = {"app_name": "app", **where}
        assert await artifacts.list_artifact_keys(**named) == ["new", "note"]
        second = sorted(set(invocations), key=invocations.index)[1]
        await runner.rewind_async(**where, rewind_before_invocation_id=second)
        assert await artifacts.load_artifact(**named, filename="note") == types.Part(text="first")
        assert await artifacts.load_artifact(**named, filename="new") is None
        assert await artifacts.list_artifact_keys(**named) == ["note"]
        assert await artifacts.list_versions(**named, filename="note") == [0, 1, 2]
        await sessions.delete_session(**named)
        assert await artifacts.list_artifact_keys(**named) == []
        assert await sessions.store.read(check_database, sessions.store.dialect) == []
