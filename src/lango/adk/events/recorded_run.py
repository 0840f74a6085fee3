"""Answer the steps of a turn from its record, when the turn is run again after a crash.

A turn that continues is run again from the events before it. Every model call and tool that the record answers is
answered from there, so the first one that it does not answer is the first one that really runs. An event that the run
produces again is recognised, and is neither stored nor emitted a second time.

A step has an identity that is the same in both runs. For a model call it is the agent, its branch, and how many of the
agent's events came before. For a tool it is the id of its call. For a node of a workflow it is its path and run. Inside
an agent that is called as a tool, the id of the outer call comes first. Where the second run asks for another step than
the record has, `TurnDiverged` is raised: it is never continued wrongly. A step that the record does not have is not run
while recorded ones before it are unused; see `lango.adk.run.record.replay`.
"""

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from google.adk.events import Event, EventActions
from google.adk.models.llm_response import LlmResponse
from google.adk.tools.tool_confirmation import ToolConfirmation
from google.genai import types
from msgspec import Struct

from lango.errors import TurnDiverged
from lango.sessions import CREDENTIAL_CALL, STEERING, StoredEvent, is_steering
from lango.store.codec.records import call_key
from lango.store.tool_calls.tool_journal import JournalEntry

FROM_CODE = "from_code"
"""In the `extra` of an event with content that no model call made: a callback or the user's own agent did."""

TOOL_SCHEMAS = "tool_schemas"
"""In the `extra` of an event that asks for approvals: the digest of each tool's schema, by its name."""

_NODE = "node:"
_Lane = tuple[str, str]
"""A branch, and an agent in it. Their events come in the same order in every run; those of others may mix."""
_RESPONSE_FIELDS = sorted(LlmResponse.model_fields.keys() & Event.model_fields.keys() - {"partial"})
_MADE_ANEW = ("interruptId", "authConfig")
_ACTIONS = [name for name in EventActions.model_fields if name != "requested_tool_confirmations"]


class _Recorded(Struct, eq=False):
    seq: int
    event: Event
    is_message: bool
    from_code: bool
    is_used: bool
    """The run has asked for it, or it is not a step that a run asks for."""


class SteeringMessage(Struct, frozen=True):
    """A message that was taken into a running turn."""

    turn: int
    """The turn that it was accepted as."""
    seq: int
    event: Event

    @classmethod
    def of(cls, row: StoredEvent, event: Event) -> "SteeringMessage":
        """Describe a stored message and its event."""
        return cls((row.extra or {}).get(STEERING) or 0, row.seq, event)


class KnownResult(Struct, frozen=True):
    """The recorded result of a tool call, and what else the tool did."""

    response: dict[str, Any]
    actions: EventActions | None = None
    confirmation: ToolConfirmation | None = None
    """The confirmation that the call requested: ADK makes the request again from it."""


