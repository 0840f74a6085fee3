"""`lango acp` as an editor starts it, through the client of the protocol's own SDK."""

import asyncio
import base64
import json
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import pytest
from acp import RequestError, connect_to_agent, helpers, schema, spawn_agent_process
from acp.client.connection import ClientSideConnection

from lango.sessions import SessionId
from lango.store import Store
from lango.store.sessions.window import read_session_events
from tests.e2e.server_compat.test_mcp_server import SHOP
from tests.support.processes import LANGO, run_lango, start_piped_command
from tests.support.servers.command_agent import file_summary
from tests.support.servers.server_process import configure

CAPABILITIES = ("list", "fork", "resume", "close")
PNG = b"\x89PNG\r\n\x1a\n and more"


class Editor:
    """An editor that keeps what it is shown, and reacts to each request for permission in the same way."""

    def __init__(self, reaction: str = "allow") -> None:
        self.updates: list[Any] = []
        self.requests: list[schema.ToolCallUpdate] = []
        self.was_asked, self.has_text = asyncio.Event(), asyncio.Event()
        self._reaction = reaction

    async def session_update(self, session_id: str, update: Any, **_: Any) -> None:
        self.updates.append(update)
        if isinstance(update, schema.AgentMessageChunk):
            self.has_text.set()

    async def request_permission(
        self, session_id: str, tool_call: schema.ToolCallUpdate, options: Sequence[schema.PermissionOption], **_: Any
    ) -> schema.RequestPermissionResponse:
        self.requests.append(tool_call)
        self.was_asked.set()
        if self._reaction == "nothing":
            await asyncio.Event().wait()
        assert self._reaction in [option.option_id for option in options]
        outcome = schema.AllowedOutcome(outcome="selected", option_id=self._reaction)
        return schema.RequestPermissionResponse(outcome=outcome)

    def text(self, kind: type[Any] = schema.AgentMessageChunk) -> str:
        return "".join(update.content.text for update in self.updates if isinstance(update, kind))

    def calls(self) -> list[tuple[str, list[str | None], Any]]:
        """Return the calls that were shown: name, each status, and result."""
        shown: dict[str, tuple[str, list[str | None], Any]] = {}
        for update in self.updates:
            match update:
                case schema.ToolCallStart():
                    shown[update.tool_call_id] = (update.title, [update.status], None)
                case schema.ToolCallProgress():
                    name, statuses, _ = shown[update.tool_call_id]
                    shown[update.tool_call_id] = (name, [*statuses, update.status], update.raw_output)
                case _:
                    pass
        return list(shown.values())


@asynccontextmanager
async def opened(config: Path, editor: Editor, *arguments: str) -> AsyncGenerator[ClientSideConnection]:
    """Start the agent and connect to it."""
    command = ("lango", "acp", "--config", str(config), *arguments)
    async with start_piped_command(*command, cwd=config.parent) as (reader, writer, _):
        connection = connect_to_agent(cast("Any", editor), writer, reader)
        await connection.initialize(protocol_version=1)
        yield connection
        await connection.close()


@pytest.fixture
def config(tmp_path: Path) -> Path:
    return configure(tmp_path, f"sqlite:///{tmp_path}/lango.db")


async def ask(connection: ClientSideConnection, session: str, *content: Any) -> schema.PromptResponse:
    blocks = [helpers.text_block(one) if isinstance(one, str) else one for one in content]
    return await connection.prompt(session_id=session, prompt=blocks)


async def roles(store_url: str, session: str) -> list[str]:
    async with Store(store_url) as store:
        found = await store.read(read_session_events, SessionId("obedient", "user", session))
    assert found
    return [one.message.role for one in found[1] if one.message]


