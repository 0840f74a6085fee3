"""Send streamed text to the readers of a turn without making an ADK event of each piece.

A partial event costs ADK about 0.6 ms, more than all other work on it: two hundred streams of twenty pieces a second
would need more than two cores. So where no code between the model and the reader can change the text, ADK only gets the
final answer. Agents with a callback on answers, a planner or a code executor stream through ADK, and so does every
agent of an app with plugins.
"""

from collections.abc import Callable, Iterable
from typing import Any

from google.adk.agents import BaseAgent, LlmAgent
from google.adk.models.llm_request import LlmRequest

from lango.adk.turn.output import TextSink
from lango.adk.turn.turn_run import current_turn


def take_text_sink(request: LlmRequest) -> TextSink | None:
    """Return the sink for the answer to this request, once; None: the text goes through ADK."""
    turn = current_turn.get()
    return turn.output.take_text_sink(request) if turn is not None else None


def chosen_model(model: Any) -> Any:
    """Return the model that was chosen for this turn instead of a model; None: none was."""
    turn = current_turn.get()
    return turn.chosen_model if turn is not None and turn.replaced_model is model else None


def progress_callback() -> Callable[[], None]:
    """Return what is called for each delta of a model: it keeps the turn from timing out."""
    turn = current_turn.get()
    return turn.limits.time.note_progress if turn is not None else _ignore


def _ignore() -> None:
    pass


def agents_with_direct_text(agents: Iterable[BaseAgent]) -> frozenset[str]:
    """Return the names of the agents whose text nothing in ADK can change."""
    return frozenset(agent.name for agent in agents if _text_passes_unchanged(agent))


def _text_passes_unchanged(agent: BaseAgent) -> bool:
    return (
        type(agent) is LlmAgent
        and agent.mode in (None, "chat")
        and not (agent.after_model_callback or agent.planner or agent.code_executor or agent.output_schema)
    )
