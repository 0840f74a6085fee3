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
from typing import Annotated, Any, ClassVar, Literal, Self, get_args, get_origin

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict, SettingsError

from lango.errors import ConfigError

CONFIG_FILE = "lango.toml"
CONFIG_ENV = "LANGO_CONFIG"
DEFAULT_MODEL = "local/default"

Identifier = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]  # ADK's rule for the names of agents
Seconds = Annotated[float, Field(gt=0)]


class Section(BaseModel):
    """A table of the file: every key known, every value frozen."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class SubAgentSettings(Section):
    """`[agent.sub_agents.<name>]`: an agent that the root agent can hand over to."""

    description: str = ""
    instruction: str = ""
    model: str | None = None
    tools: list[str] | None = None


class AgentSettings(Section):
    """`[agent]`: who answers, with which model."""

    name: Identifier = "lango"
    model: str | None = None
    fallback_model: str | None = None
    instruction: str = "You are a helpful assistant."
    max_turns: Annotated[int, Field(gt=0)] = 50
    """Calls of the model in one turn."""
    tool_timeout_s: Seconds = 120.0
    request_timeout_s: Seconds = 600.0
    idle_timeout_s: Seconds = 120.0
    when_busy: Literal["wait", "refuse", "interrupt"] = "wait"
    """What a message does that comes while its session is busy."""
    module: str | None = None
    """A file with ADK's own `root_agent` or `app`, instead of the settings above."""
    sub_agents: dict[Identifier, SubAgentSettings] = {}


class ProviderTable(Section):
    """`[providers.<name>]`: where a model's API is, and which variable holds its key."""

    type: str = ""
    """The built-in provider that it is of; empty: the one of the same name."""
    api_key_env: str = ""
    base_url: str = ""
    api: Literal["auto", "chat", "responses"] = "auto"
    """Which of OpenAI's two APIs."""
    options: dict[str, Any] = {}
    """Added to every request, in the vendor's own words."""


class StoreSettings(Section):
    """`[store]`: where conversations are kept."""

    url: str = "sqlite:///lango.db"


class HistorySettings(Section):
    """`[history]`: how much of a conversation a model is sent."""

    max_message_token_budget: Annotated[int, Field(ge=0)] = 0
    """0: the default, 32,000."""
    max_messages: Annotated[int, Field(gt=0)] = 100
    """Holds while memory is off."""
    max_turns: Annotated[int, Field(gt=0)] | None = None


class MemorySettings(Section):
    """`[memory]`: observational memory."""

    enabled: bool = False
    observe_at_tokens: Annotated[int, Field(ge=0)] = 0
    """0: 30,000, or 30 % of the budget where that is less."""
    reflect_at_tokens: Annotated[int, Field(ge=0)] = 0
    """0: 40,000, or 40 % of the budget where that is less."""
    keep_turns: Annotated[int, Field(ge=0)] = 2
    """Turns before the last observed message that are sent all the same."""
    model: str | None = None
    """The model that observes and reflects; without one, the agent's."""
    user_facts: bool = False
    """Learn facts about a user that hold across sessions."""
    close_wait_s: Annotated[float, Field(ge=0)] = 10.0
    """How long an observer may go on when the runtime is closed."""


class ToolSettings(Section):
    """`[tools]`: which built-in tools there are, and which ask first."""

    enabled: list[str] = []
    approval: Literal["ask", "auto", "deny"] = "ask"
    """For tools that write or reach further; safe ones run. `deny`: nobody is there to ask."""
    allow: list[str] = []
    """Names of tools that run without a question."""
    deny: list[str] = []
    """Names of tools that never run; wins over `allow`."""
    approval_expires_s: Annotated[float, Field(ge=0)] = 86_400.0
    """A question that nobody answers for so long is a no; 0: it waits as long as it takes."""
    workspace: str = "."
    sandbox: Literal["bubblewrap", "none"] = "bubblewrap"
    """Where the shell runs. `none`: with all rights of this user; otherwise, without a sandbox it does not run."""


class McpSettings(Section):
    """`[mcp.<name>]`: a server of tools, started as a command or reached by a URL."""

    command: str = ""
    args: list[str] = []
    env: dict[str, str] = {}
    url: str = ""
    tools: list[str] | None = None


Algorithm = Literal[
    "RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"
]  # those with a public key only: what verifies a token must not be able to make one


class OidcSettings(Section):
    """`[server.oidc]`: whose tokens are taken, where `server.auth` is `oidc`."""

    issuer: Annotated[str, Field(min_length=1)]
    """Its address, as its tokens say it in `iss`."""
    audience: Annotated[list[str], Field(min_length=1)]
    """Who a token must be for: one of these is in its `aud`."""
    user_claim: Annotated[str, Field(min_length=1)] = "sub"
    """What of a token says who comes."""
    user_prefix: str = "oidc:"
    """Goes before it in the name of the user, so that nobody is taken for the user of a key."""
    jwks_url: str = ""
    """Where the issuer's keys are; empty: where the issuer says."""
    algorithms: Annotated[list[Algorithm], Field(min_length=1)] = ["RS256", "PS256", "ES256", "EdDSA"]
    leeway_s: Annotated[float, Field(ge=0, le=300)] = 30.0
    """How far the clocks of the issuer and of this machine may be apart."""


