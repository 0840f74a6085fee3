"""Imports without what is not used."""

import logging
import os
import sys
import warnings
from collections.abc import Generator
from contextlib import contextmanager, suppress
from typing import Any, cast


@contextmanager
def fast_imports() -> Generator[None]:
    """Import without what no command uses: a tenth of the time until an agent is ready, and of its memory.

    Pydantic models are built when they are first used, and that is few of hundreds; not the models of the user's own
    agent, so that a mistake in one is told at the start. `httpx` comes without its command line, which brings rich.
    """
    from pydantic import BaseModel

    BaseModel.model_config["defer_build"] = True
    # FastAPI ignores it where it builds its own, and now they are built where it does not
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
    """Somebody started us with `<&-` or `>&-`: the next file that is opened, a database, would be the output."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115, PTH123 - until the end


def quiet_logging() -> None:
    """Leave the terminal to the conversation: what fails is told in a sentence, not in ADK's tracebacks."""
    logging.basicConfig(level=logging.WARNING, format="lango: %(message)s")
    logging.getLogger("google_adk").setLevel(logging.CRITICAL)
    for stream in (sys.stdout, sys.stderr):
        with suppress(AttributeError):  # a terminal that knows few characters gets question marks, not a traceback
            stream.reconfigure(errors="replace")  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]
