"""`lango turns` as users run it: unfinished turns of all apps, also those that a changed app name stranded."""

import asyncio
import json
import os
import subprocess
from pathlib import Path
from typing import Any

from lango import open_runtime
from lango.messages import ToolCall
from lango.runtime.runtime import Runtime
from lango.testing import ScriptedProvider
from lango.tools import Tool
from tests.agents.parts import Gate, collect, settings_for, statuses
from tests.e2e.cli.test_commands import lango, refused

SEND = Tool("send", "Send.", None, lambda: "sent", level="dangerous")


async def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return await asyncio.to_thread(lango, *arguments, cwd=folder)


async def listed(folder: Path, *arguments: str) -> dict[str, dict[str, Any]]:
    output = await run(folder, "turns", "list", "--json", *arguments)
    assert output.returncode == 0, output
    return {one["session"]: one for one in map(json.loads, output.stdout.splitlines())}


async def strand(url: str) -> None:
    """Leave a running and a queued turn, and one that waits for an approval, under a former name."""
    gate = Gate()
    script = [ToolCall("c1", "send", {}), ToolCall("c2", gate.tool.name, {})]
    settings = settings_for(url, drain_s=0.0, name="former")
    async with open_runtime(settings, provider=ScriptedProvider(script), tools=[gate.tool, SEND]) as runtime:
        await collect((await runtime.submit("asks", "send it")).follow())
        await runtime.submit("left", "go")
        await gate.wait()
        await runtime.submit("left", "and then")


async def test_turns_of_all_apps_are_listed_and_stranded_ones_can_be_ended(store_url: str, tmp_path: Path) -> None:
    (tmp_path / "lango.toml").write_text(
        f'[agent]\nname = "present"\nmodel = "scripted/any"\n[store]\nurl = {json.dumps(store_url)}\n'
    )
    assert (await run(tmp_path, "turns", "list")).stdout == "every turn has ended\n"
    await strand(store_url)
    gate = Gate()
    provider = ScriptedProvider([["first words ", ToolCall("c1", gate.tool.name, {})], "last words"])
    async with open_runtime(settings_for(store_url, name="present"), provider=provider, tools=[gate.tool]) as runtime:
        turn = await runtime.submit("runs", "go", user_id="alice")
        await gate.wait()
        await runtime.submit("runs", "later", user_id="alice")
        found = await listed(tmp_path)
        assert {id_: one["state"] for id_, one in found.items()} == {
            "asks": "stranded",
            "left": "stranded",
            "runs": "queued",  # the newer one of its two
        }
        assert (found["runs"]["app"], found["runs"]["user"], found["runs"]["turn"]) == ("present", "alice", 2)
        assert str(os.getpid()) in found["runs"]["owner"]
        assert not found["left"]["owner"]
        assert set(await listed(tmp_path, "--app", "present")) == {"runs"}
        table = (await run(tmp_path, "turns", "list")).stdout
        assert len(table.splitlines()) == 1 + 5
        checked = (await run(tmp_path, "doctor", "--offline")).stdout
        assert "note turns: 3 turns are open under the app name 'former', which is not configured" in checked
        await _cancel_and_follow(tmp_path, runtime)
        gate.may_end.set()
        await turn.wait()


async def _cancel_and_follow(folder: Path, runtime: Runtime) -> None:
    ended = await run(folder, "turns", "cancel", "left")
    assert ended.stdout == "stopped 2 turns of left\n", ended
    assert (await run(folder, "turns", "cancel", "asks")).stdout == "stopped 1 turn of asks\n"
    refused(await run(folder, "turns", "cancel", "left"), "no such turn of session 'left' is open")
    assert set(await listed(folder)) == {"runs"}
    assert (await run(folder, "turns", "cancel", "runs", "--turn", "2")).returncode == 0
    stored = await statuses(runtime)
    assert sorted(stored) == ["cancelled", "cancelled", "done", "interrupted", "running"], stored
    following = asyncio.create_task(run(folder, "turns", "follow", "left", "--turn", "1"))
    assert "the process that ran this turn is gone" in (await following).stdout
    refused(await run(folder, "turns", "follow", "left", "--turn", "9"), "has no such turn")


async def test_a_prompt_is_left_to_a_server_and_a_failed_turn_is_run_again(sqlite_url: str, tmp_path: Path) -> None:
    (tmp_path / "agent.py").write_text(
        "from lango.adk import ProviderLlm\nfrom lango.testing import ScriptedProvider\n"
        "from google.adk.agents import LlmAgent\n"
        "root_agent = LlmAgent(name='present', model=ProviderLlm(ScriptedProvider([]), 'scripted'))\n"
    )
    (tmp_path / "lango.toml").write_text(
        f'[agent]\nname = "present"\nmodule = "agent.py"\n[store]\nurl = {json.dumps(sqlite_url)}\n'
    )
    left = await run(tmp_path, "run", "--detach", "--output-format", "json", "work for hours")
    assert left.returncode == 0, left.stderr
    place = json.loads(left.stdout)
    assert (place["turn"], place["status"], place["served"]) == (1, "queued", False)
    assert "no process runs this agent now" in left.stderr
    session = place["session_id"]
    assert (await listed(tmp_path))[session]["state"] == "released"
    refused(await run(tmp_path, "run", "--detach", "--approve", "all", "x"), "--detach")
    provider = ScriptedProvider([ValueError("boom"), "done at last"])
    async with open_runtime(settings_for(sqlite_url, name="present"), provider=provider) as runtime:
        await run(tmp_path, "turns", "follow", session)
        failed = json.loads((await run(tmp_path, "turns", "list", "--failed", "--json")).stdout)
        assert (failed["session"], failed["turn"], failed["retry"]) == (session, 1, True)
        assert "boom" in failed["message"]
        assert (await run(tmp_path, "turns", "retry", session)).returncode == 0
        followed = (await run(tmp_path, "turns", "follow", session)).stdout
        assert followed.endswith("done at last\n")
        assert await statuses(runtime) == ["done"]
    assert (await run(tmp_path, "turns", "list", "--failed")).stdout == "no turn has failed\n"
