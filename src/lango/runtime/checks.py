"""Check what would run before it does: models, an agent, MCP servers, and how an agent continues after a deploy.

The check of a deploy reads the store and runs nothing: no model is called, no tool runs, and nothing is written. So it
can run while another version serves.
"""

from collections.abc import Mapping, Sequence
from typing import Literal

from msgspec import Struct

from lango.adk.agents.app_builder import build_app
from lango.adk.agents.app_checks import TreeProblem, check_tree
from lango.adk.agents.model_registry import ModelRegistry, named_models
from lango.adk.run.agent_app import AgentApp
from lango.adk.run.plugin import RuntimePlugin
from lango.adk.run.record.verdict import SAME, VerdictKind
from lango.adk.run.updates import Updates
from lango.config import Settings
from lango.runtime.opening import build_agent_app, load_named_agent, protected_files
from lango.store import Store, Turn
from lango.store.credentials.secret_box import SecretBox
from lango.store.engine.schema import Migrations
from lango.store.sessions.sessions import find_session, has_sessions, list_newest_sessions
from lango.store.turns import queue
from lango.store.turns.turns import UnfinishedTurn, list_unfinished, read_turn
from lango.testing import ScriptedProvider
from lango.tools import builtin_tools

__all__ = ["CheckedAgent", "ModelRegistry", "check_agent", "check_mcp_server"]

_MCP_TIMEOUT_S = 30.0


class CheckedAgent(Struct, frozen=True):
    """An agent that can be built, and what would fail in its tree."""

    name: str
    tools: int
    """How many built-in tools it has."""
    models: Mapping[str, str] = {}
    """The models that the agents of a module name, each with the first agent that names it."""
    problems: Sequence[TreeProblem] = ()


async def check_agent(settings: Settings, *, contact: bool) -> CheckedAgent:
    """Build the agent as a turn would, with its tools; with `contact`, ask its toolsets, too. Raise `LangoError`."""
    tools = builtin_tools(settings.tools, protected=protected_files(settings))
    registry = ModelRegistry(settings, ScriptedProvider([]))
    app = build_app(settings, registry, tools, RuntimePlugin())
    if not settings.agent.module:
        return CheckedAgent(settings.app_name, len(tools))
    try:
        models: dict[str, str] = {}
        for agent, model, is_lango in named_models(app.root_agent, settings):
            if is_lango:
                models.setdefault(model, agent.name)
        problems = await check_tree(app.root_agent, settings, contact=contact)
    finally:
        await registry.close()  # the agents are free for a check of all of them
    return CheckedAgent(app.root_agent.name if app.root_agent else app.name, len(tools), models, problems)


async def check_mcp_server(settings: Settings, name: str, *, contact: bool) -> str:
    """Check that an MCP server starts or answers; return a sentence about its tools. Raise `LangoError`."""
    from lango.adk.agents.tools.mcp.toolset import mcp_toolsets  # its package is slow to import

    [toolset] = mcp_toolsets({name: settings.mcp[name]}, timeout_s=_MCP_TIMEOUT_S)
    if settings.mcp[name].oauth is not None:
        SecretBox.from_environment().check()
        return "is configured; each user signs in, so its tools are not listed here"
    if not contact:
        return "is configured; not contacted"
    try:
        tools = await toolset.get_tools()
        left_out = [f"; cannot be offered: {reason}" for reason in toolset.unusable.values()]
        return f"answers with {len(tools)} tools{''.join(left_out)}"
    finally:
        await toolset.close()


# -- a deploy ----------------------------------------------------------------------------------------------------------


class TurnVerdict(Struct, frozen=True):
    """How this version would continue one turn."""

    session: str
    user: str
    turn: int | None
    state: Literal["queued", "running", "paused", "ended"]
    verdict: VerdictKind
    why: str = ""


class DeployReport(Struct, frozen=True):
    """How this version would continue everything that is open, and the newest sessions."""

    app: str
    version: str
    turns: list[TurnVerdict]

    @property
    def lost(self) -> int:
        """How many turns cannot continue."""
        return sum(turn.verdict == "cannot continue" for turn in self.turns)


async def check_deploy(settings: Settings, sessions: int, *, migrations: Migrations | None = None) -> DeployReport:
    """Judge every open turn and wait of an app, and the newest turn of its newest sessions.

    Raise `SchemaError` if the store does not have the schema of this version, or lacks some of the `migrations`.
    """
    settings, root_agent = load_named_agent(settings, None)
    app = build_agent_app(settings, root_agent)
    store = Store(settings.store.url, migrations=migrations)
    try:
        await store.require_schema()
        turns = await judge_turns(store, app, sessions)
    finally:
        await store.close()
        await app.models.close()
    return DeployReport(app.name, app.version.name, turns)


async def judge_turns(store: Store, app: AgentApp, sessions: int) -> list[TurnVerdict]:
    """Judge every open turn and wait of an app, and the newest turn of its newest sessions.

    An app without sessions may be one that was renamed: no turn of another app continues in it.
    """
    updates = Updates(store, app.root, lambda: app.version)
    found = await store.read(list_unfinished, with_client_calls=True)
    if not await store.read(has_sessions, app.name):
        return [_judge_renamed(one, app.name) for one in found]
    unfinished = [one for one in found if one.session.app_name == app.name]
    verdicts = [await _judge_open(store, updates, one) for one in unfinished]
    busy = {one.session for one in unfinished}
    for session in await store.read(list_newest_sessions, app.name, sessions):
        turn = await store.read(queue.find_newest_turn, session) if session.name not in busy else None
        if turn is not None:
            verdicts.append(
                await _judge_ended(store, updates, session.name.id, session.name.user_id, session.key, turn)
            )
    return verdicts


def _judge_renamed(one: UnfinishedTurn, name: str) -> TurnVerdict:
    why = f"it belongs to the app {one.session.app_name!r}, and this one is {name!r}: keep the name of the app"
    return TurnVerdict(one.session.id, one.session.user_id, one.turn, one.status, "cannot continue", why)


async def _judge_open(store: Store, updates: Updates, one: UnfinishedTurn) -> TurnVerdict:
    session = await store.read(find_session, one.session)
    row = await store.read(read_turn, session.key, one.turn) if session and one.turn is not None else None
    verdict = SAME
    if session is not None and one.status == "paused":
        verdict = await updates.judge_pause(session.key)
    elif session is not None and row is not None and one.turn is not None and one.status == "running":
        verdict = await updates.judge(Turn(session.key, one.turn, first_epoch=row.record_epoch), row)
    return TurnVerdict(one.session.id, one.session.user_id, one.turn, one.status, verdict.kind, verdict.why)


async def _judge_ended(store: Store, updates: Updates, id_: str, user: str, key: int, number: int) -> TurnVerdict:
    """Judge the history of a session: its next message starts a new turn, which can always run."""
    row = await store.read(read_turn, key, number)
    assert row is not None
    verdict = await updates.judge(Turn(key, number, first_epoch=row.record_epoch), row)
    kind: VerdictKind = "same" if verdict.kind == "same" else "continues at the next model call"
    return TurnVerdict(id_, user, number, "ended", kind, verdict.why)
