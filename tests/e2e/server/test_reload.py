"""`lango serve --reload`: a change of an agent restarts the server, and neither a turn nor a client is lost."""

import shutil
from pathlib import Path

from tests.support.processes import TIMEOUT_S, start_command
from tests.support.servers.server_process import Server, configure, resume, send_until

FOLDER = Path(__file__).parents[2] / "support" / "servers" / "agent_folder"


async def test_a_turn_goes_on_after_a_restart_with_the_changed_agent(tmp_path: Path) -> None:
    agents, gate, log = tmp_path / "agents", tmp_path / "gate", tmp_path / "log.txt"
    shutil.copytree(FOLDER, agents, ignore=shutil.ignore_patterns("__pycache__"))
    configure(tmp_path, f"sqlite:///{tmp_path}/lango.db", name="", agent="max_turns = 5", server="drain_s = 0.5")
    command = ("lango", "serve", "--port", "0", "--reload", "agents")
    with log.open("w") as stderr, start_command(*command, cwd=tmp_path, stderr=stderr) as started:
        server = Server(started.process, started.stdout.readline().split()[-1], log)
        async with server.client() as client:
            await client.post("/v1/sessions", params={"agent": "ben"}, json={"id": "s"})
            seen = await send_until(client, "s", f"hold {gate}")
            source = agents / "anna" / "agent.py"
            working = source.read_text()
            source.write_text("root_agent = ")
            assert started.stdout.readline() == f"listening on {server.url}\n", "the other agent is served"
            broken = (await client.get("/v1/agents")).json()["agents"][-1]
            assert (broken["name"], "agent.py, line 1" in broken["error"]) == ("anna", True)
            source.write_text(working.replace("This is Anna.", "This is another Anna."))
            assert started.stdout.readline() == f"listening on {server.url}\n"
            assert (await client.get("/v1/agents")).json()["agents"][0]["description"] == "This is another Anna."
            gate.touch()
            rest = await resume(client, "s", after=seen[-1].id)
            assert [event.type for event in rest if event.type in ("resumed", "done")] == ["resumed", "resumed", "done"]
            messages = (await client.get("/v1/sessions/s/messages")).json()["messages"]
            assert [message["content"] for message in messages] == [f"hold {gate}", f"ben heard hold {gate}"]
        started.process.terminate()
        assert started.process.wait(TIMEOUT_S) == 0
    text = log.read_text()
    assert "agents/anna/agent.py changed: restarting the server" in text
    assert "agent.py, line 1" in text
    assert "Traceback" not in text


async def test_a_first_start_that_fails_ends_with_its_exit_code(tmp_path: Path) -> None:
    configure(tmp_path, f"sqlite:///{tmp_path}/lango.db", name="", agent='model = "nowhere/x"')
    log = tmp_path / "log.txt"
    with (
        log.open("w") as stderr,
        start_command("lango", "serve", "--port", "0", "--reload", cwd=tmp_path, stderr=stderr) as started,
    ):
        assert started.process.wait(TIMEOUT_S) == 2
    assert "nowhere" in log.read_text()
