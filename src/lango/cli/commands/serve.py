"""`lango serve`: the agent over HTTP."""

import asyncio
import gc
from typing import Annotated, Any

import typer

from lango.cli.options import Config, StoreUrl, settings
from lango.cli.process_setup import only_what_is_used

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
    from lango.server.startup import opened

    place = asyncio.run(opened(chosen))
    from lango.server.startup import configure

    with only_what_is_used():
        from lango.server.serve import serve as run

    configure(chosen.server.log_format)
    asyncio.run(run(chosen, place, _say_where))


def _say_where(address: str) -> None:
    print(f"listening on {address}", flush=True)
