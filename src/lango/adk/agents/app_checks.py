"""Check an app before it runs: refuse what Lango would not do, and find what would fail in a turn.

Everything else of ADK is honoured; `docs/adk-features.md` lists it feature by feature.
"""

import asyncio
import os
import re
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from typing import Any, cast

from google.adk.agents import LlmAgent
from google.adk.apps import App
from google.adk.models import BaseLlm, Gemini, LLMRegistry
from google.adk.tools.base_toolset import BaseToolset
from msgspec import Struct

from lango.adk.agents.adk_internals import model_of_summarizer
from lango.adk.agents.model_registry import named_models
from lango.adk.agents.tree import names_of, tools_of, walk_with_agent_tools
from lango.adk.model.provider_llm import ProviderLlm
from lango.config import Settings
from lango.errors import FeatureRefused, LangoError
from lango.store.credentials.secret_box import SecretBox

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
_TOOLSET_TIMEOUT_S = 30.0
_GOOGLE_CLOUD = ("GOOGLE_GENAI_USE_VERTEXAI", "GOOGLE_GENAI_USE_ENTERPRISE")


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
    """Return the name of the model that summarizes events for ADK's compaction, or "" if it is not known."""
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
    inside = [getattr(tool, "name", "") for tool in tools_of(agent) if type(tool).__name__ in _GEMINI_TOOLS]
    if inside:
        raise FeatureRefused(f"agent {agent.name!r}: the tool {inside[0]} runs inside Gemini; {_USE_ADK_MODEL}")


def _model_of(agent: LlmAgent) -> str | BaseLlm:
    """Return the model of an agent, which it may inherit from an agent above it."""
    above: Any = agent
    while isinstance(above, LlmAgent) and not above.model:
        above = above.parent_agent
    return above.model if isinstance(above, LlmAgent) else ""


class TreeProblem(Struct, frozen=True):
    """Something that would fail in a turn, and the agent that it belongs to."""

    subject: str
    agent: str
    argument: str
    """The argument of the agent that causes it."""
    message: str


async def check_tree(root: Any, settings: Settings, *, contact: bool) -> list[TreeProblem]:
    """Return the problems of an agent tree; with `contact`, its toolsets are asked for their tools."""
    problems = [*_model_problems(root, settings), *_name_problems(root), *_credential_problems(root)]
    if contact:
        problems += [problem async for problem in _toolset_problems(root)]
    return problems


def _model_problems(root: Any, settings: Settings) -> Iterator[TreeProblem]:
    """Find models of ADK that are not known or have no access; Lango's own are checked by their provider."""
    for agent, model, is_lango in named_models(root, settings):
        if not is_lango and (message := _missing_for(model)):
            name = model if isinstance(model, str) else str(getattr(model, "model", ""))
            yield TreeProblem(f"model {name}", agent.name, "model", message)


def _missing_for(model: Any) -> str:
    """Return what a model of ADK is known to lack before a turn runs, or ""."""
    kind = cast("type[Any]", type(model))
    if isinstance(model, str):
        try:
            kind = LLMRegistry.resolve(model)
        except (ValueError, ImportError) as error:
            return f"{str(error).strip().splitlines()[0].rstrip('.')}, and it is not a provider/name of the settings"
    has_key = os.environ.get("GOOGLE_API_KEY") or os.environ.get("GEMINI_API_KEY")
    on_cloud = any(os.environ.get(name, "").lower() in ("1", "true") for name in _GOOGLE_CLOUD)
    if kind is Gemini and not has_key and not on_cloud:
        return "Gemini needs a key: set GOOGLE_API_KEY, or GOOGLE_GENAI_USE_VERTEXAI=true to use Google Cloud"
    return ""


def _name_problems(root: Any) -> Iterator[TreeProblem]:
    agents = {id(agent): agent for agent in walk_with_agent_tools(root)}.values()
    for name, count in Counter(agent.name for agent in agents).items():
        if count > 1:
            message = f"{count} agents have this name, and a transfer finds only the first: rename the others"
            yield TreeProblem(f"agent {name}", name, "name", message)


def _credential_problems(root: Any) -> Iterator[TreeProblem]:
    """Find tools that ask for credentials where none can be stored."""
    for agent in walk_with_agent_tools(root):
        asking = [tool for tool in tools_of(agent) if getattr(tool, "_credentials_manager", None) is not None]
        if asking:
            try:
                SecretBox.from_environment().check()
            except LangoError as error:
                yield TreeProblem(f"tool {min(names_of(asking))}", agent.name, "tools", str(error))


async def _toolset_problems(root: Any) -> AsyncIterator[TreeProblem]:
    """Ask the toolsets of the agents for their tools, which starts or connects to their servers."""
    for agent in walk_with_agent_tools(root):
        if not isinstance(agent, LlmAgent):
            continue
        for toolset in (tool for tool in tools_of(agent) if isinstance(tool, BaseToolset)):
            problem = ""
            try:
                async with asyncio.timeout(_TOOLSET_TIMEOUT_S):
                    await toolset.get_tools()
            except TimeoutError:
                problem = f"no answer within {_TOOLSET_TIMEOUT_S:g} s"
            except (AttributeError, TypeError):  # it needs the context of a turn
                pass
            except Exception as error:  # noqa: BLE001 - a user's own toolset
                problem = f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0]}"
            finally:
                await toolset.close()
            if problem:
                name = type(toolset).__name__
                yield TreeProblem(f"tools {name}", agent.name, "tools", f"it cannot list its tools: {problem}")
