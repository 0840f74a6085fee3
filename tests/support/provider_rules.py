"""The rules that every provider shares, as a checker over messages, and histories of every kind to check them on.

Written from the rules alone, apart from the code that makes requests valid.
"""

import json
import re
from collections.abc import Sequence

from hypothesis import strategies as st

from lango.messages import Media, Message, Signature, Thought, ToolCall

_ID = re.compile(r"[A-Za-z0-9_-]{1,40}")


def broken_rules(messages: Sequence[Message]) -> list[str]:
    """Return what is wrong with the messages of a request, a sentence each; none for a valid one."""
    return [*_broken_parts(messages), *_broken_ids(messages), *_broken_pairs(messages), *_broken_ends(messages)]


def _broken_parts(messages: Sequence[Message]) -> list[str]:
    broken: list[str] = []
    for at, message in enumerate(messages):
        if not message.content.strip() and not message.media and not message.tool_calls:
            broken.append(f"{at}: an empty {message.role} message")
        if message.content and not message.content.strip():
            broken.append(f"{at}: blank text")
        if any(not thought.text and not thought.signature for thought in message.thoughts):
            broken.append(f"{at}: an empty thought")
        if any(not media.data and not media.uri for media in message.media):
            broken.append(f"{at}: media without data")
        if not _encodable(message):
            broken.append(f"{at}: holds something that JSON in UTF-8 cannot carry")
    return broken


def _encodable(message: Message) -> bool:
    texts = [message.content, *(thought.text for thought in message.thoughts)]
    values = [value for call in message.tool_calls for value in (call.name, call.input, call.output)]
    try:
        json.dumps([texts, values], allow_nan=False, ensure_ascii=False).encode()
    except (TypeError, ValueError):
        return False
    return True


def _broken_ids(messages: Sequence[Message]) -> list[str]:
    ids = [call.id for message in messages if message.role == "assistant" for call in message.tool_calls]
    broken = [f"id {call_id!r} is badly formed" for call_id in ids if not _ID.fullmatch(call_id)]
    return broken + ([f"ids are not unique: {ids}"] if len(set(ids)) != len(ids) else [])


def _broken_pairs(messages: Sequence[Message]) -> list[str]:
    broken: list[str] = []
    expected: list[tuple[str, str]] = []
    for at, message in enumerate(messages):
        if message.role == "tool":
            for result in message.tool_calls:
                if result.output is None:
                    broken.append(f"{at}: a result without output")
                if (result.id, result.name) in expected:
                    expected.remove((result.id, result.name))
                else:
                    broken.append(f"{at}: result {result.id} has no call in the turn before it")
            continue
        broken += [f"{at}: call {call_id} has no result" for call_id, _ in expected]
        expected = [(call.id, call.name) for call in message.tool_calls]
        if message.role != "assistant" and expected:
            broken.append(f"{at}: a {message.role} message with calls")
        if any(call.input is None or call.output is not None or not call.name for call in message.tool_calls):
            broken.append(f"{at}: a call whose arguments are no object, or without name, or with output")
    return broken + [f"call {call_id} has no result at the end" for call_id, _ in expected]


def _broken_ends(messages: Sequence[Message]) -> list[str]:
    broken = [f"{at}: an event" for at, message in enumerate(messages) if message.role == "event"]
    spoken = False
    for at, message in enumerate(messages):
        if message.role == "system" and spoken:
            broken.append(f"{at}: a system message after others")
        spoken = spoken or message.role != "system"
    if spoken and messages[-1].role not in ("user", "tool"):
        broken.append(f"ends with {messages[-1].role}")
    return broken


# Histories of every kind.

_texts = st.one_of(
    st.sampled_from(["", " ", "\n", "hello", "a longer text " * 20, "\ud800", "nul \0", '{"a": "\\ud800"}', "{}"]),
    st.text(max_size=20),
)
_ids = st.one_of(
    st.sampled_from(["", "c1", "c2", "c3", "call_exec", "x" * 60, "x" * 61, "bad id!", "bad_id_", "é", "adk-1"]),
    st.text(max_size=8),
)
_names = st.sampled_from(["exec", "search", "", "odd name", "ns.tool", "n" * 80])
_json = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), _texts, st.binary(max_size=3)),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(_texts, inner, max_size=3)),
    max_leaves=5,
)
_objects = st.one_of(
    st.dictionaries(_texts, _json, max_size=3),
    st.sampled_from([{"stdout": "line of output\n" * 2_000}, {"rows": list(range(3_000))}, {}]),
)
_signatures = st.one_of(
    st.none(),
    st.builds(
        Signature, st.sampled_from(["gemini", "openai"]), st.sampled_from(["", "m1", "m2"]), st.binary(max_size=4)
    ),
)
_calls = st.builds(ToolCall, _ids, _names, st.one_of(st.none(), _objects), st.none(), _signatures)
_results = st.builds(ToolCall, _ids, _names, st.none(), st.one_of(st.none(), _objects))
_any_calls = st.one_of(_calls, _results, st.builds(ToolCall, _ids, _names, _objects, _objects))
_thoughts = st.builds(Thought, _texts, _signatures)
_media = st.builds(
    Media,
    st.sampled_from(["image/png", "application/pdf", "text/plain"]),
    st.one_of(st.none(), st.binary(max_size=5)),
    st.one_of(st.none(), st.just("gs://b/f")),
)


def _tuples(of: st.SearchStrategy[ToolCall], most: int = 3) -> st.SearchStrategy[tuple[ToolCall, ...]]:
    return st.lists(of, max_size=most).map(tuple)


_messages = st.one_of(
    st.builds(Message, st.just("user"), _texts, media=st.lists(_media, max_size=1).map(tuple)),
    st.builds(
        Message, st.just("assistant"), _texts, _tuples(_calls), thoughts=st.lists(_thoughts, max_size=2).map(tuple)
    ),
    st.builds(Message, st.just("tool"), _texts, _tuples(_results), media=st.lists(_media, max_size=1).map(tuple)),
    st.builds(Message, st.sampled_from(["system", "user", "assistant", "tool", "event"]), _texts, _tuples(_any_calls)),
)


def _spell(plan: list[tuple[str, int]]) -> list[Message]:
    """Return a well-formed history: questions, answers, and call turns with `size` parallel calls."""
    history: list[Message] = []
    for number, (kind, size) in enumerate(plan):
        text = f"{kind} {number} " + "word " * size
        if kind != "calls":
            history.append(Message("user" if kind == "user" else "assistant", text))
            continue
        ids = [f"c{number}_{n}" for n in range(1 + size % 3)]
        history.append(Message("assistant", text, tuple(ToolCall(i, "exec", {"cmd": "ls"}) for i in ids)))
        history.append(Message("tool", "", tuple(ToolCall(i, "exec", output={"out": text}) for i in ids)))
    return history


def any_history(max_size: int = 12) -> st.SearchStrategy[list[Message]]:
    """Return histories of every kind: orphans, duplicates, odd ids, empty texts, results far from their calls."""
    return st.lists(_messages, max_size=max_size)


def sound_history(max_size: int = 12) -> st.SearchStrategy[list[Message]]:
    """Return histories that are valid as they are."""
    steps = st.tuples(st.sampled_from(["user", "assistant", "calls"]), st.integers(0, 60))
    return st.lists(steps, max_size=max_size).map(lambda plan: _spell([*plan, ("user", 3)]))
