"""Text on its way past ADK: a piece of the answer reaches whoever follows the turn without being an event of ADK first.

A partial event costs ADK about 0.6 ms, more than all the rest of its way together: two hundred streams of twenty pieces
a second would need more than two cores. So where nobody between the model and the reader could change the text, ADK is
given the final answer alone. An agent with a callback on answers, a planner or a code executor, and every agent of an
app with plugins, speaks through ADK.
"""

from collections.abc import Callable, Iterable
from contextvars import ContextVar

from google.adk.agents import BaseAgent, LlmAgent
from google.adk.models.llm_request import LlmRequest

from lango.providers.protocol import TextDelta, ThoughtDelta

Say = Callable[[TextDelta | ThoughtDelta], None]

model_progress: ContextVar[Callable[[], None]] = ContextVar("lango_model_progress", default=lambda: None)
"""Called for each delta of a model, also for those that are no event: the turn's model is not silent."""
_speaking: ContextVar[tuple[LlmRequest, Say] | None] = ContextVar("lango_speaking", default=None)


def speak(request: LlmRequest, say: Say | None) -> None:
    """Have the answer to this request told by `say`, piece by piece; None: through ADK."""
    _speaking.set(None if say is None else (request, say))


def speaker_of(request: LlmRequest) -> Say | None:
    """Return who tells the answer to this request; None: ADK does."""
    speaking = _speaking.get()
    return speaking[1] if speaking is not None and speaking[0] is request else None


def plain_speakers(agents: Iterable[BaseAgent]) -> frozenset[str]:
    """Return the names of the agents whose text nobody changes on its way out."""
    return frozenset(agent.name for agent in agents if _is_plain(agent))


def _is_plain(agent: BaseAgent) -> bool:
    return (
        type(agent) is LlmAgent
        and agent.mode in (None, "chat")
        and not (agent.after_model_callback or agent.planner or agent.code_executor or agent.output_schema)
    )
