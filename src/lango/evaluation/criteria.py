"""Read what the answers of all cases of a set must fulfil: ADK's `test_config.json`."""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from msgspec import Struct

from lango.development.test_cases import Order
from lango.errors import UsageError
from lango.json_values import as_object

_CONFIG_NAME = "test_config.json"
SUPPORTED = ("tool_trajectory_avg_score", "response_match_score", "final_response_match_v2")
_DEFAULT_JUDGE = "gemini-2.5-flash"
_DEFAULT_SAMPLES = 5


class ToolCriterion(Struct, frozen=True):
    """Expected tool calls: exactly these, or these among others, in this order or in any."""

    order: Order = "exact"
    ignore_args: bool = False
    threshold: float = 1.0


class JudgeCriterion(Struct, frozen=True):
    """A model decides whether an answer means the same as the expected one; most of `samples` verdicts count."""

    model: str = ""
    samples: int = 1
    threshold: float = 1.0


class Criteria(Struct, frozen=True):
    """What all cases of a set must fulfil. What is None is not checked."""

    tools: ToolCriterion | None = None
    similarity: float | None = None
    """The least ROUGE-1 score of the answers."""
    judge: JudgeCriterion | None = None


DEFAULT_CRITERIA = Criteria(ToolCriterion(), 0.8)
"""Those that ADK uses without a configuration."""


def criteria_beside(file: Path) -> Criteria:
    """Return the criteria of the configuration beside a file with cases, or ADK's own. Raise `UsageError`."""
    beside = file.with_name(_CONFIG_NAME)
    return read_criteria(beside) if beside.exists() else DEFAULT_CRITERIA


def read_criteria(path: Path) -> Criteria:
    """Read the criteria of ADK's configuration file. Raise `UsageError` for one that cannot be checked here."""
    try:
        document: Any = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise UsageError(f"{path} cannot be read: {error}") from error
    criteria: Any = _snake_keys(document).get("criteria")
    if not isinstance(criteria, dict):
        raise UsageError(f"{path}: the object `criteria` is missing; see ADK's documentation of test_config.json")
    try:
        return criteria_of(cast("dict[str, Any]", criteria))
    except UsageError as error:
        raise UsageError(f"{path}: {error}") from error


def criteria_of(chosen: Mapping[str, Any]) -> Criteria:
    """Return ADK's criteria by their names, each a threshold or an object. Raise `UsageError`."""
    found = Criteria()
    for name, value in chosen.items():
        try:
            found = _with_criterion(found, name, value)
        except UsageError as error:
            raise UsageError(f"{name}: {error}") from error
    return found


def _with_criterion(criteria: Criteria, name: str, value: Any) -> Criteria:
    options = _snake_keys(value) or {"threshold": value}
    threshold = options.pop("threshold", None)
    if isinstance(threshold, bool) or not isinstance(threshold, int | float):
        raise UsageError("the threshold must be a number")
    if options.pop("include_intermediate_responses_in_final", False):
        raise UsageError("include_intermediate_responses_in_final is not supported: only the final answer is compared")
    match name:
        case "tool_trajectory_avg_score":
            criteria = Criteria(_tool_criterion(threshold, options), criteria.similarity, criteria.judge)
        case "response_match_score":
            criteria = Criteria(criteria.tools, float(threshold), criteria.judge)
        case "final_response_match_v2":
            criteria = Criteria(criteria.tools, criteria.similarity, _judge_criterion(threshold, options))
        case _:
            raise UsageError(
                f"this criterion is not supported; supported are {', '.join(SUPPORTED)}. `adk eval` checks the others"
            )
    if options:
        raise UsageError(f"unknown option: {', '.join(sorted(options))}")
    return criteria


def _tool_criterion(threshold: float, options: dict[str, Any]) -> ToolCriterion:
    names: dict[Any, Order] = {0: "exact", 1: "in_order", 2: "any_order"}
    wanted: Any = options.pop("match_type", "exact")
    if isinstance(wanted, str):
        names |= {name: name for name in names.values()}
        wanted = wanted.strip().lower().replace("-", "_").replace(" ", "_")
    if wanted not in names:
        raise UsageError("match_type must be EXACT, IN_ORDER or ANY_ORDER")
    return ToolCriterion(names[wanted], bool(options.pop("ignore_args", False)), float(threshold))


def _judge_criterion(threshold: float, options: dict[str, Any]) -> JudgeCriterion:
    settings = _snake_keys(options.pop("judge_model_options", {}))
    settings.pop("parallelism_limit", None)  # verdicts are asked for one after the other
    if settings.pop("judge_model_config", None):
        raise UsageError("judge_model_config is not supported: set the provider's `options` in lango.toml")
    name, samples = settings.pop("judge_model", _DEFAULT_JUDGE), settings.pop("num_samples", _DEFAULT_SAMPLES)
    if settings or not isinstance(name, str) or not isinstance(samples, int) or samples < 1:
        raise UsageError("judge_model_options has judge_model, a name, and num_samples, a number from 1")
    # ADK's names have no provider: they are Gemini's
    return JudgeCriterion(name if "/" in name else f"gemini/{name}", samples, float(threshold))


def _snake_keys(value: Any) -> dict[str, Any]:
    """Return an object with its keys in snake case: ADK reads both. Anything else has no keys."""
    return {re.sub(r"(?<=[a-z0-9])([A-Z])", r"_\1", name).lower(): one for name, one in as_object(value).items()}