class ServerSettings(Section):
    """`[server]`: where the server listens, and for whom."""

    host: str = "127.0.0.1"
    port: Annotated[int, Field(ge=0, le=65_535)] = 8787
    auth: Literal["none", "keys", "oidc"] = "none"
    """`none`: one user, and this machine only. `oidc`: tokens of `[server.oidc]`, and keys beside them."""
    oidc: OidcSettings | None = None
    allowed_origins: list[str] = []
    """Web pages of other origins that may call."""
    allowed_hosts: list[str] = []
    """Names that the server is reached by, beside those of this machine."""
    shutdown_s: Annotated[float, Field(ge=0)] = 20.0
    """How long running turns may go on once the server is told to stop."""
    heartbeat_s: Seconds = 15.0
    """A silent stream says this often that it is still there."""
    write_timeout_s: Seconds = 30.0
    """A client that takes nothing for this long is cut off; it can come back."""
    max_body_bytes: Annotated[int, Field(gt=0)] = 1_000_000
    """Of a request, beside the files of a message."""
    max_attachment_bytes: Annotated[int, Field(ge=0)] = 10_000_000
    """What the files of one message may have together; 0: none are taken."""
    max_attachments: Annotated[int, Field(ge=0)] = 10
    max_import_bytes: Annotated[int, Field(gt=0)] = 100_000_000
    """The largest export of a session that may be imported."""
    log_format: Literal["text", "json"] = "text"
    adk_ui: bool = False
    """Whether ADK's own dev UI is at `/dev-ui/`, on this machine."""

    @model_validator(mode="after")
    def _has_issuer(self) -> Self:
        if self.auth == "oidc" and self.oidc is None:
            raise ValueError('server.auth = "oidc" needs [server.oidc] with issuer and audience')
        if self.auth != "oidc" and self.oidc is not None:
            raise ValueError('[server.oidc] has an effect only with server.auth = "oidc"')
        return self


class TelemetrySettings(Section):
    """`[telemetry]`: where traces go; without an endpoint, here or in OpenTelemetry's variables, nowhere."""

    otlp_endpoint: str = ""
    """An OTLP collector by HTTP, such as `http://127.0.0.1:4318`; empty: as OTEL_EXPORTER_OTLP_ENDPOINT says."""
    service_name: str = "lango"
    """Unless OTEL_SERVICE_NAME says another."""
    capture_content: bool = False
    """Whether traces hold what people, models and tools said."""


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
            raise ConfigError("; ".join(_told(problem, file) for problem in error.errors())) from error
        except SettingsError as error:
            raise ConfigError(_unreadable() or str(error)) from error
        return cls.model_construct(**{name: getattr(loaded, name) for name in cls.model_fields})

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


def _told(problem: Any, file: Path | None) -> str:
    """Say where a wrong setting stands and what is wrong with it."""
    path = [str(part) for part in problem["loc"]]
    key = ".".join(path)
    match problem:
        case {"type": "extra_forbidden"}:
            message = f"is not a setting{_near(path)}"
        case {"type": "value_error", "ctx": {"error": error}}:
            message = str(error)
        case _:
            message = problem["msg"].lower()
    variable = "LANGO_" + "__".join(part.upper() for part in path)
    if variable in os.environ:
        return f"the environment variable {variable}: {message}"
    line = _line_of(file, path) if file else None
    place = f"{file}, line {line}" if line else str(file or "settings")
    return f"{place}: {key}: {message}"


def _kind_of(path: list[str]) -> Any:
    """Return the type of a setting or table; None where there is none of that name."""
    kind: Any = Settings
    for part in path:
        if get_origin(kind) is dict:
            kind = get_args(kind)[1]
        else:
            fields = kind.model_fields if isinstance(kind, type) and issubclass(kind, BaseModel) else {}
            kind = fields[part].annotation if part in fields else None
        tables = [one for one in get_args(kind) if isinstance(one, type) and issubclass(one, BaseModel)]
        kind = tables[0] if tables and get_origin(kind) is not dict else kind
    return kind


def _near(path: list[str]) -> str:
    """Say which setting was probably meant."""
    table = _kind_of(path[:-1])
    known = list(table.model_fields) if isinstance(table, type) and issubclass(table, BaseModel) else []
    return "".join(f"; did you mean {one}?" for one in difflib.get_close_matches(path[-1], known, 1))


def _unreadable() -> str:
    """Say which variables of the environment hold a list or a table that is not JSON."""
    wrong: list[str] = []
    for name, value in sorted(os.environ.items()):
        if not name.upper().startswith("LANGO_"):
            continue
        kind = _kind_of(name[len("LANGO_") :].lower().split("__"))
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
