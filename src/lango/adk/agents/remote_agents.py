"""Let a `RemoteA2aAgent` send the same message, with the same id, when its turn is run again."""

import uuid
from typing import Any

from a2a.types import Message
from google.adk.a2a.agent.config import A2aRemoteAgentConfig, ParametersConfig, RequestInterceptor
from google.adk.agents.invocation_context import InvocationContext
from google.adk.events import Event

from lango.adk.turn.turn_run import current_turn

_NAMESPACE = uuid.UUID("0d6e6f0e-5b0e-5c55-9f3e-0c8a4f1d2b77")


def a2a_config(**options: Any) -> A2aRemoteAgentConfig:
    """Return a configuration for `RemoteA2aAgent` whose messages have the same ids in every run of a turn.

    A server that recognises a repeated message, as Lango does, then continues the task of the first attempt instead of
    starting a second one, whichever side was killed. `options` are those of `A2aRemoteAgentConfig`.

        RemoteA2aAgent(name="bank", agent_card="https://bank.example/a2a/bank/...", config=a2a_config())
    """
    config = A2aRemoteAgentConfig(**options)
    interceptor = RequestInterceptor(before_request=_set_message_id)
    interceptors = [*(config.request_interceptors or []), interceptor]
    return config.model_copy(update={"request_interceptors": interceptors})


async def _set_message_id(
    context: InvocationContext, message: Message, parameters: ParametersConfig
) -> tuple[Message | Event, ParametersConfig]:
    if (turn := current_turn.get()) is None:  # another Runner: it does not run a turn again
        return message, parameters
    agent = context.agent.name if context.agent else ""
    session = turn.session
    names = (session.app_name, session.user_id, session.id)
    sender = "/".join((*names, context.invocation_id, context.branch or "", agent))
    message.message_id = str(uuid.uuid5(_NAMESPACE, f"{sender}/{turn.number_of_message(sender)}"))
    return message, parameters
