"""Each example runs as it stands in its folder, in processes of its own, with a scripted model behind the real SDKs."""

import json
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lango.config import Settings
from lango.messages import ToolCall
from lango.tools.builtin.sandbox import find_sandbox
from tests.support.processes import BIN, run_command
from tests.support.servers.scripted_server import scripted_server
from tests.support.servers.server_process import serving

EXAMPLES = Path(__file__).parents[3] / "examples"

Copy = Callable[[str], Path]


@pytest.fixture
def copied(tmp_path: Path) -> Copy:
    """Copies an example to where it may write."""

    def copy(name: str) -> Path:
        return Path(shutil.copytree(EXAMPLES / name, tmp_path / name))

    return copy


def run(folder: Path, *command: str, env: dict[str, str], given: str = "") -> subprocess.CompletedProcess[str]:
    """Run a command of the environment as a person in the folder does."""
    path = {"PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}"}
    return run_command(*command, cwd=folder, env=path | env, stdin=given)


def events(ran: subprocess.CompletedProcess[str]) -> list[dict[str, Any]]:
    return [json.loads(line) for line in ran.stdout.splitlines()]


def test_notes_are_kept_and_deleted_only_after_approval(copied: Copy) -> None:
    folder = copied("notes")
    saves = ToolCall("c1", "save_note", {"title": "key", "text": "under the mat"})
    with scripted_server(saves, "I will remember.") as server:
        ran = run(folder, "python", "notes.py", env=server.environment, given="Ada\nThe key is under the mat.\n\n")
    assert ran.returncode == 0, ran.stderr
    assert "[save_note] \nI will remember." in ran.stdout or "[save_note] I will remember." in ran.stdout
    assert json.loads((folder / "notes.json").read_text()) == {"Ada": {"key": "under the mat"}}
    assert "You keep the notes of Ada." in json.dumps(server.requests[0])

    deletes = ToolCall("c2", "delete_note", {"title": "key"})
    with scripted_server(deletes, "It is gone.") as server:
        ran = run(folder, "python", "notes.py", env=server.environment, given="Ada\nForget it.\ny\n\n")
    assert ran.returncode == 0, ran.stderr
    assert "delete_note {'title': 'key'}: approve?" in ran.stdout
    assert "It is gone." in ran.stdout
    assert json.loads((folder / "notes.json").read_text()) == {"Ada": {}}
    assert "The key is under the mat." in json.dumps(server.requests[0]), "it went on where it was"


def test_the_coder_mends_the_program_and_asks_first(copied: Copy) -> None:
    folder = copied("coder")
    program = folder / "workspace" / "temperature.py"
    reads = ToolCall("c1", "read_file", {"path": "temperature.py"})
    edits = ToolCall(
        "c2",
        "edit_file",
        {"path": "temperature.py", "old": "fahrenheit - 32 * 5 / 9", "new": "(fahrenheit - 32) * 5 / 9"},
    )
    tests = ToolCall("c3", "shell", {"command": "python3 -m unittest"})
    before = program.read_text()
    with scripted_server(reads, edits) as server:
        ran = run(folder, "lango", "run", "The tests fail. Fix the program.", env=server.environment)
    assert ran.returncode == 3, ran
    assert "edit_file waits for an approval" in ran.stderr
    assert program.read_text() == before

    with scripted_server(reads, edits, tests, "A bracket was missing.") as server:
        arguments = ("lango", "run", "--approve", "edit_file,shell", "--output-format", "stream-json", "Mend it.")
        ran = run(folder, *arguments, env=server.environment)
    assert ran.returncode == 0, ran.stderr
    assert "(fahrenheit - 32) * 5 / 9" in program.read_text()
    [*_, ended] = [event for event in events(ran) if event["type"] == "tool_end"]
    assert ended["name"] == "shell"
    if not isinstance(find_sandbox(), str):
        assert "OK" in json.dumps(ended["result"]), ended


