"""Every code block of the documentation is run, or read by what it is written for."""

import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from lango.config import Settings

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)


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


@pytest.mark.parametrize("code", [code for _, code in PYTHON], ids=ids(PYTHON))
def test_python_blocks_run(code: str, tmp_path: Path) -> None:
    (tmp_path / "block.py").write_text(code)
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
def test_shell_blocks_name_what_exists(text: str, tmp_path: Path) -> None:
    targets = set(re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    extras = set(tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"])
    for line in text.splitlines():
        match shlex.split(line, comments=True):
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


def test_links_lead_somewhere() -> None:
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#]+)", page.read_text()):
            assert target.startswith("https://") or (page.parent / target).exists(), f"{page}: {target}"


def test_there_are_blocks_of_each_kind() -> None:
    assert PYTHON
    assert TOML
    assert SHELL
    unknown = {found[1] for page in PAGES for found in BLOCK.finditer(page.read_text())} - {
        "python",
        "toml",
        "sh",
        "text",
    }
    assert not unknown
