"""Say on the page that the model is for a demonstration only, and download a better one while the server runs.

The model `local/default` is looked up for each request: once the better model is here, the next message is answered by
it, without a restart.
"""

import threading
from functools import cache
from typing import Any

from fastapi import APIRouter
from msgspec import Struct
from msgspec.structs import asdict

from lango.errors import LangoError
from lango.providers.local.known_models import QWEN, is_demonstration
from lango.providers.local.weights import pull
from lango.server.context import Context
from lango.server.errors import ApiError
from lango.server.security.auth import AuthenticatedRoute, CurrentCaller

router = APIRouter(prefix="/page", include_in_schema=False, route_class=AuthenticatedRoute)

_DEFAULT_MODEL = "local/default"


class Download(Struct):
    """The download of a model's weights, in a thread of its own."""

    running: bool = False
    done_bytes: int = 0
    total_bytes: int = 0
    error: str = ""

    def start(self) -> None:
        """Start it, unless it runs."""
        if not self.running:
            self.running, self.error = True, ""
            # a daemon: the server stops without waiting, and the next download goes on where this one was
            threading.Thread(target=self._run, name="lango-model-download", daemon=True).start()

    def _run(self) -> None:
        try:
            pull(QWEN, progress=self._report)
        except LangoError as error:
            self.error = str(error)
        finally:
            self.running = False

    def _report(self, done: int, total: int) -> None:
        self.done_bytes, self.total_bytes = done, total


@cache
def _download() -> Download:
    return Download()


@router.get("/demonstration")
async def read_demonstration(caller: CurrentCaller, context: Context) -> dict[str, Any]:
    """Say whether the model is for a demonstration only, and how far the download of a better one is."""
    model = _model_of(context)
    weights = QWEN.weights
    return {
        "demonstration": bool(model) and is_demonstration(model),
        "download": asdict(_download()),
        # any other model is named in the configuration, and stays
        "can_download": model == _DEFAULT_MODEL and context.authenticator.is_operator(caller),
        "size_bytes": weights.size_bytes if weights else 0,
    }


@router.post("/demonstration/download", status_code=202)
async def download_better_model(caller: CurrentCaller, context: Context) -> dict[str, Any]:
    """Start the download of the small model that calls tools."""
    if not context.authenticator.is_operator(caller):
        raise ApiError(403, "Forbidden", "only the users in the setting server.operators may download a model")
    if _model_of(context) != _DEFAULT_MODEL:
        raise ApiError(409, "Conflict", "the configuration names another model: change agent.model instead")
    _download().start()
    return await read_demonstration(caller, context)


def _model_of(context: Context) -> str:
    """Return the configured model; empty: an agent module brings its own."""
    agent = context.settings.agent
    return "" if agent.module and not agent.model else context.settings.model
