"""`lango run` and `lango chat` as a person uses them, answered by a real small model."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from lango.providers.local.known_models import SMOLLM2
from lango.providers.local.weights import pull

LANGO = str(Path(sys.executable).with_name("lango"))


@pytest.fixture(scope="module", autouse=True)
def weights() -> None:
    pull(SMOLLM2)


MODEL = ["-m", "local/smollm2"]  # and not the larger one, should it be there


def lango(*arguments: str, cwd: Path, stdin: str = "") -> subprocess.CompletedProcess[str]:
    keyless = {name: value for name, value in os.environ.items() if not name.endswith("_API_KEY")}
    return subprocess.run(
        [LANGO, *arguments], cwd=cwd, env=keyless, input=stdin, capture_output=True, text=True, timeout=600, check=False
    )


def test_one_answer_and_the_same_session_again(tmp_path: Path) -> None:
    """Without a key and without a network: the first command of a newcomer."""
    report = json.loads(lango("run", *MODEL, "--output-format", "json", "Say hello.", cwd=tmp_path).stdout)
    assert report["text"].strip()
    assert report["usage"]["output_tokens"] > 0
    again = ("-r", report["session"], "--output-format", "stream-json", "Again!")
    lines = lango("run", *MODEL, *again, cwd=tmp_path).stdout
    events = [json.loads(line) for line in lines.splitlines()]
    assert events[0]["type"] == "accepted"
    assert events[-1]["type"] == "done"
    assert {event["type"] for event in events} == {"accepted", "text_delta", "done"}
    assert {event["session"] for event in events} == {report["session"]}
    ids = [event["id"] for event in events]
    assert ids == sorted(set(ids))
    shown = lango("sessions", "show", report["session"], cwd=tmp_path).stdout.splitlines()
    assert "user: Say hello." in shown[0]
    assert any("user: Again!" in line for line in shown)


def test_a_pipe_and_a_chat(tmp_path: Path) -> None:
    done = lango("run", *MODEL, cwd=tmp_path, stdin="Say hello.\n")
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()
    chat = lango("chat", *MODEL, "-c", cwd=tmp_path, stdin="And again.\n\nOnce more.\n")
    assert chat.returncode == 0, chat.stderr
    assert "tiny demonstration model" in chat.stdout, "the small model is labelled as what it is"
    listed = [json.loads(line) for line in lango("sessions", "list", "--json", cwd=tmp_path).stdout.splitlines()]
    assert [one["messages"] for one in listed] == [6], "one session, three questions, three answers"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["run", ""], "there is no prompt"),
        (["run", *MODEL, "-c", "hi"], "no session to continue"),
        (["run", "-m", "openai/gpt-5", "hi"], "OPENAI_API_KEY"),
        (["run", "-m", "nowhere/x", "hi"], "nowhere"),
        (["run", "-m", "x", "hi"], "provider/name"),
        (["run", "-m", "local/nobody", "hi"], "nobody"),
        (["chat", "-m", "local/none.gguf"], "none.gguf"),
    ],
)
def test_wrong_usage_is_a_one_line_error(tmp_path: Path, arguments: list[str], words: str) -> None:
    run = lango(*arguments, cwd=tmp_path)
    assert run.returncode == 2, run
    [line] = run.stderr.strip().splitlines()
    assert words in line
