"""Run `lango serve`."""

import asyncio
import gc
from typing import Annotated, Any

import typer

from lango.cli.options import Config, StoreUrl, load_settings
from lango.cli.process_setup import fast_imports

Host = Annotated[str | None, typer.Option("--host", help="The address to listen on, instead of server.host.")]
Port = Annotated[
    int | None, typer.Option("--port", min=0, max=65_535, help="The port, instead of server.port; 0: any that is free.")
]
AdkUi = Annotated[bool, typer.Option("--adk-ui", help="Serve ADK's own dev UI at /dev-ui/, too.")]


def serve(
    host: Host = None, port: Port = None, config: Config = None, store: StoreUrl = None, adk_ui: AdkUi = False
) -> None:
    """Serve the agent over HTTP until Ctrl-C. Without keys, on this machine only."""
    gc.disable()  # imported objects are never garbage; the server enables it again
    settings = load_settings(config)
    update: dict[str, Any] = {}
    given: dict[str, Any] = {name: value for name, value in {"host": host, "port": port}.items() if value is not None}
    if adk_ui:
        given["adk_ui"] = True
    if given:
        update["server"] = settings.server.model_copy(update=given)
    if store:
        update["store"] = settings.store.model_copy(update={"url": store})
    settings = settings.model_copy(update=update)
    from lango.server.startup import open_listener

    listening_socket = asyncio.run(open_listener(settings))
    from lango.server.startup import configure_logging

    with fast_imports():
        from lango.server.serve import serve as run

    configure_logging(settings.server.log_format)
    asyncio.run(run(settings, listening_socket, _print_address))


def _print_address(address: str) -> None:
    print(f"listening on {address}", flush=True)
