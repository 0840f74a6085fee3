"""Compare a request to a model with the one before it."""

from collections.abc import Mapping, Sequence
from difflib import SequenceMatcher, unified_diff
from typing import Any

from msgspec import Struct, json

from lango.providers.request_view import MessageView, RequestView


class OptionChange(Struct, frozen=True):
    """An option that has another value, or None where it is not set."""

    name: str
    before: Any
    after: Any


class RequestChanges(Struct, frozen=True):
    """How a request differs from the one before it."""

    system: str
    """The changed lines of the system text, as a unified diff; empty: it is the same."""
    added_messages: Sequence[int]
    """The places of the messages that are new."""
    removed_messages: Sequence[MessageView]
    """The messages that the request before had."""
    added_tools: Sequence[str]
    removed_tools: Sequence[str]
    changed_tools: Sequence[str]
    options: Sequence[OptionChange]


def request_changes(before: RequestView, after: RequestView) -> RequestChanges:
    """Return what a request adds, leaves out and changes."""
    old, new = [json.encode(message) for message in before.messages], [json.encode(one) for one in after.messages]
    added: list[int] = []
    removed: list[MessageView] = []
    for kind, first, last, start, end in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if kind != "equal":
            added += range(start, end)
            removed += before.messages[first:last]
    tools_before = {tool.name: tool for tool in before.tools}
    tools_after = {tool.name: tool for tool in after.tools}
    lines = unified_diff(before.system.splitlines(), after.system.splitlines(), n=1, lineterm="")
    return RequestChanges(
        system="\n".join(line for line in lines if not line.startswith(("---", "+++"))),
        added_messages=added,
        removed_messages=removed,
        added_tools=[name for name in tools_after if name not in tools_before],
        removed_tools=[name for name in tools_before if name not in tools_after],
        changed_tools=[name for name, tool in tools_after.items() if tools_before.get(name, tool) != tool],
        options=_option_changes(before.options, after.options),
    )


def _option_changes(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[OptionChange]:
    names = dict.fromkeys([*before, *after])
    return [
        OptionChange(name, before.get(name), after.get(name)) for name in names if before.get(name) != after.get(name)
    ]
