"""Keep tool results that answer no call in the requests that ADK builds.

ADK sends a result only together with the call of its id. It drops a result without a call, a result before its call and
a second result. They are stored, so they are sent: as quoted text to any model; `ProviderLlm` recognises the type of
the content, takes the results themselves and repairs the history. ADK also drops any content without a role.
"""

from collections.abc import Sequence

from google.adk.events import Event
from google.genai import types
from pydantic import Field

from lango.history.history_repair import quote_result
from lango.messages import ToolCall


class UnpairedContent(types.Content):
    """Results that answer no call, quoted as text."""

    results: types.Content = Field(default_factory=types.Content, exclude=True)
    """The results themselves."""

    @classmethod
    def of(cls, results: list[types.Part]) -> "UnpairedContent":
        """Quote results."""
        found = [part.function_response for part in results if part.function_response]
        calls = [ToolCall(result.id or "", result.name or "", output=result.response or {}) for result in found]
        quotes = [types.Part(text=quote_result(call)) for call in calls]
        return cls(role="user", parts=quotes, results=types.Content(role="user", parts=results))


def events_for_requests(events: Sequence[Event]) -> list[Event]:
    """Return events with roles, in which each result that ADK would drop from its requests is quoted.

    ADK finds no call in an event that also has results: such an event becomes two. A long-running tool has several
    results, and a call that waits for approval has one that says so. ADK sends the last of these, so they stay as they
    are. ADK shows an agent the calls of another one as text, but not the results of such calls that the user or a third
    agent gave: before the newest message, these are shown as results of the agent that made the call. An event with
    results of calls in several events is split by these, since ADK would show it after each of them.
    """
    prepared: list[Event] = []
    made: dict[str, int] = {}  # by call id: the newest event that makes such a call
    answered: set[tuple[str, int]] = set()  # the call id and the event that makes the call
    updated: set[str] | None = None
    pieces = [piece for event in events for piece in _calls_then_results(_with_role(event))]
    said = [event.author == "user" and event.content and not event.get_function_responses() for event in pieces]
    newest = max((at for at, is_message in enumerate(said) if is_message), default=0)
    for at, event in enumerate(pieces):
        parts = (event.content and event.content.parts) or ()
        unpaired: list[types.Part] = []
        by_owner: dict[int, list[types.Part]] = {}
        for part in parts:
            if part.function_call and part.function_call.id:
                made[part.function_call.id] = at
            if part.function_response is None:
                continue
            call_id = part.function_response.id or ""
            owner = made.get(call_id)
            is_second = owner is not None and (call_id, owner) in answered
            if is_second and updated is None:
                updated = _calls_with_updates(events)
            if owner is None or (is_second and call_id not in (updated or ())):
                unpaired.append(part)
                continue
            answered.add((call_id, owner))
            by_owner.setdefault(owner, []).append(part)
        authors = {owner: pieces[owner].author if at < newest else event.author for owner in by_owner}
        if unpaired or len(by_owner) > 1 or any(author != event.author for author in authors.values()):
            results = [(authors[owner], parts_of_owner) for owner, parts_of_owner in by_owner.items()]
            prepared += _split_event(event, unpaired, results)
        else:
            prepared.append(event)
    return prepared


def _calls_then_results(event: Event) -> list[Event]:
    """Split an event with calls and results into one with its calls and its other parts, and one with its results."""
    parts = (event.content and event.content.parts) or ()
    results = [part for part in parts if part.function_response]
    if not results or not any(part.function_call for part in parts):
        return [event]
    others = [part for part in parts if not part.function_response]
    return [_with_parts(event, others), _with_parts(event, results)]


def _with_role(event: Event) -> Event:
    if event.content is None or event.content.role:
        return event
    role = "user" if event.author == "user" or event.get_function_responses() else "model"
    return event.model_copy(update={"content": event.content.model_copy(update={"role": role})})


def _calls_with_updates(events: Sequence[Event]) -> set[str]:
    """Return the ids of calls whose later results replace the earlier ones."""
    return {
        call_id
        for event in events
        for call_id in (
            *(event.long_running_tool_ids or ()),
            *event.actions.requested_tool_confirmations,
            *event.actions.requested_auth_configs,
        )
    }


def _split_event(
    event: Event, unpaired: list[types.Part], results_by_call: list[tuple[str, list[types.Part]]]
) -> list[Event]:
    """Split an event into its other parts, the results for each event with calls, and those that answer no call."""
    assert event.content
    found = {id(part) for parts in (unpaired, *(parts for _, parts in results_by_call)) for part in parts}
    others = [part for part in event.content.parts or () if id(part) not in found]
    split = [_with_parts(event, others)] if others else []
    for author, results in results_by_call:
        split.append(_with_parts(event, results).model_copy(update={"author": author}))
    if unpaired:
        split.append(event.model_copy(update={"content": UnpairedContent.of(unpaired)}))
    return split


def _with_parts(event: Event, parts: list[types.Part]) -> Event:
    assert event.content
    return event.model_copy(update={"content": event.content.model_copy(update={"parts": parts})})
