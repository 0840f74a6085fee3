"""Every code block of the documentation is run, or read by what it is written for."""

import configparser
import json
import os
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import apsw
import asyncpg  # pyright: ignore[reportMissingTypeStubs]
import pytest
from typer.main import get_command

from lango.cli.main import app
from lango.config import Settings
from lango.store import Store
from tests.support.servers.served import serving

ROOT = Path(__file__).parents[3]
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted((ROOT / "examples").rglob("*.md")),
]
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
SERVER = "http://127.0.0.1:8787"


def blocks(*languages: str) -> list[tuple[str, str]]:
    return [
        (f"{page.relative_to(ROOT)}:{page.read_text()[: found.start()].count(chr(10)) + 1}", found[2])
        for page in PAGES
        for found in BLOCK.finditer(page.read_text())
        if found[1] in languages
    ]


def ids(found: list[tuple[str, str]]) -> list[str]:
    return [place for place, _ in found]


PYTHON = blocks("python")
TOML = blocks("toml")
SHELL = blocks("sh")
DATA = blocks("json")
UNITS = blocks("ini")
NGINX = blocks("nginx")
SQL = blocks("sql")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[], str]]:
    """A real `lango serve` for the blocks that talk to one, started for the first of them."""
    started: list[str] = []
    with ExitStack() as stack:

        def address() -> str:
            if not started:
                folder = tmp_path_factory.mktemp("served")
                started.append(stack.enter_context(serving(folder, f"sqlite:///{folder}/lango.db")).url)
            return started[0]

        yield address


@pytest.mark.parametrize("code", [code for _, code in PYTHON], ids=ids(PYTHON))
def test_python_blocks_run(code: str, tmp_path: Path, server: Callable[[], str]) -> None:
    (tmp_path / "block.py").write_text(code.replace(SERVER, server()) if SERVER in code else code)
    run = subprocess.run(
        [sys.executable, "block.py"], cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False
    )
    assert run.returncode == 0, run.stderr


@pytest.mark.parametrize("text", [text for _, text in TOML], ids=ids(TOML))
def test_toml_blocks_are_settings(text: str, tmp_path: Path) -> None:
    (tmp_path / "lango.toml").write_text(text)
    assert tomllib.loads(text)
    Settings.load(tmp_path / "lango.toml")


@pytest.mark.parametrize("text", [text for _, text in SHELL], ids=ids(SHELL))
def test_shell_blocks_name_what_exists(text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    targets = set(re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    extras = set(tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"])
    monkeypatch.setenv("LANGO_SERVER__PORT", "0")  # the doctor looks whether the port is free
    monkeypatch.setenv("LANGO_AGENT__MODEL", "openai/gpt-5-mini")  # and whether there is a model, which is large
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    monkeypatch.chdir(tmp_path)
    for line in text.splitlines():
        words = shlex.split(line, comments=True)
        while words and (variable := re.fullmatch(r"([A-Z_]+)=(.*)", words[0])):
            monkeypatch.setenv(variable[1], variable[2])
            words = words[1:]
        Settings.load()  # the variables are settings
        match words:
            case ["make", target]:
                assert target in targets
            case ["pip", "install", wanted]:
                named = re.fullmatch(r"lango-adk(?:\[([\w,]+)\])?", wanted)
                assert named
                assert set((named[1] or "").split(",")) <= extras | {""}
            case ["lango", *arguments]:
                command = [str(Path(sys.executable).with_name("lango")), *arguments]
                run = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
                assert run.returncode == 0, run.stderr
            case other:
                assert not other, f"no test knows how to run {line!r}"


@pytest.mark.parametrize("text", [text for _, text in DATA], ids=ids(DATA))
def test_json_blocks_are_json(text: str) -> None:
    json.loads(text)


@pytest.mark.parametrize("text", [text for _, text in SQL if "GRANT" in text])
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


@pytest.mark.parametrize("text", [text for _, text in SQL if "GRANT" not in text])
async def test_sql_blocks_read_a_store(text: str, tmp_path: Path) -> None:
    async with Store(f"sqlite:///{tmp_path}/lango.db"):
        pass
    connection: Any = apsw.Connection(str(tmp_path / "lango.db"))
    with closing(connection):
        assert list(connection.execute(text)) == []


@pytest.mark.parametrize("text", [text for _, text in UNITS], ids=ids(UNITS))
def test_units_of_systemd_start_what_exists(text: str) -> None:
    unit = configparser.ConfigParser(interpolation=None)
    unit.read_string(text)
    program, *arguments = shlex.split(unit["Service"]["ExecStart"])
    assert Path(program).name == "lango"
    get_command(app).make_context("lango", arguments)  # raises for a command that is not there
    assert int(unit["Service"]["TimeoutStopSec"]) > Settings().server.shutdown_s + 15


@pytest.mark.parametrize("text", [text for _, text in NGINX], ids=ids(NGINX))
def test_nginx_blocks_are_whole_and_do_what_streams_need(text: str) -> None:
    depth = 0
    for line in text.splitlines():
        words = line.split("#")[0].strip()
        assert not words or words.endswith((";", "{", "}")), line
        depth += words.count("{") - words.count("}")
        assert depth >= 0
    assert depth == 0
    assert "proxy_buffering off;" in text
    assert "proxy_set_header Host $host;" in text


def test_links_lead_somewhere() -> None:
    for page in PAGES:
        text = page.read_text()
        for target, anchor in re.findall(r"\]\(([^)#\s]*)(?:#([^)]*))?\)", BLOCK.sub("", text)):
            if target.startswith("https://"):
                continue
            found = page.parent / target if target else page
            assert found.exists(), f"{page}: {target}"
            assert not anchor or anchor in _anchors(found), f"{page}: {target}#{anchor}"


def test_files_and_benchmarks_that_are_named_exist() -> None:
    for page in PAGES:
        for named in re.findall(r"`((?:tests|benchmarks|src)/[\w/.]+\.py)`", page.read_text()):
            assert (ROOT / named).is_file(), f"{page}: {named}"
        for named in re.findall(r"ONLY=(\w+)", page.read_text()):
            assert (ROOT / "benchmarks" / f"{named}.py").is_file(), f"{page}: {named}"


def _anchors(page: Path) -> set[str]:
    """The headings of a page as GitHub names them."""
    headings = re.findall(r"^#+ (.*)$", BLOCK.sub("", page.read_text()), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_every_page_is_in_the_index() -> None:
    index = (ROOT / "docs" / "README.md").read_text()
    for page in sorted((ROOT / "docs").rglob("*.md")):
        path = page.relative_to(ROOT / "docs").as_posix()
        assert path == "README.md" or f"]({path})" in index, f"docs/README.md does not lead to {path}"


def test_there_are_blocks_of_each_kind() -> None:
    known = {"python", "toml", "sh", "json", "ini", "nginx", "sql", "text", "yaml"}
    assert {found[1] for page in PAGES for found in BLOCK.finditer(page.read_text())} <= known
    assert PYTHON
    assert TOML
    assert SHELL
