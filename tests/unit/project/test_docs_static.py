"""The parts of the documentation that can be checked without running anything."""

import configparser
import json
import pkgutil
import re
import shlex
import tomllib
from pathlib import Path

import pytest
from typer.main import get_command

import lango
from lango.cli.main import app
from lango.config import Settings
from tests.support.documentation import BLOCK, PAGES, ROOT, blocks

PACKAGE = Path(lango.__file__).parent
DESIGN = ROOT / "docs" / "design.md"
TOML = blocks("toml")
JSON = blocks("json")
UNITS = blocks("ini")
NGINX = blocks("nginx")


@pytest.mark.parametrize("text", TOML.values(), ids=TOML)
def test_toml_blocks_are_settings(text: str, tmp_path: Path) -> None:
    (tmp_path / "lango.toml").write_text(text)
    assert tomllib.loads(text)
    Settings.load(tmp_path / "lango.toml")


@pytest.mark.parametrize("text", JSON.values(), ids=JSON)
def test_json_blocks_are_json(text: str) -> None:
    json.loads(text)


@pytest.mark.parametrize("text", UNITS.values(), ids=UNITS)
def test_systemd_units_start_an_existing_command(text: str) -> None:
    unit = configparser.ConfigParser(interpolation=None)
    unit.read_string(text)
    program, *arguments = shlex.split(unit["Service"]["ExecStart"])
    assert Path(program).name == "lango"
    get_command(app).make_context("lango", arguments)  # raises for an unknown command
    assert int(unit["Service"]["TimeoutStopSec"]) > Settings().server.drain_s + 15


@pytest.mark.parametrize("text", NGINX.values(), ids=NGINX)
def test_nginx_blocks_are_complete_and_do_not_buffer_streams(text: str) -> None:
    depth = 0
    for line in text.splitlines():
        statement = line.split("#")[0].strip()
        assert not statement or statement.endswith((";", "{", "}")), line
        depth += statement.count("{") - statement.count("}")
        assert depth >= 0
    assert depth == 0
    assert "proxy_buffering off;" in text
    assert "proxy_set_header Host $host;" in text


def test_links_have_a_target() -> None:
    for page in PAGES:
        for target, anchor in re.findall(r"\]\(([^)#\s]*)(?:#([^)]*))?\)", BLOCK.sub("", page.read_text())):
            if target.startswith("https://"):
                continue
            linked = page.parent / target if target else page
            assert linked.exists(), f"{page}: {target}"
            assert not anchor or anchor in _anchors(linked), f"{page}: {target}#{anchor}"


def _anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings as GitHub makes them."""
    headings = re.findall(r"^#+ (.*)$", BLOCK.sub("", page.read_text()), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_files_and_benchmarks_in_the_docs_exist() -> None:
    for page in PAGES:
        for path in re.findall(r"`((?:tests|benchmarks|src)/[\w/.]+\.py)`", page.read_text()):
            assert (ROOT / path).is_file(), f"{page}: {path}"
        for name in re.findall(r"ONLY=(\w+)", page.read_text()):
            assert (ROOT / "benchmarks" / f"{name}.py").is_file(), f"{page}: {name}"


def test_no_page_claims_that_the_package_index_has_lango() -> None:
    for page in [*PAGES, ROOT / "CHANGELOG.md"]:
        assert not re.search(r"pip install [^\n]*lango-adk", page.read_text()), page


def test_every_benchmark_has_a_line() -> None:
    page = (ROOT / "docs" / "benchmarks.md").read_text()
    names = {path.stem for path in (ROOT / "benchmarks").glob("[a-z]*.py")} - {"table"}
    assert set(re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE)) == names


def test_every_page_is_in_the_index() -> None:
    index = (ROOT / "docs" / "README.md").read_text()
    for page in sorted((ROOT / "docs").rglob("*.md")):
        path = page.relative_to(ROOT / "docs").as_posix()
        assert path == "README.md" or f"]({path})" in index, f"docs/README.md does not link to {path}"


def test_every_block_has_a_language_that_a_test_knows() -> None:
    known = {"python", "toml", "sh", "json", "ini", "nginx", "sql", "text", "yaml"}
    assert {found[1] for page in PAGES for found in BLOCK.finditer(page.read_text())} <= known


@pytest.mark.parametrize("name", sorted(set(re.findall(r"`(lango(?:\.\w+)+)`", DESIGN.read_text()))))
def test_names_in_the_design_resolve(name: str) -> None:
    assert pkgutil.resolve_name(name)


def test_the_tree_in_the_design_shows_every_package() -> None:
    tree = BLOCK.findall(DESIGN.read_text())[0][1]
    shown: list[str] = []
    parents: list[str] = []
    for indent, name in re.findall(r"^((?:  )+)([\w.]+/?)(?= |$)", tree, re.MULTILINE):
        parents[len(indent) // 2 - 1 :] = [name]
        shown.append("".join(parents))
    packages = [f"{path.parent.relative_to(PACKAGE).as_posix()}/" for path in PACKAGE.rglob("*/__init__.py")]
    assert sorted(name for name in shown if name.endswith("/")) == sorted(packages)
    assert [name for name in shown if not (PACKAGE / name).exists()] == []
