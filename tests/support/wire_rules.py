"""What each provider accepts, as one checker per wire format over encoded requests.

Written from the rules alone, apart from the encoders. Each checker returns what is wrong, a sentence each.
"""

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast

from lango.messages import Message, Signature

Json = dict[str, Any]

_ID = re.compile(r"[A-Za-z0-9_-]{1,40}")
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
STAND_IN = b"skip_thought_signature_validator"


def own_signatures(history: Iterable[Message], provider: str, model: str) -> frozenset[bytes]:
    """Return the values that this provider and model may see again."""
    found: list[Signature | None] = []
    for message in history:
        found += [message.signature, *(thought.signature for thought in message.thoughts)]
        found += [call.signature for call in message.tool_calls]
    mine = (one for one in found if one and one.provider == provider and one.model == model)
    return frozenset(one.value for one in mine)


def encodable(body: Mapping[str, Any]) -> list[str]:
    def plain(value: Any) -> str:
        if isinstance(value, bytes):
            return value.hex()
        raise TypeError(f"{type(value)} in a request")

    try:
        json.dumps(body, allow_nan=False, ensure_ascii=False, default=plain).encode()
    except (TypeError, ValueError) as exc:
        return [f"cannot be sent: {exc}"]
    return []


def _ids(ids: Sequence[str]) -> list[str]:
    broken = [f"id {one!r} is badly formed" for one in ids if not _ID.fullmatch(one)]
    return broken + ([f"ids are not unique: {ids}"] if len(set(ids)) != len(ids) else [])


def _names(names: Iterable[str]) -> list[str]:
    return [f"name {one!r} is badly formed" for one in names if not _NAME.fullmatch(one)]


def _is_object(text: str) -> bool:
    try:
        return isinstance(json.loads(text), dict)
    except ValueError:
        return False


# --- Gemini


def gemini(body: Json, own: frozenset[bytes] = frozenset()) -> list[str]:
    contents: list[Json] = body["contents"]
    broken = encodable(body)
    for at, content in enumerate(contents):
        broken += [f"{at}: {what}" for what in _gemini_content(content)]
        before = contents[at - 1] if at else None
        after = contents[at + 1] if at + 1 < len(contents) else None
        if _of(content, "function_call"):
            broken += [f"{at}: {what}" for what in _gemini_call_turn(content, before, after)]
        if _of(content, "function_response") and not (before and _of(before, "function_call")):
            broken.append(f"{at}: results without calls before them")
    if contents[0]["role"] != "user" or contents[-1]["role"] != "user":
        broken.append("the first or the last turn is not the user's")
    calls = [call for content in contents for call in _of(content, "function_call")]
    broken += _ids([call["id"] for call in calls]) + _names(call["name"] for call in calls)
    return broken + _gemini_signatures(contents, own)


def _of(content: Json, kind: str) -> list[Json]:
    return [part[kind] for part in content["parts"] if kind in part]


def _gemini_content(content: Json) -> list[str]:
    if content["role"] not in ("user", "model") or not content["parts"]:
        return ["no role, or no parts"]
    broken: list[str] = []
    for part in content["parts"]:
        kinds = set(part) - {"thought_signature"}
        if len(kinds) != 1:
            broken.append(f"a part with {sorted(kinds)}")
        if "text" in part and not part["text"].strip():
            broken.append("blank text")
        if "inline_data" in part and not part["inline_data"]["data"]:
            broken.append("a part without data")
        if "file_data" in part and not part["file_data"]["file_uri"]:
            broken.append("a part without data")
    if _of(content, "function_response") and len(_of(content, "function_response")) != len(content["parts"]):
        broken.append("results beside something else")
    return broken


def _gemini_call_turn(content: Json, before: Json | None, after: Json | None) -> list[str]:
    broken: list[str] = []
    if content["role"] != "model" or before is None or before["role"] != "user":
        broken.append("a call turn that does not follow the user or a result")
    calls = _of(content, "function_call")
    results = _of(after, "function_response") if after else []
    if Counter((one["id"], one["name"]) for one in calls) != Counter((one["id"], one["name"]) for one in results):
        broken.append("not as many results as calls, or of other names")
    if not all(isinstance(call["args"], dict) for call in calls):
        broken.append("arguments that are no object")
    return broken


def _gemini_signatures(contents: list[Json], own: frozenset[bytes]) -> list[str]:
    ordinary = [at for at, one in enumerate(contents) if one["role"] == "user" and not _of(one, "function_response")]
    broken: list[str] = []
    for at, content in enumerate(contents):
        signed = ["thought_signature" in part for part in content["parts"] if "function_call" in part]
        if at > ordinary[-1] and signed and not signed[0]:
            broken.append(f"{at}: the first call of a step in the current turn is not signed")
        if any(signed[1:]):
            broken.append(f"{at}: a parallel sibling is signed")
        values = {part["thought_signature"] for part in content["parts"] if "thought_signature" in part}
        if values - own - {STAND_IN}:
            broken.append(f"{at}: a foreign signature")
    return broken


# --- OpenAI, Chat Completions


