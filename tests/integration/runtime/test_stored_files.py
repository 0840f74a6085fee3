"""Files of messages live outside their rows: a window is loaded without them, and a model still reads them."""

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from google.adk.agents import LlmAgent
from google.adk.agents.callback_context import CallbackContext
from google.adk.models.llm_request import LlmRequest
from google.genai import types

from lango import Attachment, open_runtime
from lango.adk import SqlSessionService
from lango.messages import Media, StoredBytes, ToolCall, content_hash
from lango.runtime.runtime import Runtime
from lango.sessions import SessionId
from lango.store.engine.database import Operation
from lango.store.lifecycle.integrity import check_database
from lango.store.sessions.window import read_message_page, read_session_window
from lango.testing import ScriptedProvider
from tests.agents.parts import Gate, collect, rows, settings_for, text_of
from tests.support.kill_points import copy_after_each_commit, until_idle
from tests.support.runtimes import store_of

LARGE = Attachment("large.bin", "image/png", bytes(range(250)) * 40_000)
"""10 MB."""
SMALLER = Attachment("smaller.bin", "image/png", LARGE.data[:1_000_000])
MORE_AT_MOST = 1_000


class ReadCounter:
    """Counts the bytes of all values that a store reads from its database."""

    def __init__(self, runtime: Runtime) -> None:
        self._database: Any = vars(store_of(runtime))["_database"]
        self._read = self._database.read
        self.bytes = 0
        self._database.read = self._counted_read

    async def during(self, work: Callable[[], Awaitable[Any]]) -> int:
        """Return how many bytes were read while something ran."""
        before = self.bytes
        await work()
        return self.bytes - before

    async def _counted_read(self, operation: Callable[[], Operation[Any]]) -> Any:
        def counted() -> Operation[Any]:
            running = operation()
            statement = next(running)
            while True:
                found = yield statement
                self.bytes += sum(_size(value) for row in found for value in row)
                try:
                    statement = running.send(found)
                except StopIteration as end:
                    return end.value

        return await self._read(counted)


def _size(value: Any) -> int:
    return len(value.encode()) if isinstance(value, str) else len(value) if isinstance(value, bytes) else 8


async def test_a_file_of_10_mb_adds_less_than_1_kb_to_the_load_of_a_window(store_url: str) -> None:
    provider = ScriptedProvider(["seen", "seen", "and again", "and again"])
    async with open_runtime(settings_for(store_url), provider=provider) as runtime:
        for session, files in (("without", []), ("with", [LARGE])):
            await runtime.run(session, "What is this?", attachments=files)
            await runtime.run(session, "Sure?")
        counter = ReadCounter(runtime)

        async def window(session: str) -> None:
            name = SessionId(runtime.app_name, "user", session)
            assert await store_of(runtime).read(read_session_window, name, 32_000)

        async def agent_session(session: str) -> None:
            """Load a session as a turn of the runtime does."""
            service = SqlSessionService("", store=store_of(runtime), budget_tokens=32_000, load_files=False)
            loaded = await service.get_session(app_name=runtime.app_name, user_id="user", session_id=session)
            assert loaded
            assert len(loaded.events) == 4

        async def page(session: str) -> None:
            record = await runtime.sessions.read(session)
            assert len(await store_of(runtime).read(read_message_page, record)) == 4

        for load in (window, agent_session, page):
            alone = await counter.during(lambda load=load: load("without"))
            together = await counter.during(lambda load=load: load("with"))
            assert 0 < together - alone <= MORE_AT_MOST, load
        [request] = [request for request in provider.requests if request.messages[-1].content == "Sure?"][1:]
        assert request.messages[0].media == (Media(LARGE.mime_type, LARGE.data, name=LARGE.name),)


async def test_files_are_read_once_for_all_model_calls_of_a_process(sqlite_url: str) -> None:
    gate = Gate()
    gate.may_end.set()
    calls = [ToolCall(f"c{number}", "wait_here", {}) for number in range(3)]
    provider = ScriptedProvider(["seen", *calls, "done"])
    async with open_runtime(settings_for(sqlite_url), provider=provider) as runtime:
        counter = ReadCounter(runtime)
        read = await counter.during(lambda: runtime.run("s", "What is this?", attachments=[LARGE]))
        assert read < 10_000, "what was just sent is not read again"
    async with open_runtime(settings_for(sqlite_url), provider=provider, tools=[gate.tool]) as runtime:
        counter = ReadCounter(runtime)
        read = await counter.during(lambda: runtime.run("s", "look closely"))
        assert len(LARGE.data) <= read < 1.01 * len(LARGE.data)
    assert len(provider.requests) == 5
    assert all(request.messages[0].media[0].data == LARGE.data for request in provider.requests)


