"""The tables of `lango.toml`: every setting with its type, its default and what it says.

The words below each setting are those of the reference, which is made of them.
"""

from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator


def _reject_reserved_name(name: str) -> str:
    if name == "user":
        raise ValueError("must not be user: that is who writes the messages")
    return name


# ADK's rules for the names of agents
Identifier = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$"), AfterValidator(_reject_reserved_name)]
Seconds = Annotated[float, Field(gt=0)]
OpenAIApi = Literal["auto", "chat", "responses"]


class Section(BaseModel):
    """A table of the file: every key known, every value frozen."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class SubAgentSettings(Section):
    """`[agent.sub_agents.<name>]`: an agent that the root agent can hand over to."""

    description: str = ""
    """What it is good at: the other agents decide by it."""
    instruction: str = ""
    """What it is told about its task."""
    model: str | None = None
    """None: the root agent's."""
    tools: list[str] | None = None
    """Names of the tools that it has; none: all of them."""


class AgentSettings(Section):
    """`[agent]`: who answers, with which model."""

    name: Identifier = "lango"
    """The agent's name, and that of the app that sessions belong to: letters, digits and `_`."""
    model: str | None = None
    """`provider/name`; none: `local/default`."""
    fallback_model: str | None = None
    """Asked when the first one fails before its first word."""
    instruction: str = "You are a helpful assistant."
    """What the agent is told about its task."""
    max_turns: Annotated[int, Field(gt=0)] = 50
    """Calls of the model in one turn."""
    tool_timeout_s: Seconds = 120.0
    """How long a tool may take that sets no limit of its own."""
    request_timeout_s: Seconds = 600.0
    """How long a turn may take in all."""
    idle_timeout_s: Seconds = 120.0
    """How long a model may give no news."""
    max_running_turns: Annotated[int, Field(gt=0)] = 1000
    """How many turns a process runs at once, at most: fewer while its event loop is late. Others queue, and their
    clients see their place."""
    when_busy: Literal["wait", "refuse", "interrupt"] = "wait"
    """What a message does that comes while its session is busy."""
    module: str | None = None
    """A file or package with ADK's own `root_agent` or `app`, instead of the settings above."""
    sub_agents: dict[Identifier, SubAgentSettings] = {}
    """Tables of agents that the root agent can hand over to, by name."""

    @model_validator(mode="after")
    def _names_differ(self) -> Self:
        if self.name in self.sub_agents:
            raise ValueError(f"sub_agents.{self.name} has the name of the root agent: nobody could hand over to it")
        return self


class ProviderSettings(Section):
    """`[providers.<name>]`: where a model's API is, and which variable holds its key."""

    type: str = ""
    """The built-in provider that it is of; empty: the one of the same name."""
    api_key_env: str = ""
    """The variable that holds the key; empty: the provider's usual one."""
    base_url: str = ""
    """Where it is; empty: the vendor's address."""
    api: OpenAIApi = "auto"
    """Which of OpenAI's two APIs."""
    options: dict[str, Any] = {}
    """Added to every request, in the vendor's own words."""


class StoreSettings(Section):
    """`[store]`: where conversations are kept."""

    url: str = "sqlite:///lango.db"
    """Where conversations are kept: `sqlite:///...` or `postgresql://...`."""
    wait_s: Annotated[float, Field(ge=0)] = 60.0
    """How long a running turn waits for a database that is away or locked; a new request is refused sooner."""


class HistorySettings(Section):
    """`[history]`: how much of a conversation a model is sent."""

    max_message_token_budget: Annotated[int, Field(ge=0)] = 0
    """How many tokens of messages a model is sent at most; 0: 32,000."""
    max_messages: Annotated[int, Field(gt=0)] = 100
    """How many messages besides, while memory is off."""
    max_turns: Annotated[int, Field(gt=0)] | None = None
    """How many of the newest turns besides."""


class MemorySettings(Section):
    """`[memory]`: observational memory."""

    enabled: bool = False
    """Whether observations are made."""
    observe_at_tokens: Annotated[int, Field(ge=0)] = 0
    """So many tokens of messages that were not observed begin an observation; 0: 30,000, or 30 % of the budget where
    that is less."""
    reflect_at_tokens: Annotated[int, Field(ge=0)] = 0
    """So many tokens of observations are condensed; 0: 40,000, or 40 % of the budget where that is less."""
    keep_turns: Annotated[int, Field(ge=0)] = 2
    """Turns before the last observed message that are sent all the same."""
    model: str | None = None
    """Who observes and reflects; none: the agent's model."""
    user_facts: bool = False
    """Whether facts about a user are learned that hold across sessions."""
    close_wait_s: Annotated[float, Field(ge=0)] = 10.0
    """How long an observer may go on when the runtime is closed."""


class ToolSettings(Section):
    """`[tools]`: which built-in tools there are, and which ask first."""

    enabled: list[str] = []
    """Which built-in tools there are."""
    approval: Literal["ask", "auto", "deny"] = "ask"
    """For tools that write or reach further; safe ones run. `"deny"`: nobody is there to ask."""
    allow: list[str] = []
    """Names of tools that run without a question."""
    deny: list[str] = []
    """Names of tools that never run; wins over `allow`."""
    approval_expires_s: Annotated[float, Field(ge=0)] = 86_400.0
    """A question that nobody answers for so long is a no; 0: it waits as long as it takes."""
    workspace: str = "workspace"
    """The folder that file tools and the shell see; it is made where it is not there."""
    store_in_workspace: bool = False
    """Whether tools that write may have a workspace in which the store lies. It is hidden from them all the same."""
    sandbox: Literal["bubblewrap", "none"] = "bubblewrap"
    """Where the shell runs; without that sandbox it does not. `"none"`: with all rights of this user."""


