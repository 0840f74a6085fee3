"""Give an agent another system text or another model in one turn, where a developer tries it."""

from google.adk.agents import LlmAgent
from google.adk.agents.callback_context import CallbackContext
from google.adk.models.llm_request import LlmRequest

from lango.adk.agents.adk_internals import let_agent_answer
from lango.adk.model.provider_llm import ProviderLlm
from lango.adk.turn.step import note_model
from lango.adk.turn.turn_run import TurnRun


def set_agent_options(turn: TurnRun, context: CallbackContext, request: LlmRequest) -> None:
    """Set what the turn's options say about the agent that calls its model now."""
    options = turn.input.options.agents.get(context.agent_name)
    chosen = turn.tried_models.get(context.agent_name)
    note_model(chosen)  # the model call follows in this task
    if options is not None and options.system:
        request.config.system_instruction = options.system
    agent = context.get_invocation_context().agent
    if chosen is not None and isinstance(agent, LlmAgent) and not isinstance(agent.canonical_model, ProviderLlm):
        # a model object of the user's own: ADK asks the agent of the invocation for its model next
        let_agent_answer(context, agent.model_copy(update={"model": chosen}))
        request.model = chosen.model