async def test_equal_files_of_many_messages_are_stored_once(store_url: str) -> None:
    provider = ScriptedProvider(["one", "two"])
    async with open_runtime(settings_for(store_url), provider=provider) as runtime:
        for session in ("a", "b"):
            await runtime.run(session, "look", attachments=[SMALLER, SMALLER])
        assert await rows(store_of(runtime), "SELECT size, uses FROM contents") == [(len(SMALLER.data), 2)]
        [(longest,)] = await rows(store_of(runtime), "SELECT MAX(LENGTH(extra)) FROM messages")
        assert longest < MORE_AT_MOST
        await runtime.sessions.delete("a")
        await runtime.sessions.delete("b")
        assert await rows(store_of(runtime), "SELECT hash FROM contents UNION SELECT hash FROM content_chunks") == []
        assert await store_of(runtime).read(check_database, store_of(runtime).dialect) == []


async def test_a_users_own_runner_gets_the_files_with_the_events(store_url: str) -> None:
    provider = ScriptedProvider(["seen"])
    async with open_runtime(settings_for(store_url), provider=provider) as runtime:
        await runtime.run("s", "look", attachments=[LARGE])
        for budget in (None, 32_000):
            service = SqlSessionService("", store=store_of(runtime), budget_tokens=budget)
            session = await service.get_session(app_name=runtime.app_name, user_id="user", session_id="s")
            assert session
            parts = (session.events[0].content and session.events[0].content.parts) or []
            assert parts[1].inline_data
            assert parts[1].inline_data.data == LARGE.data


async def test_callbacks_of_an_agent_see_the_bytes_in_the_request(sqlite_url: str) -> None:
    seen: list[bytes] = []
    kept: list[bytes | None] = []

    def look(callback_context: CallbackContext, llm_request: LlmRequest) -> None:
        parts = [part for content in llm_request.contents for part in content.parts or ()]
        seen.extend(part.inline_data.data or b"" for part in parts if part.inline_data)
        in_session = [
            part for event in callback_context.session.events for part in (event.content or NO_CONTENT).parts or ()
        ]
        kept.extend(part.inline_data.data for part in in_session if part.inline_data)

    agent = LlmAgent(name="a", model="scripted/x", before_model_callback=look)
    async with open_runtime(
        settings_for(sqlite_url), provider=ScriptedProvider(["seen", "again"]), root_agent=agent
    ) as runtime:
        await runtime.run("s", "look", attachments=[LARGE])
        assert (seen, kept) == ([LARGE.data], [LARGE.data]), "the files of the turn's own message are loaded"
        seen.clear()
        kept.clear()
        await runtime.run("s", "look again")
    assert seen == [LARGE.data]
    assert kept == [StoredBytes(content_hash(LARGE.data), len(LARGE.data))], "those of earlier messages are not"


NO_CONTENT = types.Content()


async def test_a_queued_message_with_a_file_outlives_its_process(tmp_path: Path) -> None:
    gate = Gate(effect="none")
    provider = ScriptedProvider([ToolCall("c1", "wait_here", {}), "waited", "a file"])
    copies: list[Path] = []
    settings = settings_for(f"sqlite:///{tmp_path}/first.db")
    async with open_runtime(settings, provider=provider, tools=[gate.tool]) as runtime:

        async def run() -> None:
            first = await runtime.submit("s", "wait")
            await gate.wait()
            second = await runtime.submit("s", "look", attachments=[LARGE])
            gate.may_end.set()
            await collect(first.follow())
            assert text_of(await collect(second.follow())) == "a file"

        copies += await copy_after_each_commit(runtime, tmp_path, run)
    checked = 0
    for copy in copies:
        again = Gate(effect="none")
        again.may_end.set()
        async with open_runtime(settings_for(f"sqlite:///{copy}"), provider=_answers(), tools=[again.tool]) as resumed:
            await until_idle(resumed)
            assert await store_of(resumed).read(check_database, "sqlite") == []
            if not await rows(store_of(resumed), "SELECT 1 FROM sessions"):
                continue
            messages = await resumed.sessions.messages("s")
            with_files = [stored for stored in messages if stored.message and stored.message.content == "look"]
            for stored in with_files:
                await store_of(resumed).load_files([stored])
                assert (stored.extra or {})["parts"][1]["inline_data"]["data"] == LARGE.data
                checked += 1
    assert checked >= 3


def _answers() -> ScriptedProvider:
    """A model that ends any turn that goes on."""
    return ScriptedProvider(["ended"] * 4)
