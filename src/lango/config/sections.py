"""Define the sections and keys of `lango.toml`, without those of the server, triggers and webhooks.

The reference of the configuration is generated from the text below each setting.
"""

from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from lango.sessions import WhenBusy


def _reject_reserved_name(name: str) -> str:
    if name == "user":
        raise ValueError("must not be user: that is the author of the user's messages")
    return name


# ADK's rules for the names of agents
Identifier = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$"), AfterValidator(_reject_reserved_name)]
Seconds = Annotated[float, Field(gt=0)]
DEFAULT_APP_NAME = "lango"
OpenAIApi = Literal["auto", "chat", "responses"]
Language = Literal[
    "catalan", "danish", "dutch", "english", "finnish", "french", "german", "hungarian", "indonesian", "irish",
    "italian", "lithuanian", "norwegian", "portuguese", "romanian", "spanish", "swedish", "turkish",
]  # fmt: skip


class Section(BaseModel):
    """A table of the file, immutable and without unknown keys."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class SubAgentSettings(Section):
    """`[agent.sub_agents.<name>]`: an agent that the root agent can transfer to."""

    description: str = ""
    """What the agent does; the other agents decide by it when to transfer."""
    instruction: str = ""
    """The system instruction."""
    model: str | None = None
    """`provider/name`; the root agent's model by default."""
    tools: list[str] | None = None
    """Names of its tools; all tools by default."""


class PriceSettings(Section):
    """`[agent.prices."model"]`: what a model costs, in US dollars per million tokens."""

    input: Annotated[float, Field(ge=0)] = 0.0
    """Of the tokens that the model reads."""
    output: Annotated[float, Field(ge=0)] = 0.0
    """Of the tokens that the model writes."""
    cached: Annotated[float, Field(ge=0)] | None = None
    """Of input tokens that the provider had cached; by default as other input."""


class ChoiceSettings(Section):
    """`[agent.choices]`: what users may choose for a session."""

    models: list[str] = []
    """Models that a user may choose instead of `agent.model`, each `provider/name`."""
    instruction: bool = False
    """Whether a user may replace the instruction of the root agent."""


class AgentSettings(Section):
    """`[agent]`: the agent and its model."""

    name: Identifier | None = None
    """The name of the agent and of the app that its sessions belong to: letters, digits and `_`. By default the name of
    the agent in `module`, or `lango`."""
    version: str = ""
    """The version of the agent, as turns and replicas show it; by default a fingerprint of its agents and tools."""
    model: str | None = None
    """`provider/name`; `local/default` by default."""
    choices: ChoiceSettings = ChoiceSettings()
    """The table `[agent.choices]`."""
    fallback_model: str | None = None
    """Used when the model fails before its first token."""
    instruction: str = "You are a helpful assistant."
    """The system instruction."""
    max_turns: Annotated[int, Field(gt=0)] = 50
    """Limit of model calls in one turn."""
    tool_timeout_s: Seconds = 120.0
    """Time limit of tools that set none."""
    request_timeout_s: Seconds = 600.0
    """Time limit of a turn."""
    idle_timeout_s: Seconds = 120.0
    """How long the runtime waits for the next chunk of a model's answer."""
    max_running_turns: Annotated[int, Field(gt=0)] = 1000
    """Limit of turns that a process runs at once; lower while its event loop is late. Further turns are queued, and
    their clients see their place."""
    input_expires_s: Annotated[float, Field(ge=0)] = 86_400.0
    """A workflow's input request that is not answered within this time is closed. With 0 it never expires."""
    when_busy: WhenBusy = "wait"
    """How a message to a busy session is handled: it waits, is refused, interrupts the running turn, is read by the
    model before its next call (`steer`), or replaces the running turn, which is rewound (`rollback`)."""
    on_crash: Literal["resume", "stop"] = "resume"
    """What happens to the turns of a process that died: they continue in another one, or end as interrupted."""
    max_attempts: Annotated[int, Field(gt=0)] = 3
    """How often a turn is run at most, when its process dies, or a provider or the store fails."""
    retry_delay_s: Annotated[float, Field(ge=0)] = 1.0
    """The delay before the second of these attempts; it doubles with each further one."""
    module: str | None = None
    """A file or package with an ADK `root_agent` or `app`, used instead of the settings above."""
    prices: dict[str, PriceSettings] = {}
    """Tables of prices by model, with or without its provider; by default those that vendors publish."""
    suggestions: list[str] = []
    """What the page suggests as a first message; by default how the test cases in the folder of `module` begin."""
    sub_agents: dict[Identifier, SubAgentSettings] = {}
    """Tables of the agents that the root agent can transfer to, by name."""

    @model_validator(mode="after")
    def _names_differ(self) -> Self:
        name = self.name or ("" if self.module else DEFAULT_APP_NAME)
        if name in self.sub_agents:
            raise ValueError(f"sub_agents.{name} has the name of the root agent: names must differ")
        return self


