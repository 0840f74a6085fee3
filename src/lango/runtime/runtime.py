"""One turn from message to answer: stored first, one at a time per session, told as it happens, honest if it fails."""

import asyncio
import functools
import logging
from collections.abc import AsyncGenerator, Coroutine, Mapping, Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

from lango.adk.run.engine import AdkEngine
from lango.config import Settings
from lango.errors import ApprovalExpired, OutcomeUnknown, StoreError, TurnCancelled
from lango.events import Accepted, TurnEvent
from lango.memory import Memory
from lango.messages import Attachment, Message
from lango.runtime.admission import Admission
from lango.runtime.expiry import Expiry
from lango.runtime.sessions import Sessions, known_session, made_session
from lango.runtime.turn_recovery import abandon, give_up, replay, until_stored
from lango.runtime.turn_runner import Driver, traced
from lango.store import SessionId, SessionRecord, Store, Turn
from lango.store.engine.outages import long_wait
from lango.tools import Tool
from lango.turns.lease_holder import claim, uninterrupted
from lango.turns.liveness import Owner, Watch
from lango.turns.running_turn import RunningTurn, collected, followed
from lango.turns.turn_input import Asked, check_attachments

if TYPE_CHECKING:
    from lango.adk.agents.tool_names import ToolNames


_log = logging.getLogger("lango.runtime")