async def test_an_agent_says_what_it_can_and_answers_piece_by_piece(config: Path) -> None:
    editor = Editor()
    command = (LANGO, "acp", "--config", str(config))
    async with spawn_agent_process(cast("Any", editor), *command, cwd=config.parent) as (connection, _):
        about = await connection.initialize(protocol_version=99)
        assert (about.protocol_version, about.agent_info and about.agent_info.title) == (1, "obedient")
        able = about.agent_capabilities
        assert able
        assert able.load_session
        assert able.session_capabilities
        assert able.session_capabilities.model_dump(exclude_none=True) == {name: {} for name in CAPABILITIES}
        session = (await connection.new_session(cwd="/home/ada/project")).session_id
        answer = await ask(connection, session, "words 5 0.3")
        assert editor.text() == "w0 w1 w2 w3 w4 "
        assert len(editor.updates) > 1, "shown as it is generated"
        assert answer.stop_reason == "end_turn"
        assert answer.usage
        assert (answer.usage.input_tokens, answer.usage.output_tokens, answer.usage.total_tokens) == (10, 5, 15)
        await ask(connection, session, "think")
        assert editor.text(schema.AgentThoughtChunk) == "hm, well"


@pytest.mark.parametrize(("reaction", "requests", "ends"), [("allow-always", 1, "completed"), ("reject", 2, "failed")])
async def test_tools_are_shown_and_one_that_needs_approval_asks_for_permission(
    config: Path, reaction: str, requests: int, ends: str
) -> None:
    editor = Editor(reaction)
    async with opened(config, editor) as connection:
        session = (await connection.new_session(cwd="/")).session_id
        for _ in range(2):
            await ask(connection, session, "note")
        shown = editor.calls()
        assert shown == [("note", ["in_progress", "completed"], {"noted": "this"})] * 2, "calls of the same id"
        for _ in range(2):
            editor.updates.clear()
            assert (await ask(connection, session, "ask")).stop_reason == "end_turn"
            [(name, statuses, _)] = editor.calls()
            assert (name, statuses[-1]) == ("wipe", ends)
            assert editor.text().startswith("the tool said "), "the prompt goes on"
        assert [(one.title, one.raw_input) for one in editor.requests] == [("wipe", {"text": "this"})] * requests


async def test_a_call_that_is_allowed_once_is_asked_about_again(config: Path) -> None:
    editor = Editor()
    async with opened(config, editor) as connection:
        session = (await connection.new_session(cwd="/")).session_id
        for _ in range(2):
            await ask(connection, session, "ask")
        assert [statuses for _, statuses, _ in editor.calls()] == [["pending", "in_progress", "completed"]] * 2
        assert len(editor.requests) == 2
        held = await connection.list_sessions()
        assert [one.title for one in held.sessions] == ["ask"]


async def test_the_first_answer_counts_where_a_person_answers_elsewhere(config: Path) -> None:
    class Slow(Editor):
        async def request_permission(self, *positional: Any, **named: Any) -> schema.RequestPermissionResponse:
            listed = await asyncio.to_thread(run_lango, "inbox", "--json", cwd=config.parent)
            item = json.loads(listed.stdout)["id"]
            done = await asyncio.to_thread(run_lango, "inbox", "answer", item, "yes", cwd=config.parent)
            assert done.returncode == 0, done.stderr
            return await super().request_permission(*positional, **named)

    editor = Slow("reject")
    async with opened(config, editor) as connection:
        session = (await connection.new_session(cwd="/")).session_id
        await ask(connection, session, "ask")
        assert [statuses[-1] for _, statuses, _ in editor.calls()] == ["completed"]
        assert editor.text() == "the tool said {'noted': 'this'}"


async def test_a_cancelled_prompt_stops_its_turn_and_a_request_for_permission(config: Path, tmp_path: Path) -> None:
    editor = Editor("nothing")
    async with opened(config, editor) as connection:
        session = (await connection.new_session(cwd="/")).session_id
        running = asyncio.create_task(ask(connection, session, f"hold {tmp_path / 'never'}"))
        await editor.has_text.wait()
        await connection.cancel(session_id=session)
        assert (await running).stop_reason == "cancelled"
        waiting = asyncio.create_task(ask(connection, session, "ask"))
        await editor.was_asked.wait()
        await connection.cancel(session_id=session)
        assert (await waiting).stop_reason == "cancelled"
        await ask(connection, session, "and on")
        assert editor.text().endswith("and on")


