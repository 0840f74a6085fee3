"""From `provider/name` to a provider: names, credentials, and nothing imported or sent before it is needed."""

import subprocess
import sys
from typing import Any

import pytest

from lango.config import ProviderSettings
from lango.errors import ConfigError, MissingCredentials, MissingDependency, UsageError
from lango.messages import Message
from lango.providers import Request, resolve
from lango.providers.anthropic import AnthropicProvider
from lango.providers.gemini import GeminiProvider
from lango.providers.openai import OpenAIProvider
from lango.providers.sdk import sdk_client

CANARY = "sk-canary-0123456789"
KEYS = {
    "GOOGLE_API_KEY": CANARY,
    "OPENAI_API_KEY": CANARY,
    "ANTHROPIC_API_KEY": CANARY,
    "OPENROUTER_API_KEY": CANARY,
}


@pytest.mark.parametrize(
    ("model", "kind", "name", "model_name"),
    [
        ("gemini/gemini-3.5-flash", GeminiProvider, "gemini", "gemini-3.5-flash"),
        ("openai/gpt-5.2", OpenAIProvider, "openai", "gpt-5.2"),
        ("anthropic/claude-opus-4-6", AnthropicProvider, "anthropic", "claude-opus-4-6"),
        ("ollama/qwen3:8b", OpenAIProvider, "ollama", "qwen3:8b"),
        ("vllm/meta/llama", OpenAIProvider, "vllm", "meta/llama"),
        ("lmstudio/x", OpenAIProvider, "lmstudio", "x"),
        ("openrouter/anthropic/claude-opus-4.6", OpenAIProvider, "openrouter", "anthropic/claude-opus-4.6"),
    ],
)
def test_m9_a_model_is_a_provider_and_a_name(model: str, kind: type, name: str, model_name: str) -> None:
    provider, found = resolve(model, environ=KEYS)
    assert isinstance(provider, kind)
    assert (provider.name, found) == (name, model_name)


@pytest.mark.parametrize(
    ("model", "variable"),
    [
        ("gemini/x", "GOOGLE_API_KEY or GEMINI_API_KEY"),
        ("openai/x", "OPENAI_API_KEY"),
        ("anthropic/x", "ANTHROPIC_API_KEY"),
        ("openrouter/x", "OPENROUTER_API_KEY"),
    ],
)
def test_a2_a_missing_key_names_the_variable_and_the_setting(model: str, variable: str) -> None:
    name = model.partition("/")[0]
    with pytest.raises(MissingCredentials) as caught:
        resolve(model, environ={variable.split()[-1]: ""})
    assert variable in str(caught.value)
    assert f"api_key_env in [providers.{name}]" in str(caught.value)
    assert isinstance(caught.value, UsageError)


def test_a2_either_of_googles_variables_is_used() -> None:
    assert resolve("gemini/x", environ={"GEMINI_API_KEY": "k"})[0].name == "gemini"


def test_a2_the_configured_variable_is_used() -> None:
    settings = {"openai": ProviderSettings(api_key_env="WORK_KEY")}
    with pytest.raises(MissingCredentials, match="WORK_KEY"):
        resolve("openai/gpt-4o", settings, environ=KEYS)
    assert resolve("openai/gpt-4o", settings, environ={"WORK_KEY": "k"})[0].name == "openai"


def test_a_configured_provider_is_resolved() -> None:
    settings = {
        "work": ProviderSettings(type="anthropic", api_key_env="WORK_KEY"),
        "box": ProviderSettings(type="vllm", base_url="http://b"),
    }
    provider, name = resolve("work/claude-opus-4-6", settings, environ={"WORK_KEY": "k"})
    assert isinstance(provider, AnthropicProvider)
    assert (provider.name, name) == ("work", "claude-opus-4-6")
    assert resolve("box/llama", settings, environ={})[0].name == "box"


def test_local_models_need_no_key() -> None:
    provider, name = resolve("local/smollm2", environ={})
    assert (provider.name, name) == ("local", "smollm2")


def test_a_vendors_key_is_not_sent_to_another_server() -> None:
    provider: Any = resolve("openai/x", {"openai": ProviderSettings(base_url="http://box")}, environ=KEYS)[0]
    assert provider._api_key == ""


@pytest.mark.parametrize("model", ["gpt-4o", "/x", "openai/", ""])
def test_a_model_without_a_provider_is_refused(model: str) -> None:
    with pytest.raises(ConfigError, match=r"provider/name.*anthropic, gemini"):
        resolve(model, environ=KEYS)


def test_an_unknown_provider_lists_the_known_ones() -> None:
    with pytest.raises(ConfigError, match=r"no provider 'acme'.*anthropic.*mine.*openai"):
        resolve("acme/x", {"mine": ProviderSettings(type="openai")}, environ=KEYS)
    with pytest.raises(ConfigError, match=r"an unknown type 'acme' in \[providers.mine\]"):
        resolve("mine/x", {"mine": ProviderSettings(type="acme")}, environ=KEYS)


@pytest.mark.parametrize("model", ["gemini/x", "openai/x", "anthropic/x", "openrouter/x"])
def test_a_key_is_not_shown(model: str) -> None:
    provider, _ = resolve(model, environ=KEYS)
    assert CANARY not in f"{provider!r} {provider}"


def test_no_sdk_is_imported_before_a_request_is_made() -> None:
    script = (
        "import os, sys\n"
        f"os.environ.update({KEYS!r})\n"
        "from lango.providers import resolve\n"
        "import lango.testing\n"
        "[resolve(f'{name}/x') for name in ('gemini', 'openai', 'anthropic', 'ollama')]\n"
        "print({'openai', 'anthropic', 'google.genai', 'httpx', 'google.adk'} & set(sys.modules))\n"
    )
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "set()"


@pytest.mark.parametrize(
    ("model", "install"),
    [("openai/gpt-4o", "lango-adk[openai]"), ("anthropic/x", "lango-adk[anthropic]"), ("gemini/x", "google-genai")],
)
async def test_a_missing_sdk_is_reported_with_its_install_command(
    monkeypatch: pytest.MonkeyPatch, model: str, install: str
) -> None:
    def gone(name: str) -> None:
        raise ModuleNotFoundError(f"No module named {name!r}")

    monkeypatch.setattr(sdk_client.importlib, "import_module", gone)
    provider, name = resolve(model, environ=KEYS)
    with pytest.raises(MissingDependency) as caught:
        await anext(provider.stream(Request(name, (Message("user", "hi"),))))
    assert f'pip install "{install}"' in str(caught.value)
