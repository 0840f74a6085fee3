"""Tell the page about the agents and their models, and get a better model while the server runs.

The model `local/default` is looked up for each request: once a better local model is downloaded, it answers the next
message. A model of a provider replaces it in the running server, and is gone when the server stops, with its key.
"""

import threading
from functools import cache
from typing import Annotated, Any

from msgspec import Struct
from msgspec.structs import asdict
from pydantic import Field, SecretStr, StringConstraints

from lango import __version__
from lango.errors import LangoError
from lango.providers import label
from lango.providers.local.known_models import QWEN, is_demonstration
from lango.providers.local.weights import pull
from lango.server.context import Context, CurrentUser, ServerContext
from lango.server.errors import ApiError
from lango.server.schemas import RequestBody
from lango.server.security.auth import AuthenticatedRouter, CurrentCaller

router = AuthenticatedRouter("/page", include_in_schema=False)

_DEFAULT_MODEL = "local/default"


class NamedModel(RequestBody):
    """A model, and the key of its provider if it needs one."""

    model: Annotated[str, StringConstraints(strip_whitespace=True, min_length=3, max_length=200)]
    key: Annotated[SecretStr, Field(max_length=1000)] = SecretStr("")


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
            # a daemon: the server stops without waiting, and the next download continues from there
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
async def read_demonstration(user: CurrentUser) -> dict[str, Any]:
    """Say whether the model is for a demonstration only, how far a download is, and what the caller may do."""
    model, weights = user.runtime.model_name, QWEN.weights
    return {
        "demonstration": is_demonstration(model),
        "named_model": user.context.named_model,
        "can_name": user.is_operator and _is_replaceable(user.context),
        "download": asdict(_download()),
        # any other model is named in the configuration, and stays
        "can_download": user.is_operator and model == _DEFAULT_MODEL,
        "size_bytes": weights.size_bytes if weights else 0,
    }


@router.post("/demonstration/download", status_code=202)
async def download_better_model(user: CurrentUser) -> dict[str, Any]:
    """Start the download of the small model that calls tools."""
    user.require_operator("download a model", "all users share the model of the server")
    if user.runtime.model_name != _DEFAULT_MODEL:
        raise _named_elsewhere()
    _download().start()
    return await read_demonstration(user)


@router.post("/demonstration/model")
async def use_named_model(user: CurrentUser, body: NamedModel) -> dict[str, Any]:
    """Answer with the named model from now on, if it answers a test request. Its key stays in the server's memory."""
    user.require_operator("change the model of the server", "all users share the model of the server")
    if not _is_replaceable(user.context):
        raise _named_elsewhere()
    key = body.key.get_secret_value().strip()
    if body.model.startswith("local/"):
        raise ApiError(422, "ModelRefused", "name a model of a provider, such as ollama/qwen3 or openai/gpt-5-mini")
    try:
        await user.runtime.use_model(body.model, key)
    except LangoError as error:
        # a provider may repeat the key that it refuses
        raise ApiError(422, "ModelRefused", str(error).replace(key, "...") if key else str(error)) from error
    user.context.named_model = body.model
    return await read_demonstration(user)


def _is_replaceable(context: ServerContext) -> bool:
    """Whether no configuration names the model: it is the demonstration model, or was named on the page."""
    model = context.runtime.model_name
    return model == context.named_model or (model == _DEFAULT_MODEL and is_demonstration(model))


def _named_elsewhere() -> ApiError:
    return ApiError(409, "Conflict", "the configuration names another model: change agent.model instead")


@router.get("/about")
async def read_about(caller: CurrentCaller, context: Context) -> dict[str, Any]:
    """Return the agents with their models, the version and the limits on attachments."""
    settings = context.settings
    return {
        "agents": [await _describe_agent(one) for one in context.agents.contexts.values()],
        "broken": [{"name": name, "error": error} for name, error in context.agents.broken.items()],
        "version": __version__,
        "is_operator": context.authenticator.is_operator(caller),
        "max_attachment_bytes": settings.server.limits.max_attachment_bytes,
        "max_attachments": settings.server.limits.max_attachments,
    }


async def _describe_agent(context: ServerContext) -> dict[str, Any]:
    """Name an agent and its model, a local model with its description, and what a user may choose."""
    model, allowed = context.runtime.model_name, context.runtime.options
    return {
        "name": context.runtime.app_name,
        "root": context.runtime.root_name,
        "description": context.runtime.description,
        "suggestions": await context.runtime.suggestions(),
        "model": label(model),
        "models": allowed.models,
        "may_set_instruction": allowed.with_instruction,
        "demonstration": is_demonstration(model),
        "named_model": context.named_model,
        "has_tools": context.runtime.may_call_tools,
    }
