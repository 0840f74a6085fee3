"""Find the call that each tool result answers.

Calls and results are paired by id; if the id is missing on either side, by name and position. Each call is used once.
Gemini's API and older versions leave ids out. A generated id (`call_<name>`) counts as missing.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

from msgspec import Struct
from msgspec.structs import replace

from lango.history.message_cleanup import UNNAMED, clean_json
from lango.messages import Message, ToolCall, fresh_call_id

_COUNTED = re.compile(r"_\d+")
_MAX_PARSED_CHARACTERS = 200_000  # a longer text is shown clipped, and parsing it would take long


class CallSlot(Struct, gc=False):
    """A call of the message with index `at`, and its result once it is found."""

    at: int
    call: ToolCall
    result: "FoundResult | None" = None


class FoundResult(Struct, gc=False):
    """Result `order` of the history: result `number` of the message with index `at`. Legacy results have no id."""

    at: int
    number: int
    order: int
    call: ToolCall


class Pairing(Struct):
    """The calls with their results, and the results that answer no call, by the index of their message."""

    turns: dict[int, list[CallSlot]] = {}
    orphans: dict[int, list[FoundResult]] = {}

    @property
    def slots(self) -> Iterator[CallSlot]:
        """Every call, in order."""
        return (slot for slots in self.turns.values() for slot in slots)


def pair(messages: Sequence[Message]) -> Pairing:
    """Find the call of every result.

    A result is paired with the nearest earlier call of its id that has no result yet, or else with a later one. The
    others are paired by name and position: with the first open call of the nearest earlier message.
    """
    pairing = Pairing()
    unsettled = _pair_by_id(messages, pairing)
    unsettled = _pair_with_later_calls(pairing, unsettled)
    for result in _pair_by_position(pairing, unsettled):
        pairing.orphans.setdefault(result.at, []).append(result)
    return pairing


def with_ids(messages: Sequence[Message]) -> list[Message]:
    """Give calls the ids that they lack, and results the ids of the calls that they answer.

    A legacy result that answers a call also gets its name.
    """
    if not _lacks_ids(messages):
        return list(messages)
    named = [message if message.role == "tool" else _with_fresh_ids(message) for message in messages]
    answered: dict[int, dict[int, ToolCall]] = {}
    for slot in pair(named).slots:
        if slot.result is not None:
            answered.setdefault(slot.result.at, {})[slot.result.number] = slot.call
    return [_with_result_ids(message, answered.get(at, {})) for at, message in enumerate(named)]


def _lacks_ids(messages: Sequence[Message]) -> bool:
    """Whether a call or a result has no id, or a result has an id that no call before it has."""
    made: set[str] = set()
    for message in messages:
        if not message.tool_calls:
            if message.role == "tool":
                return True
            continue
        for call in message.tool_calls:
            if not call.id:
                return True
            if call.output is None and message.role != "tool":
                made.add(call.id)
            elif call.id not in made:
                return True
    return False


def _with_result_ids(message: Message, answered: Mapping[int, ToolCall]) -> Message:
    if message.role != "tool":
        return message
    results = [
        replace(result, id=answered[number].id, name=result.name or answered[number].name)
        if number in answered
        else result
        for number, result in enumerate(results_of(message))
    ]
    if not message.tool_calls:
        return replace(message, tool_calls=tuple(results)) if answered else message
    ids = iter(result.id for result in results)
    calls = [call if _is_call_among_results(call) else replace(call, id=next(ids)) for call in message.tool_calls]
    return _with_fresh_ids(replace(message, tool_calls=tuple(calls)))


def _with_fresh_ids(message: Message) -> Message:
    """Give calls or results without an id a generated one."""
    if all(call.id for call in message.tool_calls):
        return message
    taken = {call.id for call in message.tool_calls}
    calls: list[ToolCall] = []
    for call in message.tool_calls:
        call_id = call.id or fresh_call_id(call.name, taken)
        taken.add(call_id)
        calls.append(call if call.id else replace(call, id=call_id))
    return replace(message, tool_calls=tuple(calls))


def _pair_by_id(messages: Sequence[Message], pairing: Pairing) -> list[FoundResult]:
    """Pair results with earlier calls of the same id; return the remaining results."""
    open_turns: dict[str, list[list[CallSlot]]] = {}  # by id: its open calls, grouped by message, the nearest last
    unsettled: list[FoundResult] = []
    order = 0
    for at, message in enumerate(messages):
        if not message.tool_calls and message.role != "tool":
            continue
        slots = [CallSlot(at, call) for call in _calls(message)]
        if slots:
            pairing.turns[at] = slots
        by_id: dict[str, list[CallSlot]] = {}
        for slot in slots:
            if slot.call.output is not None:  # call and result in one value
                slot.result = FoundResult(at, 0, order, replace(slot.call, input=None, signature=None))
                order += 1
            elif slot.call.id:
                by_id.setdefault(slot.call.id, []).append(slot)
        for call_id, same in by_id.items():
            open_turns.setdefault(call_id, []).append(same)
        for number, call in enumerate(results_of(message)):
            result = FoundResult(at, number, order, call)
            order += 1
            if not _assign_result(result, open_turns.get(call.id)):
                unsettled.append(result)
    return unsettled


def _assign_result(result: FoundResult, open_turns: list[list[CallSlot]] | None) -> bool:
    """Assign a result to the first open call of the nearest message; return False if there is none."""
    if not open_turns:
        return False
    open_turns[-1].pop(0).result = result
    if not open_turns[-1]:
        open_turns.pop()
    return True


def _pair_with_later_calls(pairing: Pairing, unsettled: list[FoundResult]) -> list[FoundResult]:
    """Pair results with later calls of the same id: some histories hold a result before its call."""
    wanted = {result.call.id for result in unsettled} - {""}
    later: dict[str, list[CallSlot]] = {}
    for slot in pairing.slots if wanted else ():
        if slot.result is None and slot.call.id in wanted:
            later.setdefault(slot.call.id, []).append(slot)
    left: list[FoundResult] = []
    for result in unsettled:
        found = next((slot for slot in later.get(result.call.id, ()) if slot.at >= result.at), None)
        if found is None:
            left.append(result)
        else:
            found.result = result
            later[result.call.id].remove(found)
    return left


def _pair_by_position(pairing: Pairing, unsettled: list[FoundResult]) -> list[FoundResult]:
    """Pair results with earlier open calls if either side has no id; return those that answer no call."""
    known = {slot.call.id for slot in pairing.slots} if unsettled else set[str]()
    turns = list(pairing.turns.values())
    passed = 0
    open_turns: list[list[CallSlot]] = []  # of the messages before the result, the nearest last
    left: list[FoundResult] = []
    for result in unsettled:
        while passed < len(turns) and turns[passed][0].at <= result.at:
            open_turns.append([slot for slot in turns[passed] if slot.result is None])
            passed += 1
        found = next((slot for slot in _candidates(open_turns, result.call) if _may_answer(result, slot, known)), None)
        if found is None:
            left.append(result)
        else:
            found.result = result
    return left


def _candidates(open_turns: list[list[CallSlot]], result: ToolCall) -> Iterator[CallSlot]:
    """Return open calls, the nearest first; a result without a name can only answer the nearest message."""
    nearest = open_turns[-1:] if _is_unnamed(result) else reversed(open_turns)
    return (slot for slots in nearest for slot in slots if slot.result is None)


def _may_answer(result: FoundResult, slot: CallSlot, known: set[str]) -> bool:
    if not _is_unnamed(result.call) and result.call.name != slot.call.name:
        return False
    if not result.call.id or has_generated_id(result.call):
        return True
    # a result with an id may answer a call without an id, if no call has the result's id
    return result.call.id not in known and (not slot.call.id or has_generated_id(slot.call))


def _is_unnamed(result: ToolCall) -> bool:
    return result.name in ("", UNNAMED)


def has_generated_id(call: ToolCall) -> bool:
    """Whether the id of a call was generated: `call_<name>`, `call_<name>_2` and so on."""
    rest = call.id.removeprefix(f"call_{call.name}")
    return rest != call.id and (not rest or _COUNTED.fullmatch(rest) is not None)


def _calls(message: Message) -> list[ToolCall]:
    match message.role:
        case "assistant":
            return [call for call in message.tool_calls if call.output is None or call.input is not None]
        case "tool":
            return [call for call in message.tool_calls if _is_call_among_results(call)]
        case _:
            return []


def _is_call_among_results(call: ToolCall) -> bool:
    return call.output is None and call.input is not None


def results_of(message: Message) -> list[ToolCall]:
    """Return the results of a message, each with an output."""
    match message.role:
        case "tool":
            return _tool_results(message)
        case "assistant":
            return [call for call in message.tool_calls if call.output is not None and call.input is None]
        case _:
            return [call for call in message.tool_calls if call.output is not None]


def _tool_results(message: Message) -> list[ToolCall]:
    """Return the results of a tool message; if none has an output, the message's text is the output."""
    if not message.tool_calls:
        return [ToolCall("", "", output=clean_json(parse_result_text(message.content)))]
    calls = [call for call in message.tool_calls if not _is_call_among_results(call)]
    if len(calls) == 1 and calls[0].output is None and message.content:
        return [replace(calls[0], output=clean_json(parse_result_text(message.content)))]
    return [call if call.output is not None else replace(call, output={}) for call in calls]


def parse_result_text(text: str) -> dict[str, Any]:
    """Parse a result that is JSON in a text; a text that is not an object, or too long to be parsed, is the result."""
    if len(text) > _MAX_PARSED_CHARACTERS:
        return {"result": text}
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        value = None
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {"result": text}
