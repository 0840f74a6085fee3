"""The command line as users run it, with its error messages."""

import json
import os
import re
import sqlite3
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from lango import __version__, open_runtime
from lango.config import Settings, StoreSettings
from lango.errors import ConfigError, LangoError
from lango.messages import Message
from lango.providers.protocol import UsageDelta
from lango.sessions import SessionId
from lango.store import NewEvent, Store
from lango.store.engine.schema import load_migrations
from lango.store.sessions.sessions import create_session
from lango.testing import ScriptedProvider
from tests.support.processes import run_lango

NEWEST = load_migrations().newest


def lango(*arguments: str, cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return run_lango(*arguments, cwd=cwd, env=environment)


def refused(run: subprocess.CompletedProcess[str], *words: str) -> None:
    """Check for one line on stderr, exit code 2 and no traceback."""
    assert run.returncode == 2, run
    assert run.stdout == ""
    [line] = run.stderr.strip().splitlines()
    assert line.startswith("lango: ")
    for word in words:
        assert word in line


def test_help_imports_neither_adk_nor_a_database(tmp_path: Path) -> None:
    script = "import sys; sys.argv = ['lango', '--help']\nfrom lango.cli.main import main\n"
    script += "try: main()\nexcept SystemExit: pass\n"
    script += "print(*sorted({name.partition('.')[0] for name in sys.modules}))"
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, cwd=tmp_path, check=True)
    loaded = set(run.stdout.splitlines()[-1].split())
    assert loaded.isdisjoint({"google", "apsw", "asyncpg", "openai", "anthropic", "xllamacpp", "pydantic", "rich"})
    assert "Usage: lango" in run.stdout


def test_version(tmp_path: Path) -> None:
    assert run_lango("--version", cwd=tmp_path, fresh=True).stdout.strip() == __version__


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["frobnicate"], ["No such command 'frobnicate'", "`lango --help`"]),
        (["sessions", "show"], ["session_id", "`lango sessions show --help`"]),
        (["run", "--nope"], ["--nope", "`lango run --help`"]),
        (["serve", "--port", "http"], ["--port", "integer"]),
        (["serve", "--port"], ["--port"]),
        (["sessions", "rewind", "x", "--before", "0"], ["--before", "1"]),
        (["run", "--no\npe\x1b[31m"], ["--no"]),
    ],
)
def test_a_misspelt_command_is_a_one_line_error(tmp_path: Path, arguments: list[str], words: list[str]) -> None:
    run = lango(*arguments, cwd=tmp_path)
    refused(run, *words)
    assert "\x1b" not in run.stderr


def test_a_command_without_its_subcommand_lists_them(tmp_path: Path) -> None:
    run = lango("sessions", cwd=tmp_path)
    assert run.returncode == 2
    assert "rewind" in run.stderr


async def test_sessions_list_show_delete(tmp_path: Path) -> None:
    name = SessionId("app", "alice", "first")
    async with Store(f"sqlite:///{tmp_path}/lango.db") as store:
        session = await store.write(create_session, name, None, time.time())
        await store.append(session.key, name, 0, NewEvent("e", time.time(), Message("user", "hello"), tokens=3))
    [listed] = [json.loads(line) for line in lango("sessions", "list", "--json", cwd=tmp_path).stdout.splitlines()]
    assert listed["id"] == "first"
    assert (listed["messages"], listed["tokens"]) == (1, 3)
    assert "alice" in lango("sessions", "list", cwd=tmp_path).stdout
    assert lango("sessions", "show", "first", cwd=tmp_path).stdout == "   1 user: hello\n"
    refused(lango("sessions", "show", "second", cwd=tmp_path), "'second'", "lango sessions list")
    assert lango("sessions", "delete", "first", cwd=tmp_path).returncode == 0
    assert lango("sessions", "list", cwd=tmp_path).stdout == "no sessions yet\n"


