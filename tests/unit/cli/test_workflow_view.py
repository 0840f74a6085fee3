"""What the terminal writes about a workflow's nodes and about long-running tools."""

from datetime import UTC, datetime
from typing import Any

import pytest

from lango.cli.chat.collapsed_sections import show_node
from lango.cli.chat.terminal.screen import Screen
from lango.cli.chat.wait_cards import show_wait
from lango.events import NodeProgress
from lango.waits import LongRunningWait


def written(capsys: pytest.CaptureFixture[str], status: Any, *, path: str = "flow@1/a@1", **more: Any) -> str:
    show_node(Screen(), NodeProgress(1, "a", path, status, **more))
    return capsys.readouterr().out.strip().lstrip("✓✗…+x~ ")


@pytest.mark.parametrize(
    ("status", "fields", "line"),
    [
        ("started", {}, ""),
        ("ended", {}, "a"),
        ("ended", {"output": {"n": 2}}, 'a: {"n":2}'),
        ("ended", {"path": "flow@1/inner@1/a@3"}, "inner / a 3"),
        ("waiting", {}, "a waits"),
        ("failed", {"error": "ValueError: no"}, "a failed: ValueError: no"),
        ("failed", {"error": "ValueError: no", "attempt": 2}, "a, attempt 2 failed: ValueError: no"),
    ],
)
def test_a_node_is_one_line_when_it_ends_fails_or_waits(
    capsys: pytest.CaptureFixture[str], status: str, fields: dict[str, Any], line: str
) -> None:
    assert written(capsys, status, **fields) == line


def test_a_long_output_is_cut(capsys: pytest.CaptureFixture[str]) -> None:
    line = " ".join(written(capsys, "ended", output="word " * 100).split())
    assert line.endswith("…")
    assert len(line) < 120


def test_control_characters_of_a_node_are_made_visible(capsys: pytest.CaptureFixture[str]) -> None:
    assert "\x1b" not in written(capsys, "failed", error="\x1b[2Jgone")


def test_a_long_running_tool_shows_its_call(capsys: pytest.CaptureFixture[str]) -> None:
    opened: dict[str, Any] = {"id": "c1", "session_id": "s", "turn": 1, "opened_at": datetime(2026, 1, 2, tzinfo=UTC)}
    show_wait(Screen(), LongRunningWait(**opened, tool="order", call_id="c1", arguments={"item": "boat"}))
    out = capsys.readouterr().out
    assert "order" in out
    assert "waits for its result (c1)" in out
