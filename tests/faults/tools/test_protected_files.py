"""Attack 17: no tool reaches Lango's own files, repositories or keys, in any place."""

import os
import sqlite3
import stat
from pathlib import Path
from typing import Any

import pytest

from lango import Settings, open_runtime
from lango.config import AgentSettings, StoreSettings, ToolSettings
from lango.errors import ConfigError
from lango.messages import ToolCall
from lango.runtime.opening import protected_files
from lango.testing import ScriptedProvider
from lango.tools import Tool, ToolOutcome, builtin_tools, run_tool
from tests.agents.parts import results_in
from tests.faults.tools.test_shell import boxed
from tests.support.servers.server_process import lango

SECRET = "canary-of-another-user"
WRITERS = ["read_file", "list_files", "search_files", "write_file", "edit_file", "shell"]
AGENT = "from google.adk.agents import LlmAgent\nroot_agent = LlmAgent(name='own', model='local/default')\n"


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A workspace with protected files in subfolders."""
    monkeypatch.chdir(tmp_path)
    root = tmp_path / "project"
    for folder in ("data", "conf", "agents/own", "deep/er/.git/hooks", "deep/.ssh"):
        (root / folder).mkdir(parents=True)
    with sqlite3.connect(root / "data" / "chats.sqlite") as database:
        database.execute("CREATE TABLE messages (content TEXT)")
        database.execute("INSERT INTO messages VALUES (?)", [SECRET])
    database.close()
    for name in HIDDEN:
        if not (root / name).exists():
            (root / name).write_text(AGENT if name.endswith("agent.py") else SECRET)
    return root


HIDDEN = [
    "data/chats.sqlite",
    "data/chats.sqlite-wal",
    "conf/other.toml",
    "agents/own/agent.py",
    "deep/er/.env",
    "deep/er/.env.production",
    "deep/er/.git/hooks/pre-commit",
    "deep/.ssh/known_hosts",
    "deep/er/server.pem",
    "deep/id_ecdsa",
]


def made_settings(root: Path, *, store_in_workspace: bool = True) -> Settings:
    config = root / "conf" / "other.toml"
    config.write_text(f'[agent]\nname = "keeper"\n# {SECRET}\n')
    read = Settings.load(config)
    return read.model_copy(
        update={
            "agent": AgentSettings(module=str(root / "agents" / "own" / "agent.py")),
            "store": StoreSettings(url=f"sqlite:///{root}/data/chats.sqlite"),
            "tools": ToolSettings(enabled=WRITERS, workspace=str(root), store_in_workspace=store_in_workspace),
        }
    )


@pytest.fixture
def tools(root: Path) -> dict[str, Tool]:
    settings = made_settings(root)
    return {one.name: one for one in builtin_tools(settings.tools, protected=protected_files(settings))}


async def call(tools: dict[str, Tool], tool: str, **arguments: Any) -> ToolOutcome:
    return await run_tool(tools[tool], arguments)


@pytest.mark.parametrize("path", HIDDEN)
async def test_attack_17_file_tools_neither_read_nor_write_protected_files(
    tools: dict[str, Tool], root: Path, path: str
) -> None:
    before = (root / path).read_bytes()
    read = await call(tools, "read_file", path=path)
    assert not read.ok
    assert SECRET not in str(read.result)
    assert not (await call(tools, "write_file", path=path, content="mine now")).ok
    assert not (await call(tools, "edit_file", path=path, old=SECRET, new="mine now")).ok
    assert (root / path).read_bytes() == before


async def test_attack_17_file_tools_do_not_list_or_find_protected_files(tools: dict[str, Tool], root: Path) -> None:
    listed = await call(tools, "list_files", recursive=True)
    shown = {entry["path"] for entry in listed.result["entries"]}
    assert not shown & {*HIDDEN}
    assert (await call(tools, "search_files", query=SECRET)).result == {"matches": []}
    assert not (await call(tools, "write_file", path="deep/er/.git/hooks/post-commit", content="#!/bin/sh")).ok


async def test_attack_17_another_name_of_a_protected_file_is_refused(tools: dict[str, Tool], root: Path) -> None:
    for number, path in enumerate(
        ("data/chats.sqlite", "conf/other.toml")
    ):  # the second one is text, and could be read
        os.link(root / path, root / f"innocent-{number}.txt")
        before = (root / path).read_bytes()
        read = await call(tools, "read_file", path=f"innocent-{number}.txt")
        assert not read.ok
        assert "private" in str(read.result), "it is refused for what it is, and not because it is no text"
        assert SECRET not in str(read.result)
        assert not (await call(tools, "edit_file", path=f"innocent-{number}.txt", old=SECRET, new="mine")).ok
        assert (root / path).read_bytes() == before


@boxed
async def test_attack_17_a_sandboxed_command_neither_reads_nor_writes_protected_files(
    tools: dict[str, Tool], root: Path
) -> None:
    (root / "deep" / ".env.link").symlink_to(root / "deep" / "hidden-by-link")
    (root / "deep" / "hidden-by-link").write_text(SECRET)
    before = {path: (root / path).read_bytes() for path in HIDDEN}
    outcome = await call(
        tools, "shell", command=f"grep -rn {SECRET} . ; cat data/* deep/hidden-by-link; ls -la deep/er"
    )
    assert SECRET not in outcome.result["stdout"]
    tried = "; ".join(f"echo mine > {path}; rm -f {path}; mv {path} /tmp/x" for path in HIDDEN)
    await call(
        tools, "shell", command=f"{tried}; mv deep/er deep/moved && cat deep/moved/.env; mv deep/moved deep/er; :"
    )
    assert {path: (root / path).read_bytes() for path in HIDDEN} == before
    moved = await call(tools, "shell", command=f"mv deep moved; grep -rn {SECRET} moved; mv moved deep")
    assert SECRET not in moved.result["stdout"]


@boxed
async def test_a_command_leaves_no_setuid_file_behind(tools: dict[str, Tool], root: Path) -> None:
    outcome = await call(tools, "shell", command="cp /bin/true tool && chmod 6755 tool && stat -c %a tool")
    assert outcome.result["stdout"].strip() == "6755", "it could be made"
    assert stat.S_IMODE((root / "tool").stat().st_mode) == 0o755


@pytest.mark.parametrize("name", ["write_file", "edit_file", "shell"])
async def test_attack_17_a_store_in_a_writable_workspace_is_refused_at_the_start(root: Path, name: str) -> None:
    settings = made_settings(root, store_in_workspace=False)
    only = settings.model_copy(update={"tools": settings.tools.model_copy(update={"enabled": [name]})})
    with pytest.raises(ConfigError, match=r"tools\.workspace"):
        async with open_runtime(only, provider=ScriptedProvider([])):
            pass
    reading = settings.model_copy(update={"tools": settings.tools.model_copy(update={"enabled": ["read_file"]})})
    assert protected_files(reading), "what only reads may be near it"


async def test_attack_17_the_runtime_protects_its_own_files_from_tools(root: Path) -> None:
    settings = made_settings(root)
    own = settings.model_copy(
        update={
            "agent": AgentSettings(),
            "tools": settings.tools.model_copy(update={"store_in_workspace": True, "enabled": ["read_file"]}),
        }
    )
    own = own.model_copy(update={"store": StoreSettings(url=f"sqlite:///{root}/data/real.db")})
    calls = [
        ToolCall(f"c{n}", "read_file", {"path": path}) for n, path in enumerate(("data/real.db", "conf/other.toml"))
    ]
    provider = ScriptedProvider([calls, "no"])
    async with open_runtime(own, provider=provider) as runtime:
        await runtime.run("s", "read them")
    results = results_in(provider.requests[-1])
    assert all("private" in results[f"c{n}"]["error"] for n in (0, 1)), results


def test_attack_17_the_default_workspace_is_a_separate_folder(tmp_path: Path) -> None:
    (tmp_path / "lango.toml").write_text('[tools]\nenabled = ["shell", "write_file"]\n')
    done = lango("doctor", "--offline", cwd=tmp_path)
    assert "Traceback" not in done.stderr
    assert stat.S_IMODE((tmp_path / "workspace").stat().st_mode) == 0o700
