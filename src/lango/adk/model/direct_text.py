"""Send streamed text to the readers of a turn without making an ADK event of each piece.

A partial event costs ADK about 0.6 ms, more than all other work on it: two hundred streams of twenty pieces a second
would need more than two cores. So where no code between the model and the reader can change the text, ADK only gets the
final answer. Agents with a callback on answers, a planner or a code executor stream through ADK, and so does every
agent of an app with plugins.
"""

from collections.abc import Callable, Iterable
from contextvars import ContextVar

from google.adk.agents import BaseAgent, LlmAgent
from google.adk.models.llm_request import LlmRequest

from lango.providers.protocol import TextDelta, ThoughtDelta

TextSink = Callable[[TextDelta | ThoughtDelta], None]

model_progress: ContextVar[Callable[[], None]] = ContextVar("lango_model_progress", default=lambda: None)
"""Called for each delta of a model, also for those that become no event, so that the turn does not time out."""
_text_sink: ContextVar[tuple[LlmRequest, TextSink] | None] = ContextVar("lango_text_sink", default=None)


def set_text_sink(request: LlmRequest, sink: TextSink | None) -> None:
    """Send the text of the answer to this request to `sink`, piece by piece; None: through ADK."""
    _text_sink.set(None if sink is None else (request, sink))


def text_sink_of(request: LlmRequest) -> TextSink | None:
    """Return the sink for the answer to this request; None: the text goes through ADK."""
    current = _text_sink.get()
    return current[1] if current is not None and current[0] is request else None


def agents_with_direct_text(agents: Iterable[BaseAgent]) -> frozenset[str]:
    """Return the names of the agents whose text nothing in ADK can change."""
    return frozenset(agent.name for agent in agents if _text_passes_unchanged(agent))


def _text_passes_unchanged(agent: BaseAgent) -> bool:
    return (
        type(agent) is LlmAgent
        and agent.mode in (None, "chat")
        and not (agent.after_model_callback or agent.planner or agent.code_executor or agent.output_schema)
    )
