"""Commands that hints name: each is one that `lango` takes."""

import shlex

import pytest
from typer.testing import CliRunner

from lango.cli.main import app
from lango.cli.options import AgentOptions


@pytest.mark.parametrize(
    "words",
    [
        ("chat", "-r", "s"),
        ("run", "-r", "s"),
        ("inbox", "answer", "ID", "VALUE"),
        ("inbox",),
        ("sessions", "show", "s"),
    ],
)
def test_a_hint_names_a_command_that_lango_takes(words: tuple[str, ...]) -> None:
    chosen = AgentOptions("my.toml", "postgresql://me:secret@host/db", path="my agents", agent="anna")
    command = chosen.command(*words)
    assert "secret" not in command
    parsed = CliRunner().invoke(app, [*shlex.split(command)[1:], "--help"])  # options are read before the help
    assert parsed.exit_code == 0, parsed.output
