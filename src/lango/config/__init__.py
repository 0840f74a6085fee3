"""Settings: `lango.toml`, each key also as an environment variable `LANGO_SECTION__KEY`.

What is given in Python wins over the environment, the environment over the file, the file over the defaults. A key
that nobody knows is an error: a setting that is misspelt should not be silently without effect.
"""

import difflib
import json
import os
import re
import tomllib
from pathlib import Path
from typing import Any, ClassVar, Self, get_args, get_origin

from pydantic import BaseModel, PrivateAttr, ValidationError
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict, SettingsError

from lango.config.sections import (
    AgentSettings,
    HistorySettings,
    McpSettings,
    MemorySettings,
    OidcSettings,
    ProviderTable,
    ServerSettings,
    StoreSettings,
    SubAgentSettings,
    TelemetrySettings,
    ToolSettings,
)
from lango.errors import ConfigError

CONFIG_FILE = "lango.toml"
CONFIG_ENV = "LANGO_CONFIG"
DEFAULT_MODEL = "local/default"

__all__ = [
    "CONFIG_ENV",
    "CONFIG_FILE",
    "DEFAULT_MODEL",
    "AgentSettings",
    "HistorySettings",
    "McpSettings",
    "MemorySettings",
    "OidcSettings",
    "ProviderTable",
    "ServerSettings",
    "Settings",
    "StoreSettings",
    "SubAgentSettings",
    "TelemetrySettings",
    "ToolSettings",
]


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
    providers: dict[str, ProviderTable] = {}
    store: StoreSettings = StoreSettings()
    history: HistorySettings = HistorySettings()
    memory: MemorySettings = MemorySettings()
    tools: ToolSettings = ToolSettings()
    mcp: dict[str, McpSettings] = {}
    server: ServerSettings = ServerSettings()
    telemetry: TelemetrySettings = TelemetrySettings()

    @classmethod
    def load(cls, path: str | Path | None = None) -> Self:
        """Read `path`, or the file that LANGO_CONFIG names, or `lango.toml` here if there is one; then the environment.

        Raises `ConfigError` that names the file, the line and the key.
        """
        named = path or os.environ.get(CONFIG_ENV)
        file = Path(named or CONFIG_FILE)
        if not file.is_file():
            if named:
                raise ConfigError(f"there is no configuration file {file}: create it with `lango init`")
            return cls._checked({}, None)
        try:
            content = tomllib.loads(file.read_text("utf-8"))
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise ConfigError(f"{file} is not valid TOML: {error}") from error
        except OSError as error:
            raise ConfigError(f"{file} cannot be read: {error.strerror}") from error
        return cls._checked(content, file)

    @classmethod
    def _checked(cls, content: dict[str, Any], file: Path | None) -> Self:
        class FromFile(cls):
            _file = content

        try:
            loaded = FromFile()
        except ValidationError as error:
            raise ConfigError("; ".join(_told(cls, problem, file) for problem in error.errors())) from error
        except SettingsError as error:
            raise ConfigError(_unreadable(cls) or str(error)) from error
        made = cls.model_construct(**{name: getattr(loaded, name) for name in cls.model_fields})
        made._source = file  # noqa: SLF001 - its own class's
        return made

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Arguments, then environment, then file."""
        del dotenv_settings, file_secret_settings
        return init_settings, env_settings, _FileSource(settings_cls, cls._file or {})

    @property
    def source(self) -> Path | None:
        """The file that the settings were read from."""
        return self._source

    @property
    def model(self) -> str:
        """The root agent's model."""
        return self.agent.model or DEFAULT_MODEL


class _FileSource(PydanticBaseSettingsSource):
    def __init__(self, settings_cls: type[BaseSettings], content: dict[str, Any]) -> None:
        super().__init__(settings_cls)
        self._content = content

    def get_field_value(self, field: Any, field_name: str) -> tuple[Any, str, bool]:
        return self._content.get(field_name), field_name, False

    def __call__(self) -> dict[str, Any]:
        return self._content


def _told(settings: type[BaseModel], problem: Any, file: Path | None) -> str:
    """Say where a wrong setting stands and what is wrong with it."""
    path = [str(part) for part in problem["loc"] if part != "[key]"]
    key = ".".join(path)
    match problem:
        case {"type": "extra_forbidden"}:
            message = f"is not a setting{_near(settings, path)}"
        case {"type": "value_error", "ctx": {"error": error}}:
            message = str(error)
        case {"type": "string_pattern_mismatch"}:  # of the names of agents
            message = "must be letters, digits and _, and not begin with a digit"
        case _:
            message = problem["msg"][:1].lower() + problem["msg"][1:]
    variable = "LANGO_" + "__".join(part.upper() for part in path)
    if variable in os.environ:
        return f"the environment variable {variable}: {message}"
    line = _line_of(file, path) if file else None
    place = f"{file}, line {line}" if line else str(file or "settings")
    return f"{place}: {key}: {message}"


def _kind_of(settings: type[BaseModel], path: list[str]) -> Any:
    """Return the type of a setting or table; None where there is none of that name."""
    kind: Any = settings
    for part in path:
        if get_origin(kind) is dict:
            kind = get_args(kind)[1]
        else:
            fields = kind.model_fields if isinstance(kind, type) and issubclass(kind, BaseModel) else {}
            kind = fields[part].annotation if part in fields else None
        tables = [one for one in get_args(kind) if isinstance(one, type) and issubclass(one, BaseModel)]
        kind = tables[0] if tables and get_origin(kind) is not dict else kind
    return kind


def _near(settings: type[BaseModel], path: list[str]) -> str:
    """Say which setting was probably meant."""
    table = _kind_of(settings, path[:-1])
    known = list(table.model_fields) if isinstance(table, type) and issubclass(table, BaseModel) else []
    return "".join(f"; did you mean {one}?" for one in difflib.get_close_matches(path[-1], known, 1))


def _unreadable(settings: type[BaseModel]) -> str:
    """Say which variables of the environment hold a list or a table that is not JSON."""
    wrong: list[str] = []
    for name, value in sorted(os.environ.items()):
        if not name.upper().startswith("LANGO_"):
            continue
        kind = _kind_of(settings, name[len("LANGO_") :].lower().split("__"))
        try:
            if get_origin(kind) in (list, dict) or (isinstance(kind, type) and issubclass(kind, BaseModel)):
                json.loads(value)
        except ValueError:
            example = '\'["one", "two"]\'' if get_origin(kind) is list else '\'{"key": "value"}\''
            wrong.append(f"the environment variable {name} is not JSON: write it like {name}={example}")
    return "; ".join(wrong)


def _line_of(file: Path, path: list[str]) -> int | None:
    """Find the line of a key: its table's header, then the key; else the nearest table."""
    table: list[str] = []
    nearest: int | None = None
    for number, line in enumerate(file.read_text("utf-8").splitlines(), 1):
        if header := re.match(r"\s*\[([^\[\]]+)\]", line):
            table = [part.strip().strip("\"'") for part in header[1].split(".")]
            if path[: len(table)] == table:
                nearest = number
        elif assignment := re.match(r"\s*([\w.\"'-]+)\s*=", line):
            keys = [*table, *(part.strip("\"'") for part in assignment[1].split("."))]
            if path[: len(keys)] == keys:
                return number
    return nearest
