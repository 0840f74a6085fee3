"""Commands that hints name: each is one that `lango` takes."""

import ast
import re
import shlex
from collections.abc import Iterator
from contextvars import ContextVar
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

import lango
from lango.cli.main import app
from lango.cli.options import AgentOptions, StoreOptions, complete_hints, find_command

POSTGRES = "postgresql://me:secret@host/db"
COMMANDS = typer.main.get_command(app)


@pytest.mark.parametrize(
    "hint", ["chat -r s", "run -r s", "inbox answer ID VALUE", "inbox", "sessions show s", "turns follow s --turn 2"]
)
def test_a_completed_hint_names_a_command_that_lango_takes(hint: str, monkeypatch: pytest.MonkeyPatch) -> None:
    choose(monkeypatch, AgentOptions("my.toml", POSTGRES, path="my agents", agent="anna"))
    command = complete_hints(f"`lango {hint}`").strip("`")
    assert "--config my.toml" in command
    assert "secret" not in command
    parsed = CliRunner().invoke(app, [*shlex.split(command)[1:], "--help"])  # options are read before the help
    assert parsed.exit_code == 0, parsed.output


def named_commands() -> Iterator[tuple[str, str]]:
    """Yield the commands that texts of the source name, with X for what is computed, and their places."""
    for file in sorted(Path(lango.__file__).parent.rglob("*.py")):
        if "`lango " not in (source := file.read_text()):
            continue
        for node in ast.walk(ast.parse(source)):
            parts = node.values if isinstance(node, ast.JoinedStr) else [node]
            text = "".join(
                part.value if isinstance(part, ast.Constant) and isinstance(part.value, str) else "X" for part in parts
            )
            if isinstance(node, ast.JoinedStr | ast.Constant):
                for hint in re.findall(r"`lango ([a-z][^`]*)`", text):
                    yield hint, f"{file.name}:{node.lineno}"


def test_every_command_that_a_text_names_can_be_run() -> None:
    found = list(named_commands())
    assert len(found) > 30
    for hint, place in found:
        words = hint.split()
        command, depth = find_command(COMMANDS, words)
        assert command is not None, f"{place}: there is no command `lango {hint}`"
        required = [one for one in command.params if one.param_type_name == "argument" and one.required]
        given = [word for word in words[depth:] if not word.startswith("-")]
        names_the_command = depth == len(words) and not hasattr(command, "commands")
        assert given or names_the_command or not required, f"{place}: `lango {hint}` needs arguments"


def choose(monkeypatch: pytest.MonkeyPatch, options: StoreOptions) -> None:
    chosen: ContextVar[StoreOptions | None] = ContextVar("options")
    chosen.set(options)
    monkeypatch.setattr("lango.cli.options.chosen_options", chosen)
    commands: ContextVar[object] = ContextVar("commands")
    commands.set(COMMANDS)
    monkeypatch.setattr("lango.cli.options.all_commands", commands)


def test_a_hint_of_an_error_is_for_the_same_store_and_agent(monkeypatch: pytest.MonkeyPatch) -> None:
    message = "see `lango turns list`, `lango doctor`, `lango chat` and `lango init`, or `lango keys list --store x`"
    assert complete_hints(message) == message, "no options were given"
    choose(monkeypatch, StoreOptions(store=POSTGRES))
    assert complete_hints("see `lango turns list`") == ("see `lango turns list --store postgresql://me:...@host/db`")
    choose(monkeypatch, AgentOptions("my.toml", "sqlite:///a.db", path="my agents", agent="anna"))
    assert complete_hints(message) == (
        "see `lango turns list --config my.toml --store sqlite:///a.db --path 'my agents'`, "
        "`lango doctor 'my agents' --config my.toml`, "
        "`lango chat 'my agents' --config my.toml --store sqlite:///a.db --agent anna` and `lango init`, "
        "or `lango keys list --store x`"
    )
