"""Build the ADK app from the settings or from a user's own agent, and prepare it for what users may choose.

ADK runs callbacks in its own tasks. A `SystemExit` in such a task ends the event loop, and with it every other turn of
the process. A panic of a native library is not caught by `except Exception` either. So what callbacks raise becomes an
error of the turn.
"""

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast
from weakref import WeakSet

from google.adk.agents import BaseAgent, LlmAgent
from google.adk.agents.readonly_context import ReadonlyContext
from google.adk.apps import App
from google.adk.plugins import BasePlugin
from google.adk.tools.base_toolset import BaseToolset
from google.adk.utils.instructions_utils import inject_session_state

from lango.adk.agents.app_checks import check_features
from lango.adk.agents.model_registry import ModelRegistry, assign_models
from lango.adk.agents.tools.adk_tool import AdkTool
from lango.adk.agents.tree import tools_of, walk_with_agent_tools
from lango.adk.model.provider_llm import ProviderLlm
from lango.adk.turn.turn_run import current_turn
from lango.config import ChoiceSettings, Settings
from lango.errors import AgentFailed, ConfigError
from lango.tools import Tool
from lango.tools.execution import base_exceptions_converted, convert_base_exceptions

_REPLACEABLE_MARK = "_lango_replaceable"


def build_app(
    settings: Settings,
    models: ModelRegistry,
    tools: Sequence[Tool],
    plugin: BasePlugin,
    root_agent: BaseAgent | App | None = None,
    offered: Sequence[Tool] = (),
) -> App:
    """Build the ADK app from `root_agent`, from `agent.module` or from the other settings, in this order.

    The `offered` tools are added to an agent that can have them.
    """
    found = root_agent
    if found is None and settings.agent.module:
        from lango.adk.agents.loader import load_agent  # ADK's loader brings requests and yaml

        found = load_agent(settings.agent.module)
    if found is None:
        toolsets: Sequence[BaseToolset] = ()
        if settings.mcp:
            from lango.adk.agents.tools.mcp.toolset import mcp_toolsets  # its package is optional

            toolsets = mcp_toolsets(
                settings.mcp,
                timeout_s=settings.agent.tool_timeout_s,
                callback_url=settings.callback_url,
                taken=[tool.name for tool in tools],
            )
        every = {tool.name: AdkTool(tool) for tool in (*offered, *tools)}
        root = _build_configured_agent(settings, models, every, toolsets)
    else:
        root = models.adopt_agent(found.root_agent if isinstance(found, App) else found)
        assign_models(root, settings, models)
        for agent in walk_with_agent_tools(root):
            guard_callbacks(agent)
        _add_tools(root, [AdkTool(tool) for tool in (*tools, *_suitable(root, offered))])
    if isinstance(found, App):
        compaction = found.events_compaction_config
        update = {
            "root_agent": root,
            "plugins": [plugin, *found.plugins],
            "events_compaction_config": compaction and compaction.model_copy(),  # ADK keeps this runtime's model in it
        }
        app = found.model_copy(update=update)
    else:
        # an agent may have a name that ADK refuses for an `App`, and takes from its Runner all the same
        app = App.model_construct(name=settings.app_name, root_agent=root, plugins=[plugin])
    check_features(app)
    return app


def own_app_name(agent: BaseAgent | App) -> str | None:
    """Return the name that an `App` gives itself; None for an agent."""
    return agent.name if isinstance(agent, App) else None


def _build_configured_agent(
    settings: Settings, models: ModelRegistry, tools: Mapping[str, AdkTool], toolsets: Sequence[BaseToolset]
) -> LlmAgent:
    agent = settings.agent
    subs = [
        LlmAgent(
            name=name,
            description=sub.description,
            instruction=sub.instruction,
            model=models.get(sub.model or settings.model),
            tools=_select_tools(name, sub.tools, tools),
        )
        for name, sub in agent.sub_agents.items()
    ]
    return LlmAgent(
        name=settings.app_name,
        instruction=agent.instruction,
        model=models.get(settings.model),
        tools=[*tools.values(), *toolsets],
        sub_agents=[*subs],
    )