class RecordedRun:
    """What is stored of a turn's run so far, in the order in which a second run asks for it."""

    def __init__(
        self,
        stored: Sequence[StoredEvent],
        events: Sequence[Event],
        entries: Mapping[str, JournalEntry],
    ) -> None:
        """`events` are the ADK events of the `stored` ones; `entries` is the turn's part of the tool journal."""
        self._lanes: dict[_Lane, deque[_Recorded]] = {}
        self._results: dict[str, _Recorded] = {}
        self._exceptions: list[_Recorded] = []
        self._steering: deque[SteeringMessage] = deque()
        """The messages that the first run took in."""
        self._entries = entries
        # a call of a tool needs no place here: the response that made it has one
        self._unused = {_place(key) for key, entry in entries.items() if _has_place(key) and entry.status != "intended"}
        self._functions = {_place(key) for key in entries if key.startswith(_NODE)}
        self._ended: set[str] = set()
        self.uses = 0
        """How many recorded steps this run has used: it grows while the run follows the record."""
        for row, event in zip(stored, events, strict=True):
            from_code = bool((row.extra or {}).get(FROM_CODE))
            is_step = bool(event.get_function_responses()) or (_is_response(event) and not from_code)
            if is_steering(row.extra):
                self._steering.append(SteeringMessage.of(row, event))
                continue
            recorded = _Recorded(
                row.seq, event, row.message is not None, from_code, is_used=not is_step or event.author == "user"
            )
            if _is_exception(event):
                self._exceptions.append(recorded)
                continue
            self._lanes.setdefault(_lane(event), deque()).append(recorded)
            for result in event.get_function_responses():
                self._results.setdefault(result.id or "", recorded)

    @property
    def call_ids(self) -> Iterator[str]:
        """The ids of all calls in the record."""
        for lane in self._lanes.values():
            for recorded in lane:
                yield from (call.id for call in recorded.event.get_function_calls() if call.id)

    def next_response(self, agent: str, branch: str) -> tuple[LlmResponse, Mapping[str, Any]] | None:
        """Return the recorded response to an agent's next model call, and the state that callbacks changed around it.

        Return None if the call was not made yet.
        """
        lane = self._lanes.get((branch, agent))
        if not lane:
            return None
        recorded = lane[0]
        if recorded.from_code or not _is_response(recorded.event):
            raise TurnDiverged(f"agent {agent!r} calls its model where the first run did not: {WHY}")
        self._use(recorded)
        event = recorded.event
        fields = {name: getattr(event, name) for name in _RESPONSE_FIELDS}
        response = LlmResponse(**{name: value for name, value in fields.items() if value is not None}, partial=False)
        return response, event.actions.state_delta

    def take_steering(self, agent: str, branch: str) -> list[SteeringMessage]:
        """Return the messages that the first run took in before an agent's next model call, once.

        These are those before its recorded response, or all if the record has none.
        """
        lane = self._lanes.get((branch, agent))
        taken: list[SteeringMessage] = []
        while self._steering and (not lane or self._steering[0].seq < lane[0].seq):
            taken.append(self._steering.popleft())
        return taken

    def next_result(self, call_id: str) -> KnownResult | None:
        """Return the stored result of a tool call, or None if no message has its result."""
        recorded = self._results.get(call_id)
        if recorded is None:
            return None
        self._use(recorded)
        event = recorded.event
        responses = event.get_function_responses()
        [response] = [one.response or {} for one in responses if one.id == call_id][:1]
        # the actions of parallel calls are merged in one event: the first call brings them back
        actions = event.actions if responses[0].id == call_id else None
        return KnownResult(dict(response), actions, event.actions.requested_tool_confirmations.get(call_id))

    def requests_credential(self, path: str) -> bool:
        """Whether the record has a credential request of the node at this path: its tool has not run yet."""
        return any(
            _path(recorded.event) == path
            and any(call.name == CREDENTIAL_CALL for call in recorded.event.get_function_calls())
            for lane in self._lanes.values()
            for recorded in lane
        )

    def entry(self, step_id: str) -> JournalEntry | None:
        """Return what the tool journal has about a step of this turn, and note that this run asks for it."""
        key = call_key(step_id)
        if key in self._entries:
            self._unused.discard(_place(key))
            self.uses += 1
        return self._entries.get(key)

    def end(self, step_id: str) -> None:
        """Note that a tool or node has its result: the recorded steps inside it are no longer needed."""
        self._ended.add(step_id)

    def _use(self, recorded: _Recorded) -> None:
        self.uses += not recorded.is_used
        recorded.is_used = True

    def unused_before(self, outer_calls: Sequence[str], branch: str, node: str, *, is_tool: bool) -> str | None:
        """Describe an unused recorded step that comes before a new one, or return None. `node` is the id of a new node.

        ADK runs agents at the same time only in branches of which none begins with the other, so steps of such branches
        have no order. Of the calls of one response, a tool may run at the same time as an agent, whose branch is inside
        that of the tool. Inside a call, only the steps inside it count.
        """

        def comes_before(other: str) -> bool:
            new, old = _parts(branch), _parts(other)
            return new[: len(old)] == old or (not is_tool and old[: len(new)] == new)

        if not outer_calls:
            for (name, author), lane in self._lanes.items():
                if comes_before(name) and not all(recorded.is_used for recorded in lane):
                    return f"a step of {author!r}"
            return self._unused_node_before(node)
        inside = "/".join(outer_calls) + "/"
        for place in sorted(self._unused):
            step = place.removeprefix(inside)
            if step != place and "/" not in step and comes_before(step.partition("@")[2].partition("#")[0]):
                if not self._is_inside_ended(place):
                    return f"step {place!r}"
                break
        return self._unused_node_before(node)

    def _unused_node_before(self, place: str) -> str | None:
        """Describe an unused node that the same function ran in the first run, or return None if none is left.

        The nodes of a graph have no order here: whether the graph still fits is decided before the run.
        """
        outer = place.rpartition("/")[0]
        if outer not in self._functions:
            return None
        return next((f"node {old!r}" for old in sorted(self._unused) if old.startswith(f"{outer}/")), None)

    def _is_inside_ended(self, place: str) -> bool:
        return any(place[:end] in self._ended for end, letter in enumerate(place) if letter == "/")

    def take(self, event: Event) -> bool | None:
        """Recognise an event that the first run stored, and make it equal to the stored one.

        Return whether it is a message, and not only a change of state, or None if it is new.
        """
        if _is_exception(event):
            return self._take_exception(event)
        lane = self._lanes.get(_lane(event))
        if not lane:
            return None
        recorded = lane[0]
        if (difference := _difference(event, recorded.event)) is not None:
            raise TurnDiverged(f"{event.author!r} {difference}: {WHY}")
        lane.popleft()
        self.uses += 1
        recorded.is_used = True
        _adopt(event, recorded.event)
        return recorded.is_message

    def _take_exception(self, event: Event) -> bool | None:
        """Recognise an exception that is raised again, such as that of a node's failed attempt."""
        for recorded in self._exceptions:
            if _exception(event) == _exception(recorded.event):
                self._exceptions.remove(recorded)
                _adopt(event, recorded.event)
                return recorded.is_message
        return None

    def check_complete(self) -> None:
        """Raise `TurnDiverged` if the run ended before it asked for all that the record has."""
        for (_, author), lane in self._lanes.items():
            if author != "user" and lane:
                raise TurnDiverged(f"the turn ended without a step of {author!r} that its first run had: {WHY}")


