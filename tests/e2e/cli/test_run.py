"""`lango run` as scripts use it: its output and its exit codes."""

import json
import os
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.cli.test_commands import lango
from tests.integration.tools.test_mcp_servers import SERVER
from tests.support.processes import LANGO, TIMEOUT_S, run_lango, start_command
from tests.support.terminal import AGENT, configure, terminal


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("run")
    configure(made)
    return made


def run(folder: Path, *arguments: str, stdin: str = "", code: int = 0) -> subprocess.CompletedProcess[str]:
    done = run_lango("run", *arguments, cwd=folder, stdin=stdin)
    assert done.returncode == code, done
    assert "Traceback" not in done.stderr
    return done


def run_json(folder: Path, *arguments: str, code: int = 0) -> dict[str, Any]:
    done = run(folder, "--output-format", "json", *arguments, code=code)
    [line] = done.stdout.splitlines()
    return json.loads(line)


def test_text_is_the_answer_and_nothing_else(folder: Path) -> None:
    done = run(folder, "what is this:", stdin="a text\nfrom a pipe\n")
    assert done.stdout == "what is this:\n\na text\nfrom a pipe\n", "the argument, then what came through the pipe"
    assert done.stderr == ""


def test_json_and_the_same_session_again(folder: Path) -> None:
    first = run_json(folder, "note pears")
    assert first["text"].startswith("the tool said {'noted': 'pears'")
    assert (first["turn"], first["status"]) == (1, "done")
    assert first["usage"]["output_tokens"] == 1000
    assert first["cost_usd"] == pytest.approx(0.0025, abs=0.0001)
    lines = run(folder, "-r", first["session_id"][:6], "--output-format", "stream-json", "again").stdout.splitlines()
    events = [json.loads(line) for line in lines]
    assert [event["type"] for event in events] == ["accepted", "text_delta", "text_end", "done"]
    assert {event["session"] for event in events} == {first["session_id"]}
    assert events[0]["turn"] == 2


