"""Decide whether a tool runs, needs approval or is denied."""

import hashlib
import json
from collections.abc import Mapping
from typing import Any, Literal

from lango.config import ToolSettings
from lango.tools.tool import Level

Decision = Literal["run", "ask", "deny"]


def decide(name: str, level: Level, policy: ToolSettings) -> Decision:
    """Decide whether a tool of this name and level may run.

    A name under `deny` never runs; otherwise a name under `allow` runs without approval. For the rest:

    | approval      | safe | write | dangerous |
    | ------------- | ---- | ----- | --------- |
    | ask (default) | run  | ask   | ask       |
    | auto          | run  | run   | run       |
    | deny          | run  | deny  | deny      |
    """
    if name in policy.deny:
        return "deny"
    if name in policy.allow or level == "safe":
        return "run"
    match policy.approval:
        case "auto":
            return "run"
        case "ask":
            return "ask"
        case _:
            return "deny"


def fingerprint(name: str, arguments: Mapping[str, Any]) -> str:
    """Return a hash of a tool with exactly these arguments, which an approval is valid for.

    The order of keys does not matter; 1, 1.0 and "1" differ. Raises `TypeError` or `ValueError` for values that are not
    JSON, so that they never match.
    """
    text = json.dumps([name, dict(arguments)], sort_keys=True, allow_nan=False, separators=(",", ":"))
    return hashlib.sha256(text.encode("ascii")).hexdigest()
