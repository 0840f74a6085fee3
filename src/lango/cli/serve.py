"""`lango serve`: the agent over HTTP."""

import asyncio
import gc
import sys
import warnings
from collections.abc import Generator
from contextlib import contextmanager
from typing import Annotated, Any, cast

import typer

from lango.cli.options import Config, StoreUrl, settings

Host = Annotated[str | None, typer.Option("--host", help="The address to listen on, instead of server.host.")]
Port = Annotated[
    int | None, typer.Option("--port", min=0, max=65_535, help="The port, instead of server.port; 0: any that is free.")
]
AdkUi = Annotated[bool, typer.Option("--adk-ui", help="Serve ADK's own dev UI at /dev-ui/, too.")]


def serve(
    host: Host = None, port: Port = None, config: Config = None, store: StoreUrl = None, adk_ui: AdkUi = False
) -> None:
    """Serve the agent over HTTP until Ctrl-C. Without keys, to this machine only."""
    gc.disable()  # nothing of what is imported now is ever garbage; the server turns it on again
    chosen = settings(config)
    update: dict[str, Any] = {}
    given: dict[str, Any] = {name: value for name, value in {"host": host, "port": port}.items() if value is not None}
    if adk_ui:
        given["adk_ui"] = True
    if given:
        update["server"] = chosen.server.model_copy(update=given)
    if store:
        update["store"] = chosen.store.model_copy(update={"url": store})
    chosen = chosen.model_copy(update=update)
    from lango.server.opening import opened

    place = asyncio.run(opened(chosen))
    from lango.server.logs import configure

    with _only_what_is_used():
        from lango.server.serve import serve as run

    configure(chosen.server.log_format)
    asyncio.run(run(chosen, place, _say_where))


@contextmanager
def _only_what_is_used() -> Generator[None]:
    """Import without what a server does not use: a tenth of the time until it is ready, and of its memory.

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


def _say_where(address: str) -> None:
    print(f"listening on {address}", flush=True)
