"""Teach schemathesis what no OpenAPI document says of this API; `schemathesis.toml` names this module."""

from collections import Counter
from typing import Any

import schemathesis
from schemathesis.generation.meta import CoverageScenario

_EACH = 8
_wrong_types = Counter[tuple[object, ...]]()


@schemathesis.serializer("application/x-ndjson")
def lines_of_json(context: Any, value: Any) -> bytes:
    """Send text as it is."""
    del context
    return value if isinstance(value, bytes) else str(value).encode("utf-8", "replace")


@schemathesis.hook  # pyright: ignore[reportUnknownMemberType]
def filter_case(context: Any, case: Any) -> bool:
    """Send one value of a wrong type to each place, and every eighth of the others: a type is refused like the next."""
    del context
    about: Any = getattr(case.meta and case.meta.phase, "data", None)
    if getattr(about, "scenario", None) is not CoverageScenario.INCORRECT_TYPE:
        return True
    _wrong_types[()] += 1
    place = (case.operation.label, about.parameter_location, about.parameter, about.description)
    _wrong_types[place] += 1
    return _wrong_types[place] == 1 or _wrong_types[()] % _EACH == 0


@schemathesis.hook  # pyright: ignore[reportUnknownMemberType]
def before_call(context: Any, case: Any, kwargs: Any) -> None:
    """Follow a session that is not there: the stream of one that is never ends."""
    del context, kwargs
    if case.operation.path == "/v1/live" and case.method == "GET":
        case.query = {**(case.query or {}), "session": "no-session"}
