"""Read and change what a store holds, of all apps and users, without an agent: for commands that run no turn."""

from collections.abc import AsyncGenerator, AsyncIterable, Callable, Sequence
from contextlib import asynccontextmanager

from lango.config import Settings
from lango.history import WindowRules
from lango.memory import Memory
from lango.runtime.access import ApiKeys, Credentials
from lango.runtime.artifacts import Artifacts
from lango.runtime.execution.replicas import ListedReplica, list_replicas
from lango.runtime.sessions.session_transfer import import_session
from lango.runtime.sessions.session_usage import window_rules_for
from lango.runtime.sessions.sessions import Sessions
from lango.runtime.submissions.schedules import ListedSchedule, Schedules, listed
from lango.runtime.turns import UnfinishedTurns
from lango.runtime.waits import Inbox
from lango.runtime.webhooks import Webhooks
from lango.sessions import SessionId, SessionInfo
from lango.store import Store
from lango.store.credentials import credentials
from lango.store.credentials.credentials import Owned
from lango.store.credentials.secret_box import SecretBox, new_key
from lango.store.engine.schema import load_migrations
from lango.store.lifecycle import integrity
from lango.store.schedules import database_now, list_all_schedules
from lango.store.sessions.sessions import list_sessions, list_sessions_by_id, list_users
from lango.store.sessions.titles import with_all_first_words
from lango.store.webhooks.webhooks import replace_webhook_secrets


class AppData:
    """What a store holds of one app: the objects that `Runtime` has, without an agent."""

    def __init__(self, store: Store, app_name: str, settings: Settings | None = None) -> None:
        """`settings` limit requests and artifacts."""
        self._store = store
        self._app_name = app_name
        self._rules = window_rules_for(settings) if settings else WindowRules()
        self.sessions = Sessions(
            store, app_name, lambda: self._rules, prices=settings.agent.prices if settings else None
        )
        self.artifacts = Artifacts(store, app_name, settings.store.max_artifact_bytes if settings else None)
        self.credentials = Credentials(store, app_name)
        self.inbox = Inbox(store, app_name)
        self.schedules = Schedules(store, app_name)
        self.webhooks = Webhooks(store, app_name)
        self.memory = Memory(store, app_name, observer=None)


class StoredData:
    """What a store holds, of all apps and users. Made by `open_store`."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.keys = ApiKeys(store)
        self.turns = UnfinishedTurns(store)

    def app(self, app_name: str, settings: Settings | None = None) -> AppData:
        """Return what the store holds of one app; `settings` limit requests and artifacts."""
        return AppData(self._store, app_name, settings)

    async def replicas(self) -> Sequence[ListedReplica]:
        """List the live processes that run turns, of all apps."""
        return await list_replicas(self._store)

    async def owners(self) -> Sequence[tuple[str, str]]:
        """List the apps and users that have sessions."""
        return await self._store.read(list_users)

    async def sessions(self, app_name: str | None = None, session_id: str | None = None) -> Sequence[SessionInfo]:
        """List the sessions of all apps, or of one, or those with an id; the newest last."""
        if session_id is None:
            return await self._store.read(with_all_first_words, await self._store.read(list_sessions, app_name))
        found = await self._store.read(list_sessions_by_id, session_id)
        return [one for one in found if app_name in (None, one.name.app_name)]

    async def schedules(self) -> Sequence[ListedSchedule]:
        """List the schedules of all apps and users."""
        now = await self._store.read(database_now)
        return [listed(one, now) for one in await self._store.read(list_all_schedules)]

    async def import_session(
        self,
        lines: AsyncIterable[bytes],
        app_name: str | None = None,
        user_id: str | None = None,
        session_id: str | None = None,
        progress: Callable[[float], None] | None = None,
    ) -> SessionInfo:
        """Create a session from an export. Unless given, the app, the user and the id are those of the export."""
        return await import_session(self._store, lines, app_name, user_id, session_id, progress)

    async def credentials(self) -> Sequence[Owned]:
        """List the credentials of all users, without their secrets."""
        return await self._store.read(credentials.list_all)

    async def encrypt_again(self) -> int:
        """Encrypt every credential with the first key of LANGO_CREDENTIAL_KEY; return how many there are."""
        box = SecretBox.from_environment()
        box.check()
        await self._store.write_long(replace_webhook_secrets, box.rotate)
        return await self._store.write_long(credentials.replace_secrets, box.rotate)

    async def session_names(self) -> Sequence[SessionId]:
        """List the names of all sessions, including unreadable ones."""
        return await self._store.read(integrity.list_session_names)

    async def check(self) -> Sequence[integrity.Problem]:
        """Check what belongs to no session, and return the problems; `Sessions.check` checks a session."""
        return await self._store.read(integrity.check_database, self._store.dialect)

    @property
    def is_sqlite(self) -> bool:
        """Whether the store is a SQLite file, not PostgreSQL."""
        return self._store.dialect == "sqlite"

    async def schema_version(self) -> int:
        """Return the version of the schema."""
        return await self._store.schema_version()


@asynccontextmanager
async def open_store(url: str, *, contract: bool = False) -> AsyncGenerator[StoredData, None]:
    """Open a store and upgrade its schema; `contract`: with the steps that drop what older versions use."""
    async with Store(url, migrations=load_migrations(contract=contract)) as store:
        yield StoredData(store)


async def due_migrations(url: str, *, contract: bool = False) -> dict[str, list[str]]:
    """Return the migrations that opening a store would run, and their statements, without changing anything."""
    store = Store(url, migrations=load_migrations(contract=contract))
    return {step.file_name: step.for_dialect(store.dialect) for step in await store.due_migrations()}


def new_credential_key() -> str:
    """Return a new key for LANGO_CREDENTIAL_KEY."""
    return new_key()
