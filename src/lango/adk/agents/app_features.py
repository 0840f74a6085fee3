"""Refuse at start what an app asks for and Lango would not do.

Everything else of ADK is honoured; `docs/adk-features.md` lists it feature by feature.
"""

import re
from typing import Any

from google.adk.agents import LlmAgent
from google.adk.apps import App
from google.adk.models import BaseLlm

from lango.adk.agents.adk_internals import model_of_summarizer
from lango.adk.agents.tree import tools_of, walk_with_agent_tools
from lango.adk.model.provider_llm import ProviderLlm
from lango.errors import FeatureRefused

_LIVE_MODEL = re.compile(r"(^|[-/])live\b|native-audio")
_GEMINI_TOOLS = frozenset(
    {
        "EnterpriseWebSearchTool",
        "GoogleMapsGroundingTool",
        "GoogleSearchTool",
        "UrlContextTool",
        "VertexAiRagRetrieval",
        "VertexAiSearchTool",
    }
)
"""Tools that run inside of Gemini: only ADK's own Gemini models send them."""
_USE_ADK_MODEL = "give the agent ADK's own Gemini model (model='gemini-...', and no agent.model in the settings)"


def check_features(app: App) -> None:
    """Raise `FeatureRefused` for a feature that would be ignored, or would fail in every turn."""
    agents = [agent for agent in walk_with_agent_tools(app.root_agent) if isinstance(agent, LlmAgent)]
    for agent in agents:
        _check_agent(agent)
    compaction = app.events_compaction_config
    if compaction is not None and compaction.summarizer is None and not isinstance(app.root_agent, LlmAgent):
        raise FeatureRefused(
            f"events_compaction_config: {getattr(app.root_agent, 'name', '')!r} has no model to summarize with; "
            "set its summarizer, such as LlmEventSummarizer(llm=...)"
        )
    ours = [agent.name for agent in agents if isinstance(_model_of(agent), ProviderLlm)]
    if app.context_cache_config is not None and ours:
        raise FeatureRefused(
            f"context_cache_config: the model of agent {ours[0]!r} is one of Lango's, which leave caching to the "
            "provider; remove the setting, or use ADK's own Gemini or Claude models"
        )


def summary_model(app: App) -> str:
    """Return the name of the model that summarizes events for ADK's compaction; empty: it is not known."""
    compaction = app.events_compaction_config
    if compaction is None:
        return ""
    root: Any = app.root_agent
    model = model_of_summarizer(compaction.summarizer) or (_model_of(root) if isinstance(root, LlmAgent) else "")
    return (model if isinstance(model, str) else model.model).rpartition("/")[2]


def _check_agent(agent: LlmAgent) -> None:
    model = _model_of(agent)
    name = model if isinstance(model, str) else model.model
    if _LIVE_MODEL.search(name):
        raise FeatureRefused(
            f"agent {agent.name!r}: {name} is a model for ADK's Live mode (bidirectional audio and video), and Lango "
            "runs turns of text; use a text model here, and `adk web` for Live"
        )
    if not isinstance(model, ProviderLlm):
        return
    executor = agent.code_executor
    if executor is not None and type(executor).__name__ == "BuiltInCodeExecutor":
        raise FeatureRefused(
            f"agent {agent.name!r}: BuiltInCodeExecutor runs code inside Gemini; {_USE_ADK_MODEL}, or use an "
            "executor that runs the code itself, such as ContainerCodeExecutor"
        )
    inside = [_tool_name(tool) for tool in tools_of(agent) if type(tool).__name__ in _GEMINI_TOOLS]
    if inside:
        raise FeatureRefused(f"agent {agent.name!r}: the tool {inside[0]} runs inside Gemini; {_USE_ADK_MODEL}")


def _model_of(agent: LlmAgent) -> str | BaseLlm:
    """Return the model of an agent, which it may inherit from an agent above it."""
    above: Any = agent
    while isinstance(above, LlmAgent) and not above.model:
        above = above.parent_agent
    return above.model if isinstance(above, LlmAgent) else ""


def _tool_name(tool: Any) -> str:
    return getattr(tool, "name", "") or type(tool).__name__
