"""The test cases of an agent, as its developer edits them: files in ADK's eval-set format in one folder."""

import json
import re
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

from lango.config import Settings
from lango.development.test_cases import Case, readable_id
from lango.errors import UsageError
from lango.runtime.sessions.eval_sets import case_files, case_folder, read_cases

_EXTENSION = ".evalset.json"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,59}")
_CASES = "eval_cases"


class CaseFolder:
    """Files with cases. Methods read and write files: call them in a thread."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self.folder = case_folder(settings)

    def files(self) -> dict[str, Path]:
        """Return the files by the names of their sets."""
        found = case_files(self._settings)
        return {str(file.relative_to(self.folder)).removesuffix(_EXTENSION): file for file in found}

    def cases(self, name: str, wanted: Sequence[str] = ()) -> list[Case]:
        """Return the cases of a set, or those with the wanted ids. Raise `UsageError`."""
        return [case for case in read_cases(self._file(name)) if not wanted or case.id in wanted]

    def every_case(self) -> list[Case]:
        """Return the cases of all sets that can be read."""
        found: list[Case] = []
        for file in self.files().values():
            with suppress(UsageError):  # the page says why beside the set
                found += read_cases(file)
        return found

    def case(self, name: str, case_id: str) -> dict[str, Any]:
        """Return a case as its file has it. Raise `UsageError`."""
        document = _read(self._file(name))
        return document[_CASES][_position(document, case_id)]

    def create(self, name: str) -> dict[str, Any]:
        """Create a set without cases; return its content. Raise `UsageError` if it exists."""
        if name in self.files():
            raise UsageError(f"there is a set of cases {name!r} already")
        file, document = self._new(name)
        _write(file, document)
        return document

    def _new(self, name: str) -> tuple[Path, dict[str, Any]]:
        if not _NAME.fullmatch(name):
            raise UsageError("the name of a set has letters, digits, - and _, at most 60")
        content: dict[str, Any] = {
            "eval_set_id": name.replace("-", "_"),
            "name": name,
            _CASES: [],
            "creation_timestamp": time.time(),
        }
        return self.folder / f"{name}{_EXTENSION}", content

    def add(self, name: str, case: Mapping[str, Any], wanted_id: str) -> str:
        """Add a case to a set, which may be new, under the wanted id or a similar one; return its id."""
        found = self.files().get(name)
        file, document = self._new(name) if found is None else (found, _read(found))
        taken = [one.get("eval_id", "") for one in document[_CASES]]
        id_ = wanted_id if wanted_id not in taken else readable_id(wanted_id, taken)
        document[_CASES].append({**case, "eval_id": id_})
        _write(file, document)
        return id_

    def replace(self, name: str, case_id: str, case: Mapping[str, Any]) -> None:
        """Replace a case, also its id, if `lango eval` can read the new one. Raise `UsageError`."""
        file = self._file(name)
        document = _read(file)
        at = _position(document, case_id)
        new_id = case.get("eval_id")
        if not isinstance(new_id, str) or not new_id.strip():
            raise UsageError("the case needs a name: a text in `eval_id`")
        if new_id != case_id and any(one.get("eval_id") == new_id for one in document[_CASES]):
            raise UsageError(f"the set already has a case {new_id!r}")
        document[_CASES][at] = dict(case)
        _check(file, {**document, _CASES: [dict(case)]})
        _write(file, document)

    def delete(self, name: str, case_id: str) -> None:
        """Delete a case. Raise `UsageError`."""
        file = self._file(name)
        document = _read(file)
        del document[_CASES][_position(document, case_id)]
        _write(file, document)

    def _file(self, name: str) -> Path:
        file = self.files().get(name)
        if file is None:
            raise UsageError(f"there is no set of cases {name!r} in {self.folder}")
        return file


def _read(file: Path) -> dict[str, Any]:
    try:
        document: Any = json.loads(file.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise UsageError(f"{file} cannot be read: {error}") from error
    if not isinstance(document, dict) or not isinstance(cast("dict[str, Any]", document).get(_CASES), list):
        raise UsageError(f"{file} is in ADK's older format, which is only read: save its cases to another set")
    return cast("dict[str, Any]", document)


def _position(document: Mapping[str, Any], case_id: str) -> int:
    for at, case in enumerate(document[_CASES]):
        if case.get("eval_id") == case_id:
            return at
    raise UsageError(f"there is no case {case_id!r} in this set")


def _check(file: Path, document: Mapping[str, Any]) -> None:
    """Raise `UsageError` if a file with this content could not be read."""
    trial = file.with_name(f".{file.name}.new")
    try:
        _write(trial, document)
        read_cases(trial)
    except UsageError as error:
        raise UsageError(str(error).replace(f"{trial}: ", "").replace(str(trial), "the case")) from error
    finally:
        trial.unlink(missing_ok=True)


def _write(file: Path, document: Mapping[str, Any]) -> None:
    """Write a file as a whole: a reader sees the old content or the new one."""
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        new = file.with_name(f".{file.name}.part")
        new.write_text(json.dumps(document, indent=2, ensure_ascii=False) + "\n", "utf-8")
        new.replace(file)
    except OSError as error:
        raise UsageError(f"{file} cannot be written: {error.strerror}") from error
