"""Make the agent cards of A2A, and sign them. Imports `a2a`."""

import os
from urllib.parse import urlsplit

from a2a.types import (
    AgentCapabilities,
    AgentCard,
    AgentInterface,
    AgentProvider,
    AgentSkill,
    HTTPAuthSecurityScheme,
    SecurityRequirement,
    SecurityScheme,
    StringList,
)
from a2a.utils.constants import PROTOCOL_VERSION_0_3, PROTOCOL_VERSION_1_0, TransportProtocol

from lango import __version__
from lango.config import Settings
from lango.development.agent_cards import NodeCard
from lango.errors import ConfigError
from lango.server.context import ServerContext

_TEXT_MODES = ["text/plain", "application/json"]
_ALGORITHM = "ES256"


def server_address(context: ServerContext, reached_at: str) -> str:
    """Return the public address of the server: the configured one, or the one where the caller reached it."""
    return (context.settings.server.a2a.url or reached_at).rstrip("/")


async def make_card(context: ServerContext, reached_at: str) -> AgentCard:
    """Make the public card: what the agent is for, and how it is called."""
    return _sign(await _public_card(context, reached_at), context.settings)


async def make_extended_card(context: ServerContext, reached_at: str) -> AgentCard:
    """Make the card for callers with access: with the tools and sub-agents as skills, without instructions."""
    card = await _public_card(context, reached_at)
    seen = {skill.id for skill in card.skills}
    for node in _nodes(await context.runtime.describe_agents()):
        skills = [(f"{node.name}.{tool.name}", tool.name, tool.description, "tool") for tool in node.tools]
        for id_, name, description, tag in [(node.name, node.name, node.description, node.kind), *skills]:
            if id_ not in seen:
                seen.add(id_)
                card.skills.append(AgentSkill(id=id_, name=name, description=description or name, tags=[tag]))
    return _sign(card, context.settings)


async def _public_card(context: ServerContext, reached_at: str) -> AgentCard:
    runtime, about = context.runtime, context.settings.server.a2a
    address = server_address(context, reached_at)
    described = runtime.description or f"The agent {runtime.app_name}."
    with_keys = context.settings.server.auth != "none"
    skill = AgentSkill(
        id=runtime.root_name,
        name=runtime.app_name,
        description=described,
        tags=["agent"],
        examples=await runtime.suggestions(),
    )
    return AgentCard(
        name=runtime.app_name,
        description=described,
        version=context.settings.agent.version or __version__,
        provider=AgentProvider(organization=about.organization, url=address) if about.organization else None,
        supported_interfaces=_interfaces(context, address),
        capabilities=AgentCapabilities(
            streaming=True, push_notifications=runtime.webhooks.can_keep_secrets, extended_agent_card=with_keys
        ),
        default_input_modes=_TEXT_MODES,
        default_output_modes=_TEXT_MODES,
        skills=[skill],
        security_schemes={"bearer": _BEARER} if with_keys else None,
        security_requirements=[SecurityRequirement(schemes={"bearer": StringList()})] if with_keys else None,
    )


def _interfaces(context: ServerContext, address: str) -> list[AgentInterface]:
    """Return how the agent is called; gRPC has one port for all agents, and the tenant names the agent."""
    name, port = context.runtime.app_name, context.agents.grpc_port
    url = f"{address}/a2a/{name}"
    found = [
        (url, TransportProtocol.JSONRPC, PROTOCOL_VERSION_1_0, ""),
        (f"{url}/v1", TransportProtocol.HTTP_JSON, PROTOCOL_VERSION_1_0, ""),
    ]
    if port is not None:
        grpc_address = context.settings.server.a2a.grpc_address or _with_port(address, port)
        found.append((grpc_address, TransportProtocol.GRPC, PROTOCOL_VERSION_1_0, name))
    found.append((url, TransportProtocol.JSONRPC, PROTOCOL_VERSION_0_3, ""))
    return [
        AgentInterface(url=url, protocol_binding=binding, protocol_version=version, tenant=tenant)
        for url, binding, version, tenant in found
    ]


def _with_port(address: str, port: int) -> str:
    """Return the host of an address with another port, as gRPC's clients take it."""
    host = urlsplit(address).hostname or ""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


_BEARER = SecurityScheme(
    http_auth_security_scheme=HTTPAuthSecurityScheme(scheme="bearer", description="A key of `lango keys`, or a token.")
)


def _nodes(root: NodeCard) -> list[NodeCard]:
    """Return a node and everything below it."""
    return [root, *(node for child in root.children for node in _nodes(child))]


def _sign(card: AgentCard, settings: Settings) -> AgentCard:
    """Sign a card with the configured key, if there is one. Raise `ConfigError` if it is missing or unusable."""
    variable = settings.server.a2a.signing_key_env
    if not variable:
        return card
    key = os.environ.get(variable, "")
    if not key:
        raise ConfigError(f"server.a2a.signing_key_env names {variable}, which is not set: put a private key in it")
    from a2a.utils.signing import ProtectedHeader, create_agent_card_signer
    from jwt.exceptions import PyJWTError

    header = ProtectedHeader(kid=variable.lower(), alg=_ALGORITHM, jku=None, typ="JOSE")
    try:
        return create_agent_card_signer(key, header)(card)
    except (PyJWTError, ValueError, TypeError) as error:
        raise ConfigError(f"{variable} holds no private key for {_ALGORITHM} in PEM: {error}") from error
