"""`lango run --path`, `lango chat PATH` and `lango serve PATH` choose an agent, or say why they cannot."""

import shutil
from pathlib import Path

import pytest

from tests.support.servers.server_process import configure, lango
from tests.support.terminal import ENTER, terminal

FOLDER = Path(__file__).parents[2] / "support" / "servers" / "agent_folder"


@pytest.fixture
def folder(tmp_path: Path, sqlite_url: str) -> Path:
    """A project with a folder of two agents."""
    configure(tmp_path, sqlite_url, name="", agent="max_turns = 5")
    shutil.copytree(FOLDER, tmp_path / "agents")
    return tmp_path


def test_run_takes_one_agent_of_a_folder(folder: Path) -> None:
    ran = lango("run", "--path", "agents", "--agent", "ben", "hi", cwd=folder)
    assert ran.stdout == "ben heard hi\n", ran.stderr
    listed = lango("sessions", "list", "--app", "ben", "--json", cwd=folder)
    assert listed.stdout.count("\n") == 1, "its sessions are its own"
    refused = lango("run", "--path", "agents", "hi", cwd=folder)
    assert refused.returncode == 2
    assert refused.stderr == "lango: there are 2 agents in agents: select one with --agent (anna, ben)\n"
    refused = lango("run", "--path", "agents", "--agent", "carl", "hi", cwd=folder)
    assert (refused.returncode, "'carl' in agents; there is anna, ben" in refused.stderr) == (2, True)


def test_the_configuration_of_init_leaves_the_name_to_the_agents(folder: Path) -> None:
    (folder / "lango.toml").unlink()
    assert lango("init", cwd=folder).returncode == 0
    ran = lango("run", "--path", "agents", "--agent", "ben", "hi", cwd=folder)
    assert ran.stdout == "ben heard hi\n", ran.stderr
    assert '"app": "ben"' in lango("sessions", "list", "--json", cwd=folder).stdout


def test_chat_asks_which_agent(folder: Path) -> None:
    with terminal(folder, "chat", "agents") as chat:
        chat.wait_for("Which agent?")
        assert "1. anna" in chat.text
        chat.type(f"7{ENTER}")
        chat.wait_for("type a number from 1 to 2")
        chat.type(f"2{ENTER}")
        chat.wait_prompt()
        assert "ben heard hello" in chat.ask("hello")


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (None, "there is no agent in agents"),
        (
            dict.fromkeys(["anna", "ben"], "import no_such_thing\n"),
            "No module named 'no_such_thing' (agent.py, line 1)",
        ),
        (dict.fromkeys(["anna", "ben"], "\nroot_agent = 1 / 0\n"), "division by zero (agent.py, line 2)"),
        (
            {"ben": "from anna.agent import root_agent\n"},
            "two agents have the name 'anna' (agents/anna/agent.py, line 8; agents/ben/agent.py, line 1)",
        ),
    ],
)
def test_an_agent_that_cannot_be_served_is_one_sentence(
    folder: Path, change: dict[str, str] | None, sentence: str
) -> None:
    for name, source in (change or {}).items():
        (folder / "agents" / name / "agent.py").write_text(source)
    if change is None:
        shutil.rmtree(folder / "agents" / "anna")
        shutil.rmtree(folder / "agents" / "ben")
    refused = lango("serve", "--port", "0", "agents", cwd=folder)
    assert refused.returncode == 2
    [line] = refused.stderr.splitlines()
    assert sentence in line
