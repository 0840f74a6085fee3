"""Find the files of test cases, and what a user may say first: how these cases begin, or what the settings suggest.

What reads and makes test cases is imported when it is used: it takes a while.
"""

from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

from lango.config import Settings
from lango.development.test_cases import Case
from lango.errors import UsageError
from lango.threads import run_in_thread

_FILES = ("*.evalset.json", "*/*.evalset.json")
_MOST = 4
_MAX_CHARACTERS = 200


def case_folder(settings: Settings) -> Path:
    """Return the folder of an agent's test cases: that of its module, or `evals`."""
    if not settings.agent.module:
        return Path("evals")
    place = Path(settings.agent.module)
    return place if place.is_dir() else place.parent


def case_files(settings: Settings) -> list[Path]:
    """Return the files with an agent's test cases."""
    return sorted(file for pattern in _FILES for file in case_folder(settings).glob(pattern))


def read_cases(path: Path) -> list[Case]:
    """Read the cases of a file. Raise `UsageError`."""
    from lango.adk.evaluation import eval_set

    return eval_set.read_cases(path)


def convert_case(case: Mapping[str, Any], *, camel_names: bool) -> dict[str, Any]:
    """Return a case with ADK's names in camel case, as its API has them, or as in files. Raise `UsageError`."""
    from lango.adk.evaluation import eval_set

    return eval_set.convert_case(case, camel_names=camel_names)


async def session_cases() -> Any:
    """Import what turns sessions into test cases, in a thread."""

    def imported() -> Any:
        from lango.adk.evaluation import session_case

        return session_case

    return await run_in_thread(imported)


def suggestions_for(settings: Settings) -> list[str]:
    """Return the suggestions of the settings, or else the first messages of the test cases in the agent's folder.

    It reads files: call it in a thread.
    """
    agent = settings.agent
    if agent.suggestions or not agent.module:
        return agent.suggestions
    return list(islice(dict.fromkeys(_first_messages(case_files(settings))), _MOST))


def _first_messages(files: list[Path]) -> Iterator[str]:
    for file in files:
        try:
            cases = read_cases(file)
        except UsageError:  # `lango eval` says why
            continue
        for case in cases:
            text = case.exchanges[0].text.strip()
            if text and len(text) <= _MAX_CHARACTERS:
                yield text
