"""Find the files of test cases; import what reads and makes them when it is used: it takes a while."""

from pathlib import Path
from typing import Any

from lango.config import Settings
from lango.test_cases import Case
from lango.threads import run_in_thread

_FILES = ("*.evalset.json", "*/*.evalset.json")


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


async def session_cases() -> Any:
    """Import what turns sessions into test cases, in a thread."""

    def imported() -> Any:
        from lango.adk.evaluation import session_case

        return session_case

    return await run_in_thread(imported)
