"""Which tools run, which ask first, and what exactly an approval approves. Pure functions."""

import hashlib
import json
from collections.abc import Mapping
from typing import Any, Literal, Protocol

from lango.config import ToolSettings
from lango.tools.tool import Level

Decision = Literal["run", "ask", "deny"]


class ToolLike(Protocol):
    """What a decision is about: a tool, or anything else that has a name and a level."""

    @property
    def name(self) -> str:
        """The tool's name."""
        ...

    @property
    def level(self) -> Level:
        """The tool's level."""
        ...


def decide(tool: ToolLike, policy: ToolSettings) -> Decision:
    """Say whether a tool may run.

    A name under `deny` never runs, whatever else is said of it; one under `allow` runs without a question. Else:

    | approval      | safe | write | dangerous |
    | ------------- | ---- | ----- | --------- |
    | ask (default) | run  | ask   | ask       |
    | auto          | run  | run   | run       |
    | deny          | run  | deny  | deny      |
    """
    if tool.name in policy.deny:
        return "deny"
    if tool.name in policy.allow or tool.level == "safe":
        return "run"
    match policy.approval:
        case "auto":
            return "run"
        case "ask":
            return "ask"
        case _:  # whatever else it is, it is not a yes
            return "deny"


def fingerprint(name: str, arguments: Mapping[str, Any]) -> str:
    """Return what an approval holds for: this tool with exactly these arguments.

    The order of keys does not matter; anything else does, 1 and 1.0 and "1" included. Raises `TypeError` or
    `ValueError` for what is not JSON, so that it can never match.
    """
    text = json.dumps([name, dict(arguments)], sort_keys=True, allow_nan=False, separators=(",", ":"))
    return hashlib.sha256(text.encode("ascii")).hexdigest()
