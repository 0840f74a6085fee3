"""Load settings from arguments, environment and `lango.toml`."""

import os
import tomllib
from pathlib import Path
from typing import Annotated, Any, ClassVar, Self

from pydantic import Field, PrivateAttr, ValidationError
from pydantic_settings import (
    BaseSettings,
    InitSettingsSource,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    SettingsError,
)

from lango.config.sections import (
    DEFAULT_APP_NAME,
    AgentSettings,
    CredentialSettings,
    HistorySettings,
    McpSettings,
    MemorySettings,
    ProviderSettings,
    StoreSettings,
    TelemetrySettings,
    ToolSettings,
    TraceSettings,
)
from lango.config.server_sections import ServerSettings
from lango.config.setting_errors import invalid_json_variables, problem_message
from lango.config.webhook_sections import TriggerSettings, WebhookSettings
from lango.errors import ConfigError

CONFIG_FILE = "lango.toml"
CONFIG_ENV = "LANGO_CONFIG"
DEFAULT_MODEL = "local/default"
_NAME = r"^[A-Za-z0-9][A-Za-z0-9_-]{0,63}$"
"""Of triggers and webhooks: it is part of an address."""


class Settings(BaseSettings):
    """All settings. `Settings()` reads the environment; `Settings.load()` reads the file too."""

    model_config = SettingsConfigDict(
        env_prefix="LANGO_",
        env_nested_delimiter="__",
        extra="forbid",
        frozen=True,
        nested_model_default_partial_update=True,
    )
    _file: ClassVar[dict[str, Any] | None] = None
    _source: Path | None = PrivateAttr(default=None)

    agent: AgentSettings = AgentSettings()
    providers: dict[str, ProviderSettings] = {}
    store: StoreSettings = StoreSettings()
    history: HistorySettings = HistorySettings()
    memory: MemorySettings = MemorySettings()
    tools: ToolSettings = ToolSettings()
    credentials: CredentialSettings = CredentialSettings()
    mcp: dict[str, McpSettings] = {}
    server: ServerSettings = ServerSettings()
    telemetry: TelemetrySettings = TelemetrySettings()
    trace: TraceSettings = TraceSettings()
    triggers: dict[Annotated[str, Field(pattern=_NAME)], TriggerSettings] = {}
    webhooks: dict[Annotated[str, Field(pattern=_NAME)], WebhookSettings] = {}

    @classmethod
    def load(cls, path: str | Path | None = None) -> Self:
        """Load `path`, or the file of LANGO_CONFIG, or `./lango.toml` if it exists; then the environment.

        Raises `ConfigError` that names the file, the line and the key.
        """
        explicit_path = path or os.environ.get(CONFIG_ENV)
        file = Path(explicit_path or CONFIG_FILE)
        if not file.is_file():
            if explicit_path:
                raise ConfigError(f"there is no configuration file {file}: create it with `lango init`")
            return cls._validate({}, None)
        try:
            content = tomllib.loads(file.read_text("utf-8"))
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise ConfigError(f"{file} is not valid TOML: {error}") from error
        except OSError as error:
            raise ConfigError(f"{file} cannot be read: {error.strerror}") from error
        return cls._validate(content, file)

    @classmethod
    def _validate(cls, content: dict[str, Any], file: Path | None) -> Self:
        class FromFile(cls):
            _file = content

        try:
            loaded = FromFile()
        except ValidationError as error:
            raise ConfigError("; ".join(problem_message(cls, problem, file) for problem in error.errors())) from error
        except SettingsError as error:
            raise ConfigError(invalid_json_variables(cls) or str(error)) from error
        settings = cls.model_construct(**{name: getattr(loaded, name) for name in cls.model_fields})
        settings._source = file  # noqa: SLF001 - of this class
        return settings

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Return the sources by precedence: arguments, environment, file."""
        del dotenv_settings, file_secret_settings
        return init_settings, env_settings, InitSettingsSource(settings_cls, cls._file or {})

    @property
    def source(self) -> Path | None:
        """The file of the settings."""
        return self._source

    @property
    def callback_url(self) -> str:
        """Where users are sent back to after allowing an access to an account of theirs."""
        return self.credentials.callback_url or f"http://127.0.0.1:{self.server.port}/v1/oauth/callback"

    @property
    def app_name(self) -> str:
        """The name of the app, unless a user's own agent gives it its name."""
        return self.agent.name or DEFAULT_APP_NAME

    def with_agent(self, module: str, name: str | None = None) -> Self:
        """Return the settings for an agent in a file or folder; with `name`, sessions belong to an app of that name."""
        update = {"module": module} | ({"name": name} if name else {})
        return self.model_copy(update={"agent": self.agent.model_copy(update=update)})

    def with_store(self, url: str | None) -> Self:
        """Return the settings for the store at a URL; without one, these."""
        return self if url is None else self.model_copy(update={"store": self.store.model_copy(update={"url": url})})

    @property
    def model(self) -> str:
        """The root agent's model."""
        return self.agent.model or DEFAULT_MODEL

    @property
    def named_models(self) -> list[str]:
        """The models that the settings name: of the agents, the fallback and the memory."""
        agent = self.agent
        named = [agent.model if agent.module else self.model, agent.fallback_model]
        named += [self.memory.model if self.memory.enabled else None, *(sub.model for sub in agent.sub_agents.values())]
        return list(dict.fromkeys(name for name in named if name))
