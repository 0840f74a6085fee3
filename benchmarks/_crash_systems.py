"""The systems that `benchmarks.crash` kills: one agent, one model and two tools on Lango, on ADK alone and on DBOS.

Each system sends messages, goes on after a crash as well as its user can make it, and names the messages that it
stopped with an error. Everything else, the judge above all, is the same for all of them.
"""

import asyncio
import contextlib
import itertools
import os
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

from google.adk.agents import LlmAgent
from google.adk.apps.app import App, ResumabilityConfig
from google.adk.models import BaseLlm
from google.adk.models.llm_request import LlmRequest
from google.adk.models.llm_response import LlmResponse
from google.adk.plugins import BasePlugin
from google.adk.runners import Runner
from google.adk.sessions import BaseSessionService, DatabaseSessionService
from google.genai import types
from sqlalchemy import event as sql_events
from sqlalchemy.engine import Engine
from sqlalchemy.engine.default import DefaultDialect

from lango import Settings, open_runtime
from lango.adk import SqlSessionService
from lango.runtime.runtime import Runtime
from lango.store.engine.database import Operation, Row
from lango.store.engine.postgres.postgres_database import PostgresDatabase
from lango.store.engine.sqlite.sqlite_database import SqliteDatabase
from lango.tools import Tool
from tests.support.runtimes import store_of

DBOS: Any = None
SetEnqueueOptions: Any = None
SetWorkflowID: Any = None
DBOSPlugin: Any = None
with suppress(ImportError):  # the dependency group `bench` is not installed
    from dbos import DBOS, SetEnqueueOptions, SetWorkflowID  # pyright: ignore[reportMissingImports]
    from dbos_google_adk import DBOSPlugin  # pyright: ignore[reportMissingImports]

APP, USER = "crash", "user"
STEP_S = 0.005
"""How long the model and each half of a tool take."""
POLL_S = 0.01
Point = Callable[[], None]
Acknowledge = Callable[[], None]


# -- the agent -------------------------------------------------------------------------------------------------------


def append_line(file: Path, line: str) -> None:
    """Append a line to a file that several processes write."""
    with file.open("a") as opened:
        opened.write(f"{line}\n")


class PlannedModel(BaseLlm):
    """Calls `note`, then `pay`, then answers: a function of the request, which is logged."""

    model: str = "planned"
    folder: Any = None
    point: Any = None

    async def generate_content_async(
        self, llm_request: LlmRequest, stream: bool = False
    ) -> AsyncGenerator[LlmResponse, None]:
        text, step = "", 0
        for part in itertools.chain.from_iterable(content.parts or [] for content in llm_request.contents):
            if part.function_response:
                step += 1
            elif part.text and part.text.startswith("message "):
                text, step = part.text, 0
        append_line(self.folder / "requests", f"{text}|{min(step, 2)}")
        self.point()
        await asyncio.sleep(STEP_S)
        if step < 2:
            name = ("note", "pay")[step]
            call = types.FunctionCall(id=f"{name} {text}", name=name, args={"order": text})
            parts = [types.Part(function_call=call)]
        else:
            parts = [types.Part(text=f"answer to {text}")]
        yield LlmResponse(content=types.Content(role="model", parts=parts), partial=False, turn_complete=True)


def make_tools(folder: Path, point: Point) -> list[Callable[..., Awaitable[str]]]:
    """Make an idempotent tool and one whose effect must happen once; both log their effects."""

    async def run(name: str, order: str) -> str:
        point()
        await asyncio.sleep(STEP_S)
        append_line(folder / "effects", f"{name} {order}")
        point()
        await asyncio.sleep(STEP_S)
        return f"{name}: done"

    async def note(order: str) -> str:
        """Note an order: the same note again changes nothing."""
        return await run("note", order)

    async def pay(order: str) -> str:
        """Pay for an order: must not happen twice."""
        return await run("pay", order)

    return [note, pay]


def responses_in(events: list[Any]) -> list[str]:
    """Return the stored model responses of a session, by the names of their requests."""
    found: list[str] = []
    for event in events:
        for part in (event.content.parts if event.content else None) or []:
            if part.function_call:
                found.append(f"{part.function_call.args['order']}|{int(part.function_call.name == 'pay')}")
            elif part.text and part.text.startswith("answer to ") and event.author != "user":
                found.append(f"{part.text.removeprefix('answer to ')}|2")
    return found


# -- the systems -----------------------------------------------------------------------------------------------------


class System(Protocol):
    """An open system, in the process that may be killed or in the one after it."""

    async def send(self, session: str, text: str, acknowledge: Acknowledge) -> None:
        """Send a message; call `acknowledge` when a client would know that it was accepted."""
        ...

    async def go_on(self, session: str) -> None:
        """Finish what a dead process left open, and wait until nothing is open."""
        ...

    async def stopped(self, session: str, texts: list[str]) -> list[str]:
        """Return the messages whose turns are stored as ended with an error."""
        ...


