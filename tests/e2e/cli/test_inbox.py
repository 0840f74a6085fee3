"""`lango inbox` lists what waits for a user, and answers it."""

import json
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.support.processes import run_lango
from tests.support.servers import command_agent, workflow_agent


def configure(folder: Path, module: ModuleType) -> None:
    (folder / "lango.toml").write_text(f'[agent]\nname = "obedient"\nmodule = {json.dumps(module.__file__)}\n')


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    configure(tmp_path, command_agent)
    return tmp_path


def lango(folder: Path, *arguments: str, code: int = 0) -> str:
    done = run_lango(*arguments, cwd=folder)
    assert done.returncode == code, done
    assert "Traceback" not in done.stderr
    return done.stdout if code == 0 else done.stderr


def items(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in lango(folder, "inbox", "--json").splitlines()]


def test_the_hint_of_a_tool_is_listed_and_its_payload_comes_back(folder: Path) -> None:
    run_lango("run", "-r", "paying", "call pay", cwd=folder)
    assert "This costs \N{SYMBOL FOR ESCAPE}[31m30 euros." in lango(folder, "inbox").replace("\n", " ")
    [item] = items(folder)
    assert (item["wait"]["hint"], item["wait"]["payload"]) == ("This costs \x1b[31m30 euros.", {"limit": 30})
    assert "--payload takes JSON" in lango(folder, "inbox", "answer", item["id"], "yes", "--payload", "{", code=2)
    assert "40" in lango(folder, "inbox", "answer", item["id"], "yes", "--payload", '{"limit": 40}')


def test_approvals_and_results_are_listed_and_answered(folder: Path) -> None:
    assert lango(folder, "inbox") == "nothing is waiting for you\n"
    run_lango("run", "-r", "cleaning", "ask", cwd=folder)
    run_lango("run", "-r", "shopping", "call order", cwd=folder)
    listed = lango(folder, "inbox").splitlines()
    assert listed[0].split() == ["id", "waits", "for", "what", "session", "since", "until"]
    assert ["order" in listed[1], "wipe" in listed[2]] == [True, True]
    result, approval = items(folder)
    waits = [result["wait"], approval["wait"]]
    assert [(wait["kind"], wait["session_id"], wait["tool"]) for wait in waits] == [
        ("long_running_result", "shopping", "order"),
        ("approval", "cleaning", "wipe"),
    ]
    assert (approval["title"], approval["wait"]["arguments"]) == ("ask", {"text": "this"})
    assert "answer yes or no" in lango(folder, "inbox", "answer", approval["id"], "perhaps", code=2)
    assert "--always, --reason and --payload work only for an approval" in lango(
        folder, "inbox", "answer", result["id"], "{}", "--always", code=2
    )
    assert "--reason with no" in lango(folder, "inbox", "answer", approval["id"], "yes", "--reason", "x", code=2)
    assert "--update works only" in lango(folder, "inbox", "answer", approval["id"], "yes", "--update", code=2)
    assert "nothing waits with the id" in lango(folder, "inbox", "answer", "nothing", "yes", code=2)
    assert "use both" in lango(folder, "inbox", "answer", approval["id"], "yes", "--expires", "5", code=2)
    assert "noted" in lango(folder, "inbox", "answer", approval["id"][:6], "yes", "--always", "--expires", "600")
    assert "noted" in run_lango("run", "-r", "cleaning", "ask", cwd=folder).stdout, "it is granted"
    assert "sea" in lango(folder, "inbox", "answer", result["id"], '{"at": "sea"}', "--update")
    assert [item["id"] for item in items(folder)] == [result["id"]]
    assert "home" in lango(folder, "inbox", "answer", result["id"], '{"at": "home"}')
    assert items(folder) == []


def test_an_input_is_answered_by_a_value_that_fits(tmp_path: Path) -> None:
    configure(tmp_path, workflow_agent)
    run_lango("run", "-r", "shirts", "go", cwd=tmp_path)
    [item] = items(tmp_path)
    wait = item["wait"]
    assert (wait["kind"], wait["message"]) == ("input", "How large, and which color?")
    assert wait["payload"] == {"shop": "Bern"}
    assert "does not fit" in lango(tmp_path, "inbox", "answer", item["id"], "large", code=2)
    assert '"size":3' in lango(tmp_path, "inbox", "answer", item["id"], '{"size": 3}').replace(" ", "")
    assert items(tmp_path) == []
    assert "nothing is waiting" in lango(tmp_path, "inbox", "--user", "ann")


SLEEPER = """
from google.adk.workflow import START, Workflow

from lango.adk import sleep


def nap(node_input: object) -> object:
    return sleep(10_800, reason="the dough rises")


def bake(node_input: dict[str, str]) -> str:
    return f"baked by {node_input['woken_by']}"


root_agent = Workflow(name="bakery", edges=[(START, nap, bake)])
"""


def test_a_timer_is_woken_or_cancelled(tmp_path: Path) -> None:
    (tmp_path / "bakery.py").write_text(SLEEPER)
    (tmp_path / "lango.toml").write_text('[agent]\nname = "bakery"\nmodule = "bakery.py"\n')
    for session in ("one", "two"):
        waiting = run_lango("run", "-r", session, "bread", cwd=tmp_path)
        assert waiting.returncode == 3
        assert "the dough rises: continues" in waiting.stderr
        assert "by itself while `lango serve` runs" in waiting.stderr
    [second, first] = items(tmp_path)
    assert (first["wait"]["kind"], first["wait"]["reason"]) == ("timer", "the dough rises")
    assert "(in 3 h)" in lango(tmp_path, "inbox").replace("\n", " ")
    assert "answered with wake" in lango(tmp_path, "inbox", "answer", first["id"], "bread", code=2)
    assert lango(tmp_path, "inbox", "answer", first["id"], "wake") == "baked by person\n"
    assert lango(tmp_path, "inbox", "cancel", second["id"]) == "cancelled\n"
    assert items(tmp_path) == []
