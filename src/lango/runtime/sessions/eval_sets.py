"""Read test cases, and turn sessions into test cases, in ADK's eval-set format."""

from pathlib import Path
from typing import Any

from lango.sessions import SessionId
from lango.store import Store
from lango.test_cases import Case, Exchange
from lango.threads import run_in_thread


def read_cases(path: Path) -> list[Case]:
    """Read the cases of a file. Raise `UsageError`."""
    from lango.adk.evaluation import eval_set

    return eval_set.read_cases(path)


async def session_exchanges(store: Store, name: SessionId) -> list[Exchange]:
    """Return what was said and called in a session, message by message."""
    return await (await run_in_thread(_session_case)).session_exchanges(store, name)


async def session_eval_set(store: Store, name: SessionId) -> dict[str, Any]:
    """Return an eval set with a session as its only case."""
    return await (await run_in_thread(_session_case)).session_eval_set(store, name)


async def save_case(store: Store, name: SessionId, case_id: str, path: Path) -> int:
    """Add a session as a case to a file; return how many cases the file has."""
    from lango.adk.evaluation.eval_set import add_case

    return add_case(path, await (await run_in_thread(_session_case)).session_case(store, name, case_id))


def _session_case() -> Any:
    """Import ADK's models of test cases, which takes a while and is rarely needed."""
    from lango.adk.evaluation import session_case

    return session_case
