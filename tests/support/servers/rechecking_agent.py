"""The agent of `command_agent`, on a server that checks the callers of its open streams five times a second."""

import runpy
from pathlib import Path

from lango.server.streaming import sse

sse.RECHECK_CALLER_S = 0.2  # four seconds in life

root_agent = runpy.run_path(str(Path(__file__).with_name("command_agent.py")))["root_agent"]
