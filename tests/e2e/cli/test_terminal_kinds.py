"""`lango chat` in unusual terminals, without a terminal, and after a crash."""

import json
import os
import re
import signal
from pathlib import Path
from typing import TYPE_CHECKING

from tests.support.processes import run_lango
from tests.support.servers import parallel_agent
from tests.support.terminal import CTRL_C, CTRL_D, configure, terminal

if TYPE_CHECKING:
    from llmock.pytest_plugin import LLMock


def test_narrow_and_without_colour(tmp_path: Path) -> None:
    with terminal(tmp_path, "chat", columns=40, rows=20, NO_COLOR="1") as chat:
        chat.wait_prompt()
        chat.ask("markdown", " apple    1.50", " 日本梨  12.00")
        words = " ".join(f"word{number}" for number in range(30))
        shown = chat.ask(words)
        assert re.findall(r"word\d+", shown)[-30:] == words.split()
        chat.ask("x" * 200)
        assert chat.text.replace("\n", "").count("x" * 200) == 1, "the answer; the message itself has a prompt in it"
        colours = re.findall(rb"\x1b\[[0-9;]*(?:3[0-8]|4[0-8]|9[0-7]|10[0-7])(?:;[0-9;]*)?m", chat.raw)
        assert not colours
        chat.send(f"hold {tmp_path}/go")
        chat.wait_for("begun")
        chat.resize(25, 20)  # in mid-answer
        (tmp_path / "go").touch()
        chat.wait_for("begun ended")
        chat.wait_prompt()
        assert chat.text.count("begun") == 1
        assert chat.text.count("word29") == 2, "what stood above is still there"
        chat.ask("long 5", "item 4")
        # Ctrl-C at the prompt: a draft is given up; without one, the second leaves
        chat.type("a draft")
        chat.wait_for("> a draft")
        chat.type(CTRL_C)
        chat.wait_prompt()
        chat.type(CTRL_C)
        chat.wait_for("press Ctrl-C again")
        chat.wait_prompt()
        chat.ask("not yet", "not yet")
        chat.type(CTRL_C)
        chat.wait_for(lambda: chat.text.count("press Ctrl-C again") == 2)
        chat.wait_prompt()
        chat.type(CTRL_C)
        assert chat.wait_end() == 0
        assert "Traceback" not in chat.text


def test_a_dumb_terminal(tmp_path: Path) -> None:
    with terminal(tmp_path, "chat", TERM="dumb") as chat:
        chat.wait_for("\n>")
        chat.send("first line\\")
        chat.wait_for("\n.")
        chat.send("second line")
        chat.wait_for("\nfirst line\nsecond line\n>")
        chat.send("wipe disk")
        chat.wait_for("Ctrl-C: decide later")
        chat.send("maybe")
        chat.wait_for(lambda: chat.text.count("Ctrl-C: decide later") == 2)
        chat.send("y")
        chat.wait_for("the tool said {'noted': 'disk'")
        chat.send("hold never")
        chat.wait_for("begun")
        chat.type(CTRL_C)
        chat.wait_for("stopped; the answer so far")
        chat.send("/help")
        chat.wait_for("/quit")
        chat.send("/open 1")
        chat.wait_for("noted: disk")
        chat.send("evil")
        chat.wait_for("␛]52;")
        chat.wait_for(lambda: chat.text.rstrip().endswith("\n>"))
        chat.type(CTRL_C)
        chat.wait_for("press Ctrl-C again to quit")
        chat.type(CTRL_D)
        assert chat.wait_end() == 0
        assert b"\x1b" not in chat.raw, "nothing that moves the cursor"
        assert "Traceback" not in chat.text


def test_resume_after_a_kill_in_mid_turn(tmp_path: Path) -> None:
    with terminal(tmp_path, "chat") as chat:
        chat.wait_prompt()
        chat.ask("remember the pears")
        chat.send("hold gate")
        chat.wait_for("begun")
        os.kill(chat.process.pid, signal.SIGKILL)
        assert chat.wait_end() == -signal.SIGKILL
    with terminal(tmp_path, "chat", "-c") as chat:
        chat.wait_for("the process of the last turn died: the turn continues now")
        assert "> remember the pears\n\nremember the pears\n\n> hold gate\nthe process of the last turn" in chat.text
        chat.wait_for("begun")
        (tmp_path / "gate").touch()
        chat.wait_for("begun ended")
        chat.wait_prompt()
        chat.send("wipe again")
        chat.wait_for('"text": "again"')
        chat.wait_for("run exactly this?")
        os.kill(chat.process.pid, signal.SIGKILL)
        chat.wait_end()
    with terminal(tmp_path, "chat", "-c") as chat:
        chat.wait_for('"text": "again"')  # the open request is shown again
        assert chat.text.count("begun ended") == 1
        chat.wait_for("run exactly this?")
        chat.type("y")
        chat.wait_for("the tool said {'noted': 'again'")
        chat.wait_prompt()
        chat.send("/quit")
        assert chat.wait_end() == 0


