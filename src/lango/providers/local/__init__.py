"""Language models in this process: no key, no network. The engine is imported when the first request comes."""

from lango.providers.local.known_models import MODELS, QWEN, SMOLLM2, LocalModel, models_dir
from lango.providers.local.local_provider import LocalProvider
from lango.providers.local.weights import pull

__all__ = ["MODELS", "QWEN", "SMOLLM2", "LocalModel", "LocalProvider", "models_dir", "pull"]
