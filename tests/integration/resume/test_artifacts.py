"""A turn with files or artifacts that is killed after any of its commits goes on: nothing is saved twice, or lost."""

from pathlib import Path
from typing import Any

import pytest
from google.adk.agents.callback_context import CallbackContext
from google.adk.agents.context import Context
from google.adk.apps import App
from google.adk.plugins.save_files_as_artifacts_plugin import SaveFilesAsArtifactsPlugin
from google.adk.tools import ToolContext, load_artifacts
from google.adk.tools.agent_tool import AgentTool
from google.adk.workflow import START, Workflow
from google.genai import types

from lango.adk import AdkTool
from lango.adk.events.rows_to_events import stored_to_events
from lango.messages import Attachment
from lango.store import Store
from lango.store.artifacts.artifacts import load_artifact, read_all_versions
from lango.store.lifecycle.integrity import check_database, list_session_names
from lango.store.sessions.window import read_session_events
from lango.tools import tool as make_tool
from tests.support.agent_shapes import agent, call
from tests.support.kill_points import Journal, MakeAgent, check_resumed, go_on, left_behind, run_and_copy


def text(content: str) -> types.Part:
    return types.Part(text=content)


def draw(journal: Journal) -> Any:
    async def draw(x: str, tool_context: ToolContext) -> dict[str, Any]:
        """Draw a picture in two versions."""
        first = await tool_context.save_artifact("picture", text(f"sketch of {x}"))
        second = await tool_context.save_artifact("picture", text(f"painting of {x}"), custom_metadata={"x": x})
        journal.effects.append(f"draw {x}")
        return {"versions": [first, second]}

    return draw


async def save_log(callback_context: CallbackContext) -> None:
    await callback_context.save_artifact("log", text(f"{callback_context.agent_name} began"))


def with_tools(j: Journal) -> Any:
    return agent(
        j,
        "a",
        call("draw", x="1"),
        [call("draw", x="2"), call("load_artifacts", artifact_names=["picture"])],
        "done",
        tools=[draw(j), load_artifacts],
        before_agent_callback=save_log,
    )


def inside_an_agent_tool(j: Journal) -> Any:
    inner = agent(j, "inner", call("draw", x="1"), "drawn", tools=[draw(j)])
    return agent(j, "outer", call("inner", request="draw"), "done", tools=[AgentTool(inner)])


def in_a_workflow(j: Journal) -> Any:
    async def one(node_input: str, ctx: Context) -> str:
        j.effects.append("one")
        version = await ctx.save_artifact("picture", text("by one"))
        return f"version {version}"

    async def two(node_input: str, ctx: Context) -> str:
        j.effects.append("two")
        await ctx.save_artifact("picture", text("by two"))
        return node_input

    return Workflow(name="r", edges=[(START, one), (one, two), (two, agent(j, "e", "end"))])


SHAPES: dict[str, MakeAgent] = {
    "tools and a callback": with_tools,
    "agent tool": inside_an_agent_tool,
    "workflow": in_a_workflow,
}


async def saved(file: Path) -> list[tuple[str, int, bytes | None, dict[str, Any]]]:
    """Every version of every artifact in a store."""
    async with Store(f"sqlite:///{file}") as store:
        assert await store.read(check_database, "sqlite") == []
        [name] = await store.read(list_session_names)
        found: list[tuple[str, int, bytes | None, dict[str, Any]]] = []
        for artifact in await store.read(read_all_versions, name):
            loaded = await store.read(load_artifact, name, artifact.name, artifact.version)
            assert loaded
            found.append((artifact.name, artifact.version, loaded[1], dict(artifact.metadata)))
        return found


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of ADK's agents that are tools
@pytest.mark.parametrize("shape", SHAPES)
async def test_a_turn_that_goes_on_saves_no_version_twice(tmp_path: Path, shape: str) -> None:
    whole, copies = await run_and_copy(SHAPES[shape], tmp_path)
    assert whole.status == "done"
    versions = await saved(tmp_path / "first.db")
    assert len(versions) >= 2
    for copy in copies:
        before = left_behind(copy)
        resumed = await go_on(SHAPES[shape], copy)
        check_resumed(copy.name, whole, before, resumed, in_order=True)
        found = await saved(copy)
        # a tool that had begun is not run again, so what it had still to save is missing
        if resumed.journal.effects_by_name + before.finished >= whole.journal.effects_by_name:
            assert found == versions, copy.name
        else:
            contents = [(name, content) for name, _, content, _ in found]
            assert len({*contents}) == len(contents), f"{copy.name}: nothing is saved twice"


