"""Reach into ADK where it has no public name: the only module that does.

ADK 2.13 offers no other way for any of these. A contract test fails when one of them is gone.
"""

import functools
import importlib
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from typing import Any

from google.adk.agents import BaseAgent
from google.adk.agents.callback_context import CallbackContext
from google.adk.events import Event, RequestInput
from google.adk.models import BaseLlm
from google.adk.sessions import Session
from google.adk.tools import BaseTool, ToolContext
from google.adk.tools.tool_confirmation import ToolConfirmation
from google.genai import types

_JOURNALED_MARK = "_lango_journaled"
_OPENAPI = "google.adk.tools.openapi_tool"
_OPTIONAL_MODULE = "google.adk.agents.remote_a2a_agent"


def declaration_of(tool: BaseTool) -> types.FunctionDeclaration | None:
    """Return what the model reads of an ADK tool. ADK calls the method only while it builds a request."""
    return tool._get_declaration()  # noqa: SLF001 # pyright: ignore[reportPrivateUsage]


def defers_response(tool: BaseTool) -> bool:
    """Whether the result of a tool that returned nothing comes later, as ADK itself decides it."""
    return tool.is_long_running or tool._defers_response  # noqa: SLF001 # pyright: ignore[reportPrivateUsage]


def agent_to_run(root: Any, events: Sequence[Event]) -> Any:
    """Return the agent with which ADK begins a run in a session with these events."""
    router: Any = importlib.import_module("google.adk.agents._agent_router")
    session = Session(id="", app_name="", user_id="", events=[*events])
    return router.find_agent_to_run(session, root)


def let_agent_answer(context: CallbackContext, agent: BaseAgent) -> None:
    """Let another agent make the model call that a callback precedes; ADK shows callbacks a copy of the invocation."""
    context._invocation_context.agent = agent  # noqa: SLF001 # pyright: ignore[reportPrivateUsage]


def node_of_tool(tool: Any) -> Any:
    """Return the node of a workflow that a tool runs, or None. An agent's tool may be the node itself."""
    module = sys.modules.get("google.adk.tools._node_tool")  # without it there is no such tool
    if module is not None and isinstance(tool, module.NodeTool):
        return tool.node
    return tool if hasattr(tool, "rerun_on_resume") else None


NodeRun = Callable[..., "AsyncGenerator[Any, None]"]
"""Runs a node: takes its context and its input, and yields what the node yields."""
JournaledRun = Callable[[Callable[..., Any], str, NodeRun, Any, Any], "AsyncGenerator[Any, None]"]


def journal_nodes(run_journaled: JournaledRun) -> None:
    """Put a function around the run of every function node. It gets the node's function, its name and its own run.

    A plugin cannot do it: ADK calls none around a node. A subclass cannot do it either: ADK makes the nodes itself.
    """
    from google.adk.workflow import FunctionNode

    if "_run_impl" not in vars(FunctionNode) or hasattr(vars(FunctionNode)["_run_impl"], _JOURNALED_MARK):
        return
    run = vars(FunctionNode)["_run_impl"]

    def journaled(node: Any, *, ctx: Any, node_input: Any) -> "AsyncGenerator[Any, None]":
        return run_journaled(node._unwrapped_func, node.name, functools.partial(run, node), ctx, node_input)  # noqa: SLF001

    setattr(journaled, _JOURNALED_MARK, True)
    FunctionNode._run_impl = journaled  # noqa: SLF001 # pyright: ignore


ObservedRun = Callable[[str, Any, Any, "AsyncGenerator[Any, None]"], "AsyncGenerator[Any, None]"]
"""Gets the name of a node of a workflow, its context, its input and its run, and yields what the run yields."""


def observe_nodes(observe: ObservedRun) -> None:
    """Put a function around the run of every node of a workflow, of any kind."""
    from google.adk.workflow import BaseNode, Workflow

    run = vars(BaseNode)["run"]
    if hasattr(run, _JOURNALED_MARK):
        return

    def observed(node: Any, *, ctx: Any, node_input: Any) -> "AsyncGenerator[Any, None]":
        steps = run(node, ctx=ctx, node_input=node_input)
        outer: Any = getattr(ctx, "_parent_ctx", None)
        while outer is not None and not isinstance(getattr(outer, "_node", None), Workflow):
            outer = getattr(outer, "_parent_ctx", None)
        return steps if outer is None else observe(node.name, ctx, node_input, steps)

    setattr(observed, _JOURNALED_MARK, True)
    BaseNode.run = observed  # pyright: ignore


def is_node_interrupt(error: BaseException) -> bool:
    """Whether a node stops because a node that it runs waits for an answer."""
    return type(error).__name__ == "NodeInterruptedError"


def tool_node_path(context: ToolContext) -> str | None:
    """Return the path of the node that runs a tool without an agent; ADK gives its call another id in each run."""
    node: Any = getattr(context, "_node", None)
    return context.node_path if type(node).__name__ == "_ToolNode" else None


