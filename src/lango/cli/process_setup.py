"""Imports without what is not used."""

import sys
import warnings
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any, cast


@contextmanager
def only_what_is_used() -> Generator[None]:
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
