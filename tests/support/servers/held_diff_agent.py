"""An agent with a tool whose change is shown only once a file is there: each look at it notes that it began."""

import json
import os
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from google.adk.agents import LlmAgent

from lango.adk import AdkTool, ProviderLlm
from lango.messages import ToolCall
from lango.testing import ScriptedProvider
from lango.tools import Tool

_FOLDER = Path(os.environ["LANGO_HELD_FOLDER"])


def _diff(arguments: Mapping[str, Any]) -> str:
    with (_FOLDER / "began").open("a") as file:
        file.write(json.dumps(dict(arguments)) + "\n")
    while not (_FOLDER / "go").exists():
        time.sleep(0.01)
    return "shown"


_write = replace(Tool("write", "Writes.", {"type": "object"}, lambda: "written", level="dangerous"), diff=_diff)
_model = ProviderLlm(ScriptedProvider([ToolCall("c1", "write", {}), "done"]), "scripted")
root_agent = LlmAgent(name="root", model=_model, tools=[AdkTool(_write)])