async def test_sessions_usage_shows_the_turns(tmp_path: Path) -> None:
    settings = Settings(store=StoreSettings(url=f"sqlite:///{tmp_path}/lango.db"))
    provider = ScriptedProvider([["hello", UsageDelta(12, 3)], RuntimeError("boom")])
    async with open_runtime(settings, provider=provider) as runtime:
        await runtime.run("s", "hi")
        with pytest.raises(LangoError):
            await runtime.run("s", "hi again")
    lines = lango("sessions", "usage", "s", cwd=tmp_path).stdout.splitlines()
    assert " ".join(lines[0].split()) == "turn status started tokens in out cost model s tools s tools"
    assert [line.split()[:2] for line in lines[1:3]] == [["1", "done"], ["2", "failed"]]
    assert lines[3] == "budget    32,000 tokens and 100 messages"
    assert lines[-1].endswith("2 turns, 2 model calls, 12 tokens in, 3 out, cost unknown")
    [line] = lango("sessions", "usage", "s", "--json", "-n", "1", cwd=tmp_path).stdout.splitlines()
    usage = json.loads(line)
    assert [turn["turn"] for turn in usage["turns"]] == [2]
    assert (usage["before"], usage["total"]["turns"], usage["total"]["usage"]["input_tokens"]) == (2, 2, 12)
    assert usage["window"]["first_seq"] == 1
    small = lango("sessions", "usage", "s", cwd=tmp_path, LANGO_HISTORY__MAX_MESSAGE_TOKEN_BUDGET="20").stdout
    assert "budget    20 tokens" in small
    refused(lango("sessions", "usage", "t", cwd=tmp_path), "'t'", "lango sessions list")


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_an_upgrade_can_be_checked_and_shown_without_a_change(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    if kind == "sqlite":
        url = "sqlite:///lango.db"
    else:
        url = f"{request.getfixturevalue('postgres_server')}&schema=upgrade_{uuid.uuid4().hex[:12]}"
    for _ in range(2):  # the first one has created nothing
        check = lango("db", "upgrade", "--check", "--store", url, cwd=tmp_path)
        assert (check.returncode, check.stdout) == (1, "due: 0001_schema.sql\n")
        shown = lango("db", "upgrade", "--dry-run", "--store", url, cwd=tmp_path)
        assert shown.returncode == 0
        assert shown.stdout.startswith("-- 0001_schema.sql\nCREATE TABLE sessions (")
        assert ("PRAGMA" in shown.stdout, "tsvector" in shown.stdout.lower()) == (False, kind == "postgres")
    assert list(tmp_path.iterdir()) == []
    assert lango("db", "upgrade", "--store", url, cwd=tmp_path).stdout == f"schema {NEWEST}\n"
    check = lango("db", "upgrade", "--check", "--contract", "--store", url, cwd=tmp_path)
    assert (check.returncode, check.stdout) == (0, "the schema is up to date\n")
    shown = lango("db", "upgrade", "--dry-run", "--store", url, cwd=tmp_path)
    assert (shown.returncode, shown.stdout) == (0, "")


def test_settings_come_from_the_file_and_the_environment(tmp_path: Path) -> None:
    (tmp_path / "lango.toml").write_text('[store]\nurl = "sqlite:///from_file.db"\n')
    assert lango("db", "upgrade", cwd=tmp_path).stdout == f"schema {NEWEST}\n"
    assert (tmp_path / "from_file.db").exists()
    lango("db", "upgrade", cwd=tmp_path, LANGO_STORE__URL="sqlite:///from_environment.db")
    assert (tmp_path / "from_environment.db").exists()
    (tmp_path / "lango.toml").write_text('[store]\n\nurll = "sqlite:///x.db"\n')
    refused(lango("db", "upgrade", cwd=tmp_path), "lango.toml", "line 3", "store.urll")
    (tmp_path / "lango.toml").write_text("[store\n")
    refused(lango("db", "upgrade", cwd=tmp_path), "lango.toml", "line 1")
    refused(lango("db", "upgrade", "--config", "none.toml", cwd=tmp_path), "none.toml")


@pytest.mark.parametrize(
    ("variable", "value", "words"),
    [
        ("LANGO_TOOLS__ENABLED", "shell", ["LANGO_TOOLS__ENABLED is not JSON", "LANGO_TOOLS__ENABLED='["]),
        ("LANGO_AGENT__MODELL", "openai/gpt-5", ["LANGO_AGENT__MODELL", "not a setting", "did you mean model?"]),
        ("LANGO_MCP", "{", ["LANGO_MCP is not JSON", "LANGO_MCP='{"]),
        ("LANGO_SERVER__PORT", "http", ["LANGO_SERVER__PORT", "valid integer"]),
        ("LANGO_AGENT__MODEL", "gpt-5", ["'gpt-5'", "provider/name", "such as openai/gpt-5-mini"]),
    ],
)
def test_a_wrong_variable_is_reported_with_its_syntax(
    tmp_path: Path, variable: str, value: str, words: list[str]
) -> None:
    refused(lango("run", "hello", cwd=tmp_path, **{variable: value}), *words)


def test_init_writes_settings_that_doctor_accepts(tmp_path: Path) -> None:
    assert lango("init", cwd=tmp_path).returncode == 0
    Settings.load(tmp_path / "lango.toml")
    commented = (tmp_path / "lango.toml").read_text()
    uncommented = re.sub(r"^# (?=[\[\w].*[=\]])", "", commented, flags=re.MULTILINE)
    (tmp_path / "all.toml").write_text(uncommented)
    assert Settings.load(tmp_path / "all.toml").mcp["files"].command == "npx", "every commented key is a setting too"
    refused(lango("init", cwd=tmp_path), "lango.toml exists already")
    done = lango(
        "doctor",
        "--offline",
        cwd=tmp_path,
        LANGO_SERVER__PORT="0",
        LANGO_AGENT__MODEL="openai/gpt-5",
        OPENAI_API_KEY="k",
    )
    assert done.returncode == 0, done
    assert f"ok   configuration: {tmp_path}/lango.toml\n" in done.stdout
    assert f"ok   store: schema {NEWEST}, 0 sessions" in done.stdout
    assert "ok   model openai/gpt-5: the key is set" in done.stdout


def test_doctor_reports_what_to_fix(tmp_path: Path) -> None:
    keyless = {name: "" for name in os.environ if name.endswith("_API_KEY")}
    done = lango(
        "doctor",
        cwd=tmp_path,
        **keyless,
        LANGO_AGENT__MODEL="anthropic/claude",
        LANGO_STORE__URL="sqlite:///none/x.db",
        LANGO_AGENT__MODULE="missing.py",
    )
    assert done.returncode == 1
    assert "FAIL model anthropic/claude: The provider 'anthropic' needs a key" in done.stdout
    assert "FAIL store: the folder none does not exist" in done.stdout
    assert "FAIL agent: agent.module: there is no missing.py" in done.stdout
    assert done.stderr == "lango: 3 problems to fix\n"
    (tmp_path / "lango.toml").write_text("[agent]\nmodell = 1\n")
    assert "FAIL configuration: lango.toml, line 2: agent.modell" in lango("doctor", cwd=tmp_path).stdout


OWN_MODELS = """
from google.adk.agents import LlmAgent
from google.adk.tools.agent_tool import AgentTool

called = LlmAgent(name="called", model="anthropic/claude-sonnet-4-5")
below = LlmAgent(name="below", model="openai/gpt-5-mini")
inherits = LlmAgent(name="inherits")
root_agent = LlmAgent(name="own", model="gemini-2.5-flash", sub_agents=[below, inherits], tools=[AgentTool(called)])
"""


def test_doctor_checks_only_the_models_that_a_module_names(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(OWN_MODELS)
    (tmp_path / "lango.toml").write_text('[agent]\nmodule = "own.py"\n')
    keys = {name: "" for name in os.environ if name.endswith("_API_KEY")} | {"OPENAI_API_KEY": "k"}
    done = lango("doctor", "--offline", cwd=tmp_path, LANGO_SERVER__PORT="0", **keys)
    checked = re.findall(r"(\S+) +model (\S+): (.*)", done.stdout)
    assert {name: mark for mark, name, _ in checked} == {
        "openai/gpt-5-mini": "ok",
        "anthropic/claude-sonnet-4-5": "FAIL",
        "gemini-2.5-flash": "FAIL",
    }, "ADK resolves the root's own model, and the default model is not used"
    assert "FAIL model anthropic/claude-sonnet-4-5: The provider 'anthropic' needs a key" in done.stdout
    assert re.search(r"needs a key.*\(own.py, line 5\)", done.stdout)
    assert re.search(r"FAIL model gemini-2.5-flash: Gemini needs a key: .* \(own.py, line 8\)", done.stdout)
    assert "ok   agent: own.py: own" in done.stdout
    (tmp_path / "own.py").write_text(OWN_MODELS.replace('model="gemini-2.5-flash", ', ""))
    done = lango("doctor", "--offline", cwd=tmp_path, LANGO_SERVER__PORT="0", LANGO_AGENT__MODEL="openai/gpt-5", **keys)
    assert "ok   model openai/gpt-5: the key is set" in done.stdout


TROUBLED = """
from google.adk.agents import LlmAgent
from google.adk.tools.mcp_tool import McpToolset, StdioConnectionParams
from mcp import StdioServerParameters

gone = McpToolset(connection_params=StdioConnectionParams(server_params=StdioServerParameters(command="/nowhere")))
first = LlmAgent(name="same")
second = LlmAgent(name="same")
third = LlmAgent(
    name="third",
    model="no-such-model",
    tools=[gone],
)
root_agent = LlmAgent(name="own", model="gemini-flash-latest", sub_agents=[first, second, third])
"""


def test_doctor_finds_what_would_fail_in_a_tree_with_file_and_line(tmp_path: Path) -> None:
    (tmp_path / "agents" / "own").mkdir(parents=True)
    (tmp_path / "agents" / "own" / "agent.py").write_text(TROUBLED)
    done = lango("doctor", "agents", cwd=tmp_path, GOOGLE_API_KEY="k")
    assert done.returncode == 1
    file = "agents/own/agent.py"
    assert re.search(rf"FAIL model no-such-model: .*\({file}, line 11\)", done.stdout), done.stdout
    assert re.search(rf"FAIL agent same: 2 agents have .*\({file}, line 7; {file}, line 8\)", done.stdout)
    assert re.search(rf"FAIL tools McpToolset: it cannot list its tools: .*\({file}, line 12\)", done.stdout)


def test_doctor_builds_the_agent_and_contacts_its_servers(tmp_path: Path) -> None:
    """Doctor builds the agent as a turn would."""
    (tmp_path / "lango.toml").write_text('[agent.sub_agents.a]\ntools = ["shell"]\n[mcp.gone]\ncommand = "/nowhere"\n')
    done = lango("doctor", cwd=tmp_path, LANGO_AGENT__MODEL="local/smollm2")
    assert done.returncode == 1
    assert "FAIL agent: agent.sub_agents.a.tools: there is no tool shell; add it to tools.enabled" in done.stdout
    assert "FAIL mcp gone: the MCP server gone did not answer" in done.stdout
    assert "check [mcp.gone]" in done.stdout
    (tmp_path / "lango.toml").write_text('[tools]\nenabled = ["shel"]\n')
    assert "FAIL agent: tools.enabled: there is no tool shel; there are read_file" in (
        lango("doctor", "--offline", cwd=tmp_path).stdout
    )


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('[agent]\nname = "My Agent"\n', "line 2: agent.name: must be letters, digits and _"),
        ('[agent]\nname = "user"\n', "line 2: agent.name: must not be user"),
        ('[agent.sub_agents."a b"]\n', "line 1: agent.sub_agents.a b: must be letters"),
        ('[agent]\nname = "a"\n[agent.sub_agents.a]\n', "agent: sub_agents.a has the name of the root agent"),
        ('[tools]\napproval = "Maybe"\n', "line 2: tools.approval: input should be 'ask', 'auto' or 'deny'"),
    ],
)
def test_a_wrong_setting_is_reported_with_its_line(tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "lango.toml").write_text(text)
    with pytest.raises(ConfigError) as caught:
        Settings.load(str(tmp_path / "lango.toml"))
    assert words in str(caught.value)


