"""Prepare the process of a command: fast imports, standard streams, logging.

This is the only module that edits the internals of libraries (`pydantic`, `sys.modules`): there is no other way to make
them load less.
"""

import logging
import os
import sys
import warnings
from collections.abc import Coroutine, Generator
from contextlib import contextmanager, suppress
from typing import Any, TextIO, TypeVar, cast

T = TypeVar("T")


@contextmanager
def fast_imports() -> Generator[None]:
    """Import faster during the body: it saves a tenth of the start and of the memory.

    Of hundreds of pydantic models only few are used: each is built on first use. The user's agent is imported later, so
    that a mistake in its models shows at the start. `httpx` is imported without its command line, which imports rich.
    """
    from pydantic import BaseModel

    BaseModel.model_config["defer_build"] = True
    # FastAPI hides this warning while it builds its models; now they are built later
    warnings.filterwarnings(
        "ignore", r"The 'alias' attribute with value .* was provided to the `Field\(\)`", UserWarning
    )
    modules = cast("dict[str, Any]", sys.modules)
    modules.setdefault("httpx._main", None)
    try:
        yield
    finally:
        del BaseModel.model_config["defer_build"]
        if modules["httpx._main"] is None:
            del modules["httpx._main"]


def run_async(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end; `asyncio` is not imported before: `lango --help` does without."""
    import asyncio

    return asyncio.run(work)


@contextmanager
def stdout_for_answers() -> Generator[TextIO]:
    """Yield the standard output; what agents and tools print goes to standard error, and breaks no pipe."""
    sys.stdout.flush()
    answers = os.fdopen(os.dup(1), "w", encoding=sys.stdout.encoding, errors=sys.stdout.errors)
    os.dup2(2, 1)
    try:
        yield answers
    finally:
        with suppress(OSError):  # a full disk, or a reader that is gone
            sys.stdout.flush()
        os.dup2(answers.fileno(), 1)
        with suppress(OSError):
            answers.close()


def reopen_closed_streams() -> None:
    """Open /dev/null for closed standard streams: otherwise the next file, a database, would become the output."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115, PTH123 - until exit


def quiet_logging() -> None:
    """Log warnings as short lines, and hide tracebacks: each error is shown as one sentence anyway."""
    logging.basicConfig(level=logging.WARNING, format="lango: %(message)s")
    for name in ("google_adk", "lango.failures"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    # ADK warns about each of its classes for credentials, and a user of the command can do nothing about it
    warnings.filterwarnings("ignore", r"\[EXPERIMENTAL\] (Base)?(OAuth2)?(Credential|Discovery)", UserWarning)
    for stream in (sys.stdout, sys.stderr):
        with suppress(AttributeError):  # characters that the terminal lacks become question marks, not a traceback
            stream.reconfigure(errors="replace")  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]
