"""Give an agent another system text or another model in one turn, where a developer tries it."""

from google.adk.agents.callback_context import CallbackContext
from google.adk.models.llm_request import LlmRequest

from lango.adk.model.provider_llm import ProviderLlm
from lango.adk.turn.step import note_model
from lango.adk.turn.turn_run import TurnRun
from lango.errors import ModelOptionsRefused


def set_agent_options(turn: TurnRun, context: CallbackContext, request: LlmRequest) -> None:
    """Set what the turn's options say about the agent that calls its model now.

    Raise `ModelOptionsRefused` if its model cannot be replaced.
    """
    options = turn.input.options.agents.get(context.agent_name)
    chosen = turn.tried_models.get(context.agent_name)
    note_model(chosen)  # the model call follows in this task
    if options is not None and options.system:
        request.config.system_instruction = options.system
    agent = context.get_invocation_context().agent
    if chosen is not None and not isinstance(getattr(agent, "canonical_model", None), ProviderLlm):
        raise ModelOptionsRefused(f"the model of {context.agent_name} is an object of your own, which stays")