def test_a_continued_session_names_the_agents_that_spoke(tmp_path: Path) -> None:
    (tmp_path / "lango.toml").write_text(f"[agent]\nmodule = {json.dumps(parallel_agent.__file__)}\n")
    names = ("anna:", "ben:", "critic:")
    with terminal(tmp_path, "chat") as chat:
        chat.wait_prompt()
        live = chat.ask("Discuss it.", *names)
        chat.send("/quit")
        chat.wait_end()
    with terminal(tmp_path, "chat", "-c") as chat:
        chat.wait_prompt()
        again = [line for line in chat.after("Discuss it.").splitlines() if line]
    said = [line for line in live.splitlines() if line.rstrip(":") != line or line.startswith(("I am", "Both"))]
    assert [line for line in again if line.endswith((":", "."))] == said
    assert [line for line in again if line.endswith(":")] == list(names)


def test_another_model_for_the_same_session(tmp_path: Path, llmock: "LLMock") -> None:
    """A third-party server: it gets a test request before the model is changed."""
    configure(tmp_path, f'[providers.lab]\ntype = "openai"\nbase_url = "{llmock.base_url("openai")}"')
    with terminal(tmp_path, "chat") as chat:
        chat.wait_prompt()
        chat.ask("note pears", "the tool said")
        llmock.fail(404, message="The model `nobody` does not exist", code="model_not_found")
        chat.ask("/model lab/nobody", "nobody")
        assert "gpt-5-mini" in chat.shown
        llmock.reply("pong").reply("I am the other one.")
        chat.ask("/model lab/somebody", "now using lab/somebody")
        chat.ask("who are you?", "I am the other one.")
        assert " lab/somebody · " in chat.shown, "the status line"
        assert "the tool said" in str(llmock.last_request.body), "the same conversation"
        llmock.outage()
        chat.ask("/model lab/third", "now using lab/third", "it did not answer a test request")


def test_a_missing_key_is_typed_unseen_and_kept_in_memory_only(tmp_path: Path, llmock: "LLMock") -> None:
    base_url = llmock.base_url("openai")
    configure(tmp_path, f'[providers.lab]\ntype = "openai"\nbase_url = "{base_url}"\napi_key_env = "KEY_OF_THE_LAB"')
    with terminal(tmp_path, "chat") as chat:
        chat.wait_prompt()
        chat.send("/model lab/large")
        chat.wait_for("set the environment variable KEY_OF_THE_LAB")
        chat.wait_for("the key of lab:")
        chat.type(CTRL_C)
        chat.wait_for("stopped; the model is still")
        chat.wait_prompt()
        chat.send("/model lab/large")
        chat.wait_for(lambda: chat.text.count("the key of lab:") == 2)
        llmock.reply("pong").reply("I am the large one.")
        chat.send("sesame-of-the-lab")
        chat.wait_for("now using lab/large")
        chat.wait_prompt()
        chat.ask("who are you?", "I am the large one.")
        chat.send("/quit")
        assert chat.wait_end() == 0
        assert b"sesame" not in chat.raw
    assert not [file for file in tmp_path.rglob("*") if file.is_file() and b"sesame" in file.read_bytes()]
    piped = run_lango("chat", cwd=tmp_path, stdin="/model lab/large\nhello\n")
    assert "KEY_OF_THE_LAB" in piped.stdout
    assert "\nhello\n" in piped.stdout, "the next line is a message, and no key"


def test_through_pipes(tmp_path: Path) -> None:
    """Through pipes there are no prompts and no escape sequences, but the same commands."""
    configure(tmp_path)
    lines = [
        "hello",
        "markdown",
        "two\\",
        "lines",
        "wipe disk1",
        "y",
        "wipe disk2",
        "next message",
        "/sessions",
        "evil",
    ]
    run = run_lango("chat", cwd=tmp_path, stdin="\n".join(lines), fresh=True)
    assert run.returncode == 0, run.stderr
    assert run.stderr == ""
    assert "\x1b" not in run.stdout
    assert "| apple | 1.50 |" in run.stdout, "markdown stays what it is"
    assert "two lines\n" in run.stdout, "one message"
    assert "the tool said {'noted': 'disk1'" in run.stdout
    assert "the tool said {'noted': 'disk2'" not in run.stdout, "another message is no approval"
    assert "\nnext message\n" in run.stdout
    assert "messages" in run.stdout


def test_an_export_is_harmless_on_a_terminal_and_exact_in_a_file(tmp_path: Path) -> None:
    configure(tmp_path)
    assert run_lango("run", "-r", "spoilt", "evil", cwd=tmp_path).returncode == 0
    for layout in ("markdown", "jsonl"):
        done = run_lango("sessions", "export", "spoilt", "--format", layout, "-o", layout, cwd=tmp_path)
        assert done.returncode == 0, done
        with terminal(tmp_path, "sessions", "export", "spoilt", "--format", layout) as shown:
            assert shown.wait_end() == 0
            assert not re.search(rb"\x1b|\x07|\x08|\xc2\x9b|\xe2\x80\xae", shown.raw)
    assert "\x1b" in (tmp_path / "markdown").read_text()
