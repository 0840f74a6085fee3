"""Prepare the process of a command: fast imports, standard streams, logging.

This is the only module that edits the internals of libraries (`pydantic`, `sys.modules`): there is no other way to make
them load less.
"""

import logging
import os
import sys
import warnings
from collections.abc import Generator
from contextlib import contextmanager, suppress
from typing import Any, cast


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


def reopen_closed_streams() -> None:
    """Open /dev/null for closed standard streams: otherwise the next file, a database, would become the output."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115, PTH123 - until exit


def quiet_logging() -> None:
    """Log warnings as short lines, and hide ADK's tracebacks: each error is shown as one sentence anyway."""
    logging.basicConfig(level=logging.WARNING, format="lango: %(message)s")
    logging.getLogger("google_adk").setLevel(logging.CRITICAL)
    for stream in (sys.stdout, sys.stderr):
        with suppress(AttributeError):  # characters that the terminal lacks become question marks, not a traceback
            stream.reconfigure(errors="replace")  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]
