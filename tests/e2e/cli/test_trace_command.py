"""`lango sessions trace` as users run it."""

import json
from pathlib import Path

from lango import Settings, Tool, open_runtime
from lango.config import StoreSettings, TraceSettings
from lango.messages import ToolCall
from lango.providers import Finish, UsageDelta
from lango.testing import ScriptedProvider
from tests.e2e.cli.test_commands import lango, refused


async def test_a_trace_is_a_waterfall_in_the_terminal_and_json_for_programs(tmp_path: Path) -> None:
    def see(arguments: dict[str, str]) -> dict[str, int]:
        return {"seen": 1}

    look = Tool("look", "Look.", {"type": "object"}, see)
    settings = Settings(store=StoreSettings(url=f"sqlite:///{tmp_path}/lango.db"), trace=TraceSettings(requests=True))
    calls = [ToolCall("c1", look.name, {}), UsageDelta(1200, 30, 800), Finish("tool_calls", model="gpt\x1b[31m")]
    async with open_runtime(settings, tools=[look], provider=ScriptedProvider([calls, "seen"])) as runtime:
        await runtime.run("s", "look")
    printed = lango("sessions", "trace", "s", cwd=tmp_path)
    lines = printed.stdout.replace("\N{NO-BREAK SPACE}", " ").splitlines()
    assert printed.returncode == 0, printed
    assert lines[0].startswith("turn 1 · done · ")
    assert [line.split("  ")[0] or line.strip().split("  ")[0] for line in lines[2:]] == [
        "lango",
        "model gpt␛[31m",
        "tool look",
        "model default",
    ]
    assert "1,200" in lines[3]
    assert "█" in lines[3]
    trace = json.loads(lango("sessions", "trace", "s", "--turn", "1", "--json", cwd=tmp_path).stdout)
    [attempt] = trace["turns"][0]["steps"][0]["steps"][0]["attempts"]
    request = "sessions", "trace", "s", "--request", attempt["request_id"][:-1]
    assert json.loads(lango(*request, "--json", cwd=tmp_path).stdout)["request"]["messages"][-1]["content"] == "look"
    lines = lango(*request, cwd=tmp_path).stdout.splitlines()
    assert lines[-4:] == ["user:", "  look", "answer (tool_calls):", "  calls look {}"]

    def fall(arguments: dict[str, str]) -> None:
        raise LookupError("no such drawer")

    failing = Tool("fall", "Fail.", {"type": "object"}, fall)
    script = ScriptedProvider([ToolCall("c2", failing.name, {}), "a pity"])
    async with open_runtime(settings, tools=[failing], provider=script) as runtime:
        await runtime.run("broken", "open")
    printed = lango("sessions", "trace", "broken", cwd=tmp_path).stdout
    assert "in fall\nTraceback (most recent call last):" in printed
    assert "LookupError: no such drawer" in printed
    refused(lango("sessions", "trace", "s", "--turn", "2", cwd=tmp_path), "no turn 2")
    refused(lango("sessions", "trace", "other", cwd=tmp_path), "no session 'other'")