class Runtime:
    """Runs the turns of one agent on one store. Made by `open_runtime`."""

    def __init__(self, settings: Settings, store: Store, engine: AdkEngine) -> None:
        self._settings = settings
        self._store = store
        self._engine = engine
        self._tasks: set[asyncio.Task[None]] = set()  # not a TaskGroup: it would wrap what the caller's own body raises
        self._owner = Owner()
        self._watch = Watch(back_at=lambda: store.outages.back_at)
        self._memory = engine.memory(self._owner.name, self._watch.is_gone)
        self._running: dict[int, list[RunningTurn]] = {}
        self._expiry = Expiry(store)
        self._spawn(self._expiry.run())
        self._admission = Admission(settings.agent.max_running_turns)
        self._driver = Driver(settings.agent, store, engine, self._admission, self._spawn, self._expiry.look)
        self._locks: WeakValueDictionary[SessionId, asyncio.Lock] = WeakValueDictionary()
        self._sessions = Sessions(store, engine.app_name, lambda: engine.window_rules)
        self._closed = False

    @property
    def store(self) -> Store:
        """The store below."""
        return self._store

    @property
    def sessions(self) -> Sessions:
        """The conversations of this agent: list, read, rename, fork, rewind, delete."""
        return self._sessions

    @property
    def memory(self) -> Memory:
        """What was observed of sessions, and learned of users."""
        return self._memory

    @property
    def app_name(self) -> str:
        """The app that sessions belong to."""
        return self._engine.app_name

    @property
    def queued_turns(self) -> int:
        """How many turns wait because as many run as the process carries."""
        return self._admission.queued

    def agents(self) -> dict[str, Any]:
        """Describe the agents: the root, with those below it."""
        return self._engine.agents()

    async def tool_names(self, *, ask_toolsets: bool = False) -> "ToolNames":
        """Return what the agents' tools are called, as far as it is known before a turn; toolsets know it when asked.

        To ask an MCP server starts it, or connects to it. Raises `ConfigError` where it does not answer.
        """
        return await self._engine.tool_names(ask_toolsets=ask_toolsets)

    async def stream(
        self,
        session_id: str,
        text: str,
        *,
        user_id: str = "user",
        idempotency_key: str | None = None,
        attachments: Sequence[Attachment] = (),
    ) -> AsyncGenerator[TurnEvent, None]:
        """Send a message and follow its turn: `Accepted` first, `TurnDone` or a fatal `TurnError` last.

        Leaving the stream before its end cancels the turn; `submit` does not.
        """
        turn = await self._send(session_id, text, user_id, idempotency_key, attachments)
        async with aclosing(followed(turn)) as events:
            async for event in events:
                yield event

    async def run(
        self,
        session_id: str,
        text: str,
        *,
        user_id: str = "user",
        idempotency_key: str | None = None,
        attachments: Sequence[Attachment] = (),
    ) -> str:
        """Send a message and return the whole answer, or raise what the turn failed with."""
        return await collected(await self._send(session_id, text, user_id, idempotency_key, attachments))

    async def approve(
        self, session_id: str, call_id: str, *, approved: bool, user_id: str = "user"
    ) -> AsyncGenerator[TurnEvent, None]:
        """Answer a question for approval and follow what comes of it. The answer holds for the arguments shown."""
        turn = await self._answer(session_id, call_id, approved, user_id)
        async with aclosing(followed(turn)) as events:
            async for event in events:
                yield event

    async def submit_approval(
        self,
        session_id: str,
        call_id: str,
        *,
        approved: bool,
        user_id: str = "user",
        client_tools: Sequence[Tool] = (),
    ) -> RunningTurn:
        """Answer a question for approval in the background, as `submit` does."""
        turn = await self._answer(session_id, call_id, approved, user_id, client_tools)
        turn.kept = True
        return turn

    async def submit_results(
        self,
        session_id: str,
        results: Mapping[str, Mapping[str, Any]],
        *,
        user_id: str = "user",
        idempotency_key: str | None = None,
        client_tools: Sequence[Tool] = (),
        history: Sequence[Message] = (),
        at_revision: int | None = None,
    ) -> RunningTurn:
        """Give the results of calls that wait for the client, by the calls' ids; the model goes on when all have one.

        Results of calls that do not wait are left out. Raises `CallNotWaiting` where none is left. With a `history`,
        the results are of the calls that it ends with, and the session begins with it. `at_revision` is as in `submit`.
        """
        name = SessionId(self.app_name, user_id, session_id)
        if history:
            asked = await asyncio.to_thread(self._engine.answer_carried, history, results)
        else:
            asked = await self._engine.answer_client(name, results)
        self._engine.offer(asked, client_tools)
        turn = await self._accept(name, asked, idempotency_key, at_revision)
        turn.kept = True
        return turn

    async def cancel(self, session_id: str, *, user_id: str = "user") -> bool:
        """Stop the session's running turn, wherever it runs; what is stored stays. False: none runs."""
        session = await self._store.session(SessionId(self.app_name, user_id, session_id))
        if session is None:
            return False
        found = await self._store.cancel_turn(session)
        for running in self._running.get(session.key, []):
            if running.turn.epoch is not None and not running.turn.repeated:
                running.stop(TurnCancelled("the turn was stopped"))
        return found

    async def take_back(self, session_id: str, turn: int, *, user_id: str = "user") -> bool:
        """Take back a message that waits for its turn; False: it does not wait (any more)."""
        session = await self._store.session(SessionId(self.app_name, user_id, session_id))
        if session is None or not await self._store.withdraw_turn(Turn(session.key, turn)):
            return False
        for running in self._running.get(session.key, []):
            if running.turn.turn == turn:
                running.stop(TurnCancelled("the message was taken back before its turn came"))
        return True

    async def submit(
        self,
        session_id: str,
        text: str,
        *,
        user_id: str = "user",
        idempotency_key: str | None = None,
        attachments: Sequence[Attachment] = (),
        state_delta: Mapping[str, Any] | None = None,
        client_tools: Sequence[Tool] = (),
        results: Mapping[str, Mapping[str, Any]] | None = None,
        history: Sequence[Message] = (),
        at_revision: int | None = None,
    ) -> RunningTurn:
        """Store a message and run its turn in the background; `follow` it from anywhere in this process.

        The same `idempotency_key` again is the same turn; with another message it raises `IdempotencyKeyReused`.
        `state_delta` changes the session's state together with the message, when its turn comes. `client_tools` are
        offered to the model in this turn: a call of one ends it, and waits for `submit_results`. A message goes on
        without them; `results`, by the calls' ids, are of those that wait and have one.

        `history` holds messages that were said elsewhere: they are stored right before this one, in the same
        transaction, marked as carried here. With `at_revision`, `StaleSession` is raised and nothing is stored unless
        the session is at just that revision and no turn of it runs or waits.
        """
        name = SessionId(self.app_name, user_id, session_id)
        check_attachments(attachments, self._settings.server)
        asked = self._engine.ask(text, attachments, state_delta)
        self._engine.offer(asked, client_tools)
        if results:
            await self._engine.bring(name, asked, results)
        if history:
            await asyncio.to_thread(self._engine.carry, asked, history)
        turn = await self._accept(name, asked, idempotency_key, at_revision)
        turn.kept = True
        return turn

    def shown_results(self, results: Mapping[str, Mapping[str, Any]]) -> dict[str, Mapping[str, Any]]:
        """Return results of the client's tools as the model reads them, and as they are stored."""
        return {call_id: one.output for call_id, one in self._engine.shown_results(results).items()}

    # -- accepting ------------------------------------------------------------------------------------------------

    async def _send(
        self, session_id: str, text: str, user_id: str, idempotency_key: str | None, attachments: Sequence[Attachment]
    ) -> RunningTurn:
        check_attachments(attachments, self._settings.server)
        name = SessionId(self.app_name, user_id, session_id)
        return await self._accept(name, self._engine.ask(text, attachments), idempotency_key)

    async def _answer(
        self, session_id: str, call_id: str, approved: bool, user_id: str, client_tools: Sequence[Tool] = ()
    ) -> RunningTurn:
        name = SessionId(self.app_name, user_id, session_id)
        await self._expiry.close(name)
        asked = await self._engine.answer_approval(name, call_id, approved=approved)
        assert asked.answer
        self._engine.offer(asked, client_tools)
        turn = await self._accept(name, asked, f"answer to {asked.answer.question}")
        if turn.turn.repeated or turn.readers or turn.kept:
            raise ApprovalExpired(f"the question about call {call_id!r} was answered just now")
        return turn

    async def _accept(
        self, name: SessionId, asked: Asked, idempotency_key: str | None, at_revision: int | None = None
    ) -> RunningTurn:
        if self._closed:
            raise TurnCancelled("the runtime is closed: open another one")
        mode = self._settings.agent.when_busy
        async with self._locks.setdefault(name, asyncio.Lock()):  # in the order in which they were sent
            session = await (made_session if at_revision is None else known_session)(self._store, name)
            try:
                turn, left = await uninterrupted(
                    self._store.submit_turn(
                        session,
                        asked.entry,
                        self._owner.name,
                        idempotency_key=idempotency_key,
                        wait=mode != "refuse",
                        answer=asked.answer,
                        at_revision=at_revision,
                    )
                )
            except OutcomeUnknown:
                self._abandon(session, asked)
                raise
            record = await self._store.turn(turn) if turn.repeated and not left else None
        if left or self._closed:
            if not turn.repeated:
                await self._give_up(session, turn)
            raise asyncio.CancelledError if left else TurnCancelled("the runtime was closed")
        for known in self._running.get(session.key, []):
            if turn.repeated and known.turn.turn == turn.turn:
                return known
        running = RunningTurn(session, turn)
        self._running.setdefault(session.key, []).append(running)
        waiting, invocation_id = turn.status == "waiting", asked.entry.invocation_id
        if record is not None:  # as it was said the first time
            waiting, invocation_id = record.waited, record.invocation_id
        running.tell(Accepted(running.next_id(), turn.turn, waiting=waiting, invocation_id=invocation_id))
        running.task = self._spawn(traced(running, self._run(running, asked)))
        if mode == "interrupt" and turn.status == "waiting" and not turn.repeated:
            await self._interrupt(running)
        return running

    async def _interrupt(self, newest: RunningTurn) -> None:
        """Stop what is ahead of a new message, here and elsewhere. Those that wait keep their place, and end there."""
        for one in self._running.get(newest.session.key, []):
            if one.turn.turn < newest.turn.turn:
                one.superseded = True
                if one.turn.epoch is not None:
                    one.stop(TurnCancelled("a newer message came"))
        try:
            await self._store.cancel_turn(newest.session, before=newest.turn.turn)
        except BaseException:  # whoever sent the message will not read its answer
            newest.stop(TurnCancelled("the turn was stopped"))
            raise

    async def _run(self, running: RunningTurn, asked: Asked) -> None:
        running.begun = True
        try:
            with long_wait():
                if running.turn.repeated:
                    return await replay(running, self._store, self._watch.is_gone)
                await claim(running, self._store, self._watch.is_gone)
                await self._driver.run(running, asked)
                self._memory.turn_ended(running.session.name)
        except asyncio.CancelledError:
            await self._withdraw(running)
        except (KeyboardInterrupt, GeneratorExit):
            raise
        except BaseException as error:  # noqa: BLE001 - it belongs to whoever follows the turn
            if isinstance(error, StoreError) and not running.turn.repeated:
                self._abandon(running.session, asked)
            running.fail(error)
        finally:
            self._forget(running)
            running.finish()

    def _abandon(self, session: SessionRecord, asked: Asked) -> None:
        """End a turn that may have been stored, or begun, without this process knowing, once the store is there."""
        self._spawn(abandon(self._store, session, self._owner.name, asked.entry.invocation_id))

    async def _give_up(self, session: SessionRecord, turn: Turn) -> None:
        """End a turn that is not run, now or as soon as the store is there."""
        end = functools.partial(give_up, self._store, session, turn)
        try:
            with long_wait(False):
                await uninterrupted(end())
        except StoreError as error:
            _log.warning("turn %s could not be taken back yet: %s", turn.turn, error)
            self._spawn(until_stored(end, f"turn {turn.turn}"))

    async def _withdraw(self, running: RunningTurn) -> None:
        """A turn that did not begin is taken back; one that is only told again goes on elsewhere."""
        if not running.turn.repeated:
            await self._give_up(running.session, running.turn)
        running.fail(running.stopped or TurnCancelled("the message was taken back before its turn came"))

    def _forget(self, running: RunningTurn) -> None:
        others = [one for one in self._running.pop(running.session.key, []) if one is not running]
        if others:
            self._running[running.session.key] = others

    def _spawn(self, work: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        """Start a task that this runtime owns: `close` stops it and waits for it."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def close(self) -> None:
        """Stop what runs, wait until every record is honest, and take nothing new."""
        self._closed = True
        while self._tasks:
            turns = [one for turns in self._running.values() for one in turns]
            for one in turns:
                one.stop(TurnCancelled("the runtime was closed"))
            for task in self._tasks - {one.task for one in turns}:
                task.cancel()
            await asyncio.wait(self._tasks)
        await self._memory.close()
        self._owner.leave()
        await self._engine.close()