def test_the_team_hands_over_and_the_writer_answers(copied: Copy) -> None:
    folder = copied("research_team")
    script = (
        ToolCall("c1", "transfer_to_agent", {"agent_name": "researcher"}),
        ToolCall("c2", "search_files", {"query": "1885"}),
        ToolCall("c3", "transfer_to_agent", {"agent_name": "writer"}),
        "It was lit in 1885 (roter-sand.md).",
    )
    with scripted_server(*script) as server:
        arguments = ("lango", "run", "--output-format", "stream-json", "When was Roter Sand lit?")
        ran = run(folder, *arguments, env=server.environment)
    assert ran.returncode == 0, ran.stderr
    received = events(ran)
    assert {event["author"] for event in received if event["type"] == "text_delta"} == {"writer"}
    [found] = [event["result"] for event in received if event["type"] == "tool_end" and event["name"] == "search_files"]
    assert "roter-sand.md" in json.dumps(found)
    assert "tools" not in server.requests[3] or "search_files" not in json.dumps(server.requests[3]["tools"])


def test_the_librarian_uses_the_mcp_server(copied: Copy) -> None:
    folder = copied("mcp_agent")
    finds = ToolCall("c1", "find_books", {"words": "le guin dispossessed"})
    lends = ToolCall("c2", "lend_book", {"title": "The Dispossessed", "reader": "Ada"})
    with scripted_server(finds, lends, "Enjoy it, Ada.") as server:
        arguments = ("lango", "run", "--approve", "lend_book", "Lend it to Ada.")
        ran = run(folder, *arguments, env=server.environment)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.strip().endswith("Enjoy it, Ada.")
    assert json.loads((folder / "loans.json").read_text()) == {"The Dispossessed": "Ada"}
    assert "Ursula K. Le Guin" in json.dumps(server.requests[1]["messages"]), "the model read what the server found"


def test_a_plain_adk_agent_keeps_its_conversation_in_its_own_runner(copied: Copy) -> None:
    folder = copied("adk_agent")
    with scripted_server(ToolCall("", "track_parcel", {"number": "A17"}), "It is 3 stops away.") as server:
        ran = run(folder, "python", "-W", "ignore", "main.py", "Where is A17?", env=server.google_environment)
    assert ran.stdout == "It is 3 stops away.\n", ran.stderr
    with scripted_server("No, it is near.") as server:
        ran = run(folder, "python", "-W", "ignore", "main.py", "Is that far?", env=server.google_environment)
    assert ran.stdout == "No, it is near.\n", ran.stderr
    assert "Where is A17?" in json.dumps(server.requests[0]["contents"])


def test_the_same_agent_served_and_an_openai_client(copied: Copy) -> None:
    folder, client = copied("adk_agent"), copied("openai_client")
    script = (ToolCall("", "track_parcel", {"number": "B02"}), "At the post office.", "Until Friday.", "Alice.")
    with (
        scripted_server(*script) as server,
        serving(
            folder, f"sqlite:///{folder}/lango.db", agent='module = "agent.py"', env=server.google_environment
        ) as served,
    ):
        url = f"{served.url}/v1"
        ran = run(client, "python", "chat.py", "--url", url, env={}, given="Where is B02?\nHow long?\n\n")
        assert ran.returncode == 0, ran.stderr
        assert "At the post office." in ran.stdout
        assert "Until Friday." in ran.stdout
        session = ran.stdout.split()[-1]
        again = run(client, "python", "chat.py", "--url", url, "--session", session, env={}, given="Who am I?\n\n")
        assert "Alice." in again.stdout, again.stderr
    assert "Where is B02?" in json.dumps(server.requests[-1]["contents"]), "the server kept the history"


@pytest.mark.parametrize("file", sorted(EXAMPLES.rglob("lango.toml")), ids=lambda file: file.parent.name)
def test_configurations_are_settings(file: Path) -> None:
    Settings.load(file)


def test_every_example_is_in_the_index() -> None:
    index = (EXAMPLES / "README.md").read_text()
    for folder in EXAMPLES.iterdir():
        if folder.is_dir():
            assert f"| [{folder.name}](" in index