def confirmation_id_of_tool_node(context: ToolContext) -> str:
    """Return the id of the input request by which a node that runs a tool asks, or "" if no such node runs the tool."""
    path = tool_node_path(context)
    return "" if path is None else f"wf_tool_confirmation:{path}"


def credential_request_of_node(context: Any) -> str:
    """Return the id by which a node requests a credential."""
    return f"wf_auth:{context.node_path}"


def confirmation_of_tool_node(context: ToolContext, tool: BaseTool, arguments: dict[str, Any]) -> RequestInput | None:
    """Return the input request for a confirmation that was requested in a node which runs a tool, or None.

    ADK asks so for its own confirmations: the node runs again with the answer, which it finds by this id.
    """
    request_id, requested = confirmation_id_of_tool_node(context), context.actions.requested_tool_confirmations
    if not request_id or context.function_call_id not in requested:
        return None
    return RequestInput(
        interrupt_id=request_id,
        message=requested.pop(context.function_call_id).hint,
        payload={"tool_name": tool.name, "args": arguments},
        response_schema=ToolConfirmation,
    )


def model_of_summarizer(summarizer: Any) -> BaseLlm | None:
    """Return the model of ADK's own summarizer, or None if there is none or it is the user's own."""
    model = getattr(summarizer, "_llm", None)
    return model if isinstance(model, BaseLlm) else None


def has_replaced_run(tool: BaseTool) -> bool:
    """Whether `replace_run` was called for this tool."""
    return "run_async" in vars(tool)


def replace_run(tool: BaseTool, run: Callable[..., Awaitable[Any]]) -> None:
    """Replace the function that runs a user's own tool object.

    A subclass cannot do it: the user made the object, and ADK dispatches on its class. A result of the plugin's
    `before_tool_callback` cannot do it either: it would skip the callbacks of the agent.
    """
    vars(tool)["run_async"] = run


def replace_code_execution(executor: Any, wrap: Callable[[Callable[..., Any]], Callable[..., Any]]) -> None:
    """Put a function around the code execution of a user's own executor; once, however often it is called.

    ADK has no callback around it, and dispatches on the executor's class.
    """
    if "execute_code" not in vars(executor):
        vars(executor)["execute_code"] = wrap(executor.execute_code)


Exchange = Callable[..., Awaitable[Any]]
"""Runs a step that may wait for a token server, and of those with the same second argument one at a time."""

_EXCHANGES = (  # these methods wait for a token server; those with True are not serialized by ADK itself
    ("google.adk.auth.credential_manager", "CredentialManager", "_load_from_auth_response", False),
    ("google.adk.auth.exchanger.oauth2_credential_exchanger", "OAuth2CredentialExchanger", "exchange", False),
    ("google.adk.auth.refresher.oauth2_credential_refresher", "OAuth2CredentialRefresher", "refresh", False),
    (f"{_OPENAPI}.openapi_spec_parser.tool_auth_handler", "ToolAuthHandler", "prepare_auth_credentials", True),
    ("google.adk.tools._google_credentials", "GoogleCredentialsManager", "_perform_oauth_flow", True),
)


def exchange_credentials_by(exchange: Exchange) -> None:
    """Put a function around the methods of ADK that ask a token server, in the modules that are imported.

    A plugin cannot do it: ADK calls none around them. They use no object of the event loop that they are called in.
    """
    for module, kind, name, once in _EXCHANGES:
        if module in sys.modules:
            _wrap_exchange(getattr(sys.modules[module], kind), name, exchange, once=once)
    if manager := sys.modules.get("google.adk.auth.credential_manager"):
        accounts: Any = manager.AuthCredentialTypes.SERVICE_ACCOUNT

        def is_account(_: Any, credential: Any) -> bool:
            return credential.auth_type == accounts  # others may have an exchanger of the user's own, for this loop

        _wrap_exchange(manager.CredentialManager, "_exchange_credential", exchange, once=False, only_if=is_account)


def _wrap_exchange(
    kind: Any, name: str, exchange: Exchange, *, once: bool, only_if: Callable[..., bool] | None = None
) -> None:
    run: Callable[..., Any] = getattr(kind, name)
    if hasattr(run, _JOURNALED_MARK):
        return

    async def exchanged(*args: Any, **named: Any) -> Any:
        if only_if is not None and not only_if(*args, **named):
            return await run(*args, **named)
        context: Any = (getattr(args[0], "tool_context", None) or args[-1]) if once else None
        session = context and context.session
        key = (session.app_name, session.user_id, session.id) if session else None
        return await exchange(lambda: run(*args, **named), key)

    setattr(exchanged, _JOURNALED_MARK, True)
    setattr(kind, name, exchanged)


def preload_adk() -> None:
    """Import what ADK imports in its first run, which would block the event loop for a second and a half.

    ADK tries to import an optional module in every turn. If its package is missing, it is marked so: trying is slow.
    """
    importlib.import_module("google.adk.workflow").Workflow  # noqa: B018 - an attribute that imports
    importlib.import_module("google.adk.flows.llm_flows.auto_flow")
    try:
        importlib.import_module(_OPTIONAL_MODULE)
    except ImportError:
        vars(sys)["modules"][_OPTIONAL_MODULE] = None