WHY = (
    "the agent's code, or something it depends on, has changed since the turn began. Nothing stored is lost: undo the "
    "change and continue the turn with `lango turns retry SESSION`, or send the message again"
)


def _has_place(key: str) -> bool:
    """Whether a journal entry is a node of a workflow, or a model call or code inside a tool; see `nested_step_id`."""
    return "#" in key or "node:" in key or "code:" in key


def _place(key: str) -> str:
    """Return the key of a step; all attempts of a node are one."""
    return key.rpartition("#")[0] or key if "node:" in key else key


def _parts(branch: str) -> list[str]:
    return branch.split(".") if branch else []


def _lane(event: Event) -> _Lane:
    return event.branch or "", event.author


def _is_response(event: Event) -> bool:
    return bool(event.content or event.error_code) and not event.get_function_responses()


def _is_exception(event: Event) -> bool:
    """Whether ADK made an event of an exception. The step that raised it may be done again, and end differently."""
    return bool(event.error_code) and not (event.content or event.finish_reason or event.usage_metadata)


def _exception(event: Event) -> tuple[object, ...]:
    return _lane(event), _path(event), event.error_code, event.error_message


def _difference(event: Event, recorded: Event) -> str | None:
    """Say how an event differs from the recorded one, or return None if it is the same step."""
    if _path(event) != _path(recorded):
        return f"ran node {_path(event)!r} where the first run ran {_path(recorded)!r}"
    if (made := _calls(event)) != (before := _calls(recorded)):
        return f"made the calls {_names(made)} where the first run made {_names(before)}"
    if _result_ids(event) != _result_ids(recorded):
        return "ran other calls than in the first run"
    if bool(event.content) != bool(recorded.content):
        return "emitted an event of another kind than in the first run"
    return None


def _path(event: Event) -> str:
    return event.node_info.path if event.node_info else ""


def _calls(event: Event) -> list[tuple[str, Mapping[str, Any]]]:
    """Return the calls of an event, without what ADK makes for its requests in each run: ids, OAuth states."""
    return [
        (call.name or "", {name: value for name, value in (call.args or {}).items() if name not in _MADE_ANEW})
        for call in event.get_function_calls()
    ]


def _names(calls: Iterable[tuple[str, Mapping[str, Any]]]) -> str:
    return ", ".join(name for name, _ in calls) or "none"


def _result_ids(event: Event) -> set[str | None]:
    return {result.id for result in event.get_function_responses()}


def _adopt(event: Event, recorded: Event) -> None:
    """Give an event the id, time, content and actions of the recorded one."""
    event.id, event.timestamp, event.invocation_id = recorded.id, recorded.timestamp, recorded.invocation_id
    event.actions = recorded.actions
    event.long_running_tool_ids = recorded.long_running_tool_ids
    if event.content is not None and recorded.content is not None:
        event.content = types.Content(role=event.content.role, parts=recorded.content.parts)
    if recorded.output is not None:  # a join's output has its parts in the order in which they came
        event.output = recorded.output


def restore_actions(actions: EventActions, recorded: EventActions | Mapping[str, Any]) -> None:
    """Do to a tool's context what the tool did to it in the first run."""
    if not isinstance(recorded, EventActions):
        recorded = EventActions.model_validate(recorded)
    for name in _ACTIONS:
        if value := getattr(recorded, name):
            setattr(actions, name, {**(getattr(actions, name) or {}), **value} if isinstance(value, dict) else value)
