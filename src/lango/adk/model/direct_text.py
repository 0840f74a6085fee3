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

TextSink = Callable[[TextDelta | ThoughtDelta], None]

model_progress: ContextVar[Callable[[], None]] = ContextVar("lango_model_progress", default=lambda: None)
"""Called for each delta of a model, also for those that are no event: the turn's model is not silent."""
_text_sink: ContextVar[tuple[LlmRequest, TextSink] | None] = ContextVar("lango_speaking", default=None)


def set_text_sink(request: LlmRequest, sink: TextSink | None) -> None:
    """Have the answer to this request told by `say`, piece by piece; None: through ADK."""
    _text_sink.set(None if sink is None else (request, sink))


def text_sink_of(request: LlmRequest) -> TextSink | None:
    """Return who tells the answer to this request; None: ADK does."""
    current = _text_sink.get()
    return current[1] if current is not None and current[0] is request else None


def agents_with_direct_text(agents: Iterable[BaseAgent]) -> frozenset[str]:
    """Return the names of the agents whose text nobody changes on its way out."""
    return frozenset(agent.name for agent in agents if _text_passes_unchanged(agent))


def _text_passes_unchanged(agent: BaseAgent) -> bool:
    return (
        type(agent) is LlmAgent
        and agent.mode in (None, "chat")
        and not (agent.after_model_callback or agent.planner or agent.code_executor or agent.output_schema)
    )
