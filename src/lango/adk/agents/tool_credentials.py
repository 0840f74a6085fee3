"""Find the names under which tools look for credentials in the state, and exchange credentials for tokens.

ADK asks token servers with a client that blocks its thread, in part on the event loop: one slow server would stop every
turn. So each exchange runs in its own thread, within a time limit, once per session at a time.
"""

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterator
from typing import Any
from weakref import WeakValueDictionary

from google.adk.auth.auth_tool import AuthConfig
from google.adk.tools.agent_tool import AgentTool

from lango.adk.agents.adk_internals import exchange_credentials_by, node_of_tool
from lango.adk.agents.tree import tools_of
from lango.errors import CredentialTimeout
from lango.threads import run_in_own_thread

_LEVELS = 2  # a tool has a manager of credentials, which has their configuration
_NAMES = ("credential_key", "_credential_key", "external_access_token_key", "_token_cache_key")
LIMIT_S = 30.0
"""How long an exchange may take."""
_MOST_AT_ONCE = 32
_slots = threading.BoundedSemaphore(_MOST_AT_ONCE)
_locks: WeakValueDictionary[tuple[int, object], asyncio.Lock] = WeakValueDictionary()


def credential_names(root: Any) -> frozenset[str]:
    """Return the names of the credentials of all tools, toolsets and nodes below a root.

    Configurations that a tool makes while it runs are not known: their default names are always reserved.
    """
    names = (getattr(held, name, None) for owner in _walk(root) for held in _held(owner) for name in _NAMES)
    return frozenset(name for name in names if isinstance(name, str) and name)


def _walk(root: Any) -> Iterator[Any]:
    """Yield the agents, nodes, tools and toolsets below a root, each once."""
    pending, visited = [root], dict[int, Any]()
    while pending:
        node = pending.pop()
        if node is None or id(node) in visited:
            continue
        visited[id(node)] = node
        yield node
        graph: Any = getattr(node, "graph", None)
        inner = node.agent if isinstance(node, AgentTool) else node_of_tool(node)
        pending += [*getattr(node, "sub_agents", ()), *(graph.nodes if graph else ()), *tools_of(node), inner]


def _held(owner: Any, levels: int = _LEVELS) -> Iterator[Any]:
    """Yield an object, and the configurations of credentials that it holds."""
    yield owner
    members: dict[str, Any] = {**getattr(owner, "__dict__", {}), **(getattr(owner, "__pydantic_private__", None) or {})}
    for value in members.values() if levels else ():
        if isinstance(value, AuthConfig):
            yield value
        elif "redential" in type(value).__name__:  # ADK's managers and configurations of credentials
            yield from _held(value, levels - 1)


def move_exchanges_off_the_loop() -> None:
    """Let ADK exchange credentials here, in those of its modules that are imported; may be called again."""
    exchange_credentials_by(_exchange)


async def _exchange(work: Callable[[], Coroutine[Any, Any, Any]], once_per: object = None) -> Any:
    """Run a step of ADK that may wait for a token server. Raise `CredentialTimeout` after the limit.

    Of steps with an equal `once_per`, one runs at a time: the later ones find what the first has got.
    """
    if once_per is None:
        return await _run_in_thread(work)
    key = id(asyncio.get_running_loop()), once_per
    lock = _locks.get(key) or _locks.setdefault(key, asyncio.Lock())
    async with lock:
        return await _run_in_thread(work)


async def _run_in_thread(work: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
    if not _slots.acquire(blocking=False):
        raise CredentialTimeout("too many requests to token servers are open: try again later")

    def run() -> Any:
        try:
            return asyncio.run(work())
        finally:
            _slots.release()

    try:
        async with asyncio.timeout(LIMIT_S):
            return await run_in_own_thread(run)
    except TimeoutError as error:
        raise CredentialTimeout(f"the token server did not answer within {LIMIT_S:g} s: try again later") from error
