"""Which stored event is sure to be the last one of its turn.

A process can be killed after the answer was stored and before the turn was ended. Whether anything would have come
after that answer only the shape of the app can tell: of agents in a row, the next one has not run yet. So this is said
of a single agent alone, whose model gives one final response per request, and after which nobody adds anything.
"""

from typing import Any

from google.adk.agents import LlmAgent
from google.adk.apps import App
from google.adk.events import Event

from lango.adk.model.direct_text import plain_speakers
from lango.adk.model.provider_llm import ProviderLlm


def sure_speaker(app: App) -> str:
    """Return the agent whose final answer ends the turn; empty: in this app something may come after it."""
    root: Any = app.root_agent  # an agent, or any node of a workflow
    if not isinstance(root, LlmAgent) or not plain_speakers([root]) or len(app.plugins) != 1:  # the one plugin is ours
        return ""
    more = root.sub_agents or vars(root)["after_agent_callback"]
    return root.name if not more and isinstance(root.model, ProviderLlm) else ""


def is_answer(event: Event, speaker: str) -> bool:
    """Whether an event is a whole answer of that agent, in words, after which it says nothing more."""
    parts = (event.content and event.content.parts) or []
    return (
        bool(speaker)
        and event.author == speaker
        and event.finish_reason is not None
        and not (event.error_code or event.long_running_tool_ids or event.get_function_responses())
        and event.is_final_response()
        and any(part.text and not part.text.isspace() and not part.thought for part in parts)
    )
