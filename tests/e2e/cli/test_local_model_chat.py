"""`lango run` and `lango chat` as a person uses them, answered by a real small model."""

import json
import os
import subprocess
from pathlib import Path

import pytest

from lango.providers.local.known_models import SMOLLM2
from lango.providers.local.weights import pull
from tests.support.processes import run_lango


@pytest.fixture(scope="module", autouse=True)
def weights() -> None:
    pull(SMOLLM2)


MODEL = ["-m", "local/smollm2"]  # and not the larger one, should it be there


def lango(*arguments: str, cwd: Path, stdin: str = "", fresh: bool = False) -> subprocess.CompletedProcess[str]:
    keyless = {name: "" for name in os.environ if name.endswith("_API_KEY")}
    return run_lango(*arguments, cwd=cwd, env=keyless, stdin=stdin, fresh=fresh)


def test_one_answer_and_a_chat_in_the_same_session(tmp_path: Path) -> None:
    """Without a key and without a network: the first command of a newcomer."""
    first = lango("run", *MODEL, "--output-format", "json", "Hi", cwd=tmp_path, fresh=True)
    report = json.loads(first.stdout)
    assert report["text"].strip()
    assert report["usage"]["output_tokens"] > 0

    chat = lango("chat", *MODEL, "-c", cwd=tmp_path, stdin="Hello\n")
    assert chat.returncode == 0, chat.stderr
    assert "tiny demonstration model" in chat.stdout, "the small model is labelled as what it is"
    assert "/model local/qwen2.5-coder-1.5b downloads one that calls tools" in chat.stdout
    listed = [json.loads(line) for line in lango("sessions", "list", "--json", cwd=tmp_path).stdout.splitlines()]
    assert [(one["id"], one["messages"]) for one in listed] == [(report["session_id"], 4)], "both in one session"
    shown = lango("sessions", "show", report["session_id"], cwd=tmp_path).stdout.splitlines()
    assert "user: Hi" in shown[0]
    assert any("user: Hello" in line for line in shown)


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
