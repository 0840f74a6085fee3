"""Offer tools that the client runs itself, and take their results.

To ADK they are long-running tools: the turn ends and the call waits. The metadata of the event that makes the calls
lists those of the client (`CLIENT_CALLS_KEY`), so that any process can accept their results later. Their definitions
are read by `lango.tools.client_tool_definitions`.
"""

import json
import uuid
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from google.adk.events import Event
from google.adk.models.llm_request import LlmRequest
from google.adk.models.llm_response import LlmResponse
from google.adk.tools.tool_context import ToolContext
from google.genai import types
from typing_extensions import override

from lango.adk.agents.tools.adk_tool import DeclaredTool
from lango.adk.agents.tree import TRANSFER_TOOL, names_of, tools_of
from lango.adk.model.call_checks import is_reserved_name
from lango.errors import ClientToolRefused, NotJson
from lango.messages import ToolCall
from lango.sessions import CLIENT_CALLS_KEY
from lango.store.codec.records import ClientResult
from lango.tools import HOW_TO_READ, Tool
from lango.tools.results import clip_to_characters, to_result

WAITS_FOR_CLIENT = "not done: other calls of this answer are waiting for the client; transfer after their results"
ADK_TOOL_NAMES = frozenset({TRANSFER_TOOL, "set_model_response", "finish_task"})
"""Names of ADK's own tools, which control a run."""
_READ_RESULT_TOOL = "read_result"


class ClientTool(DeclaredTool):
    """A tool whose calls wait for the client."""

    @override
    async def run_async(self, *, args: dict[str, Any], tool_context: ToolContext) -> None:
        """Do nothing: the result comes from the client."""


def check_tool_names(tools: Iterable[str], agents: Iterable[Any]) -> None:
    """Raise `ClientToolRefused` for a name that a tool of an agent has, or that ADK reserves."""
    _refuse(names_in_use(tools, agents))


def names_in_use(tools: Iterable[str], agents: Iterable[Any]) -> set[str]:
    """Return the names that a tool of an agent has, or that ADK reserves."""
    used_names = _agent_tool_names(agents) | ADK_TOOL_NAMES
    return {name for name in tools if name in used_names or is_reserved_name(name)}


def add_client_tools(request: LlmRequest, tools: Mapping[str, Tool]) -> None:
    """Add the client's tools to a request. Raise `ClientToolRefused` if a tool of the agent has the same name."""
    _refuse(name for name in tools if name in request.tools_dict)
    request.append_tools([ClientTool(tool, long_running=True) for tool in tools.values()])


def _refuse(names: Iterable[str]) -> None:
    if refused := sorted(names):
        raise ClientToolRefused(f"the agent already has a tool named {', '.join(refused)}: rename the client's tool")


def _agent_tool_names(agents: Iterable[Any]) -> set[str]:
    """Return the names of the agents' tools, except those of toolsets: they are known when the model is called."""
    return names_of(tool for agent in agents for tool in tools_of(agent))


def mark_client_calls(response: LlmResponse, tools: Mapping[str, Tool]) -> set[str]:
    """Mark the calls of client tools in a response, and return their ids.

    A call that does not fit its schema is not marked: the model gets an error at once, without the client.
    """
    parts = (response.content and response.content.parts) or []
    ids: list[str] = []
    for call in (part.function_call for part in parts if part.function_call):
        tool = tools.get(call.name or "")
        if tool is not None and tool.fits(call.args or {}):
            call.id = call.id or f"call_{uuid.uuid4().hex[:24]}"
            ids.append(call.id)
    if ids:
        response.custom_metadata = {**(response.custom_metadata or {}), CLIENT_CALLS_KEY: ids}
    return set(ids)


def results_to_store(
    results: Mapping[str, Mapping[str, Any]], agents: Iterable[Any], *, will_continue: bool | None = False
) -> dict[str, ClientResult]:
    """Convert results to plain JSON, clipped as the results of the agent's own tools are."""
    can_read = _READ_RESULT_TOOL in _agent_tool_names(agents)
    found: dict[str, ClientResult] = {}
    for call_id, result in results.items():
        how = HOW_TO_READ.replace("{call_id}", call_id) if can_read else ""
        clipped = clip_to_characters(_to_json_object(result), how_to_read=how)
        full_text = clipped.whole if can_read else None
        found[call_id] = ClientResult(_readable_by_adk(clipped.result), full_text, will_continue)
    return found


def _readable_by_adk(result: dict[str, Any]) -> dict[str, Any]:
    """Rename a lone `result` that is nested too deeply: ADK would try to parse it as JSON, and fail."""
    try:
        if result.keys() == {"result"} and isinstance(result["result"], str):
            json.loads(result["result"])
    except RecursionError:
        return {"text": result["result"]}
    except ValueError:
        pass
    return result


def _to_json_object(result: Mapping[str, Any]) -> dict[str, Any]:
    try:
        return to_result(result)
    except NotJson:
        return to_result({"result": json.dumps(result)})


def results_content(calls: Sequence[ToolCall], results: Mapping[str, ClientResult]) -> types.Content:
    """Build the content that brings the results of calls."""
    responses = [
        types.FunctionResponse(
            id=call.id,
            name=call.name,
            response=dict(results[call.id].output),
            will_continue=results[call.id].will_continue or None,
        )
        for call in calls
        if call.id in results
    ]
    return types.Content(role="user", parts=[types.Part(function_response=response) for response in responses])


def as_user_content(event: Event) -> Event:
    """Restore the role of an event that brings results: rows do not store that it was the user's."""
    parts = event.content.parts if event.content else []
    return event.model_copy(update={"content": types.Content(role="user", parts=parts)})


def find_unanswered_results(events: Sequence[Event], call_ids: Collection[str]) -> Event | None:
    """Return the event that brings the results of these calls, if the model has not answered it yet.

    An answer to a request of ADK itself is none of them: it would run the tool that the request is about.
    """
    for event in reversed(events):
        responses = event.get_function_responses()
        result_ids = {response.id for response in responses}
        if event.author == "user":
            is_answer = any(is_reserved_name(response.name) for response in responses)
            return as_user_content(event) if result_ids and result_ids <= {*call_ids} and not is_answer else None
        if event.content and not (result_ids or event.get_function_calls() or event.error_code):
            return None
    return None