def test_withdrawn_text_is_not_in_the_answer_and_a_notice_says_that_the_turn_was_resumed(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LANGO_AGENT__RETRY_DELAY_S", "0.01")
    done = run(folder, f"fail once {folder}/text the whole answer")
    assert done.stdout == "half of it is said\n\nand the other half\n\nis\nthe whole answer\n", "what is printed stays"
    assert done.stderr.splitlines()[-1] == "lango: the turn was resumed: the provider or the store failed"
    report = run_json(folder, f"fail once {folder}/json the whole answer")
    assert report["text"] == "the whole answer"
    done = run(folder, "--output-format", "stream-json", f"fail once {folder}/stream the whole answer")
    types = [json.loads(line)["type"] for line in done.stdout.splitlines()]
    assert types[-5:] == ["resumed", "text_withdrawn", "text_delta", "text_end", "done"]
    shown = lango("sessions", "show", report["session_id"], cwd=folder)
    assert re.search(r"\n     resumed 20\S+: the provider or the store failed\n", shown.stdout), shown
    first = json.loads(lango("sessions", "show", report["session_id"], "--json", cwd=folder).stdout.splitlines()[0])
    assert [one["reason"] for one in first["resumptions"]] == ["failure"]
    assert "done, resumed" in lango("sessions", "usage", report["session_id"], cwd=folder).stdout


def test_a_failed_turn_exits_with_1(folder: Path) -> None:
    report = run_json(folder, "fail", code=1)
    assert report["status"] == "failed"
    assert report["error"]["message"] == "the provider does not want to"


def test_a_hint_names_a_command_that_works_as_printed(tmp_path: Path) -> None:
    """The agent is one of a folder that no configuration names, and its sessions are in another store."""
    for name in ("one", "other"):
        place = tmp_path / "my agents" / name
        place.mkdir(parents=True)
        text = Path(AGENT).read_text().replace('name="obedient"', f'name="{name}"')
        (place / "agent.py").write_text(text)
    (tmp_path / "lango.toml").write_text("")
    chosen = ("--path", "my agents", "--agent", "other", "--store", "sqlite:///elsewhere.db")
    done = run(tmp_path, "-r", "cleaning", "wipe disk1", *chosen, code=3)
    [command] = re.findall(r"answer with `(.*)`, or allow", done.stderr)
    with terminal(tmp_path, *shlex.split(command)[1:]) as chat:
        chat.wait_for('"text": "disk1"')
        chat.wait_for("run exactly this?")


def test_a_waiting_approval_exits_with_3_and_can_be_given_later_or_in_advance(folder: Path) -> None:
    done = run(folder, "-r", "cleaning", "wipe disk1", code=3)
    assert done.stdout == ""
    assert done.stderr.splitlines() == [
        "lango: there is no session 'cleaning': starting a new one",
        'lango: wipe waits for an approval: {"text": "disk1"}',
        "lango: answer with `lango chat -r cleaning`, or allow it with --approve",
    ]
    with terminal(folder, "chat", "-r", "cleaning") as chat:
        chat.wait_for('"text": "disk1"')
        chat.wait_for("run exactly this?")
        chat.type("y")
        chat.wait_for("the tool said {'noted': 'disk1'")
    report = run_json(folder, "--approve", "note,wipe", "wipe disk2")
    assert report["text"].startswith("the tool said {'noted': 'disk2'")
    assert report["usage"]["model_calls"] == 2, "what both halves of the turn took"
    waiting = run_json(folder, "--approve", "note", "wipe disk3", code=3)
    [wait] = waiting["waits"]
    assert (wait["kind"], wait["call_id"], wait["tool"]) == ("approval", "call_disk3", "wipe")
    assert wait["arguments"] == {"text": "disk3"}


def test_an_unknown_tool_name_is_rejected_before_the_turn(folder: Path) -> None:
    done = run(folder, "-r", "typo", "--approve", "wipe,whipe, notes", "wipe disk5", code=2)
    assert (
        done.stderr
        == "lango: --approve: there is no tool notes, whipe; the agent's tools: broken, note, pay, wipe, write_file\n"
    )
    assert done.stdout == ""
    assert "whipe" in run(folder, "--approve", "all,whipe", "wipe disk5", code=2).stderr
    assert "typo" not in run_lango("sessions", "list", cwd=folder).stdout, "nothing was sent"


TOOLSET = f"""
import runpy
from google.adk.tools.base_toolset import BaseToolset

whole = runpy.run_path({str(AGENT)!r})["root_agent"]

class Later(BaseToolset):
    async def get_tools(self, readonly_context=None):
        return [whole.tools[1]] if readonly_context.user_id else []  # only a turn has a user

    async def close(self):
        pass

root_agent = whole.clone(update={{"tools": [whole.tools[0], Later()]}})
"""


PRINTING = f"""
import os, runpy

print("while it is imported")
whole = runpy.run_path({str(AGENT)!r})["root_agent"]

def talk(callback_context):
    print("in a callback")
    os.system("echo in a subprocess")

root_agent = whole.clone(update={{"before_agent_callback": talk}})
"""


def test_what_an_agent_prints_goes_to_stderr_and_breaks_no_pipe(tmp_path: Path) -> None:
    (tmp_path / "agent.py").write_text(PRINTING)
    (tmp_path / "lango.toml").write_text(f"[agent]\nmodule = {json.dumps(str(tmp_path / 'agent.py'))}\n")
    done = run(tmp_path, "--output-format", "json", "hello")
    assert json.loads(done.stdout)["text"] == "hello"
    for printed in ("while it is imported", "in a callback", "in a subprocess"):
        assert printed in done.stderr
    assert run(tmp_path, "hello").stdout == "hello\n"


def test_the_texts_of_agents_that_speak_at_once_are_not_mixed(tmp_path: Path) -> None:
    agent = Path(__file__).parents[2] / "support" / "servers" / "parallel_agent.py"
    (tmp_path / "lango.toml").write_text(f"[agent]\nmodule = {json.dumps(str(agent))}\n")
    spoken = "I am Anna and agree.\n\nI am Ben and do not.\n\nBoth have a point."
    assert run(tmp_path, "What do you think?").stdout == f"{spoken}\n"
    report = run_json(tmp_path, "What do you think?")
    assert report["text"] == spoken
    assert [(one["agent"], one["text"]) for one in report["texts"]] == [
        ("anna", "I am Anna and agree."),
        ("ben", "I am Ben and do not."),
        ("critic", "Both have a point."),
    ]
    with terminal(tmp_path, "chat") as chat:
        chat.wait_prompt()
        assert ", chair, scripted" in chat.lines[0], "the agent and its model"
        chat.ask("What do you think?", "anna:", "ben:", "critic:", "Both have a point.")


def test_a_tool_that_the_turn_may_add_is_announced(tmp_path: Path) -> None:
    (tmp_path / "agent.py").write_text(TOOLSET)
    (tmp_path / "lango.toml").write_text(f"[agent]\nmodule = {json.dumps(str(tmp_path / 'agent.py'))}\n")
    done = run(tmp_path, "--approve", "wipe", "wipe disk1")
    assert done.stdout.startswith("the tool said {'noted': 'disk1'")
    assert done.stderr == "lango: --approve: there is no tool wipe yet, the turn may add it; known now: note\n"
    assert run(tmp_path, "--approve", "note", "note pears").stderr == "", "what is known needs no word"


def test_tool_names_of_mcp_servers_are_listed(tmp_path: Path) -> None:
    (tmp_path / "server.py").write_text(SERVER)
    files = f"command = {json.dumps(sys.executable)}\nargs = [{json.dumps(str(tmp_path / 'server.py'))}]"
    (tmp_path / "lango.toml").write_text(f'[agent]\nmodel = "openai/x"\n[mcp.sums]\n{files}\n')
    done = run_lango("run", "--approve", "ad", "2 + 3?", cwd=tmp_path, env={"OPENAI_API_KEY": "none"})
    assert done.returncode == 2, done
    assert "there is no tool ad; the agent's tools: add, fails, " in done.stderr.splitlines()[-1]


def test_ctrl_c_is_130_and_a_closed_pipe_is_quiet(folder: Path) -> None:
    errors = folder / "errors.txt"
    with errors.open("w") as stderr, start_command("lango", "run", "hold never", cwd=folder, stderr=stderr) as started:
        assert os.read(started.stdout.fileno(), 100) == b"begun "
        started.process.send_signal(signal.SIGINT)
        assert started.process.wait(TIMEOUT_S) == 130
    assert errors.read_text() == "lango: stopped\n"
    command = ("lango", "run", "-r", "piped", "long 50000")
    with errors.open("w") as stderr, start_command(*command, cwd=folder, stderr=stderr) as started:
        os.read(started.stdout.fileno(), 10)
        started.stdout.close()
        assert started.process.wait(TIMEOUT_S) == 141
    assert errors.read_text() == "lango: there is no session 'piped': starting a new one\n"
    usage = run_lango("sessions", "usage", "piped", cwd=folder).stdout
    assert "cancelled" in usage, "nothing goes on for a reader that is gone"


def test_closed_streams(folder: Path) -> None:
    """The shell's `<&-` and `>&-`: no file of ours gets the number of a closed stream."""
    done = subprocess.run(
        ["sh", "-c", f"{LANGO} run -r closed hello <&- >&- 2>&-"], cwd=folder, timeout=TIMEOUT_S, check=False
    )
    assert done.returncode == 0
    assert run_lango("sessions", "show", "closed", cwd=folder).stdout == "   1 user: hello\n   2 obedient: hello\n"


def test_wrong_usage_exits_with_2(folder: Path) -> None:
    assert "there is no prompt" in run(folder, code=2).stderr
    assert "use one of them" in run(folder, "-c", "-r", "x", "hi", code=2).stderr


def test_files_are_attached(folder: Path) -> None:
    (folder / "shopping list").write_text("three pears")
    done = run_json(folder, "what is in it?", "--attach", str(folder / "shopping list"))
    assert "three pears" in done["text"], "the test model repeats its input"
    gone = run(folder, "what?", "--attach", str(folder / "not there"), code=2)
    assert "not there: No such file" in gone.stderr
