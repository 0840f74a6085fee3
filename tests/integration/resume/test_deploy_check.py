"""`lango deploy check` says what a new version would continue, and a turn that could not continue can be retried."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from lango import open_runtime
from lango.errors import Conflict, SchemaError
from lango.runtime.checks import check_deploy
from lango.sessions import SessionId
from lango.store import Store
from lango.store.engine.schema import Migration, load_migrations
from lango.store.sessions.sessions import create_session, has_sessions, list_newest_sessions
from tests.agents.parts import collect, last_error, rows, settings_for
from tests.integration.resume.test_update_table import checked_verdicts
from tests.support.changed_agents import Change, World, agent, asking, function, graph, node_agent, old_graph
from tests.support.deploys import answer_to
from tests.support.kill_points import until_idle

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of ADK: it still has these agents
AGENT = """
from google.adk.agents import LlmAgent

def {tool}(x: str) -> str:
    return x

root_agent = LlmAgent(name="{name}", model="gemini-2.5-flash", tools=[{tool}])
"""


async def test_a_turn_whose_node_is_gone_ends_and_is_retried_once_it_is_back(store_url: str) -> None:
    world = World(holds=False)
    settings = settings_for(store_url, name="app", input_expires_s=0)
    async with open_runtime(settings, root_agent=old_graph(world)) as runtime:
        await runtime.sessions.create("s")
        await collect((await runtime.submit("s", "go")).follow())
        await runtime.sessions.fork("s", new_id="fork")
    other = graph(world, function(world, "one"), node_agent(world), asking("question"), function(world, "two"))
    verdicts = await checked_verdicts(store_url, Change("graph", lambda _: other))
    assert verdicts == {"s": "cannot continue", "fork": "cannot continue"}
    async with open_runtime(settings, root_agent=other) as runtime:
        [wait] = await runtime.waits("s")
        failed = await collect((await runtime.answer("s", wait.id, answer_to(wait))).follow())
        assert last_error(failed).error == "TurnDiverged"
        assert "'ask'" in last_error(failed).message, "it names the node"
    async with open_runtime(settings, root_agent=old_graph(world)) as runtime:
        await runtime.turns.retry("s", 2)
        await until_idle(runtime)
        [_, retried] = (await runtime.sessions.trace("s")).turns
        assert retried.version == runtime.version != retried.begun_version
        with pytest.raises(Conflict, match="did not fail"):
            await runtime.turns.retry("s", 2)
    assert world.effects["s"] == {"one": 1, "pay 1": 1, "pay 2": 1, "two": 1}


async def test_open_turns_are_judged_without_running_anything(tmp_path: Path) -> None:
    world = World(holds=False)
    url = f"sqlite:///{tmp_path}/app.db"
    async with open_runtime(settings_for(url, name="app"), root_agent=agent(world, "app")) as runtime:
        await runtime.sessions.create("approval")
        await runtime.sessions.create("ended")
        for session in ("approval", "ended"):
            await collect((await runtime.submit(session, "go")).follow())
    before = dict(world.effects)
    path = tmp_path / "shop" / "agent.py"
    path.parent.mkdir()
    path.write_text(AGENT.format(name="app", tool="pay"), "utf-8")
    report = await check_deploy(settings_for(url).with_agent(str(path)), 5)
    verdicts = {one.session: (one.state, one.verdict) for one in report.turns}
    assert verdicts["approval"] == ("paused", "continues at the next model call"), "buy is gone"
    assert verdicts["ended"] == ("ended", "same")
    assert (report.lost, world.effects) == (0, before)
    path = tmp_path / "store" / "agent.py"
    path.parent.mkdir()
    path.write_text(AGENT.format(name="store", tool="pay"), "utf-8")
    renamed = await check_deploy(settings_for(url, name=None).with_agent(str(path)), 5)
    assert [(one.session, one.verdict) for one in renamed.turns] == [("approval", "cannot continue")]
    assert "belongs to the app 'app', and this one is 'store'" in renamed.turns[0].why


async def test_a_store_of_an_older_schema_is_refused_and_not_changed(store_url: str, tmp_path: Path) -> None:
    world = World(holds=False)
    async with open_runtime(settings_for(store_url, name="app"), root_agent=agent(world, "app")) as runtime:
        await runtime.sessions.create("s")
        await collect((await runtime.submit("s", "go")).follow())
    before = await contents(store_url)
    path = tmp_path / "agent.py"
    path.write_text(AGENT.format(name="app", tool="pay"), "utf-8")
    settings = settings_for(store_url).with_agent(str(path))
    own = load_migrations()
    added = Migration(own.newest + 1, "expand_label", ("ALTER TABLE turns ADD COLUMN label TEXT",))
    with pytest.raises(SchemaError, match=rf"\(000{added.version}_expand_label.sql\).*run `lango db upgrade` first"):
        await check_deploy(settings, 5, migrations=replace(own, steps=(*own.steps, added)))
    assert await contents(store_url) == before
    report = await check_deploy(settings, 5)
    assert [one.verdict for one in report.turns] == ["same"], "this version can check it"
    assert await contents(store_url) == before


async def test_the_newest_sessions_of_an_app_are_read_and_no_others(store_url: str) -> None:
    async with Store(store_url) as store:
        for number, app in enumerate(("app", "app", "app", "other")):
            await store.write(create_session, SessionId(app, f"user {number}", "s"), None, float(number))
        newest = await store.read(list_newest_sessions, "app", 2)
        assert [session.name.user_id for session in newest] == ["user 2", "user 1"]
        assert await store.read(list_newest_sessions, "app", 0) == []
        assert [await store.read(has_sessions, app) for app in ("app", "none")] == [True, False]


async def test_a_check_creates_no_store(tmp_path: Path) -> None:
    (tmp_path / "agent.py").write_text(AGENT.format(name="app", tool="pay"), "utf-8")
    settings = settings_for(f"sqlite:///{tmp_path}/new.db").with_agent(str(tmp_path / "agent.py"))
    with pytest.raises(SchemaError, match=r"0001_schema\.sql"):
        await check_deploy(settings, 5)
    assert not (tmp_path / "new.db").exists()


async def contents(url: str) -> dict[str, list[str]]:
    """Read the schema and every row of a store that has one turn."""
    is_sqlite = url.startswith("sqlite")
    schema = (
        "SELECT name, sql FROM sqlite_master"
        if is_sqlite
        else "SELECT table_name, column_name, data_type FROM information_schema.columns "
        "WHERE table_schema = current_schema()"
    )
    tables = (
        "SELECT name FROM sqlite_master WHERE type = 'table'"
        if is_sqlite
        else "SELECT tablename FROM pg_tables WHERE schemaname = current_schema()"
    )
    store = Store(url)
    found = {"": sorted(map(repr, await rows(store, schema)))}
    for [table] in await rows(store, tables):
        found[table] = sorted(map(repr, await rows(store, f"SELECT * FROM {table}")))
    await store.close()
    return found
