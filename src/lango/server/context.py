"""Hold the objects that every route of a running server shares."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Annotated, cast, get_args

from fastapi import Depends
from msgspec.structs import replace
from starlette.requests import HTTPConnection

from lango.config import Settings
from lango.development.test_cases import EVAL_USER
from lango.errors import ConfigError, SessionNotFound, Stopping
from lango.evaluation.case_folder import CaseFolder
from lango.evaluation.eval_runs import EvalRuns
from lango.messages import ArtifactFile, Attachment
from lango.providers.catalog import EmbeddingModels
from lango.runtime.opening import OpenedAgents
from lango.runtime.runtime import Runtime
from lango.server.errors import ApiError, bad_request
from lango.server.schemas import NewMessage
from lango.server.security.auth import Authenticator, Caller, CurrentCaller
from lango.server.streaming.live import LiveEvents
from lango.server.streaming.metrics import Metrics
from lango.server.streaming.sse import EventStreamResponse, encode_turn_error, event_frames
from lango.server.streaming.turn_streams import TurnRef, TurnStreams
from lango.sessions import SessionInfo, StoredEvent, WhenBusy
from lango.submissions import Submission, SubmittedMessage, TurnRequest
from lango.waits import Wait

WHEN_BUSY_HEADER = "X-When-Busy"
"""How the message of a request is handled while a turn of its session runs, for clients of every protocol."""
_MENDED_POLL_S = 1.0
_MESSAGES_READ_AT_ONCE = 200
_log = logging.getLogger("lango.server")


class ServerContext:
    """The runtime of one agent, its turn streams, and the metrics and access checks that all agents share."""

    def __init__(self, settings: Settings, runtime: Runtime, agents: "ServedAgents") -> None:
        self.settings = settings
        self.runtime = runtime
        self.agents = agents
        self.sessions = runtime.sessions
        self.metrics = agents.metrics
        self.turns = TurnStreams(runtime, self.metrics, settings.server.heartbeat_s)
        self.authenticator = agents.authenticator
        self.named_model = ""
        """The model that an operator named on the page since the server started."""
        self.evals = EvalRuns(settings, runtime)
        self.cases = CaseFolder(runtime.settings)

    def event_response(self, events: LiveEvents) -> EventStreamResponse:
        """Return a response that streams events."""
        timeout_s = self.settings.server.write_timeout_s
        return EventStreamResponse(event_frames(events), timeout_s, encode_turn_error, moved=self.turns.moved)


class AgentUser:
    """The caller of a request and the agent that it is for: what routes do for one user."""

    def __init__(
        self, context: ServerContext, caller: Caller, user_id: str = "", when_busy: WhenBusy | None = None
    ) -> None:
        """`when_busy` holds for the messages of the request, if they say nothing else themselves."""
        self.context = context
        self.when_busy: WhenBusy | None = when_busy
        self.caller = caller
        self.id = user_id or caller.user_id
        """Whose data it is: of the caller, or of a user that test cases ran as."""
        self.runtime = context.runtime
        self.sessions = context.sessions
        self.settings = context.settings
        self.turns = context.turns
        self.is_operator = context.authenticator.is_operator(caller)
        """Whether the user may read and change what all users share."""

    def of_model(self, model: str) -> "AgentUser":
        """Return the user of the agent that OpenAI's `model` names."""
        context = self.context.agents.of_model(model, self.context)
        return AgentUser(context, self.caller, when_busy=self.when_busy)

    def runtimes(self, all_agents: bool) -> list[Runtime]:
        """Return the runtime of the agent, or of all agents, this one first."""
        others = [context.runtime for context in self.context.agents.contexts.values() if context is not self.context]
        return [self.runtime, *(others if all_agents else ())]

    async def of_session(self, session_id: str) -> "AgentUser":
        """Return the user of the agent that has a session of the caller; of this one if no agent has it."""
        context = await self.context.agents.of_session(self.id, session_id, preferred=self.context)
        return AgentUser(context, self.caller, self.id, self.when_busy)

    def require_operator(self, action: str, why: str) -> None:
        """Raise `ApiError` for a user who is not an operator."""
        if not self.is_operator:
            raise ApiError(403, "NotAnOperator", f"{why}: only the users in server.operators may {action}")

    async def check_token_quota(self) -> None:
        """Raise `ApiError` if the caller has used up the tokens of the day."""
        await self.context.authenticator.check_token_quota(self.caller)

    async def spend_tokens(self, tokens: int) -> None:
        """Count tokens that no turn used against the quota of the caller."""
        if self.caller.quota.id is not None:
            await self.runtime.keys.spend(self.caller.quota.id, tokens)

    async def find_session(self, session_id: str) -> SessionInfo | None:
        """Find a session of the user."""
        return await self.sessions.find(session_id, user_id=self.id)

    async def get_session(self, session_id: str) -> SessionInfo:
        """Return a session of the user; raise `SessionNotFound` for one of another user, too."""
        session = await self.find_session(session_id)
        if session is None:
            raise SessionNotFound(f"there is no session {session_id!r}")
        return session

    async def messages(
        self, session: SessionInfo, most: int | None = None, before: int | None = None
    ) -> list[StoredEvent]:
        """Read the messages of a session in order, page by page: all, or about as many of the newest as `most`."""
        found: list[StoredEvent] = []
        while page := await self.sessions.page(session, before=before, limit=_MESSAGES_READ_AT_ONCE):
            found[:0] = page
            before = page[0].seq
            if most is not None and len(found) >= most:
                break
        return found

    async def delete_session(self, session_id: str) -> None:
        """Cancel the running turn of a session, and delete the session. Raise `SessionNotFound`."""
        session = await self.get_session(session_id)
        await self.runtime.cancel(session_id, user_id=self.id)
        if not await self.sessions.delete(session_id, user_id=self.id):
            raise SessionNotFound(f"there is no session {session_id!r}")
        self.sessions.changes.notify(session)

    async def waits(self, session_id: str) -> Sequence[Wait]:
        """Return what the turns of a session wait for."""
        return await self.runtime.waits(session_id, user_id=self.id)

    async def load_files(self, session_id: str, files: Iterable[Attachment | ArtifactFile]) -> list[Attachment]:
        """Return the files of a message; artifacts among them are loaded, if the session or the user has them."""
        load = self.runtime.artifacts.load_attachment
        return [
            await load(session_id, file, user_id=self.id) if isinstance(file, ArtifactFile) else file for file in files
        ]

    async def submit(self, session_id: str, submission: Submission) -> TurnRef:
        """Store what the user submits to a session and run its turn, whether or not a client follows it."""
        if self.turns.is_closing:
            raise Stopping("the server is shutting down: try again in a moment")
        if self.when_busy is not None and submission.request.when_busy is None:
            request = replace(submission.request, when_busy=self.when_busy)
            submission = replace(submission, request=request)
        running = await self.runtime.accept(
            session_id,
            submission,
            user_id=self.id,
            quota_id=self.caller.quota.id,
            tokens_per_day=self.caller.quota.tokens_per_day,
        )
        self.turns.observe(running)
        return TurnRef(running.session, running.turn.turn)

    async def send(self, session_id: str, new: NewMessage, key: str | None) -> TurnRef:
        """Submit a message of the server's own API, if the quota allows it."""
        await self.check_token_quota()
        files = await self.load_files(session_id, new.files)
        request = TurnRequest(key, when_busy=new.when_busy)
        return await self.submit(session_id, SubmittedMessage(new.text, files, request=request))

    async def stop(self, turn: TurnRef) -> None:
        """Stop a turn of the user: withdraw it if it is queued, and close what it waits for if it is paused."""
        row = await self.runtime.turns.read(turn.session, turn.turn)
        status, session_id = row.status if row else "", turn.session.name.id
        if status == "queued" and await self.runtime.withdraw(session_id, turn.turn, user_id=self.id):
            return
        only = turn.turn if status in ("queued", "running") else None
        await self.runtime.cancel(session_id, user_id=self.id, turn=only)


