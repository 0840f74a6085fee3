"""Explain an invalid setting with its file, line and likely spelling."""

import difflib
import json
import os
import re
from pathlib import Path
from typing import Any, get_args, get_origin

from pydantic import BaseModel


def problem_message(settings: type[BaseModel], problem: Any, file: Path | None) -> str:
    """Describe an invalid setting with its location."""
    path = [str(part) for part in problem["loc"] if part != "[key]"]
    key = ".".join(path)
    match problem:
        case {"type": "extra_forbidden"}:
            message = f"is not a setting{_suggestion(settings, path)}"
        case {"type": "value_error", "ctx": {"error": error}}:
            message = str(error)
        case {"type": "string_pattern_mismatch"}:  # agents' names
            message = "must be letters, digits and _, and not begin with a digit"
        case _:
            message = problem["msg"][:1].lower() + problem["msg"][1:]
    variable = "LANGO_" + "__".join(part.upper() for part in path)
    if variable in os.environ:
        return f"the environment variable {variable}: {message}"
    line = _find_line(file, path) if file else None
    location = f"{file}, line {line}" if line else str(file or "settings")
    return f"{location}: {key}: {message}"


def _setting_type(settings: type[BaseModel], path: list[str]) -> Any:
    """Return the type of a setting or table, or None if it does not exist."""
    kind: Any = settings
    for part in path:
        if get_origin(kind) is dict:
            kind = get_args(kind)[1]
        else:
            fields = kind.model_fields if isinstance(kind, type) and issubclass(kind, BaseModel) else {}
            kind = fields[part].annotation if part in fields else None
        tables = [
            candidate
            for candidate in get_args(kind)
            if isinstance(candidate, type) and issubclass(candidate, BaseModel)
        ]
        kind = tables[0] if tables and get_origin(kind) is not dict else kind
    return kind


def _suggestion(settings: type[BaseModel], path: list[str]) -> str:
    """Suggest the setting that was probably meant."""
    table = _setting_type(settings, path[:-1])
    known = list(table.model_fields) if isinstance(table, type) and issubclass(table, BaseModel) else []
    return "".join(f"; did you mean {name}?" for name in difflib.get_close_matches(path[-1], known, 1))


def invalid_json_variables(settings: type[BaseModel]) -> str:
    """Describe the environment variables of lists and tables that are not JSON."""
    wrong: list[str] = []
    for name, value in sorted(os.environ.items()):
        if not name.upper().startswith("LANGO_"):
            continue
        kind = _setting_type(settings, name[len("LANGO_") :].lower().split("__"))
        try:
            if get_origin(kind) in (list, dict) or (isinstance(kind, type) and issubclass(kind, BaseModel)):
                json.loads(value)
        except ValueError:
            example = '\'["one", "two"]\'' if get_origin(kind) is list else '\'{"key": "value"}\''
            wrong.append(f"the environment variable {name} is not JSON: write it like {name}={example}")
    return "; ".join(wrong)


def _find_line(file: Path, path: list[str]) -> int | None:
    """Return the line of a key, or of the header of its nearest table."""
    table: list[str] = []
    nearest: int | None = None
    for number, line in enumerate(file.read_text("utf-8").splitlines(), 1):
        if header := re.match(r"\s*\[([^\[\]]+)\]", line):
            table = [part.strip().strip("\"'") for part in header[1].split(".")]
            if path[: len(table)] == table:
                nearest = number
        elif assignment := re.match(r"\s*([\w.\"'-]+)\s*=", line):
            keys = [*table, *(part.strip("\"'") for part in assignment[1].split("."))]
            if path[: len(keys)] == keys:
                return number
    return nearest
