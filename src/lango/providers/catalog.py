"""From a model's name to its provider: `provider/name`, with what the configuration and the environment say."""

import importlib
import os
from collections.abc import Callable, Mapping
from typing import Any

from msgspec import Struct, field
from msgspec.structs import replace

from lango.errors import ConfigError, MissingCredentials
from lango.providers.openai import Api, OpenAIProvider
from lango.providers.protocol import Provider
from lango.providers.sdk.sdk_client import Timeouts


class ProviderSettings(Struct, frozen=True):
    """One provider of the configuration, `[providers.<name>]`. The key itself is never a setting: its variable is."""

    type: str = ""
    """A built-in provider (`gemini`, `openai`, `anthropic`, `ollama`, ...); empty: the one of the same name."""
    api_key_env: str = ""
    base_url: str = ""
    api: Api = "auto"
    """Which of OpenAI's two APIs: `chat`, `responses`, or by the model."""
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Added to every request, in the vendor's own words, such as `{"reasoning_effort": "low"}`."""


_BUILT_IN_PROVIDERS: Mapping[str, tuple[str, tuple[str, ...], str]] = {
    # name: module, variables that hold its key (none: it needs no key), address
    "anthropic": ("anthropic", ("ANTHROPIC_API_KEY",), ""),
    "gemini": ("gemini", ("GOOGLE_API_KEY", "GEMINI_API_KEY"), ""),
    "lmstudio": ("openai", (), "http://127.0.0.1:1234/v1"),
    "local": ("local", (), ""),
    "ollama": ("openai", (), "http://127.0.0.1:11434/v1"),
    "openai": ("openai", ("OPENAI_API_KEY",), ""),
    "openrouter": ("openai", ("OPENROUTER_API_KEY",), "https://openrouter.ai/api/v1"),
    "vllm": ("openai", (), "http://127.0.0.1:8000/v1"),
}


def resolve(
    model: str,
    providers: Mapping[str, ProviderSettings] | None = None,
    *,
    timeouts: Timeouts | None = None,
    environ: Mapping[str, str] | None = None,
) -> tuple[Provider, str]:
    """Return the provider of a model `provider/name`, and the name as that provider knows it.

    Raises `ConfigError` for a provider that is not known and `MissingCredentials` for a key that is not set. Nothing is
    sent, and no SDK is imported.
    """
    configured = providers or {}
    name, slash, model_name = model.partition("/")
    if not slash or not name or not model_name:
        raise ConfigError(
            f"The model {model!r} is not of the form provider/name, such as openai/gpt-5-mini. "
            f"Providers: {_provider_names(configured)}"
        )
    settings = configured.get(name, ProviderSettings())
    settings = replace(settings, type=settings.type or name)
    if settings.type not in _BUILT_IN_PROVIDERS:
        if name in configured:
            problem = f"no type {settings.type!r} of" if configured[name].type else "no type in"
            raise ConfigError(
                f"There is {problem} [providers.{name}]: use one of {', '.join(sorted(_BUILT_IN_PROVIDERS))}"
            )
        raise ConfigError(f"There is no provider {name!r}. Providers: {_provider_names(configured)}")
    key = _api_key(name, settings, os.environ if environ is None else environ)
    make = _FACTORIES[_BUILT_IN_PROVIDERS[settings.type][0]]
    return make(name, key, settings, timeouts or Timeouts()), model_name


def label(model: str) -> str:
    """Say what a model is, for a page or a terminal; a model of this process is labelled as what it is."""
    if not model.startswith("local/"):
        return model
    provider = importlib.import_module("lango.providers.local").LocalProvider()
    return f"{model}: {provider.label(model.removeprefix('local/'))}"


def _provider_names(configured: Mapping[str, ProviderSettings]) -> str:
    return ", ".join(sorted({*_BUILT_IN_PROVIDERS, *configured}))


def _api_key(name: str, settings: ProviderSettings, environ: Mapping[str, str]) -> str | None:
    variables = (settings.api_key_env,) if settings.api_key_env else _BUILT_IN_PROVIDERS[settings.type][1]
    if settings.base_url and not settings.api_key_env:
        # Somebody else's server: it may need no key, and the vendor's must not be sent to it.
        return None
    for variable in variables:
        if environ.get(variable):
            return environ[variable]
    if not variables:
        return None
    raise MissingCredentials(
        f"The provider {name!r} needs a key: set the environment variable {' or '.join(variables)}, "
        f"or name another one as api_key_env in [providers.{name}]"
    )


def _make_openai(name: str, key: str | None, settings: ProviderSettings, timeouts: Timeouts) -> Provider:
    base_url = settings.base_url or _BUILT_IN_PROVIDERS[settings.type][2]
    return OpenAIProvider(
        key,
        name=name,
        base_url=base_url or None,
        api=settings.api,
        compatible=bool(base_url) and settings.api != "responses",
        timeouts=timeouts,
        options=settings.options,
    )


def _make_gemini(name: str, key: str | None, settings: ProviderSettings, timeouts: Timeouts) -> Provider:
    from lango.providers.gemini import GeminiProvider

    base_url = settings.base_url or None
    return GeminiProvider(key or "none", name=name, base_url=base_url, timeouts=timeouts, options=settings.options)


def _make_anthropic(name: str, key: str | None, settings: ProviderSettings, timeouts: Timeouts) -> Provider:
    from lango.providers.anthropic import AnthropicProvider

    base_url = settings.base_url or None
    return AnthropicProvider(key or "none", name=name, base_url=base_url, timeouts=timeouts, options=settings.options)


def _make_local(name: str, key: str | None, settings: ProviderSettings, timeouts: Timeouts) -> Provider:
    return importlib.import_module("lango.providers.local").LocalProvider()


_FACTORIES: Mapping[str, Callable[[str, str | None, ProviderSettings, Timeouts], Provider]] = {
    "anthropic": _make_anthropic,
    "gemini": _make_gemini,
    "local": _make_local,
    "openai": _make_openai,
}