def _select_tools(agent: str, names: list[str] | None, tools: Mapping[str, AdkTool]) -> list[Any]:
    unknown = [name for name in names or () if name not in tools]
    if unknown:
        there = f"the tools are {', '.join(tools)}" if tools else "add it to tools.enabled"
        raise ConfigError(f"agent.sub_agents.{agent}.tools: there is no tool {', '.join(unknown)}; {there}")
    return [*tools.values()] if names is None else [tools[name] for name in names]


_added_tools: WeakSet[AdkTool] = WeakSet()


def _add_tools(root: Any, tools: Sequence[AdkTool]) -> None:
    """Add a runtime's tools to a user's agent, in place of those that another runtime added."""
    if not tools and not isinstance(root, LlmAgent):
        return
    if not isinstance(root, LlmAgent):
        raise ConfigError(f"tools cannot be added to {root.name}: it is not an LlmAgent; add them to its sub-agents")
    names = {tool.name for tool in tools}
    own = tools_of(root)
    remaining = [own_tool for own_tool in own if not (isinstance(own_tool, AdkTool) and own_tool in _added_tools)]
    _added_tools.update(tools)
    if tools or len(remaining) < len(own):
        root.tools = [*(own_tool for own_tool in remaining if getattr(own_tool, "name", "") not in names), *tools]


def _suitable(root: Any, offered: Sequence[Tool]) -> list[Tool]:
    """Return the offered tools that an agent can have in addition to its own: none if it answers in a schema."""
    if not isinstance(root, LlmAgent) or root.output_schema is not None:
        return []
    own = [one for one in tools_of(root) if one not in _added_tools]
    names = {getattr(one, "name", getattr(one, "__name__", "")) for one in own}
    return [tool for tool in offered if tool.name not in names]


def allow_choices(root: Any, choices: ChoiceSettings, get_model: Callable[[str], ProviderLlm]) -> None:
    """Prepare an agent as the settings allow. Raise an error for a model, or an agent, with which that cannot be."""
    if choices.instruction:
        if not isinstance(root, LlmAgent):
            raise ConfigError(f"agent.choices.instruction: {root.name} is a workflow, which has no instruction")
        if not hasattr(root.instruction, _REPLACEABLE_MARK):
            root.instruction = _replaceable(root.instruction)
    for model in choices.models:
        get_model(model)
    if choices.models and not isinstance(getattr(root, "model", None), ProviderLlm):
        raise ConfigError(
            f"agent.choices.models: the model of {root.name} is a custom model object, which Lango cannot replace: "
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

    setattr(instruction, _REPLACEABLE_MARK, original)
    return instruction


def own_instruction(agent: Any) -> str | Callable[..., Any]:
    """Return the instruction of an agent as its author wrote it: a text, or a function that makes it."""
    instruction: Any = getattr(agent, "instruction", "")
    return getattr(instruction, _REPLACEABLE_MARK, instruction)


# -- callbacks ---------------------------------------------------------------------------------------------------------

_GUARDED_MARK = "_lango_guarded"


def is_adk_control_flow(error: BaseException) -> bool:
    """Whether ADK itself raises this error to control a run, such as a node that waits for input."""
    return type(error).__module__.startswith("google.adk.")


def guard_callbacks(agent: BaseAgent) -> None:
    """Wrap the callbacks of an agent so that they raise nothing but an `Exception`. It may be called again."""
    for name in type(agent).model_fields:
        found: Any = getattr(agent, name) if name.endswith("_callback") else None
        if isinstance(found, list):
            setattr(agent, name, [_guarded(callback) for callback in cast("list[Any]", found)])
        elif callable(found):
            setattr(agent, name, _guarded(found))


def _guarded(callback: Callable[..., Any]) -> Callable[..., Any]:
    if hasattr(callback, _GUARDED_MARK):
        return callback

    @functools.wraps(callback)
    def call(*arguments: Any, **named: Any) -> Any:
        with base_exceptions_converted(is_adk_control_flow, _callback_failed):
            result = callback(*arguments, **named)
        if inspect.isawaitable(result):
            return convert_base_exceptions(result, is_adk_control_flow, _callback_failed)
        return result

    setattr(call, _GUARDED_MARK, True)
    return call


def _callback_failed(text: str) -> AgentFailed:
    return AgentFailed(f"a callback of the agent raised {text}")