class Lango:
    """Lango: the runtime finds open turns by itself."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime

    @staticmethod
    @contextlib.asynccontextmanager
    async def open(url: str, folder: Path, point: Point) -> AsyncIterator["Lango"]:
        """Open the runtime, and report each commit of its store."""
        for database in (SqliteDatabase, PostgresDatabase):
            report_writes(database, point)
        schema = {"type": "object", "properties": {"order": {"type": "string"}}, "required": ["order"]}
        note, pay = make_tools(folder, point)
        tools = [
            Tool("note", "Note an order.", schema, note, effect="idempotent"),
            Tool("pay", "Pay for an order.", schema, pay, effect="once"),
        ]
        settings = Settings.model_validate({"store": {"url": url}, "agent": {"name": APP}})
        agent = LlmAgent(name=APP, model=PlannedModel(folder=folder, point=point))
        async with open_runtime(settings, root_agent=agent, tools=tools) as runtime:
            yield Lango(runtime)

    @staticmethod
    def sessions(url: str) -> BaseSessionService:
        """Open the session service, to read what is stored."""
        return SqlSessionService(url)

    async def send(self, session: str, text: str, acknowledge: Acknowledge) -> None:
        await self._runtime.submit(session, text)
        acknowledge()

    async def go_on(self, session: str) -> None:
        while await self._statuses(session, "queued", "running"):
            await asyncio.sleep(POLL_S)

    async def stopped(self, session: str, texts: list[str]) -> list[str]:
        ended = await self._statuses(session, "failed", "interrupted", "cancelled")
        return [text for number, text in enumerate(texts, 1) if number in ended]

    async def _statuses(self, session: str, *statuses: str) -> list[int]:
        """Return the turns of a session with one of these statuses."""

        def operation() -> Operation[list[Row]]:
            query = (
                "SELECT t.turn, t.status FROM turns t JOIN sessions s ON s.session_key = t.session_key WHERE s.id = $1"
            )
            return (yield query, (session,))

        return [turn for turn, status in await store_of(self._runtime).read(operation) if status in statuses]


def report_writes(database: Any, point: Point) -> None:
    """Report each transaction that a database of Lango's has committed."""
    write = database.write

    async def write_and_report(*args: Any, **options: Any) -> Any:
        result = await write(*args, **options)
        point()
        return result

    database.write = write_and_report


def report_commits(point: Point) -> None:
    """Report each transaction that SQLAlchemy has committed, if it wrote something."""
    wrote = threading.local()
    commit = DefaultDialect.do_commit

    def note_write(connection: Any, _cursor: object, statement: str, *_: object) -> None:
        if statement.lstrip()[:6].upper() in ("INSERT", "UPDATE", "DELETE"):
            connection.info["wrote"] = True

    def before_commit(connection: Any) -> None:
        wrote.now = connection.info.pop("wrote", False)

    def commit_and_report(dialect: Any, connection: Any) -> None:
        is_write, wrote.now = getattr(wrote, "now", False), False
        commit(dialect, connection)
        if is_write:
            point()

    sql_events.listen(Engine, "before_cursor_execute", note_write)
    sql_events.listen(Engine, "commit", before_commit)
    DefaultDialect.do_commit = commit_and_report  # pyright: ignore[reportAttributeAccessIssue]


def adk_url(url: str) -> str:
    """Return a URL with the asynchronous driver that ADK's service needs."""
    return url.replace("postgresql://", "postgresql+asyncpg://").replace("sqlite://", "sqlite+aiosqlite://")


def user_message(text: str) -> types.Content:
    """Make the content of a message."""
    return types.Content(role="user", parts=[types.Part(text=text)])


def adk_runner(
    service: BaseSessionService, folder: Path, point: Point, tools: list[Any], *plugins: BasePlugin
) -> Runner:
    """Make ADK's Runner for the agent; it is resumable unless a plugin brings its own way."""
    agent = LlmAgent(name=APP, model=PlannedModel(folder=folder, point=point), tools=tools)
    resumable = ResumabilityConfig(is_resumable=True) if not plugins else None
    app = App(name=APP, root_agent=agent, plugins=list(plugins), resumability_config=resumable)
    return Runner(app=app, session_service=service)


async def ensure_session(service: BaseSessionService, session: str, app: str = APP, user: str = USER) -> None:
    """Create a session, unless there is one."""
    if await service.get_session(app_name=app, user_id=user, session_id=session) is None:
        await service.create_session(app_name=app, user_id=user, session_id=session)