def snapshot(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


@pytest.fixture
def unchanged(tmp_path: Path) -> Iterator[Path]:
    """A folder in which nothing may change."""
    folder = tmp_path / "store"
    folder.mkdir()
    (folder / "text.db").write_text("this is no database, " * 100)
    foreign = sqlite3.connect(folder / "foreign.db")
    foreign.execute("CREATE TABLE sessions (id TEXT)")
    foreign.commit()
    foreign.close()
    before = snapshot(folder)
    yield folder
    assert snapshot(folder) == before


@pytest.mark.parametrize(
    ("store", "words"),
    [
        ("mysql://u:secret@h/d", ["unknown scheme", "sqlite:///"]),
        ("sqlite:///missing/lango.db", ["folder missing does not exist", "create it"]),
        ("sqlite:///text.db", ["text.db is not a SQLite database", "another file"]),
        ("sqlite:///foreign.db", ["foreign.db is the database of another program"]),
        ("sqlite:///.", ["is a folder"]),
        ("postgresql://u:secret@127.0.0.1:1/d", ["PostgreSQL at 127.0.0.1:1/d", "is it running?"]),
    ],
)
def test_a_store_that_cannot_be_used(unchanged: Path, store: str, words: list[str]) -> None:
    run = lango("db", "upgrade", "--store", store, cwd=unchanged)
    refused(run, *words)
    assert "secret" not in run.stderr


def test_a_missing_driver_is_reported_with_its_install_command(tmp_path: Path) -> None:
    script = "import sys; sys.modules['asyncpg'] = None; sys.argv = ['lango', 'db', 'upgrade', '--store', 'postgresql://h/d']"
    run = subprocess.run(
        [sys.executable, "-c", f"{script}; from lango.cli.main import main; main()"],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        check=False,
    )
    refused(run, 'pip install "lango-adk[postgres]"')


def test_a_folder_without_permissions_is_a_one_line_error(tmp_path: Path) -> None:
    folder = Path("/proc") if os.geteuid() == 0 else tmp_path  # root may write everywhere but there
    tmp_path.chmod(0o500)
    try:
        run = lango("db", "upgrade", "--store", f"sqlite:///{folder}/x.db", cwd=Path("/"))
        refused(run, str(folder), "permissions")
    finally:
        tmp_path.chmod(0o700)


def test_a_locked_store(tmp_path: Path) -> None:
    assert lango("db", "upgrade", cwd=tmp_path).returncode == 0
    holder = (
        "import apsw, sys; c = apsw.Connection('lango.db'); c.execute('BEGIN EXCLUSIVE'); print('held', flush=True)"
    )
    with subprocess.Popen(
        [sys.executable, "-c", f"{holder}; sys.stdin.read()"],
        cwd=tmp_path,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout
        assert process.stdout.readline() == "held\n"
        refused(lango("db", "upgrade", cwd=tmp_path), "lango.db is locked by another program", "try again")
        process.communicate("")
    assert lango("db", "upgrade", cwd=tmp_path).returncode == 0