FILE = Attachment("a.bin", "application/pdf", bytes(range(256)) * 2_000)


def with_plugin(j: Journal) -> Any:
    root = agent(j, "a", call("draw", x="1"), "done", tools=[draw(j)])
    return App(name="app", root_agent=root, plugins=[SaveFilesAsArtifactsPlugin()])


async def test_the_file_of_a_message_is_saved_once_as_an_artifact(tmp_path: Path) -> None:
    whole, copies = await run_and_copy(with_plugin, tmp_path, attachments=[FILE])
    assert whole.status == "done"
    assert whole.story[0] == 'user user: go[Uploaded Artifact: "a.bin"]'
    versions = await saved(tmp_path / "first.db")
    assert [(name, version) for name, version, _, _ in versions] == [("a.bin", 0), ("picture", 0), ("picture", 1)]
    replaced = 0
    for copy in copies:
        before = left_behind(copy)
        resumed = await go_on(with_plugin, copy)
        check_resumed(copy.name, whole, before, resumed, in_order=True)
        found = await saved(copy)
        assert [version for version in found if version[0] == "a.bin"] == [("a.bin", 0, FILE.data, {})], copy.name
        replaced += "Uploaded" in resumed.story[0]
    assert replaced == len(copies)


def answers(j: Journal) -> Any:
    return agent(j, "a", "done")


async def test_the_files_of_a_queued_message_outlive_their_process(tmp_path: Path) -> None:
    whole, copies = await run_and_copy(answers, tmp_path, "first", "second", "third", attachments=[FILE])
    assert whole.status == "done, done, done"
    for copy in copies:
        await go_on(answers, copy)
        async with Store(f"sqlite:///{copy}") as store:
            assert await store.read(check_database, "sqlite") == []
            [name] = await store.read(list_session_names)
            found = await store.read(read_session_events, name)
            assert found
            await store.load_files(found[1])
            for stored in found[1]:
                if stored.message and stored.message.role == "user":
                    assert [file.data for file in stored.attachments] == [FILE.data], copy.name


PICTURE = bytes(range(256)) * 300


def with_pictures(j: Journal) -> Any:
    """An agent with two tools that return a file: one of ours, and one of ADK."""

    def photo(x: str) -> dict[str, Any]:
        """Take a photo."""
        j.effects.append(f"photo {x}")
        return {"of": x, "photo": Attachment("photo.png", "image/png", PICTURE + x.encode())}

    def sketch(x: str) -> dict[str, Any]:
        """Make a sketch."""
        j.effects.append(f"sketch {x}")
        return {"of": x, "sketch": types.Part.from_bytes(data=PICTURE + x.encode(), mime_type="image/jpeg")}

    ours = AdkTool(make_tool(photo))
    return agent(
        j, "a", call("photo", x="1"), [call("sketch", x="2"), call("photo", x="3")], "done", tools=[ours, sketch]
    )


async def files_of_results(file: Path) -> list[tuple[str, bytes]]:
    """The type and the bytes of each file in the stored results, in order."""
    async with Store(f"sqlite:///{file}") as store:
        [name] = await store.read(list_session_names)
        found = await store.read(read_session_events, name)
        assert found
        await store.load_files(found[1])
        parts = [
            piece.inline_data
            for event in stored_to_events(found[1], "a")
            for result in event.get_function_responses()
            for piece in result.parts or ()
        ]
        return [(blob.mime_type or "", blob.data or b"") for blob in parts if blob]


async def test_files_in_results_are_there_after_a_kill_at_any_commit(tmp_path: Path) -> None:
    whole, copies = await run_and_copy(with_pictures, tmp_path)
    assert whole.status == "done"
    wanted = [("image/png", PICTURE + b"1"), ("image/jpeg", PICTURE + b"2"), ("image/png", PICTURE + b"3")]
    assert await files_of_results(tmp_path / "first.db") == wanted
    assert [(name, version) for name, version, _, _ in await saved(tmp_path / "first.db")] == [
        ("photo.png", 0),
        ("photo.png", 1),
        ("sketch.jpg", 0),
    ]
    complete = 0
    for copy in copies:
        before = left_behind(copy)
        resumed = await go_on(with_pictures, copy)
        check_resumed(copy.name, whole, before, resumed, in_order=True)
        await saved(copy)  # checks the store
        if not any("outcome is unknown" in line for line in resumed.story):
            assert await files_of_results(copy) == wanted, copy.name
            complete += 1
    assert complete > len(copies) // 2