class ProviderSettings(Section):
    """`[providers.<name>]`: the address of a model API, and the environment variable of its key."""

    type: str = ""
    """The built-in provider to use; by default the one of the same name."""
    api_key_env: str = ""
    """The environment variable that holds the key; by default the provider's usual one."""
    base_url: str = ""
    """The address; by default the vendor's."""
    api: OpenAIApi = "auto"
    """Which of OpenAI's two APIs."""
    options: dict[str, Any] = {}
    """Fields of the vendor's API that are added to every request."""


class StoreSettings(Section):
    """`[store]`: the database."""

    url: str = "sqlite:///lango.db"
    """The database: `sqlite:///...` or `postgresql://...`."""
    wait_s: Annotated[float, Field(ge=0)] = 60.0
    """How long a running turn waits for a database that is unavailable or locked; a new request is refused sooner."""
    max_artifact_bytes: Annotated[int, Field(gt=0)] = 50_000_000
    """The largest artifact that an agent or a client may save."""


class HistorySettings(Section):
    """`[history]`: how much of a session is sent to the model."""

    max_message_token_budget: Annotated[int, Field(ge=0)] = 0
    """Limit of message tokens in a request. 0 means 32,000."""
    max_messages: Annotated[int, Field(gt=0)] = 100
    """Limit of messages in a request, while memory is off."""
    max_turns: Annotated[int, Field(gt=0)] | None = None
    """Limit of turns in a request, the newest first."""


class MemorySettings(Section):
    """`[memory]`: observational memory."""

    enabled: bool = False
    """Whether sessions are observed."""
    observe_at_tokens: Annotated[int, Field(ge=0)] = 0
    """Tokens of unobserved messages that start an observation. 0 means 30,000 or, if less, 70 % of the budget."""
    reflect_at_tokens: Annotated[int, Field(ge=0)] = 0
    """Tokens of observations that start their condensation. 0 means 40,000 or, if less, 40 % of the budget."""
    notes_tokens: Annotated[int, Field(ge=0)] = 0
    """Most tokens of observations in a request, without their days; others are recalled. 0 means 4 % of the budget."""
    recall: bool = True
    """Whether notes and messages that match the user's message, and are not shown, are quoted after it."""
    recall_tokens: Annotated[int, Field(ge=0)] = 0
    """Most tokens that are quoted after the user's message. 0 means a third of what the rest of the request leaves."""
    recall_tool: bool = True
    """Whether an agent whose model calls tools gets a tool, `recall`, that searches the user's conversations."""
    language: Language = "english"
    """The language of words in Latin letters, whose other forms are recalled, too. Messages keep that of their time."""
    keep_turns: Annotated[int, Field(ge=0)] = 2
    """Turns before the last observed message that are still sent."""
    model: str | None = None
    """The model that observes and reflects; by default the agent's."""
    user_facts: bool = False
    """Whether facts about a user are learned that apply to all sessions."""
    close_wait_s: Annotated[float, Field(ge=0)] = 10.0
    """How long closing the runtime waits for running observers."""


