"""An agent here calls an agent on another Lango over A2A, and both are killed in the middle."""

import asyncio
import contextlib
from pathlib import Path

import httpx

from tests.support.servers.server_process import Server, events_of, serving

_REMOTE = '''
import asyncio
from pathlib import Path
from google.adk.agents import LlmAgent
from lango import tool
from lango.adk import AdkTool, ProviderLlm
from lango.messages import ToolCall
from lango.testing import deltas_of

HERE = Path(__file__).parent

@tool(effect="once")
def charge() -> str:
    """Charge the customer."""
    with (HERE / "charges").open("a") as file:
        file.write("charged\\n")
    return "charged"

class Model:
    name = "model"
    async def stream(self, request):
        if request.messages[-1].role == "tool":
            while not (HERE / "gate").exists():
                await asyncio.sleep(0.02)
            for delta in deltas_of(["paid"]):
                yield delta
        else:
            for delta in deltas_of([ToolCall("c1", "charge", {})]):
                yield delta

root_agent = LlmAgent(name="bank", model=ProviderLlm(provider=Model(), model="m"), tools=[AdkTool(charge)])
'''
_FRONT = """
import os
from google.adk.agents.remote_a2a_agent import RemoteA2aAgent
from lango.adk import a2a_config

root_agent = RemoteA2aAgent(
    name="front", agent_card=os.environ["BANK"] + "/a2a/bank/.well-known/agent-card.json", config=a2a_config()
)
"""


@contextlib.contextmanager
def bank(folder: Path, port: str = "0"):
    (folder / "remote").mkdir(parents=True, exist_ok=True)
    agent = folder / "remote" / "agent.py"
    agent.write_text(_REMOTE)
    url = f"sqlite:///{folder}/remote.db"
    with serving(folder / "remote", url, "--port", port, agent=f'module = "{agent}"', name="bank") as server:
        yield server


@contextlib.contextmanager
def front(folder: Path, remote: str):
    (folder / "front").mkdir(parents=True, exist_ok=True)
    agent = folder / "front" / "agent.py"
    agent.write_text(_FRONT)
    url = f"sqlite:///{folder}/front.db"
    with serving(folder / "front", url, agent=f'module = "{agent}"', name="front", env={"BANK": remote}) as server:
        yield server


async def test_both_sides_are_killed_and_there_is_one_effect_and_one_answer(tmp_path: Path) -> None:
    charges = tmp_path / "remote" / "charges"
    with bank(tmp_path) as remote, front(tmp_path, remote.url) as server:
        await _send(server, "pay", until=charges)
        server.kill()
        remote.kill()
    (tmp_path / "remote" / "gate").touch()
    with bank(tmp_path, str(remote.port)) as remote, front(tmp_path, remote.url) as server:
        async with server.client() as client, client.stream("GET", "/v1/sessions/s/stream") as response:
            events = [event async for event in events_of(response)]
        assert events[-1].type == "done", events
        async with server.client() as client:
            messages = (await client.get("/v1/sessions/s/messages")).json()["messages"]
            said = [one["content"] for one in messages if one["role"] == "assistant" and one["content"]]
        assert said == ["paid"]
        async with remote.client() as client:
            sessions = (await client.get("/v1/sessions")).json()["sessions"]
        assert len(sessions) == 1
    assert charges.read_text() == "charged\n"


async def _send(server: Server, text: str, until: Path) -> None:
    """Send a message, and leave its stream once a file is there."""
    async with server.client() as client:

        async def read() -> None:
            with contextlib.suppress(httpx.HTTPError):
                async with client.stream("POST", "/v1/sessions/s/messages", json={"text": text}) as response:
                    async for _ in response.aiter_lines():
                        pass

        reading = asyncio.create_task(read())
        while not until.exists():
            assert not reading.done(), server.log.read_text()
            await asyncio.sleep(0.02)
        reading.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await reading
