"""Define the section of the server: addresses, authentication, limits, and what its protocols need to know."""

import re
from collections.abc import Mapping
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from lango.config.sections import Seconds, Section

Algorithm = Literal[
    "RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"
]  # only with public keys: the key that verifies a token must not be able to sign one


class OidcSettings(Section):
    """`[server.oidc]`: which tokens are accepted if `server.auth` is `oidc`."""

    issuer: Annotated[str, Field(min_length=1)]
    """The issuer's address, exactly as in the `iss` of its tokens. `https://`, or `http://` on this machine."""
    audience: Annotated[list[str], Field(min_length=1)]
    """Accepted audiences: one of them must be in the `aud` of a token."""
    user_claim: Annotated[str, Field(min_length=1)] = "sub"
    """The claim that identifies the user. `email` is accepted only with `email_verified`."""
    user_prefix: str = "oidc:"
    """Prefix of the user's name: the token of `alice` is the user `oidc:alice`, never the `alice` of an API key."""
    jwks_url: str = ""
    """The address of the issuer's keys; by default as in `/.well-known/openid-configuration`."""
    algorithms: Annotated[list[Algorithm], Field(min_length=1)] = Field(default=["RS256", "PS256", "ES256", "EdDSA"])
    """Accepted algorithms; `RS384`, `RS512`, `PS384`, `PS512`, `ES384` and `ES512` are also possible."""
    leeway_s: Annotated[float, Field(ge=0, le=300)] = 30.0
    """Accepted difference between the clocks of the issuer and of this machine."""
    requests_per_minute: Annotated[int, Field(ge=1)] | None = None
    """Limit of requests per user, counted by each process; unlimited by default."""
    tokens_per_day: Annotated[int, Field(ge=1)] | None = None
    """Limit of tokens per user and day (UTC); unlimited by default."""


class A2aSettings(Section):
    """`[server.a2a]`: what the agent cards of A2A tell other agents, and its port for gRPC."""

    url: str = ""
    """The public address of the server, such as `https://agents.example`; by default that of each request."""
    organization: str = ""
    """Who provides the agents."""
    signing_key_env: str = ""
    """The environment variable with a private key (PEM, for ES256) that signs the agent cards; empty: they are not
    signed."""
    grpc_port: Annotated[int, Field(ge=0, le=65_535)] | None = None
    """The port for A2A over gRPC, at the same host and with the same keys; 0 means any free port. Off by default."""
    grpc_address: str = ""
    """The public address of gRPC, such as `agents.example:443`; by default the host of `url` and the port."""


class McpPromptSettings(Section):
    """`[server.mcp.prompts.<name>]`: a prompt that MCP clients offer their users."""

    template: Annotated[str, Field(min_length=1)]
    """The message, with arguments in braces, such as `"Review this: {change}"`."""
    description: str = ""
    """What the prompt is for."""
    arguments: dict[str, str] = Field(default={})
    """The arguments, each with its description."""

    @model_validator(mode="after")
    def _uses_every_argument(self) -> Self:
        unused = [name for name in self.arguments if f"{{{name}}}" not in self.template]
        if unused:
            raise ValueError(f"the template has no {{{unused[0]}}}")
        return self

    def fill(self, arguments: Mapping[str, str]) -> str:
        """Return the message with the values of the arguments."""
        names = "|".join(map(re.escape, self.arguments))
        return re.sub(rf"\{{({names})\}}", lambda found: arguments[found[1]], self.template) if names else self.template


class McpServerSettings(Section):
    """`[server.mcp]`: what the MCP server offers in addition to the agents."""

    prompts: dict[str, McpPromptSettings] = Field(default={})
    """The tables `[server.mcp.prompts.<name>]`."""


