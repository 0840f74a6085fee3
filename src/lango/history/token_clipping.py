"""Clip large results and arguments: head and tail stay, and a mark says how many tokens were left out."""

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
    """Clip the largest results of messages, so that all messages have at most `max_tokens`.

    Arguments of calls are clipped, too, if clipping results is not enough. Return None if the messages cannot fit.
    """
    outputs, inputs = _pieces(messages, "output"), _pieces(messages, "input")
    for pieces in (outputs, outputs + inputs):
        rest = count_tokens(_with_values(messages, [(piece, {}) for piece in pieces]))
        clipped = _clip_pieces(messages, pieces, max_tokens - rest)
        if count_tokens(clipped) <= max_tokens:
            return clipped
    return None


def clip_results(message: Message, max_tokens: int) -> Message:
    """Clip every result of a message to `max_tokens`."""
    large = [piece for piece in _pieces([message], "output") if piece.tokens > max_tokens]
    return _clip_to([message], large, max(MIN_CLIPPED_TOKENS, max_tokens))[0] if large else message


def clip_text(text: str, max_tokens: int) -> str:
    """Clip a text to `max_tokens`: its head, a mark, and its tail."""
    return _clip(text, max(MIN_CLIPPED_TOKENS, max_tokens), lambda clipped: {"": clipped})[""]


class _Piece(Struct, frozen=True):
    """The output or the input of a call, and its tokens."""

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
    # the text of a tool message repeats its unclipped outputs
    return replace(message, tool_calls=calls, content="" if message.role == "tool" else message.content)


def equal_share(costs: Sequence[int], room: int) -> int:
    """Return the limit at which the costs, each capped at it, fill the room: smaller costs stay unclipped."""
    left = room
    for number, cost in enumerate(sorted(costs)):
        share = left // (len(costs) - number)
        if cost > share:
            return share
        left -= cost
    return left


def clip_object(value: Mapping[str, Any], max_tokens: int) -> dict[str, Any]:
    """Clip an object to `max_tokens`: its longest text, or, if that is not enough, the whole object as text.

    The result may be slightly larger if `max_tokens` has no room for the mark itself.
    """
    texts = {key: text for key, text in value.items() if isinstance(text, str)}
    if texts:
        longest = max(texts, key=lambda key: len(texts[key]))
        clipped = _clip(texts[longest], max_tokens, lambda text: {**value, longest: text})
        if count_tokens(compact_json(clipped)) <= max_tokens:
            return clipped
    return _clip(compact_json(value), max_tokens, lambda text: {"clipped": text})


def estimate_tokens(text: str) -> int:
    """Count the tokens of a text; estimate a very long one from its head and tail: counting takes seconds."""
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
