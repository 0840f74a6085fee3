"""Long-running tools in the terminal: `lango run` and `lango chat` say what waits, and chat gives the result."""

import json
from pathlib import Path

import pytest

from tests.support.processes import run_lango
from tests.support.terminal import terminal

AGENT = Path(__file__).parents[2] / "support" / "servers" / "command_agent.py"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "lango.toml").write_text(f'[agent]\nname = "obedient"\nmodule = {json.dumps(str(AGENT))}\n')
    return tmp_path


def test_run_ends_with_what_waits_for_a_result(folder: Path) -> None:
    waits = run_lango("run", "-r", "s", "call order", cwd=folder)
    assert waits.returncode == 3, waits
    assert "lango: order waits for its result (" in waits.stderr
    assert "/answer" in waits.stderr
    report = json.loads(run_lango("run", "--output-format", "json", "call order", cwd=folder).stdout)
    assert report["status"] == "waiting"
    assert [(wait["kind"], wait["tool"]) for wait in report["waits"]] == [("long_running_result", "order")]


def test_chat_shows_what_waits_and_gives_updates_and_the_result(folder: Path) -> None:
    with terminal(folder, "chat", "-r", "s", columns=100) as chat:
        chat.confirm_new_session()
        chat.send("/answer")
        chat.wait_for("nothing is waiting for an answer")
        chat.send("call order")
        chat.wait_for("waits for its result")
        chat.wait_for("/answer ID VALUE gives it")
        assert "stopped" not in chat.text
    with terminal(folder, "chat", "-r", "s", columns=100) as chat:
        chat.wait_for("waits for its result (")
        call_id = chat.text.partition("waits for its result (")[2].partition(")")[0]
        chat.send(f'/update {call_id} {{"at": "sea"}}')
        chat.wait_for("the tool said {'at': 'sea'}")
        chat.send("/answer unknown home")
        chat.wait_for("nothing waits with the id 'unknown'")
        chat.send(f"/answer {call_id} home")
        chat.wait_for("the tool said {'result': 'home'}")
        chat.send("/update")
        chat.wait_for("give the id of what waits and the answer")
