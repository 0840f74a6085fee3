"""Models that run in this process, without key and network. The engine is imported by the first request."""

from lango.providers.local.known_models import MODELS, QWEN, SMOLLM2, LocalModel, models_dir
from lango.providers.local.local_provider import LocalProvider
from lango.providers.local.weights import pull

__all__ = ["MODELS", "QWEN", "SMOLLM2", "LocalModel", "LocalProvider", "models_dir", "pull"]