class ToolSettings(Section):
    """`[tools]`: the built-in tools, and approvals."""

    enabled: list[str] = []
    """Names of the built-in tools to use."""
    approval: Literal["ask", "auto", "deny"] = "ask"
    """Policy for tools that write or reach further; safe tools always run. `"deny"`: for unattended use."""
    allow: list[str] = []
    """Names of tools that run without approval."""
    deny: list[str] = []
    """Names of tools that never run; overrides `allow`."""
    idempotent: list[str] = []
    """Names of ADK's and MCP's tools that may run again after a crash inside of them."""
    approval_expires_s: Annotated[float, Field(ge=0)] = 86_400.0
    """An approval request that is not answered within this time is denied. With 0 it never expires."""
    grant_expires_s: Annotated[float, Field(ge=0)] = 86_400.0
    """The longest time that a grant holds, and the default. With 0 it holds until it is revoked."""
    workspace: str = "workspace"
    """The folder that file tools and the shell see; it is created if it is missing."""
    store_in_workspace: bool = False
    """Whether writing tools may have a workspace that contains the store. It is always hidden from them."""
    sandbox: Literal["bubblewrap", "none"] = "bubblewrap"
    """The sandbox of the shell, which does not run without it. `"none"`: commands have all rights of this user."""


class CredentialSettings(Section):
    """`[credentials]`: how users give tools access to their accounts. The key is in `LANGO_CREDENTIAL_KEY`."""

    request_expires_s: Annotated[float, Field(ge=0)] = 3600.0
    """A credential request that is not answered within this time is closed. With 0 it never expires."""
    callback_url: str = ""
    """The address of `/v1/oauth/callback` as users' browsers reach it, for MCP servers with OAuth; by default this
    server on this machine."""


class McpOAuthSettings(Section):
    """`[mcp.<name>.oauth]`: each user allows the access to the server with an account of their own."""

    authorization_url: Annotated[str, Field(min_length=1)]
    """Where a user allows the access."""
    token_url: Annotated[str, Field(min_length=1)]
    """Where a code is exchanged for a token, and a token is refreshed."""
    client_id: Annotated[str, Field(min_length=1)]
    """The name of this application at the server."""
    client_secret_env: str = ""
    """The environment variable that holds the secret of this application; without one it uses PKCE alone."""
    scopes: list[str] = []
    """What the access is for."""
    redirect_url: str = ""
    """Where a user is sent back to, as registered at the server; by default `credentials.callback_url`."""


class McpSettings(Section):
    """`[mcp.<name>]`: an MCP server, started by a command or reached at a URL."""

    command: str = ""
    """The command that starts the server; or set `url`."""
    args: list[str] = []
    """The arguments of the command."""
    env: dict[str, str] = {}
    """Environment variables of the server, in addition to a few harmless ones."""
    url: str = ""
    """The address of a running server."""
    headers: dict[str, str] = {}
    """Headers of each request to the `url`; `${NAME}` in a value is the environment variable of that name."""
    oauth: McpOAuthSettings | None = None
    """Each user allows the access with an account of their own; without it all users have the same access."""
    tools: list[str] | None = None
    """Names of the tools to use; all by default."""
    input_timeout_s: Annotated[float, Field(ge=0)] = 600.0
    """How long a user may take to answer a question of the server during a call. With 0 the server may not ask."""


class TelemetrySettings(Section):
    """`[telemetry]`: the export of traces; without an endpoint, here or in OpenTelemetry's variables, none."""

    otlp_endpoint: str = ""
    """An OTLP collector over HTTP for traces, such as `http://127.0.0.1:4318`; by default that
    of `OTEL_EXPORTER_OTLP_ENDPOINT`, or no export."""
    capture_content: bool = False
    """Whether traces contain the texts of messages and tools."""


class TraceSettings(Section):
    """`[trace]`: what the trace of a session keeps in addition to its messages."""

    requests: bool | None = None
    """Whether requests to models and their responses are stored as they went over the wire, without secrets.
    By default, only `lango serve` with `auth = "none"` does: a server for the developer on this machine."""
    max_request_bytes: Annotated[int, Field(ge=1_000)] = 250_000
    """How much of one request, and of one response, is stored; long texts in it are shortened."""
    max_session_bytes: Annotated[int, Field(ge=0)] = 20_000_000
    """How much is stored for one session; the oldest requests are deleted first."""
    max_total_bytes: Annotated[int, Field(ge=0)] = 500_000_000
    """How much is stored for all sessions; the oldest requests are deleted first."""