class McpSettings(Section):
    """`[mcp.<name>]`: a server of tools, started as a command or reached by a URL."""

    command: str = ""
    """What starts the server, or `url` says where it is."""
    args: list[str] = []
    """Its arguments."""
    env: dict[str, str] = {}
    """Its environment, beside a few harmless variables of ours."""
    url: str = ""
    """Where a server is that runs already."""
    tools: list[str] | None = None
    """Names of its tools that are used; none: all."""


Algorithm = Literal[
    "RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"
]  # those with a public key only: what verifies a token must not be able to make one


class OidcSettings(Section):
    """`[server.oidc]`: whose tokens are taken, where `server.auth` is `oidc`."""

    issuer: Annotated[str, Field(min_length=1)]
    """The issuer's address, exactly as its tokens say it in `iss`. `https://`, or `http://` on this machine."""
    audience: Annotated[list[str], Field(min_length=1)]
    """Who a token must be for: one of these is in its `aud`."""
    user_claim: Annotated[str, Field(min_length=1)] = "sub"
    """The claim that says who comes. `email` is taken only with `email_verified`."""
    user_prefix: str = "oidc:"
    """Goes before it in the user's name: the token of `alice` is the user `oidc:alice`, never the `alice` of a key."""
    jwks_url: str = ""
    """Where the issuer's keys are; empty: where `/.well-known/openid-configuration` says."""
    algorithms: Annotated[list[Algorithm], Field(min_length=1)] = ["RS256", "PS256", "ES256", "EdDSA"]
    """Those that are taken; also `RS384`, `RS512`, `PS384`, `PS512`, `ES384` and `ES512`."""
    leeway_s: Annotated[float, Field(ge=0, le=300)] = 30.0
    """How far the clocks of the issuer and of this machine may be apart."""
    requests_per_minute: Annotated[int, Field(ge=1)] | None = None
    """How often each user may ask, counted by each process; without one, as often as they like."""
    tokens_per_day: Annotated[int, Field(ge=1)] | None = None
    """How many tokens each user may use on a day of UTC; without one, as many as they like."""


class ServerSettings(Section):
    """`[server]`: where the server listens, and for whom."""

    host: str = "127.0.0.1"
    """The address to listen on. Beyond this machine only with `auth`."""
    port: Annotated[int, Field(ge=0, le=65_535)] = 8787
    """The port; 0: any that is free."""
    auth: Literal["none", "keys", "oidc"] = "none"
    """`"none"`: one user, and this machine only. `"keys"`: API keys of `lango keys`. `"oidc"`: tokens of
    `[server.oidc]`, and keys beside them."""
    oidc: OidcSettings | None = None
    """The table `[server.oidc]`."""
    allowed_origins: list[str] = []
    """Web pages of other origins that may call, such as `"https://app.example"`."""
    allowed_hosts: list[str] = []
    """Names that the server is reached by, beside those of this machine."""
    shutdown_s: Annotated[float, Field(ge=0)] = 20.0
    """How long running turns may go on once the server is told to stop."""
    heartbeat_s: Seconds = 15.0
    """A silent stream says this often that it is still there."""
    write_timeout_s: Seconds = 30.0
    """A client that takes nothing for this long is cut off; it can come back."""
    max_connections: Annotated[int, Field(gt=0)] = 2_000
    """How many connections may be open; fewer where the system allows fewer files. More are refused with 503."""
    max_connections_per_client: Annotated[int, Field(ge=0)] | None = None
    """How many of them one address may have; 0: as many as there may be. Unset: 256, and any number for this machine's
    own addresses. Behind a proxy on another machine, set it to 0."""
    head_timeout_s: Seconds = 10.0
    """How long the head of a request may take."""
    body_timeout_s: Seconds = 20.0
    """How long a body may pause, and how long it may take beside a second for each 10,000 bytes."""
    max_body_bytes: Annotated[int, Field(gt=0)] = 1_000_000
    """How long a request may be, beside the files of a message."""
    max_conversation_bytes: Annotated[int, Field(gt=0)] = 10_000_000
    """How long a request of OpenAI's or AG-UI's clients may be: they send the whole conversation each time."""
    max_attachment_bytes: Annotated[int, Field(ge=0)] = 10_000_000
    """What the files of one message may have together; 0: none are taken."""
    max_attachments: Annotated[int, Field(ge=0)] = 10
    """How many files one message may bring."""
    max_import_bytes: Annotated[int, Field(gt=0)] = 100_000_000
    """The largest export of a session that may be imported."""
    log_format: Literal["text", "json"] = "text"
    """How log lines are written: each with session, turn and trace."""
    adk_ui: bool = False
    """Whether ADK's own dev UI is at `/dev-ui/`. Only with `auth = "none"`: it sends no keys."""

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
    """An OTLP collector by HTTP that traces, and nothing else, are sent to, such as `http://127.0.0.1:4318`; empty: as
    `OTEL_EXPORTER_OTLP_ENDPOINT` says, and without that, nowhere."""
    service_name: str = "lango"
    """What the traces are of, unless `OTEL_SERVICE_NAME` says another."""
    capture_content: bool = False
    """Whether traces hold what people, models and tools said."""
