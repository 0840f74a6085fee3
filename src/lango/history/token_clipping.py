"""Results and arguments that are too large: head and tail stay, and a mark says how much was left out between."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

from msgspec import Struct
from msgspec.structs import replace

from lango.history.tokens import compact_json, count_tokens
from lango.messages import Message, ToolCall

MIN_CLIPPED_TOKENS = 24
"""The least room for a result: its mark and a few words."""
_SAMPLE_CHARACTERS = 10_000


def clip_to_tokens(messages: Sequence[Message], max_tokens: int) -> list[Message] | None:
    """Return the messages with their largest results clipped, so that all cost at most `max_tokens`.

    Only where results alone do not make the room, arguments of calls are clipped too. None: there is no room even so.
    """
    outputs, inputs = _pieces(messages, "output"), _pieces(messages, "input")
    for pieces in (outputs, outputs + inputs):
        rest = count_tokens(_with_values(messages, [(piece, {}) for piece in pieces]))
        clipped = _clip_pieces(messages, pieces, max_tokens - rest)
        if count_tokens(clipped) <= max_tokens:
            return clipped
    return None


def clip_results(message: Message, max_tokens: int) -> Message:
    """Return the message with every result that costs more than `max_tokens` clipped to it."""
    large = [piece for piece in _pieces([message], "output") if piece.tokens > max_tokens]
    return _clip_to([message], large, max(MIN_CLIPPED_TOKENS, max_tokens))[0] if large else message


def clip_text(text: str, max_tokens: int) -> str:
    """Return the text within `max_tokens`: its head, a mark, and its tail."""
    return _clip(text, max(MIN_CLIPPED_TOKENS, max_tokens), lambda clipped: {"": clipped})[""]


class _Piece(Struct, frozen=True):
    """The output or the input of one call, and what it costs."""

    message: int
    call: int
    kind: Literal["output", "input"]
    value: Mapping[str, Any]
    tokens: int


def _pieces(messages: Sequence[Message], kind: Literal["output", "input"]) -> list[_Piece]:
    return [
        _Piece(at, number, kind, value, estimate_tokens(compact_json(value)))
        for at, message in enumerate(messages)
        for number, call in enumerate(message.tool_calls)
        if (value := call.output if kind == "output" else call.input)
    ]


def _clip_pieces(messages: Sequence[Message], pieces: Sequence[_Piece], room_tokens: int) -> list[Message]:
    most = max(MIN_CLIPPED_TOKENS, equal_share([piece.tokens for piece in pieces], room_tokens))
    return _clip_to(messages, pieces, most)


def _clip_to(messages: Sequence[Message], pieces: Sequence[_Piece], most: int) -> list[Message]:
    clipped = [(piece, clip_object(piece.value, most)) for piece in pieces if piece.tokens > most]
    return _with_values(messages, clipped)


def _with_values(messages: Sequence[Message], values: Sequence[tuple[_Piece, dict[str, Any]]]) -> list[Message]:
    calls = [list(message.tool_calls) for message in messages]
    for piece, value in values:
        call = calls[piece.message][piece.call]
        calls[piece.message][piece.call] = (
            replace(call, output=value) if piece.kind == "output" else replace(call, input=value)
        )
    return [_with_calls(message, tuple(new)) for message, new in zip(messages, calls, strict=True)]


def _with_calls(message: Message, calls: tuple[ToolCall, ...]) -> Message:
    if calls == message.tool_calls:
        return message
    # The text of a tool message repeats its outputs in full.
    return replace(message, tool_calls=calls, content="" if message.role == "tool" else message.content)


def equal_share(costs: Sequence[int], room: int) -> int:
    """Return the height at which the costs, each cut off there, fill the room: small ones stay whole."""
    left = room
    for number, cost in enumerate(sorted(costs)):
        share = left // (len(costs) - number)
        if cost > share:
            return share
        left -= cost
    return left


def clip_object(value: Mapping[str, Any], max_tokens: int) -> dict[str, Any]:
    """Return the object within `max_tokens`: its longest text clipped, or, if that is not enough, all of it as text.

    The result may cost a little more where `max_tokens` has no room for the mark itself.
    """
    texts = {key: text for key, text in value.items() if isinstance(text, str)}
    if texts:
        longest = max(texts, key=lambda key: len(texts[key]))
        clipped = _clip(texts[longest], max_tokens, lambda text: {**value, longest: text})
        if count_tokens(compact_json(clipped)) <= max_tokens:
            return clipped
    return _clip(compact_json(value), max_tokens, lambda text: {"clipped": text})


def estimate_tokens(text: str) -> int:
    """Count the tokens of a text; of a very long one, from its head and its tail: to count it all takes seconds."""
    if len(text) <= 2 * _SAMPLE_CHARACTERS:
        return count_tokens(text)
    sampled = count_tokens(text[:_SAMPLE_CHARACTERS]) + count_tokens(text[-_SAMPLE_CHARACTERS:])
    return sampled * len(text) // (2 * _SAMPLE_CHARACTERS)


def _clip(text: str, max_tokens: int, wrap: Callable[[str], dict[str, Any]]) -> dict[str, Any]:
    total = estimate_tokens(text)
    keep = len(text) * max_tokens // max(1, total)
    while True:
        head, tail = text[: keep * 2 // 3], text[len(text) - keep // 3 :]
        left_out = max(0, total - count_tokens(head) - count_tokens(tail))
        clipped = wrap(f"{head}\n[... {left_out} of {total} tokens left out ...]\n{tail}")
        cost = count_tokens(compact_json(clipped))
        if cost <= max_tokens or keep <= 0:
            return clipped
        keep = min(keep * max_tokens // cost, keep - 1)