def openai_chat(body: Json) -> list[str]:
    messages: list[Json] = body["messages"]
    broken = encodable(body)
    expected: list[str] = []
    ids: list[str] = []
    for at, message in enumerate(messages):
        if message["role"] == "tool":
            if message["tool_call_id"] not in expected:
                broken.append(f"{at}: a tool message without a call")
            else:
                expected.remove(message["tool_call_id"])
            continue
        if expected:
            broken.append(f"{at}: calls without a tool message directly after: {expected}")
        calls: list[Json] = message.get("tool_calls") or []
        expected = [call["id"] for call in calls]
        ids += expected
        broken += _names(call["function"]["name"] for call in calls)
        if not all(_is_object(call["function"]["arguments"]) for call in calls):
            broken.append(f"{at}: arguments that are no object")
        if message["role"] == "system" and at:
            broken.append(f"{at}: a system message that is not the first")
        broken += [f"{at}: {what}" for what in _chat_content(message)]
    if expected or messages[-1]["role"] not in ("user", "tool"):
        broken.append("does not end with a user or a tool message")
    return broken + _ids(ids)


def _chat_content(message: Json) -> list[str]:
    content = message["content"]
    if isinstance(content, str):
        return [] if content.strip() else ["empty content"]
    if content is None:
        return [] if message.get("tool_calls") else ["neither content nor calls"]
    parts = cast("list[Json]", content)
    return [] if parts and all(part[part["type"]] for part in parts) else ["a part without content"]


# --- OpenAI, Responses


def openai_responses(body: Json, own: frozenset[bytes] = frozenset()) -> list[str]:
    items: list[Json] = body["input"]
    broken = encodable(body)
    waiting: list[str] = []
    ids = [item["call_id"] for item in items if item["type"] == "function_call"]
    for at, item in enumerate(items):
        after = items[at + 1] if at + 1 < len(items) else {"type": "nothing"}
        match item["type"]:
            case "function_call":
                waiting.append(item["call_id"])
                broken += _names([item["name"]])
                if not _is_object(item["arguments"]):
                    broken.append(f"{at}: arguments that are no object")
            case "function_call_output":
                if item["call_id"] not in waiting:
                    broken.append(f"{at}: an output without a call")
                waiting = [one for one in waiting if one != item["call_id"]]
            case "reasoning":
                broken += [f"{at}: {what}" for what in _reasoning(item, after, own)]
            case _:
                if waiting:
                    broken.append(f"{at}: calls without an output in the next turn: {waiting}")
                if item["type"] != "message" or not item["content"]:
                    broken.append(f"{at}: an empty message, or none at all")
    last = items[-1]
    if waiting or not (last["type"] == "function_call_output" or last.get("role") == "user"):
        broken.append("does not end with a user message or an output")
    return broken + _ids(ids)


def _reasoning(item: Json, after: Json, own: frozenset[bytes]) -> list[str]:
    broken: list[str] = []
    if after["type"] not in ("reasoning", "function_call") and after.get("role") != "assistant":
        broken.append("reasoning without the item that it was made for")
    if not any(item["encrypted_content"].encode() in value for value in own):
        broken.append("foreign reasoning")
    return broken


# --- Anthropic


def anthropic(body: Json, own: frozenset[bytes] = frozenset(), *, cut: bool = False) -> list[str]:
    messages: list[Json] = body["messages"]
    broken = encodable(body)
    if messages[0]["role"] != "user" or messages[-1]["role"] != "user":
        broken.append("the first or the last message is not the user's")
    ids: list[str] = []
    for at, message in enumerate(messages):
        if at and messages[at - 1]["role"] == message["role"]:
            broken.append(f"{at}: two neighbours of one role")
        blocks: list[Json] = message["content"]
        broken += [f"{at}: {what}" for what in _anthropic_blocks(blocks, own, cut=cut)]
        uses = [block["id"] for block in blocks if block["type"] == "tool_use"]
        broken += _names(block["name"] for block in blocks if block["type"] == "tool_use")
        ids += uses
        before: list[Json] = messages[at - 1]["content"] if at else []
        called = [block["id"] for block in before if block["type"] == "tool_use"]
        given = [block["tool_use_id"] for block in blocks if block["type"] == "tool_result"]
        if Counter(called) != Counter(given):
            broken.append(f"{at}: results {given} for calls {called}")
        if [block["type"] == "tool_result" for block in blocks[: len(given)]] != [True] * len(given):
            broken.append(f"{at}: results after something else")
        if uses and (message["role"] != "assistant" or at + 1 == len(messages)):
            broken.append(f"{at}: calls of the user, or without results")
    return broken + _ids(ids)


def _anthropic_blocks(blocks: list[Json], own: frozenset[bytes], *, cut: bool) -> list[str]:
    broken: list[str] = [] if blocks else ["an empty message"]
    for block in blocks:
        match block["type"]:
            case "text":
                if not block["text"].strip():
                    broken.append("blank text")
            case "thinking" | "redacted_thinking":
                mark = block.get("signature") or block.get("data") or ""
                if cut or not any(mark.encode() in value for value in own):
                    broken.append("a thinking block after a cut, or of another model")
            case "tool_use":
                if not isinstance(block["input"], dict):
                    broken.append("arguments that are no object")
            case other:
                if other not in ("tool_result", "image", "document"):
                    broken.append(f"a block of type {other}")
    if blocks and blocks[-1]["type"] in ("thinking", "redacted_thinking"):
        broken.append("ends with a thought")
    return broken
