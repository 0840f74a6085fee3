"""Send streamed text to the readers of a turn without making an ADK event of each piece.

A partial event costs ADK about 0.6 ms, more than all other work on it: two hundred streams of twenty pieces a second
would need more than two cores. So where no code between the model and the reader can change the text, ADK only gets the
final answer. Agents with a callback on answers, a planner or a code executor stream through ADK, and so does every
agent of an app with plugins.
"""

from collections.abc import Iterable

from google.adk.agents import BaseAgent, LlmAgent


def agents_with_direct_text(agents: Iterable[BaseAgent]) -> frozenset[str]:
    """Return the names of the agents whose text nothing in ADK can change."""
    return frozenset(agent.name for agent in agents if _text_passes_unchanged(agent))


def _text_passes_unchanged(agent: BaseAgent) -> bool:
    return (
        type(agent) is LlmAgent
        and agent.mode in (None, "chat")
        and not (agent.after_model_callback or agent.planner or agent.code_executor or agent.output_schema)
    )
