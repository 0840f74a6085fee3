"""Import what reads and makes test cases in ADK's eval-set format, when it is used: it takes a while."""

from pathlib import Path
from typing import Any

from lango.test_cases import Case
from lango.threads import run_in_thread


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
