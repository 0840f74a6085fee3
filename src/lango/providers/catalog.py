"""Resolve `provider/name` to a provider with its credentials, and embed texts with the models of the settings."""

import os
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import Literal

from msgspec import Struct

from lango.config import ProviderSettings, Settings
from lango.errors import ConfigError, MissingCredentials
from lango.history import count_tokens, load_tokenizer
from lango.providers.openai import OpenAIProvider
from lango.providers.protocol import Closable, EmbeddingProvider, EmbeddingRequest, Embeddings, Provider
from lango.providers.sdk.sdk_client import CommonOptions, Timeouts
from lango.threads import run_in_thread


def resolve(
    model: str,
    providers: Mapping[str, ProviderSettings] | None = None,
    *,
    timeouts: Timeouts | None = None,
    environ: Mapping[str, str] | None = None,
) -> tuple[Provider, str]:
    """Return the provider of a model `provider/name`, and the name that the provider uses for it.

    Raises `ConfigError` for an unknown provider and `MissingCredentials` for a key that is not set. Nothing is sent,
    and no SDK is imported.
    """
    configured = providers or {}
    name, slash, model_name = model.partition("/")
    if not slash or not name or not model_name:
        raise ConfigError(
            f"The model {model!r} is not of the form provider/name, such as openai/gpt-5-mini. "
            f"Providers: {_provider_names(configured)}"
        )
    settings = configured.get(name, ProviderSettings())
    built_in = _BUILT_IN_PROVIDERS.get(settings.type or name)
    if built_in is None:
        if name in configured:
            problem = f"an unknown type {settings.type!r}" if settings.type else "no type"
            raise ConfigError(
                f"There is {problem} in [providers.{name}]: use one of {', '.join(sorted(_BUILT_IN_PROVIDERS))}"
            )
        raise ConfigError(f"There is no provider {name!r}. Providers: {_provider_names(configured)}")
    key = _api_key(name, settings, built_in, os.environ if environ is None else environ)
    base_url = settings.base_url or built_in.base_url or None
    chosen = timeouts or Timeouts()
    provider = _make_provider(built_in.vendor, key, name=name, base_url=base_url, settings=settings, timeouts=chosen)
    return provider, model_name


@contextmanager
def using_key(provider: str, key: str) -> Generator[None]:
    """Use a key for a provider in this process, instead of its environment variable; forget it if the body fails.

    It is kept in memory only. Providers that were made before keep the key that they have.
    """
    before = dict(_typed_keys)
    _typed_keys.update({provider: key} if key else {})
    try:
        yield
    except BaseException:
        _typed_keys.clear()
        _typed_keys.update(before)
        raise


_typed_keys: dict[str, str] = {}  # by provider: what users typed since the process started


def label(model: str) -> str:
    """Return the name of a model for users, a local model's with its description."""
    if not model.startswith("local/"):
        return model
    from lango.providers.local.known_models import local_model

    return f"{model}: {local_model(model.removeprefix('local/')).label}"


def _provider_names(configured: Mapping[str, ProviderSettings]) -> str:
    return ", ".join(sorted({*_BUILT_IN_PROVIDERS, *configured}))


def _api_key(
    name: str, settings: ProviderSettings, built_in: "_BuiltInProvider", environ: Mapping[str, str]
) -> str | None:
    if name in _typed_keys:
        return _typed_keys[name]
    variables = (settings.api_key_env,) if settings.api_key_env else built_in.key_variables
    if settings.base_url and not settings.api_key_env:
        return None  # another server than the vendor's: it may need no key, and must not get the vendor's
    for variable in variables:
        if environ.get(variable):
            return environ[variable]
    if not variables:
        return None
    raise MissingCredentials(
        f"The provider {name!r} needs a key: set the environment variable {' or '.join(variables)}, "
        f"or name another one as api_key_env in [providers.{name}]"
    )


def _make_provider(
    vendor: str, key: str | None, *, name: str, base_url: str | None, settings: ProviderSettings, timeouts: Timeouts
) -> Provider:
    common: CommonOptions = {"name": name, "base_url": base_url, "timeouts": timeouts, "options": settings.options}
    match vendor:
        case "local":
            from lango.providers.local import LocalProvider

            return LocalProvider()
        case "gemini":
            from lango.providers.gemini import GeminiProvider

            return GeminiProvider(key, **common)
        case "anthropic":
            from lango.providers.anthropic import AnthropicProvider

            return AnthropicProvider(key, **common)
        case _:
            compatible = bool(base_url) and settings.api != "responses"
            return OpenAIProvider(key, api=settings.api, compatible=compatible, **common)


class _BuiltInProvider(Struct, frozen=True):
    vendor: Literal["anthropic", "gemini", "local", "openai"]
    """Whose API it has."""
    key_variables: tuple[str, ...] = ()
    """Environment variables that may hold the key; if there are none, no key is needed."""
    base_url: str = ""


_BUILT_IN_PROVIDERS = {
    "anthropic": _BuiltInProvider("anthropic", ("ANTHROPIC_API_KEY",)),
    "gemini": _BuiltInProvider("gemini", ("GOOGLE_API_KEY", "GEMINI_API_KEY")),
    "lmstudio": _BuiltInProvider("openai", base_url="http://127.0.0.1:1234/v1"),
    "local": _BuiltInProvider("local"),
    "ollama": _BuiltInProvider("openai", base_url="http://127.0.0.1:11434/v1"),
    "openai": _BuiltInProvider("openai", ("OPENAI_API_KEY",)),
    "openrouter": _BuiltInProvider("openai", ("OPENROUTER_API_KEY",), "https://openrouter.ai/api/v1"),
    "vllm": _BuiltInProvider("openai", base_url="http://127.0.0.1:8000/v1"),
}


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