async def test_a_session_is_listed_and_loaded_by_another_process_and_continues(config: Path, tmp_path: Path) -> None:
    first, second = Editor(), Editor()
    async with opened(config, first) as connection:
        session = (await connection.new_session(cwd="/home/ada/project")).session_id
        await connection.new_session(cwd="/home/ada/project")  # nothing was said in it
        for words in ("think", "note"):
            await ask(connection, session, words)
    async with opened(config, second) as connection:
        [listed] = (await connection.list_sessions(cwd="/home/ada/project")).sessions
        assert (listed.session_id, listed.cwd, listed.title) == (session, "/home/ada/project", "think")
        assert (await connection.list_sessions(cwd="/elsewhere")).sessions == []
        await connection.load_session(cwd="/home/ada/project", session_id=session)
        assert second.text(schema.UserMessageChunk) == "thinknote"
        assert (second.text(), second.text(schema.AgentThoughtChunk)) == (first.text(), "hm, well")
        assert second.calls() == [("note", ["pending", "completed"], {"noted": "this"})]
        await ask(connection, session, "and on")
    assert (await roles(f"sqlite:///{tmp_path}/lango.db", session))[-2:] == ["user", "assistant"]


async def test_a_session_is_forked_resumed_and_closed(config: Path, tmp_path: Path) -> None:
    first, second = Editor(), Editor()
    async with opened(config, first) as connection:
        session = (await connection.new_session(cwd="/home/ada/one")).session_id
        held = asyncio.create_task(ask(connection, session, f"hold {tmp_path / 'never'}"))
        await first.has_text.wait()
        await connection.close_session(session_id=session)
        assert (await held).stop_reason == "cancelled"
        await ask(connection, session, "hello")
    async with opened(config, second) as connection:
        fork = (await connection.fork_session(cwd="/home/ada/two", session_id=session)).session_id
        await connection.resume_session(cwd="/home/ada/one", session_id=session)
        assert second.updates == [], "no history"
        await ask(connection, fork, "recite")
        assert ["user", ["hello"]] in json.loads(second.text())
        folders = {one.session_id: one.cwd for one in (await connection.list_sessions()).sessions}
        assert folders == {session: "/home/ada/one", fork: "/home/ada/two"}
        for attempt in (
            connection.resume_session(cwd="/", session_id="gone"),
            connection.fork_session(cwd="/", session_id="gone"),
            connection.close_session(session_id="gone"),
        ):
            with pytest.raises(RequestError, match="gone"):
                await attempt


