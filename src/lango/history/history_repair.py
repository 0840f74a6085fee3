"""Repair any history so that every provider accepts it.

Afterwards every call has exactly one result, in the tool messages directly after it; every result has its call; ids are
unique and short; nothing is empty; the last message is the user's or a tool's. What a single provider needs beyond that
(alternating roles, its own signatures) is up to its encoder.
"""

import re
from collections.abc import Iterable, Sequence
from typing import assert_never

from msgspec.structs import replace

from lango.history.message_cleanup import clean_message
from lango.history.pairing import CallSlot, FoundResult, Pairing, pair
from lango.history.token_clipping import clip_object
from lango.history.tokens import compact_json, count_tokens
from lango.messages import Message, ToolCall

CONTEXT_AUTHOR = "context"
"""Author of a `user` message that no user wrote, such as quoted data."""
STEERING_AUTHOR = "steering"
"""Author of a message of the user that came while the turn ran: it begins no turn."""
INTERRUPTED = "interrupted: no result was recorded for this call, so its outcome is unknown"
"""The result that the model reads for a call without a result: it may or may not have had its effect."""
CONTINUE = "Continue."
"""Added after a last message of the assistant: no provider accepts that as the end."""

MAX_ID_LENGTH = 40
MAX_QUOTED_TOKENS = 1_000
"""How much of a result without a call is quoted: text is not clipped to a budget later."""
_NOT_IN_IDS = re.compile(r"[^A-Za-z0-9_-]")


def repair(messages: Iterable[Message]) -> list[Message]:
    """Return a history that every provider accepts; a valid history is returned unchanged.

    - A call without a result gets a result that says that its outcome is unknown. A result that stands elsewhere is
      moved to its call. A result without a call, and a second, different result, become quoted text.
    - Missing, duplicate, overlong and malformed ids are replaced, in calls and results alike.
    - Empty parts and messages are removed, `event` messages too; a later `system` message becomes quoted text.
    - After a last message of the assistant, "Continue." is added. Without that message the model would repeat it.
    """
    clean = [clean_message(message) for message in messages if message.role != "event"]
    pairing = pair(clean)
    ids = _IdAllocator()
    repaired: list[Message] = []
    for at, message in enumerate(clean):
        repaired += _repaired_messages(
            message, pairing.turns.get(at, []), clean, ids, leads=not repaired or repaired[-1].role == "system"
        )
        repaired += [
            _quote(orphan, message) for orphan in pairing.orphans.get(at, []) if _adds_information(orphan, pairing)
        ]
    if repaired and repaired[-1].role == "assistant":
        repaired.append(Message("user", CONTINUE, author=CONTEXT_AUTHOR))
    return repaired


def _adds_information(orphan: FoundResult, pairing: Pairing) -> bool:
    """Whether a result without a call is not empty, and does not only repeat the result of the call of its id."""
    if not orphan.call.id and not orphan.call.name and orphan.call.output == {"result": ""}:
        return False
    return not any(
        slot.call.id == orphan.call.id and slot.result is not None and slot.result.call.output == orphan.call.output
        for slot in pairing.slots
    )


class _IdAllocator:
    """Assigns ids in order of appearance, so that new messages never change the ids of earlier ones."""

    def __init__(self) -> None:
        self._taken: set[str] = set()
        self._counts: dict[str, int] = {}

    def take(self, wanted: str, name: str) -> str:
        base = _NOT_IN_IDS.sub("_", wanted or f"call_{name}")[:MAX_ID_LENGTH]
        candidate, count = base, self._counts.get(base, 1)
        while candidate in self._taken:
            count += 1
            suffix = f"_{count}"
            candidate = base[: MAX_ID_LENGTH - len(suffix)] + suffix
        self._counts[base] = count
        self._taken.add(candidate)
        return candidate


def _repaired_messages(
    message: Message, slots: list[CallSlot], messages: Sequence[Message], ids: _IdAllocator, *, leads: bool
) -> Iterable[Message]:
    if slots:
        turn = message if message.role == "assistant" else Message("assistant", author=message.author)
        return _repaired_call_turn(turn, slots, messages, ids)
    match message.role:
        case "assistant" | "user":
            return _without_calls(message)
        case "system":
            return _without_calls(message if leads else replace(message, role="user", author=CONTEXT_AUTHOR))
        case "tool" | "event":
            return []  # results go out with their calls; events were left out
        case _:  # pragma: no cover
            assert_never(message.role)


def _without_calls(message: Message) -> list[Message]:
    """Return the message without calls, or nothing if it would be empty."""
    # thoughts alone are not a message: most providers do not accept them back
    if not message.content and not message.media:
        return []
    return [replace(message, tool_calls=()) if message.tool_calls else message]


def _repaired_call_turn(
    message: Message, slots: list[CallSlot], messages: Sequence[Message], ids: _IdAllocator
) -> Iterable[Message]:
    named = [(slot, ids.take(slot.call.id, slot.call.name)) for slot in slots]
    yield _with_calls(message, [_call(slot.call, call_id) for slot, call_id in named])

    found = sorted(
        ((slot.result, slot.call.name, call_id) for slot, call_id in named if slot.result is not None),
        key=lambda entry: entry[0].order,
    )
    sources: dict[int, list[ToolCall]] = {}
    for result, name, call_id in found:
        answer = result.call
        if (answer.id, answer.name) != (call_id, name):
            answer = replace(answer, id=call_id, name=name)
        sources.setdefault(result.at, []).append(answer)
    for at, results in sources.items():
        yield _tool_message(messages[at], results)

    unknown = {"error": INTERRUPTED}
    missing = tuple(ToolCall(call_id, slot.call.name, output=unknown) for slot, call_id in named if slot.result is None)
    if missing:
        yield Message("tool", compact_json(unknown), missing)


def _call(call: ToolCall, call_id: str) -> ToolCall:
    if call.id == call_id and call.input is not None and call.output is None:
        return call
    return replace(call, id=call_id, input=call.input or {}, output=None)


def _with_calls(message: Message, calls: list[ToolCall]) -> Message:
    return message if message.tool_calls == tuple(calls) else replace(message, tool_calls=tuple(calls))


def _tool_message(source: Message, results: list[ToolCall]) -> Message:
    """Return the results in the message they came from, with its text only if they are all of its results."""
    if source.role != "tool":
        return Message("tool", tool_calls=tuple(results))
    if len(results) != max(1, len(source.tool_calls)):
        source = replace(source, content="")
    return _with_calls(source, results)


def _quote(result: FoundResult, source: Message) -> Message:
    media = source.media if source.role == "tool" else ()
    return Message("user", quote_result(result.call), author=CONTEXT_AUTHOR, media=media)


def quote_result(result: ToolCall) -> str:
    """Quote a result that answers no call as text; a long result is clipped."""
    what = f'of "{result.name}"' if result.name else "of a tool"
    output = result.output or {}
    if count_tokens(compact_json(output)) > MAX_QUOTED_TOKENS:
        output = clip_object(output, MAX_QUOTED_TOKENS)
    return f"[Result {what}, without its call, quoted as data: {compact_json(output)}]"
