"""Run the code blocks of the documentation: Python, shell commands, SQL."""

import os
import re
import shlex
import tomllib
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import apsw
import asyncpg  # pyright: ignore[reportMissingTypeStubs]
import pytest

from lango.config import Settings
from lango.store import Store
from tests.support.documentation import ROOT, blocks
from tests.support.processes import run_command
from tests.support.servers.a2a_client import GRPC
from tests.support.servers.server_process import serving

SERVER = "http://127.0.0.1:8787"
PYTHON = blocks("python")
SHELL = blocks("sh")
SQL = blocks("sql")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[], str]]:
    """Return the address of a `lango serve` process, which starts with the first block that needs it."""
    started: list[str] = []
    with ExitStack() as stack:

        def address() -> str:
            if not started:
                folder = tmp_path_factory.mktemp("served")
                started.append(stack.enter_context(serving(folder, f"sqlite:///{folder}/lango.db", rest=GRPC)).url)
            return started[0]

        yield address


@pytest.mark.parametrize(("name", "code"), PYTHON.items(), ids=PYTHON)
def test_python_blocks_run(name: str, code: str, tmp_path: Path, server: Callable[[], str]) -> None:
    (tmp_path / "block.py").write_text(code.replace(SERVER, server()) if SERVER in code else code)
    run = run_command("python", "block.py", cwd=tmp_path)
    assert run.returncode == 0, run.stderr
    if name.startswith(("README", "docs/quickstart")):
        assert not run.stderr, "the first example that a newcomer runs ends without a warning"


@pytest.mark.parametrize("text", SHELL.values(), ids=SHELL)
def test_shell_blocks_use_existing_targets_extras_and_commands(
    text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    targets = set(re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    extras = set(tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"])
    monkeypatch.setenv("LANGO_SERVER__PORT", "0")  # `lango doctor` checks whether the port is free
    monkeypatch.setenv("LANGO_AGENT__MODEL", "openai/gpt-5-mini")  # and whether there is a model: spare the download
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    monkeypatch.chdir(tmp_path)
    for line in text.splitlines():
        words = shlex.split(line, comments=True)
        while words and (variable := re.fullmatch(r"([A-Z_]+)=(.*)", words[0])):
            monkeypatch.setenv(variable[1], variable[2])
            words = words[1:]
        Settings.load()  # raises for a variable that is no setting
        match words:
            case ["make", target]:
                assert target in targets
            case ["pip", "install", wanted]:
                # Lango is not on the package index: install the checkout, or the wheel that `make dist` builds
                named = re.fullmatch(r"(?:\.|dist/lango_adk-\*\.whl)(?:\[([\w,-]+)\])?", wanted)
                assert named
                assert set((named[1] or "").split(",")) <= extras | {""}
            case ["lango", *arguments]:
                run = run_command("lango", *arguments, cwd=tmp_path)
                assert run.returncode == 0, run.stderr
            case other:
                assert not other, f"no test knows how to run {line!r}"


@pytest.mark.parametrize("text", [text for text in SQL.values() if "GRANT" in text])
async def test_sql_blocks_grant_rights_in_postgresql(text: str, postgres_url: str) -> None:
    address, _, schema = postgres_url.partition("&schema=")
    role = f"server_{os.urandom(4).hex()}"
    async with Store(postgres_url):
        pass
    library: Any = asyncpg
    connection: Any = await library.connect(address)
    try:
        await connection.execute(f"CREATE ROLE {role}")
        await connection.execute(text.replace("SCHEMA lango", f"SCHEMA {schema}").replace("TO server", f"TO {role}"))
        assert await connection.fetchval("SELECT has_table_privilege($1, $2, 'INSERT')", role, f"{schema}.turns")
    finally:
        await connection.execute(f"DROP SCHEMA {schema} CASCADE")
        await connection.execute(f"DROP ROLE {role}")
        await connection.close()


@pytest.mark.parametrize("text", [text for text in SQL.values() if "GRANT" not in text])
async def test_sql_blocks_read_a_store(text: str, tmp_path: Path) -> None:
    async with Store(f"sqlite:///{tmp_path}/lango.db"):
        pass
    connection: Any = apsw.Connection(str(tmp_path / "lango.db"))
    with closing(connection):
        assert list(connection.execute(text)) == []