class ServedAgents:
    """The agents of a server, by name. The first one answers requests that name none."""

    def __init__(self, settings: Settings, runtimes: Sequence[Runtime], opened: OpenedAgents | None = None) -> None:
        """`opened` has the agents that cannot run, and opens them once their files are fixed."""
        self._settings = settings
        self._opened = opened
        self.metrics = Metrics()
        self.authenticator = Authenticator(settings.server, runtimes[0].keys)
        self.embeddings = EmbeddingModels(settings)
        self.contexts = {runtime.app_name: ServerContext(settings, runtime, self) for runtime in runtimes}
        self.default = self.contexts[runtimes[0].app_name]
        self.grpc_port: int | None = None
        """The port of A2A over gRPC; None if there is none."""
        self._closers: list[Callable[[], Awaitable[None]]] = []
        self._check_triggers()

    def _check_triggers(self) -> None:
        """Raise `ConfigError` for a trigger without its secret, or of an agent that the server does not have."""
        triggers = self.default.runtime.triggers
        triggers.check()
        for name, agent in triggers.agents.items():
            if agent not in self.contexts and agent not in self.broken:
                raise ConfigError(f"triggers.{name}.agent: there is no agent {agent!r}; the agents are {self._names}")

    @property
    def broken(self) -> dict[str, str]:
        """Why agents of the server cannot run, by their names."""
        broken = self._opened.broken if self._opened else {}
        return {name: str(one.error) for name, one in broken.items() if name not in self.contexts}

    async def serve_mended(self) -> None:
        """Serve agents that cannot run as soon as their files are fixed."""
        while self._opened is not None and self._opened.broken:
            await asyncio.sleep(_MENDED_POLL_S)
            for name, runtimes in (await self._opened.open_mended()).items():
                for runtime in runtimes:
                    self.contexts[runtime.app_name] = ServerContext(self._settings, runtime, self)
                    _log.info("now serving agent %s", runtime.app_name)
                del self._opened.broken[name]

    @property
    def are_several(self) -> bool:
        """Whether there is more than one agent."""
        return len(self.contexts) + len(self.broken) > 1

    def check_runs(self, name: str) -> None:
        """Raise `ApiError` for an agent that cannot run."""
        if (error := self.broken.get(name)) is not None:
            raise ApiError(503, "AgentBroken", f"agent {name!r} cannot run until its files are fixed: {error}")

    def named(self, name: str) -> ServerContext:
        """Return the context of an agent; raise `ApiError` if there is none of that name."""
        self.check_runs(name)
        if name not in self.contexts:
            raise ApiError(404, "AgentNotFound", f"there is no agent {name!r}; the agents are {self._names}")
        return self.contexts[name]

    def of_model(self, model: str, otherwise: ServerContext) -> ServerContext:
        """Return the agent that OpenAI's `model` names; a single agent answers whatever model a client names."""
        if not self.are_several or not model:
            return otherwise
        self.check_runs(model)
        if model not in self.contexts:
            raise ApiError(404, "model_not_found", f"model: there is no model {model!r}; the models are {self._names}")
        return self.contexts[model]

    @property
    def _names(self) -> str:
        return ", ".join(map(repr, self.contexts))

    async def of_session(self, user_id: str, session_id: str, preferred: ServerContext | None = None) -> ServerContext:
        """Return the agent of a session of a user; the preferred or first one if no agent has it.

        Raise `ApiError` if several agents have a session of that id, and none of them is the preferred one.
        """
        if not self.are_several:
            return self.default
        found = await self.default.sessions.find_apps(session_id, [*self.contexts, *self.broken], user_id=user_id)
        if preferred is not None and (not found or preferred.runtime.app_name in found):
            return preferred
        if len(found) > 1:
            message = f"{' and '.join(found)} have a session {session_id!r}: name one of them, as in ?agent={found[0]}"
            raise ApiError(409, "AmbiguousSession", message)
        if found:
            self.check_runs(found[0])
        return self.contexts[found[0]] if found else self.default

    def call_when_drained(self, close: Callable[[], Awaitable[None]]) -> None:
        """Call a function once the turns are handed over: it closes what a protocol holds open."""
        self._closers.append(close)

    async def drain(self, limit_s: float) -> None:
        """Refuse new messages, let the steps under way end, hand the turns over, and end every stream."""
        await asyncio.gather(*(context.evals.stop() for context in self.contexts.values()))
        await asyncio.gather(*(context.turns.drain(limit_s) for context in self.contexts.values()))
        await asyncio.gather(self.embeddings.close(), *(close() for close in self._closers))


