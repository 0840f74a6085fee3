"""The built-in tools by name; `current_time` and `read_result`."""

from pathlib import Path

import pytest

from lango.config import Settings, ToolSettings
from lango.errors import ConfigError
from lango.tools import builtin_tools, run_tool
from lango.tools.builtin.enabled_tools import BUILTIN_NAMES, current_time, read_result_tool
from lango.tools.execution import decide


def test_t3_every_builtin_has_a_level_and_an_effect(tmp_path: Path) -> None:
    settings = ToolSettings(enabled=list(BUILTIN_NAMES), workspace=str(tmp_path))
    tools = builtin_tools(settings)
    assert {tool.name: (tool.level, tool.effect, decide(tool.name, tool.level, settings)) for tool in tools} == {
        "read_file": ("safe", "none", "run"),
        "list_files": ("safe", "none", "run"),
        "search_files": ("safe", "none", "run"),
        "write_file": ("write", "idempotent", "ask"),
        "edit_file": ("write", "once", "ask"),
        "shell": ("dangerous", "once", "ask"),
        "web_fetch": ("dangerous", "idempotent", "ask"),
        "current_time": ("safe", "none", "run"),
        "wait_until": ("safe", "none", "run"),
    }
    assert all(tool.description and tool.schema["type"] == "object" for tool in tools)


def test_a_call_that_writes_shows_what_it_would_change(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("one\ntwo\nthree\n")
    (tmp_path / "binary").write_bytes(b"\xff\x00")
    names = ["read_file", "write_file", "edit_file"]
    tools = {tool.name: tool for tool in builtin_tools(ToolSettings(enabled=names, workspace=str(tmp_path)))}

    def diff(name: str, **arguments: str) -> list[str]:
        show = tools[name].diff
        assert show
        return show(arguments).splitlines()[2:]

    assert diff("write_file", path="a.txt", content="one\n2\nthree\n") == [
        "@@ -1,3 +1,3 @@",
        " one",
        "-two",
        "+2",
        " three",
    ]
    assert diff("edit_file", path="a.txt", old="two", new="2") == ["@@ -1,3 +1,3 @@", " one", "-two", "+2", " three"]
    assert diff("write_file", path="new/b.txt", content="x") == ["@@ -0,0 +1 @@", "+x"]
    assert diff("write_file", path="binary", content="x") == ["@@ -0,0 +1 @@", "+x"]
    assert diff("write_file", path="../a.txt", content="one\n") == ["@@ -0,0 +1 @@", "+one"], "nothing outside is read"
    assert diff("write_file", path="a.txt", content="x" * 200_001) == []
    assert tools["read_file"].diff is None
    [blind] = builtin_tools(ToolSettings(enabled=["write_file"], workspace=str(tmp_path)))
    assert blind.diff is None, "files that the model may not read are not shown either"


def test_only_enabled_tools_exist() -> None:
    assert builtin_tools(Settings().tools) == []
    twice = ToolSettings(enabled=["current_time", "current_time"], workspace="/nowhere")
    assert [tool.name for tool in builtin_tools(twice)] == ["current_time"]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (ToolSettings(enabled=["shel"]), "there is no tool shel; there are read_file, "),
        (ToolSettings(enabled=["shell"], workspace="/nowhere/at/all"), "is not a folder"),
    ],
)
def test_a_wrong_setting_is_reported(settings: ToolSettings, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        builtin_tools(settings)


def test_a_missing_workspace_is_created(tmp_path: Path) -> None:
    builtin_tools(ToolSettings(enabled=["read_file"], workspace=str(tmp_path / "notes")))
    assert (tmp_path / "notes").is_dir()


async def test_current_time() -> None:
    outcome = await run_tool(current_time, {"timezone": "Asia/Tokyo"})
    assert outcome.result["time"].endswith("+09:00")
    assert (await run_tool(current_time, {})).result["time"].endswith("+00:00")
    for wrong in ("Mars/Base", "../../etc/passwd", "/etc/localtime", "a\0"):
        assert "no time zone" in (await run_tool(current_time, {"timezone": wrong})).result["error"]


async def test_a_clipped_result_is_read_in_pieces() -> None:
    kept = {"c1": "0123456789" * 5000}

    async def read(call_id: str, offset: int, limit: int) -> str | None:
        return kept[call_id][offset : offset + limit] if call_id in kept else None

    [tool] = builtin_tools(ToolSettings(), read_result=read)
    assert (tool.name, tool.level) == ("read_result", "safe")
    outcome = await run_tool(tool, {"call_id": "c1", "offset": 3, "limit": 4})
    assert outcome.result == {"offset": 3, "characters": 4, "text": "3456"}
    outcome = await run_tool(tool, {"call_id": "c1"})
    assert (outcome.result["characters"], outcome.whole) == (20_000, None)
    assert not (await run_tool(tool, {"call_id": "c2"})).ok
    assert not (await run_tool(read_result_tool(read), {"call_id": "c1", "offset": -1})).ok