async def test_a_workflow_that_asks_a_person_gets_the_next_prompt(tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(SHOP)
    config = configure(tmp_path, f"sqlite:///{tmp_path}/lango.db", agent='module = "shop.py"', name="")
    editor = Editor()
    async with opened(config, editor) as connection:
        session = (await connection.new_session(cwd="/")).session_id
        assert (await ask(connection, session, "a shirt")).stop_reason == "end_turn"
        assert editor.text().strip() == "Which size?"
        await ask(connection, session, '{"size": 42}')
        assert json.loads(editor.text().partition("Which size?")[2]) == {"size": 42}


async def test_files_of_the_editor_reach_the_model(config: Path) -> None:
    editor = Editor()
    picture = helpers.image_block(base64.b64encode(PNG).decode(), "image/png")
    blob = helpers.resource_block(
        helpers.embedded_blob_resource(
            "file:///p/a.pdf", base64.b64encode(b"%PDF").decode(), mime_type="application/pdf"
        )
    )
    text = helpers.resource_block(helpers.embedded_text_resource("file:///p/main.py", "print(1)"))
    link = helpers.resource_link_block("notes.txt", "file:///p/notes.txt")
    async with opened(config, editor) as connection:
        session = (await connection.new_session(cwd="/p")).session_id
        await ask(connection, session, "see", picture, blob)
        seen = [file_summary("file 1", "image/png", PNG), file_summary("a.pdf", "application/pdf", b"%PDF")]
        assert editor.text() == f"seen: {', '.join(seen)}"
        editor.updates.clear()
        await ask(connection, session, "recite ", text, link)
        [*_, (role, [read])] = json.loads(editor.text())
        assert role == "user"
        assert "print(1)" in read
        assert read.endswith("[notes.txt](file:///p/notes.txt)")
        with pytest.raises(RequestError, match="is not base64"):
            await ask(connection, session, helpers.image_block("?", "image/png"))
        for empty in ((), ("",)):
            with pytest.raises(RequestError, match="prompt: the message is empty"):
                await ask(connection, session, *empty)


async def test_errors_are_the_protocols_own(config: Path) -> None:
    editor = Editor()
    async with opened(config, editor) as connection:
        with pytest.raises(RequestError, match="there is no session 'gone'") as missing:
            await connection.load_session(cwd="/", session_id="gone")
        assert missing.value.code == -32002
        with pytest.raises(RequestError) as refused:
            await ask(connection, "gone", "hello")
        assert refused.value.data == {"error": "SessionNotFound"}
        session = (await connection.new_session(cwd="/")).session_id
        with pytest.raises(RequestError, match="the provider does not want to") as failed:
            await ask(connection, session, "fail")
        assert failed.value.data == {"error": "ProviderRejected"}
        await ask(connection, session, "and on")
        assert editor.text() == "and on", "the session goes on after a failed turn"


async def killed_during(config: Path, editor: Editor, prompt: str, reached: asyncio.Event) -> str:
    """Kill the agent's process in the middle of a prompt; return the session."""
    command = ("lango", "acp", "--config", str(config))
    async with start_piped_command(*command, cwd=config.parent) as (reader, writer, process):
        connection = connect_to_agent(cast("Any", editor), writer, reader)
        await connection.initialize(protocol_version=1)
        session = (await connection.new_session(cwd="/")).session_id
        running = asyncio.create_task(ask(connection, session, prompt))
        await reached.wait()
        process.kill()
        with pytest.raises((ConnectionError, RequestError)):
            await running
        await connection.close()
    return session


async def test_permission_that_was_asked_for_by_a_killed_process_is_asked_for_again(config: Path) -> None:
    first, second = Editor("nothing"), Editor("allow")
    session = await killed_during(config, first, "ask", first.was_asked)
    async with opened(config, second) as connection:
        await connection.load_session(cwd="/", session_id=session)
        second.updates.clear()
        await ask(connection, session, "and on")
        assert [one.title for one in second.requests] == ["wipe"]
        assert second.calls() == [("wipe", ["pending", "in_progress", "completed"], {"noted": "this"})]
        assert second.text() == "the tool said {'noted': 'this'}and on"


async def test_a_turn_whose_editor_is_gone_is_continued_by_the_next_process(config: Path, tmp_path: Path) -> None:
    held, editor = tmp_path / "held", Editor()
    session = await killed_during(config, editor, f"hold {held}", editor.has_text)
    held.touch()
    second = Editor()
    async with opened(config, second) as connection:
        await ask(connection, session, "and on")
        assert second.text().endswith("and on")
    assert await roles(f"sqlite:///{tmp_path}/lango.db", session) == ["user", "assistant"] * 2


def test_an_unknown_agent_is_an_error_of_the_command(config: Path) -> None:
    ended = run_lango("acp", "--config", str(config), "--agent", "gone", cwd=config.parent)
    assert (ended.returncode, ended.stdout) == (1, "")
    assert "there is no agent 'gone'; the agents are 'obedient'" in ended.stderr
