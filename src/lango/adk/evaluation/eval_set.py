"""Read and write files with test cases in ADK's eval-set format.

ADK reads what is written here, and files of `adk web` and `adk eval` are read unchanged, those in ADK's older format
included. A case may have a field `lango` with checks that ADK does not have: ADK's models keep the additional fields
of a case, and ignore them.
"""

import json
import re
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from google.adk.evaluation.eval_case import EvalCase, Invocation, get_all_tool_calls
from google.adk.evaluation.eval_set import EvalSet
from google.adk.evaluation.local_eval_sets_manager import convert_eval_set_to_pydantic_schema
from pydantic import ValidationError

from lango.development.test_cases import Call, Case, Exchange, read_case_checks
from lango.errors import UsageError
from lango.messages import Attachment
from lango.sessions import REQUEST_PREFIX

if TYPE_CHECKING:
    from google.genai.types import Content, FunctionCall

_EXTENSION = ".evalset.json"


def read_cases(path: Path) -> list[Case]:
    """Read the cases of a file. Raise `UsageError`."""
    found = read_eval_set(path)
    return [_read_case(path, case) for case in found.eval_cases]


def convert_case(case: Mapping[str, Any], *, camel_names: bool) -> dict[str, Any]:
    """Return a case with ADK's names in camel case, as its API has them, or as in files. Raise `UsageError`."""
    try:
        read = EvalCase.model_validate(case)
    except ValidationError as error:
        raise UsageError(f"not a case of ADK's format: {error}") from error
    return read.model_dump(mode="json", by_alias=camel_names, exclude_none=True)


def read_eval_set(path: Path) -> EvalSet:
    """Read a file in ADK's format, or in its older one. Raise `UsageError`."""
    document = _read_json(path)
    try:
        if isinstance(document, list):
            return convert_eval_set_to_pydantic_schema(set_id(path.name), cast("list[dict[str, Any]]", document))
        return EvalSet.model_validate(document)
    except ValidationError as error:
        problem = error.errors()[0]
        place = ".".join(map(str, problem["loc"]))
        raise UsageError(f"{path} is not an ADK eval set: {place}: {problem['msg']}") from error
    except (KeyError, TypeError, AttributeError) as error:  # the older format is converted unchecked
        raise UsageError(f"{path} is not an ADK eval set: {error!r}") from error


def add_case(path: Path, case: EvalCase) -> int:
    """Add a case to a file, and create the file if there is none; return the number of its cases.

    Everything else in the file stays as it is. Raise `UsageError` if the file has a case of that id.
    """
    if not path.exists():
        document = new_eval_set(set_id(path.name), [case])
    else:
        known = read_eval_set(path)
        if any(other.eval_id == case.eval_id for other in known.eval_cases):
            raise UsageError(f"{path} already has a case {case.eval_id!r}: name the new one with --id")
        document = _read_json(path)
        if isinstance(document, list):
            raise UsageError(f"{path} is in ADK's older format: save the case to another file")
        document["eval_cases"].append(case_json(case))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(document, indent=2, ensure_ascii=False) + "\n", "utf-8")
    return len(document["eval_cases"])


def new_eval_set(id_: str, cases: Sequence[EvalCase]) -> dict[str, Any]:
    """Return an eval set as ADK writes it."""
    return {
        "eval_set_id": id_,
        "name": id_,
        "eval_cases": [case_json(case) for case in cases],
        "creation_timestamp": time.time(),
    }


def case_json(case: EvalCase) -> dict[str, Any]:
    """Return a case as ADK writes it."""
    return case.model_dump(mode="json", exclude_defaults=True, exclude_none=True)


def _read_json(path: Path) -> Any:
    try:
        return json.loads(path.read_text("utf-8"))
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise UsageError(f"{path} is not JSON: {error}") from error


def set_id(name: str) -> str:
    """Return the id of a set after a name; ADK allows letters, digits and underscores."""
    return re.sub(r"[^a-zA-Z0-9_]", "_", name.removesuffix(_EXTENSION).removesuffix(".json")) or "cases"


def _read_case(path: Path, case: EvalCase) -> Case:
    if not case.conversation:
        why = "it has no `conversation`; run a case with a simulated user with `adk eval`"
        raise UsageError(f"{path}: case {case.eval_id!r}: {why}")
    try:
        exchanges = tuple(map(_read_exchange, case.conversation))
        extra: dict[str, Any] = case.model_extra or {}
        start = case.session_input
        return Case(
            path,
            case.eval_id,
            exchanges,
            read_case_checks(extra.get("lango", {}), len(exchanges)),
            state=start.state if start else {},
            user_id=start.user_id if start else "",
            session_id=(start.session_id or "") if start else "",
        )
    except UsageError as error:
        raise UsageError(f"{path}: case {case.eval_id!r}: {error}") from error


def _read_exchange(invocation: Invocation) -> Exchange:
    content = invocation.user_content
    files: list[Attachment] = []
    for part in content.parts or ():
        if part.inline_data and part.inline_data.data is not None:
            name, mime_type = part.inline_data.display_name, part.inline_data.mime_type
            data = part.inline_data.data
            files.append(Attachment(name or "file", mime_type or "application/octet-stream", data))
        elif part.text is None:
            raise UsageError("a user's message may contain only text, and files with their data")
    calls = tool_calls(get_all_tool_calls(invocation.intermediate_data))
    return Exchange(text_of(content), tuple(files), calls, text_of(invocation.final_response))


def tool_calls(calls: "Iterable[FunctionCall]") -> tuple[Call, ...]:
    """Return the calls of tools, without requests to a person."""
    return tuple(Call(call.name or "", call.args or {}) for call in calls if not is_request(call.name))


def text_of(content: "Content | None") -> str:
    """Return the text of a message without the model's thoughts."""
    parts = (content.parts if content else None) or ()
    return "\n".join(part.text for part in parts if part.text and not part.thought)


def is_request(name: str | None) -> bool:
    """Whether a call is not one of a tool, but a request to a person."""
    return (name or "").startswith(REQUEST_PREFIX)