class Adk:
    """ADK's Runner with `ResumabilityConfig`: after a crash its user resumes the unfinished invocation.

    ADK has no queue: a second message waits in the process, for a lock.
    """

    def __init__(self, runner: Runner) -> None:
        self._runner = runner
        self._lock = asyncio.Lock()

    @staticmethod
    @contextlib.asynccontextmanager
    async def open(url: str, folder: Path, point: Point) -> AsyncIterator["Adk"]:
        """Open the Runner on ADK's own SQL service."""
        report_commits(point)
        service = DatabaseSessionService(adk_url(url))
        tools = make_tools(folder, point)
        yield Adk(adk_runner(service, folder, point, tools))
        await service.close()

    @staticmethod
    def sessions(url: str) -> BaseSessionService:
        """Open the session service, to read what is stored."""
        return DatabaseSessionService(adk_url(url))

    async def send(self, session: str, text: str, acknowledge: Acknowledge) -> None:
        async with self._lock:
            await ensure_session(self._runner.session_service, session)
            async for _ in self._runner.run_async(
                user_id=USER, session_id=session, new_message=user_message(text)
            ):  # the first event acknowledges the message: ADK sends none before
                acknowledge()

    async def go_on(self, session: str) -> None:
        found = await self._runner.session_service.get_session(app_name=APP, user_id=USER, session_id=session)
        if found is None or not found.events:
            return
        invocation_id = found.events[-1].invocation_id
        own = [event for event in found.events if event.invocation_id == invocation_id]
        # an answer that is stored is not asked for again, even where ADK's mark of the agent's end is missing
        if any(event.actions.end_of_agent or (event.author != "user" and is_answer(event)) for event in own):
            return
        async for _ in self._runner.run_async(user_id=USER, session_id=session, invocation_id=invocation_id):
            pass

    async def stopped(self, session: str, texts: list[str]) -> list[str]:
        return []  # ADK stores no errors


def is_answer(event: Any) -> bool:
    """Whether an event holds text that ends a turn."""
    return bool(event.content and any(part.text for part in event.content.parts or [])) and event.is_final_response()


class Dbos:
    """`dbos-google-adk`: a workflow per turn, tools as steps, a queue with a partition per session."""

    def __init__(self, service: BaseSessionService, workflow: Callable[..., Any]) -> None:
        self._service = service
        self._workflow = workflow
        self._lock = asyncio.Lock()

    @staticmethod
    @contextlib.asynccontextmanager
    async def open(url: str, folder: Path, point: Point) -> AsyncIterator["Dbos"]:
        """Launch DBOS on a system database of its own beside ADK's tables; the launch starts its recovery."""
        assert DBOS
        report_commits(point)
        system = f"{url}.dbos" if url.startswith("sqlite") else url.replace("?", "_dbos?", 1)
        DBOS(
            config={
                "name": APP,
                "system_database_url": system,
                "application_version": "1",
                "executor_id": "local",
                "notification_listener_polling_interval_sec": 0.01,
            }
        )
        tools = [DBOS.step()(tool) for tool in make_tools(folder, point)]

        @DBOS.workflow()
        async def run_turn(session: str, text: str) -> None:
            service = DatabaseSessionService(adk_url(url))  # of the event loop that DBOS runs this in
            try:
                runner = adk_runner(service, folder, point, tools, DBOSPlugin())
                async for _ in runner.run_async(user_id=USER, session_id=session, new_message=user_message(text)):
                    pass
            finally:
                await service.close()

        await asyncio.to_thread(DBOS.launch)
        await DBOS.register_queue_async("turns", partition_concurrency=1, polling_interval_sec=0.05)
        service = DatabaseSessionService(adk_url(url))
        yield Dbos(service, run_turn)
        await service.close()

    @staticmethod
    def sessions(url: str) -> BaseSessionService:
        """Open the session service, to read what is stored."""
        return DatabaseSessionService(adk_url(url))

    async def send(self, session: str, text: str, acknowledge: Acknowledge) -> None:
        assert DBOS
        async with self._lock:  # in the order in which they were sent
            await ensure_session(self._service, session)
            with SetWorkflowID(text), SetEnqueueOptions(queue_partition_key=session):
                await DBOS.enqueue_workflow_async("turns", self._workflow, session, text)
        acknowledge()

    async def go_on(self, session: str) -> None:
        assert DBOS
        while await DBOS.list_workflows_async(status=["PENDING", "ENQUEUED"], load_input=False, load_output=False):
            await asyncio.sleep(POLL_S)

    async def stopped(self, session: str, texts: list[str]) -> list[str]:
        assert DBOS
        found = await DBOS.list_workflows_async(
            status=["ERROR", "CANCELLED", "MAX_RECOVERY_ATTEMPTS_EXCEEDED"], load_input=False, load_output=False
        )
        return [text for text in texts if text in {one.workflow_id for one in found}]


SYSTEMS: dict[str, Any] = {"Lango": Lango, "ADK, ResumabilityConfig": Adk, "dbos-google-adk": Dbos}
if DBOS is None:
    del SYSTEMS["dbos-google-adk"]


def kill_this_process() -> None:
    """kill -9."""
    os.kill(os.getpid(), 9)
