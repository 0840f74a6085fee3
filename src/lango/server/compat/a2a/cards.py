"""Make the agent cards of A2A, and sign them. Imports `a2a`."""

import os
from collections.abc import Callable, Sequence

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
from lango.agent_cards import NodeCard
from lango.config import Settings
from lango.errors import ConfigError
from lango.runtime.runtime import Runtime

_TEXT_MODES = ["text/plain", "application/json"]
_ALGORITHM = "ES256"


def make_card(settings: Settings, runtime: Runtime, address: str, suggestions: Sequence[str]) -> AgentCard:
    """Make the public card: what the agent is for, and how it is called."""
    url = f"{address}/a2a/{runtime.app_name}"
    described = runtime.description or f"The agent {runtime.app_name}."
    with_keys = settings.server.auth != "none"
    about = settings.server.a2a
    return AgentCard(
        name=runtime.app_name,
        description=described,
        version=settings.agent.version or __version__,
        provider=AgentProvider(organization=about.organization, url=address) if about.organization else None,
        supported_interfaces=[
            AgentInterface(url=url, protocol_binding=TransportProtocol.JSONRPC, protocol_version=PROTOCOL_VERSION_1_0),
            AgentInterface(
                url=f"{url}/v1", protocol_binding=TransportProtocol.HTTP_JSON, protocol_version=PROTOCOL_VERSION_1_0
            ),
            AgentInterface(url=url, protocol_binding=TransportProtocol.JSONRPC, protocol_version=PROTOCOL_VERSION_0_3),
        ],
        capabilities=AgentCapabilities(
            streaming=True, push_notifications=runtime.webhooks.can_keep_secrets, extended_agent_card=with_keys
        ),
        default_input_modes=_TEXT_MODES,
        default_output_modes=_TEXT_MODES,
        skills=[
            AgentSkill(
                id=runtime.root_name, name=runtime.app_name, description=described, tags=["agent"], examples=suggestions
            )
        ],
        security_schemes={"bearer": _BEARER} if with_keys else None,
        security_requirements=[SecurityRequirement(schemes={"bearer": StringList()})] if with_keys else None,
    )


_BEARER = SecurityScheme(
    http_auth_security_scheme=HTTPAuthSecurityScheme(scheme="bearer", description="A key of `lango keys`, or a token.")
)


def make_extended_card(public: AgentCard, root: NodeCard) -> AgentCard:
    """Make the card for callers with access: with the tools and sub-agents as skills, without instructions."""
    card = AgentCard()
    card.CopyFrom(public)
    del card.signatures[:]
    seen = {skill.id for skill in card.skills}
    for node in _nodes(root):
        skills = [(f"{node.name}.{tool.name}", tool.name, tool.description, "tool") for tool in node.tools]
        for id_, name, description, tag in [(node.name, node.name, node.description, node.kind), *skills]:
            if id_ not in seen:
                seen.add(id_)
                card.skills.append(AgentSkill(id=id_, name=name, description=description or name, tags=[tag]))
    return card


def _nodes(root: NodeCard) -> list[NodeCard]:
    """Return a node and everything below it."""
    return [root, *(node for child in root.children for node in _nodes(child))]


def card_signer(settings: Settings) -> Callable[[AgentCard], AgentCard]:
    """Return what signs cards with the configured key. Raise `ConfigError` if that is missing or unusable."""
    variable = settings.server.a2a.signing_key_env
    if not variable:
        return lambda card: card
    key = os.environ.get(variable, "")
    if not key:
        raise ConfigError(f"server.a2a.signing_key_env names {variable}, which is not set: put a private key in it")
    from a2a.utils.signing import ProtectedHeader, create_agent_card_signer
    from jwt.exceptions import PyJWTError

    header = ProtectedHeader(kid=variable.lower(), alg=_ALGORITHM, jku=None, typ="JOSE")
    sign = create_agent_card_signer(key, header)

    def signed(card: AgentCard) -> AgentCard:
        try:
            return sign(card)
        except (PyJWTError, ValueError, TypeError) as error:
            raise ConfigError(f"{variable} holds no private key for {_ALGORITHM} in PEM: {error}") from error

    return signed
