"""What ADK would leave out of a request, in a shape that it keeps.

ADK sends a result only beside the call of its id: one without a call, one that stands before its call and a second one
are dropped before any model sees them. They are in the store, so they are sent: as text to any model, and as the
results that they are to ours, which know them by the type of the content and repair the history themselves. ADK also
drops a content without a role, whatever it says.
"""

from collections.abc import Iterable, Sequence

from google.adk.events import Event
from google.genai import types
from pydantic import PrivateAttr

from lango.history.history_repair import quote_result
from lango.messages import ToolCall


class UnpairedContent(types.Content):
    """Results that answer no call, as quoted text."""

    _results: tuple[types.Part, ...] = PrivateAttr(default=())

    @property
    def results(self) -> types.Content:
        """The results themselves."""
        return types.Content(role="user", parts=list(self._results))

    @classmethod
    def of(cls, results: Iterable[types.Part]) -> "UnpairedContent":
        """Quote results."""
        content = cls(role="user", parts=[])
        content._results = tuple(results)
        content.parts = [types.Part(text=_quote(part.function_response)) for part in content._results]
        return content


def _quote(result: types.FunctionResponse | None) -> str:
    assert result
    return quote_result(ToolCall(result.id or "", result.name or "", output=result.response or {}))


def events_for_requests(events: Sequence[Event]) -> list[Event]:
    """Return the events for ADK to build requests from: with roles, and each result that it would drop quoted.

    A long-running tool reports several times, and a call that waits for approval has a result that says so: of these,
    ADK sends the last one, and that is left to it.
    """
    prepared: list[Event] = []
    made: dict[str, int] = {}  # the newest event that makes a call of this id
    answers: dict[tuple[str, int], int] = {}  # the event that answers a call: by its id and the event that makes it
    reported: set[str] | None = None
    for at, event in enumerate(events):
        parts = (event.content and event.content.parts) or ()
        unpaired: list[types.Part] = []
        for part in parts:
            if part.function_response is None:
                continue
            call_id = part.function_response.id or ""
            owner = made.get(call_id)
            is_second = owner is not None and answers.setdefault((call_id, owner), at) != at
            if is_second and reported is None:
                reported = _calls_with_updates(events)
            if owner is None or (is_second and call_id not in (reported or ())):
                unpaired.append(part)
        for part in parts:
            if part.function_call and part.function_call.id:
                made[part.function_call.id] = at
        prepared += _split_event(_with_role(event), unpaired) if unpaired else [_with_role(event)]
    return prepared


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


def _split_event(event: Event, unpaired: list[types.Part]) -> list[Event]:
    """Part an event: the results that answer no call, and what else it holds."""
    assert event.content
    found = {id(part) for part in unpaired}
    others = [part for part in event.content.parts or () if id(part) not in found]
    rest = [event.model_copy(update={"content": event.content.model_copy(update={"parts": others})})] if others else []
    return [*rest, event.model_copy(update={"content": UnpairedContent.of(unpaired)})]
