"""Callbacks of plugins on the user's message, and files of that message in the hands of the agent's own code."""

from typing import TYPE_CHECKING, Any

import pytest
from google.adk.agents import LlmAgent
from google.adk.agents.callback_context import CallbackContext
from google.adk.agents.invocation_context import InvocationContext
from google.adk.apps import App
from google.adk.plugins import BasePlugin
from google.adk.plugins.save_files_as_artifacts_plugin import SaveFilesAsArtifactsPlugin
from google.adk.tools import ToolContext, load_artifacts
from google.adk.workflow import START, Workflow
from google.genai import types

from lango import open_runtime
from lango.messages import Attachment, ToolCall
from lango.runtime.runtime import Runtime
from lango.store.lifecycle.integrity import check_database, check_session, list_session_names
from lango.testing import ScriptedProvider
from tests.agents.parts import rows, settings_for
from tests.support.runtimes import store_of

if TYPE_CHECKING:
    from lango.store import Store

PNG = b"\x89PNG" + bytes(5_000)
PDF = b"%PDF" + bytes(3_000)
FILES = [Attachment("cat.png", "image/png", PNG), Attachment("user:all.pdf", "application/pdf", PDF)]


async def is_whole(runtime: Runtime) -> None:
    store = store_of(runtime)
    assert await store.read(check_database, store.dialect) == []
    for name in await store.read(list_session_names):
        assert await store.read(check_session, name) == []


async def test_the_plugin_that_saves_files_as_artifacts_works(sqlite_url: str) -> None:
    provider = ScriptedProvider(
        [
            "saved",
            ToolCall("c1", "load_artifacts", {"artifact_names": ["cat.png"]}),
            "a cat",
            "again",
        ]
    )
    agent = LlmAgent(name="a", model="scripted/x", tools=[load_artifacts])
    app = App(name="app", root_agent=agent, plugins=[SaveFilesAsArtifactsPlugin()])
    async with open_runtime(settings_for(sqlite_url), provider=provider, root_agent=app) as runtime:
        turn = await runtime.submit("s", "keep these", attachments=FILES)
        assert [type(event).__name__ async for event in turn.follow()][-1] == "TurnDone"
        listed = await runtime.artifacts.list("s")
        assert [(one.name, one.version, one.size) for one in listed] == [
            ("cat.png", 0, len(PNG)),
            ("user:all.pdf", 0, len(PDF)),
        ]
        [sent] = [message for message in provider.requests[0].messages if message.role == "user"]
        assert sent.media == ()
        texts = ["keep these", '[Uploaded Artifact: "cat.png"]', '[Uploaded Artifact: "user:all.pdf"]']
        assert sent.content == "\n".join(texts)
        [(content, extra)] = await rows(store_of(runtime), "SELECT content, extra FROM messages WHERE seq = 1")
        assert content == "".join(texts)
        assert "$lango:content" not in extra, "the message refers to no file any more"
        assert await rows(store_of(runtime), "SELECT uses FROM contents ORDER BY size") == [(1,), (1,)]
        stored = await rows(store_of(runtime), "SELECT extra FROM messages UNION ALL SELECT extra FROM state_events")
        assert any('"artifact_delta":{"cat.png":0' in (each or "") for (each,) in stored)
        assert await runtime.run("s", "what is it?") == "a cat"
        assert [file.data for message in provider.requests[2].messages for file in message.media] == [PNG]
        assert await runtime.run("s", "and now?") == "again"
        assert [file for message in provider.requests[3].messages for file in message.media] == []
        await is_whole(runtime)


class Redaction(BasePlugin):
    """Replaces a secret in the user's message."""

    def __init__(self) -> None:
        super().__init__("redaction")
        self.called = 0
        self.store: Store | None = None
        """Searched before a message is changed: it is in the index then."""

    async def on_user_message_callback(
        self, *, invocation_context: InvocationContext, user_message: types.Content
    ) -> types.Content | None:
        self.called += 1
        if self.store is not None:
            assert await self.store.search("app", "user", "password")
        parts = [types.Part(text=(part.text or "").replace("hunter2", "redacted")) for part in user_message.parts or ()]
        return (
            types.Content(role="user", parts=parts) if any("redacted" in (part.text or "") for part in parts) else None
        )


async def test_what_a_plugin_makes_of_a_message_is_what_is_stored_and_found(sqlite_url: str) -> None:
    plugin = Redaction()
    provider = ScriptedProvider(["one", "two"])
    app = App(name="app", root_agent=LlmAgent(name="a", model="scripted/x"), plugins=[plugin])
    async with open_runtime(settings_for(sqlite_url), provider=provider, root_agent=app) as runtime:
        plugin.store = store_of(runtime)
        turn = await runtime.submit("s", "my password is hunter2")
        assert [type(event).__name__ async for event in turn.follow()][-1] == "TurnDone"
        assert await runtime.run("s", "hello") == "two"
        assert plugin.called == 2
        texts = [message.content for message in provider.requests[1].messages]
        assert texts == ["my password is redacted", "one", "hello"]
        assert await store_of(runtime).search("app", "user", "hunter2") == []
        assert len(await store_of(runtime).search("app", "user", "redacted")) == 1
        everything = await rows(store_of(runtime), "SELECT content, extra FROM messages")
        assert "hunter2" not in str(everything)
        await is_whole(runtime)


