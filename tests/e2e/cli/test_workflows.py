"""Workflows in the terminal: `lango run` and `lango chat` show what they ask for, and take the answer."""

import json
from pathlib import Path

import pytest

from tests.support.processes import run_lango
from tests.support.terminal import CTRL_C, terminal

AGENT = Path(__file__).parents[2] / "support" / "servers" / "workflow_agent.py"
ORDERED = '{"ordered":{"size":3,"color":null}}'


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "lango.toml").write_text(f'[agent]\nname = "obedient"\nmodule = {json.dumps(str(AGENT))}\n')
    return tmp_path


def test_run_ends_with_the_question_and_the_next_run_answers_it(folder: Path) -> None:
    asked = run_lango("run", "-r", "s", "go", cwd=folder)
    assert asked.returncode == 3, asked
    assert asked.stdout == ""
    assert "How large, and which color? (JSON that fits {" in asked.stderr
    assert 'answer with `lango run -r s "..."`' in asked.stderr
    refused = run_lango("run", "-r", "s", "large", cwd=folder)
    assert refused.returncode == 2, refused
    assert '"large" is not of type "object"' in refused.stderr
    answered = run_lango("run", "-r", "s", '{"size": 3}', cwd=folder)
    assert (answered.returncode, answered.stdout) == (0, f"{ORDERED}\n")


def test_run_reports_the_question_and_the_output_as_json(folder: Path) -> None:
    asked = json.loads(run_lango("run", "-r", "s", "--output-format", "json", "free", cwd=folder).stdout)
    assert asked["status"] == "waiting"
    [request] = asked["waits"]
    assert (request["message"], request["schema"]) == ("What else?", None)
    answered = json.loads(run_lango("run", "-r", "s", "--output-format", "json", "tea", cwd=folder).stdout)
    assert answered["output"] == {"ordered": "tea"}
    assert answered["text"] == '{"ordered":"tea"}'


def test_chat_asks_and_shows_the_nodes(folder: Path) -> None:
    with terminal(folder, "chat", "-r", "s", columns=100) as chat:
        chat.confirm_new_session()
        chat.send("go")
        chat.wait_for("size (a whole number at least 1):")
        assert "prepare: go" in chat.text
        assert "How large, and which color?" in chat.text
        chat.send("large")
        chat.wait_for(lambda: chat.text.count("size (a whole number") == 2)
        assert '"large" is not of type "integer"' in chat.text
        chat.type(CTRL_C)
        chat.wait_for("not answered: /answer asks again")
        chat.send('{"size": 0}')
        chat.wait_for("does not fit")
    with terminal(folder, "chat", "-r", "s", columns=100) as chat:
        chat.wait_for("size (a whole number at least 1):")
        assert "prepare: go" in chat.text, "the nodes of a resumed session are shown"
        chat.send("3")
        chat.wait_for("color (one of red, blue; optional):")
        chat.send("")
        chat.wait_for(ORDERED)
    with terminal(folder, "chat", "-r", "s", columns=100) as chat:
        chat.wait_for("order: ")
        assert 'ask_size: {"size":3}' in chat.text
        chat.send("free")
        chat.wait_for("What else?")
        chat.send("/skip")
        chat.wait_for("closed what was waiting for you")
        chat.send("/skip")
        chat.wait_for("nothing is waiting for you")
        chat.send("again")
        chat.wait_for(lambda: chat.shown.rstrip().endswith("size (a whole number at least 1):"))
        chat.send("/skip")
        chat.wait_for(lambda: chat.text.count("closed what was waiting for you") == 2)
