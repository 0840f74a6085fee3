"""A replica that joins others has loaded what a turn needs when it opens; a single process loads it for a turn."""

import subprocess
import sys
from pathlib import Path

AGENT = Path(__file__).parents[2] / "support" / "servers" / "command_agent.py"
SCRIPT = """
import asyncio, sys
from lango import Settings, open_runtime

def loaded():
    return [name in sys.modules for name in ("google.adk.flows.llm_flows.auto_flow", "splintr")]

async def main(agent, store):
    settings = Settings.model_validate({"agent": {"module": agent}, "store": {"url": store}})
    async with open_runtime(settings) as first:
        alone = loaded()
        while not await first.replicas():
            await asyncio.sleep(0)
        async with open_runtime(settings, every_session=False):
            guest = loaded()
        async with open_runtime(settings):
            print(alone, guest, loaded())

asyncio.run(main(*sys.argv[1:]))
"""


def test_what_a_turn_needs_is_loaded_before_a_replica_takes_turns_over(sqlite_url: str) -> None:
    command = [sys.executable, "-c", SCRIPT, str(AGENT), sqlite_url]
    ran = subprocess.run(command, capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "[False, False] [False, False] [True, True]"