async def get_context(connection: HTTPConnection) -> ServerContext:
    """Return the server context of the agent that a request names, or whose session it names."""
    agents: ServedAgents = connection.app.state.context.agents
    # not a parameter: FastAPI would build a validator of it for each of a hundred routes
    if (agent := connection.query_params.get("agent")) is not None:
        return agents.named(agent)
    app, session_id = (connection.path_params.get(name) for name in ("app", "session_id"))
    caller = getattr(connection.state, "caller", None)
    if app is not None:  # a route of ADK's REST API, which refuses an unknown app in its own way
        agents.check_runs(app)
        return agents.contexts.get(app, agents.default)
    if session_id is not None and caller is not None:
        return await agents.of_session(caller.user_id, session_id)
    return agents.default


Context = Annotated[ServerContext, Depends(get_context)]


async def get_user(caller: CurrentCaller, context: Context, connection: HTTPConnection) -> AgentUser:
    """Return the caller of a request, with the agent that it is for; an operator may act as users of test cases."""
    user_id = connection.query_params.get("as", "")
    when_busy: WhenBusy | None = None
    if (value := connection.headers.get(WHEN_BUSY_HEADER)) is not None:
        if value not in get_args(WhenBusy):
            raise bad_request(f"{WHEN_BUSY_HEADER}: send one of {', '.join(get_args(WhenBusy))}")
        when_busy = cast("WhenBusy", value)
    if not user_id:
        return AgentUser(context, caller, when_busy=when_busy)
    AgentUser(context, caller).require_operator("read it", "a session of a test case is its developer's")
    if not EVAL_USER.fullmatch(user_id):
        raise ApiError(403, "NotAnEvaluation", f"{user_id!r} is not a user that test cases run as")
    return AgentUser(context, caller, user_id, when_busy)


CurrentUser = Annotated[AgentUser, Depends(get_user)]
