"""The wheel, installed where nothing of this checkout is."""

import os
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]

ROUND_TRIP = """
import asyncio, sys
import lango
from google.adk.events import Event
from google.genai import types
from lango.adk import SqlSessionService

async def main(url):
    async with SqlSessionService(url) as service:
        session = await service.create_session(app_name="app", user_id="user", session_id="s", state={"user:k": 1})
        content = types.Content(role="user", parts=[types.Part(text="hello")])
        await service.append_event(session, Event(author="user", content=content))
    async with SqlSessionService(url, budget_tokens=1000) as service:
        session = await service.get_session(app_name="app", user_id="user", session_id="s")
        print(session.events[0].content.parts[0].text, session.state)

print(lango.__file__)
asyncio.run(main(sys.argv[1]))
"""


def uv() -> str:
    """The uv that the Makefile brings, or the one on the path."""
    own = ROOT / ".tools" / "bin" / "uv"
    found = str(own) if own.exists() else shutil.which("uv")
    assert found, "uv is missing: run the tests with `make test`"
    return found


def run(*command: str, cwd: Path) -> str:
    """Run a command without anything of this environment in its way."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL_ENV", "COV"))}
    done = subprocess.run(command, cwd=cwd, env=clean, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def share_bytecode(environment: Path) -> None:
    """Give an environment the compiled files of this one: Python ignores those of another source."""
    here, there = (
        Path(found) for found in (sysconfig.get_path("purelib"), *environment.glob("lib/python*/site-packages"))
    )
    for compiled in here.rglob("*.pyc"):
        target = there / compiled.relative_to(here)
        if target.parents[1].is_dir() and not target.exists():
            target.parent.mkdir(exist_ok=True)
            target.symlink_to(compiled)


@pytest.mark.long
def test_the_wheel_works_in_a_clean_environment(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    shutil.copytree(ROOT / "src", source / "src", ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    run(uv(), "build", "--quiet", "--wheel", "--out-dir", str(tmp_path / "dist"), cwd=source)
    [wheel] = (tmp_path / "dist").glob("lango_adk-*.whl")
    page = source / "src" / "lango" / "server" / "web" / "static"
    parts = {path.relative_to(source / "src").as_posix() for path in page.rglob("*") if path.is_file()}
    assert "lango/server/web/static/vendor/marked.LICENSE.txt" in parts
    with zipfile.ZipFile(wheel) as packed:
        assert parts <= set(packed.namelist()), "the page is inside, whole and with its licences"
    shutil.rmtree(source)

    environment = tmp_path / "clean"
    run(uv(), "venv", "--quiet", "--python", sys.executable, str(environment), cwd=tmp_path)
    python = environment / "bin" / "python"
    run(uv(), "pip", "install", "--quiet", "--python", str(python), str(wheel), cwd=tmp_path)
    share_bytecode(environment)

    output = run(str(environment / "bin" / "lango"), "--help", cwd=tmp_path)
    assert "Usage: lango" in output
    assert "sessions" in output
    where, answer = run(str(python), "-c", ROUND_TRIP, "sqlite:///sessions.db", cwd=tmp_path).splitlines()
    assert Path(where).is_relative_to(environment), "not from this checkout"
    assert answer == "hello {'user:k': 1}"
    shown = run(
        str(environment / "bin" / "lango"), "sessions", "show", "s", "--store", "sqlite:///sessions.db", cwd=tmp_path
    )
    assert "hello" in shown
