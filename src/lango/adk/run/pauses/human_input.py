"""Check a person's answer to an input wait, and build the content that brings it to the workflow.

A text is an answer to any schema: it is the value itself where the schema accepts a text, else it is read as JSON.
"""

import json
from collections.abc import Mapping
from typing import Any, cast

from google.genai import types

from lango.errors import ConfigError, InvalidAnswer, InvalidArguments
from lango.events import to_plain_values
from lango.json_values import as_object
from lango.sessions import INPUT_CALL
from lango.tools.schema_checker import SchemaChecker
from lango.waits import InputWait, QuestionWait

_YES, _NO = ("yes", "y", "true", "1"), ("no", "n", "false", "0")
_BOOLEANS = dict.fromkeys(_YES, True) | dict.fromkeys(_NO, False)
_CONFIRMED = "confirmed"
_ASKED_PAYLOAD = "confirmation_payload"  # where ADK puts it in the payload of the input request
_KEY = "result"  # ADK unwraps an object with this key alone, and parses a text in it as JSON


def checked_value(wait: InputWait | QuestionWait, value: Any) -> Any:
    """Return the value of an answer as the workflow gets it. Raise `InvalidAnswer` if it does not fit the schema."""
    value = to_plain_values(value)
    checker = _checker(wait)
    if checker is None:
        return value
    problems = _problems(checker, value)
    for other in _possible_values(wait, value) if problems else ():
        if not _problems(checker, other):
            return _with_asked_payload(wait, other)
    if problems:
        raise InvalidAnswer(f"the value does not fit the schema of the wait {wait.id!r}: {problems}")
    return _with_asked_payload(wait, value)


def _with_asked_payload(wait: InputWait | QuestionWait, value: Any) -> Any:
    """Add the payload that a tool in a node asked for confirmation with, unless the answer has one of its own."""
    asked, answer = as_object(wait.payload), as_object(value)
    if _CONFIRMED not in answer or _ASKED_PAYLOAD not in asked or answer.get("payload") is not None:
        return cast("Any", value)
    return {**answer, "payload": asked[_ASKED_PAYLOAD]}


def answer_content(call_id: str, value: Any) -> types.Content:
    """Build the content that brings a checked value to the workflow."""
    if isinstance(value, str) and _is_json(value):
        value = json.dumps(value)  # the text stays a text: ADK would read "3" as a number
    members: dict[str, Any] = cast("dict[str, Any]", value) if isinstance(value, dict) else {_KEY: value}
    if isinstance(value, dict) and members.keys() == {_KEY}:
        members = {_KEY: members}
    return result_content(call_id, INPUT_CALL, members)


def result_content(call_id: str, name: str, result: Mapping[str, Any]) -> types.Content:
    """Build the content that brings the result of one call."""
    response = types.FunctionResponse(id=call_id, name=name, response=dict(result))
    return types.Content(role="user", parts=[types.Part(function_response=response)])


def _checker(wait: InputWait | QuestionWait) -> SchemaChecker | None:
    """Compile the schema of a request, or return None if any value fits or the schema itself is wrong."""
    try:
        return SchemaChecker(wait.schema) if wait.schema else None
    except ConfigError:
        return None


def _problems(checker: SchemaChecker, value: Any) -> str:
    try:
        return "; ".join(checker.check(value))
    except InvalidArguments as error:
        return str(error)


def _possible_values(wait: InputWait | QuestionWait, value: Any) -> list[Any]:
    """Return the values that a text, or a yes or no, may stand for."""
    word = value.strip() if isinstance(value, str) else ""
    readings: list[Any] = [json.loads(word)] if _is_json(word) else []
    decision = _BOOLEANS.get(word.lower()) if word else value
    if isinstance(decision, bool):
        readings.append(decision)
        if _CONFIRMED in ((wait.schema or {}).get("properties") or {}):  # a node that asks before it runs
            readings.append({_CONFIRMED: decision})
    return readings


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True
