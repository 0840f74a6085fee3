"""Prepare an agent for what users may choose for a session: its model, and the instruction of the root agent."""

import inspect
from collections.abc import Callable
from typing import Any

from google.adk.agents import LlmAgent
from google.adk.agents.readonly_context import ReadonlyContext
from google.adk.utils.instructions_utils import inject_session_state

from lango.adk.model.provider_llm import ProviderLlm
from lango.adk.turn.turn_run import current_turn
from lango.config import AgentSettings
from lango.errors import ConfigError

_MARK = "_lango_replaceable"


def allow_choices(root: Any, settings: AgentSettings, get_model: Callable[[str], ProviderLlm]) -> None:
    """Prepare an agent as the settings allow. Raise an error for a model, or an agent, with which that cannot be."""
    if settings.session_instruction:
        if not isinstance(root, LlmAgent):
            raise ConfigError(f"agent.session_instruction: {root.name} is a workflow, and has no instruction")
        if not hasattr(root.instruction, _MARK):
            root.instruction = _replaceable(root.instruction)
    for model in settings.models:
        get_model(model)
    if settings.models and not isinstance(getattr(root, "model", None), ProviderLlm):
        raise ConfigError(
            f"agent.models: the model of {root.name} is a model object of its own, which Lango cannot replace: "
            "set agent.model, or give the agent a provider/name"
        )


def _replaceable(original: Any) -> Callable[[ReadonlyContext], Any]:
    async def instruction(context: ReadonlyContext) -> str:
        turn = current_turn.get()
        if turn is not None and (chosen := turn.input.options.session_instruction):
            return chosen
        if isinstance(original, str):  # ADK fills in the state of a text, and not of what a function returns
            return await inject_session_state(original, context)
        made = original(context)
        return await made if inspect.isawaitable(made) else made

    setattr(instruction, _MARK, True)
    return instruction
