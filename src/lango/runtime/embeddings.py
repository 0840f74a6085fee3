"""Embed texts with the models that the setting `server.embedding_models` names."""

from collections.abc import Sequence

from lango.config import Settings
from lango.errors import ConfigError
from lango.history import count_tokens, load_tokenizer
from lango.providers.catalog import resolve
from lango.providers.protocol import Closable, EmbeddingProvider, EmbeddingRequest, Embeddings, Provider
from lango.providers.sdk.sdk_client import Timeouts
from lango.threads import run_in_thread


class EmbeddingModels:
    """The embedding models of a server."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self.names: Sequence[str] = tuple(settings.server.embedding_models)
        self._providers: dict[str, tuple[Provider, str]] = {}

    def find(self, model: str) -> str | None:
        """Return the model of a name, which may be without its provider, or None if there is none."""
        found = [name for name in self.names if model in (name, name.partition("/")[2])]
        return found[0] if found else None

    async def embed(
        self, name: str, inputs: Sequence[str] | Sequence[Sequence[int]], dimensions: int | None = None
    ) -> Embeddings:
        """Return the vectors of texts, or of the tokens of each, and how many tokens they have.

        Raise `ConfigError` if the provider has no embeddings, or its key is missing; or `ProviderError`.
        """
        provider, model = self._provider(name)
        if not isinstance(provider, EmbeddingProvider):
            raise ConfigError(
                f"The provider of {name!r} has no embeddings: name a model of OpenAI, of a compatible server or of "
                "Gemini in server.embedding_models"
            )
        made = await provider.embed(EmbeddingRequest(model, inputs, dimensions))
        if made.input_tokens is not None:
            return made
        await load_tokenizer()
        return Embeddings(made.vectors, await run_in_thread(_count_tokens, inputs))

    async def close(self) -> None:
        """Close the connections to the providers."""
        for provider, _ in self._providers.values():
            if isinstance(provider, Closable):
                await provider.aclose()

    def _provider(self, name: str) -> tuple[Provider, str]:
        if name not in self._providers:
            agent = self._settings.agent
            timeouts = Timeouts(idle_s=agent.idle_timeout_s, total_s=agent.request_timeout_s)
            self._providers[name] = resolve(name, self._settings.providers, timeouts=timeouts)
        return self._providers[name]


def _count_tokens(inputs: Sequence[str] | Sequence[Sequence[int]]) -> int:
    return sum(count_tokens(one) if isinstance(one, str) else len(one) for one in inputs)