class ServerLimits(Section):
    """`[server.limits]`: how much clients may send, and how slowly."""

    max_connections: Annotated[int, Field(gt=0)] = 2_000
    """Limit of open connections; lower if the system allows fewer files. Further ones are refused with 503."""
    max_connections_per_client: Annotated[int, Field(ge=0)] | None = None
    """Limit of connections per address, and of open calls over gRPC; 0 means unlimited. By default 256, and unlimited
    for this machine's own addresses. Behind a proxy on another machine, set it to 0."""
    head_timeout_s: Seconds = 10.0
    """Time limit for the head of a request."""
    body_timeout_s: Seconds = 20.0
    """Time limit for a pause in a body, and for the whole body, which gets another second for each 10,000 bytes."""
    max_body_bytes: Annotated[int, Field(gt=0)] = 1_000_000
    """Size limit of a request, without the files of a message."""
    max_conversation_bytes: Annotated[int, Field(gt=0)] = 10_000_000
    """Size limit of a request of OpenAI and AG-UI clients, which send the whole conversation each time."""
    max_attachment_bytes: Annotated[int, Field(ge=0)] = 10_000_000
    """Total size limit of the files of one message. With 0 no files are accepted."""
    max_attachments: Annotated[int, Field(ge=0)] = 10
    """Limit of files per message."""
    max_uploaded_bytes: Annotated[int, Field(ge=0)] = 1_000_000_000
    """Total size limit of the files that a user has uploaded to `/v1/files`; each counts for at least 100,000 bytes. A
    single file is limited by `store.max_artifact_bytes`."""
    max_import_bytes: Annotated[int, Field(gt=0)] = 100_000_000
    """Size limit of an imported session."""
    max_unfinished_bytes: Annotated[int, Field(gt=0)] = 500_000_000
    """Total size limit of requests that have begun to arrive; they wait on disk. A user may have a quarter of it."""


class ServerSettings(Section):
    """`[server]`: addresses and authentication of the server."""

    host: str = "127.0.0.1"
    """The address to listen on; other machines can connect only with `auth`."""
    port: Annotated[int, Field(ge=0, le=65_535)] = 8787
    """The port. 0 means any free port."""
    auth: Literal["none", "keys", "oidc"] = "none"
    """`"none"`: one user, on this machine only. `"keys"`: API keys of `lango keys`. `"oidc"`: tokens of
    `[server.oidc]`, and API keys."""
    oidc: OidcSettings | None = None
    """The table `[server.oidc]`."""
    limits: ServerLimits = ServerLimits()
    """The table `[server.limits]`."""
    a2a: A2aSettings = A2aSettings()
    """The table `[server.a2a]`."""
    mcp: McpServerSettings = McpServerSettings()
    """The table `[server.mcp]`."""
    operators: list[str] = Field(default=[])
    """Users who may read and set `app:` state, which every user shares, and read the agent's instructions, over ADK's
    REST API. With `auth = "none"` the only user may."""
    client_instructions: bool = True
    """Whether clients of OpenAI's APIs and AG-UI may add instructions to the agent's own, by system and developer
    messages, `instructions` and `context`; if not, such a request is refused with 400."""
    fetch_files: bool = True
    """Whether clients of OpenAI's APIs and AG-UI may send pictures and files by their address, which the server
    fetches. Only public addresses are reached, and those of `file_addresses`."""
    file_addresses: list[str] = Field(default=[])
    """Addresses that `fetch_files` may reach though they are not public, each `address:port`, such as
    `"10.0.0.7:443"`."""
    embedding_models: list[str] = Field(default=[])
    """The models of `POST /v1/embeddings`, each `provider/name`, such as `"openai/text-embedding-3-small"`: of OpenAI,
    of compatible servers and of Gemini."""
    allowed_origins: list[str] = Field(default=[])
    """Other origins whose web pages may call the server, such as `"https://app.example"`."""
    allowed_hosts: list[str] = Field(default=[])
    """Host names of the server, in addition to those of this machine."""
    drain_s: Annotated[float, Field(ge=0)] = 20.0
    """How long steps under way may take when the server stops, before their turns are released."""
    webhook_addresses: list[str] = Field(default=[])
    """Addresses that webhooks may reach though they are not public, each `address:port`, such as `"10.0.0.7:443"`."""
    heartbeat_s: Seconds = 15.0
    """Interval of the heartbeats of a silent stream."""
    write_timeout_s: Seconds = 30.0
    """A client that reads nothing for this long is disconnected; it can reconnect."""
    log_format: Literal["text", "json"] = "text"
    """The format of log lines, which contain session, turn and trace."""
    adk_ui: bool = False
    """Whether ADK's dev UI is served at `/dev-ui/`. Only with `auth = "none"`: it sends no keys."""

    @model_validator(mode="after")
    def _has_issuer(self) -> Self:
        if self.auth == "oidc" and self.oidc is None:
            raise ValueError('server.auth = "oidc" needs [server.oidc] with issuer and audience')
        if self.auth != "oidc" and self.oidc is not None:
            raise ValueError('[server.oidc] has an effect only with server.auth = "oidc"')
        return self
