"""Models that run in this process, without key and network. The engine is imported by the first request."""

from lango.providers.local.known_models import QWEN, SMOLLM2
from lango.providers.local.local_provider import LocalProvider
from lango.providers.local.weights import pull

__all__ = ["QWEN", "SMOLLM2", "LocalProvider", "pull"]