async def test_a_workflow_gets_the_message_that_a_plugin_made(sqlite_url: str) -> None:
    seen: list[Any] = []

    def look(node_input: types.Content) -> str:
        seen.append("".join(part.text or "" for part in node_input.parts or ()))
        return "done"

    app = App(name="app", root_agent=Workflow(name="w", edges=[(START, look)]), plugins=[Redaction()])
    async with open_runtime(settings_for(sqlite_url), provider=ScriptedProvider([]), root_agent=app) as runtime:
        assert await runtime.run("s", "say hunter2") == "done"
    assert seen == ["say redacted"]


async def copy_file(tool_context: ToolContext) -> dict[str, Any]:
    """Save the file of the user's message as an artifact."""
    [part] = [part for part in (tool_context.user_content or types.Content()).parts or () if part.inline_data]
    assert part.inline_data
    version = await tool_context.save_artifact("copy", part)
    return {"version": version, "bytes": len(part.inline_data.data or b"")}


async def test_a_tool_reads_the_files_of_the_message(sqlite_url: str) -> None:
    async def note_size(callback_context: CallbackContext) -> None:
        parts = (callback_context.user_content or types.Content()).parts or []
        sizes.append(sum(len(part.inline_data.data or b"") for part in parts if part.inline_data))

    sizes: list[int] = []
    provider = ScriptedProvider([ToolCall("c1", "copy_file", {}), "copied"])
    agent = LlmAgent(name="a", model="scripted/x", tools=[copy_file], before_agent_callback=note_size)
    async with open_runtime(settings_for(sqlite_url), provider=provider, root_agent=agent) as runtime:
        turn = await runtime.submit("s", "copy this", attachments=FILES[:1])
        results = [getattr(event, "result", None) async for event in turn.follow()]
        assert {"version": 0, "bytes": len(PNG)} in results
        assert sizes == [len(PNG)]
        assert await runtime.artifacts.load("s", "copy") == PNG
        assert await rows(store_of(runtime), "SELECT uses FROM contents") == [(2,)], "the bytes are there once"
        await is_whole(runtime)


async def test_a_workflow_node_reads_the_files_of_the_message(sqlite_url: str) -> None:
    def size_of(node_input: types.Content) -> str:
        return str(sum(len(part.inline_data.data or b"") for part in node_input.parts or () if part.inline_data))

    workflow = Workflow(name="w", edges=[(START, size_of)])
    async with open_runtime(settings_for(sqlite_url), provider=ScriptedProvider([]), root_agent=workflow) as runtime:
        turn = await runtime.submit("s", "measure this", attachments=FILES[:1])
        texts = [getattr(event, "text", "") async for event in turn.follow()]
        assert str(len(PNG)) in "".join(texts)


REFERENCES = {
    "of the session": ("artifact://apps/app/users/user/sessions/s/artifacts/cat.png/versions/0", PNG),
    "of the user": ("artifact://apps/app/users/user/artifacts/user:all.pdf/versions/0", PDF),
    "of another session": ("artifact://apps/app/users/user/sessions/other/artifacts/cat.png/versions/0", None),
    "of another user": ("artifact://apps/app/users/bob/artifacts/user:all.pdf/versions/0", None),
    "of another app": ("artifact://apps/x/users/user/artifacts/user:all.pdf/versions/0", None),
    "that is gone": ("artifact://apps/app/users/user/sessions/s/artifacts/none/versions/0", None),
    "that is none": ("artifact://nonsense", None),
}


@pytest.mark.parametrize("kind", REFERENCES)
async def test_a_model_gets_the_artifact_that_a_message_refers_to(sqlite_url: str, kind: str) -> None:
    uri, content = REFERENCES[kind]

    class Refers(BasePlugin):
        async def on_user_message_callback(
            self, *, invocation_context: InvocationContext, user_message: types.Content
        ) -> types.Content | None:
            part = types.Part(file_data=types.FileData(file_uri=uri, mime_type="image/png"))
            return types.Content(role="user", parts=[*(user_message.parts or ()), part])

    provider = ScriptedProvider(["seen"])
    agent = LlmAgent(name="a", model="scripted/x")
    app = App(name="app", root_agent=agent, plugins=[Refers("refers")])
    async with open_runtime(settings_for(sqlite_url), provider=provider, root_agent=app) as runtime:
        for session, user in (("s", "user"), ("other", "user"), ("s", "bob")):
            await runtime.sessions.create(session, user_id=user)
            await runtime.artifacts.save(session, "cat.png", PNG, mime_type="image/png", user_id=user)
            await runtime.artifacts.save(session, "user:all.pdf", PDF, mime_type="application/pdf", user_id=user)
        assert await runtime.run("s", "look") == "seen"
        [message] = provider.requests[0].messages
        assert [file.data for file in message.media] == ([content] if content else [])
        assert ("cannot be loaded" in message.content or "was deleted" in message.content) == (content is None)
        await is_whole(runtime)
