"""Turn events of turns, and stored messages, into updates of a session as an editor shows it. Imports `acp`."""

from collections.abc import Iterator, Mapping
from typing import Any

from acp import helpers, schema

from lango import events
from lango.events import to_plain_values
from lango.events.text import FinalText, TextOrder
from lango.json_values import to_client_json
from lango.server.compat.wait_answers import asks_client, question_text
from lango.server.json_body import tool_value_text
from lango.sessions import StoredEvent
from lango.waits import ApprovalWait, ClientResultWait, InputWait, Wait

Update = (
    schema.UserMessageChunk
    | schema.AgentMessageChunk
    | schema.AgentThoughtChunk
    | schema.ToolCallStart
    | schema.ToolCallProgress
)


class ToolCalls:
    """The tool calls of a session that the editor was shown, each under an id of its own: models repeat theirs."""

    def __init__(self, prefix: str) -> None:
        """`prefix` tells the calls from those that were shown before."""
        self._prefix = prefix
        self._ids: dict[str, str] = {}
        self._count = 0

    def start(self, call_id: str, name: str, arguments: Mapping[str, Any], status: schema.ToolCallStatus) -> Update:
        """Return the update that shows a call."""
        self._count += 1
        self._ids[call_id] = f"{self._prefix}-{self._count}"
        return helpers.start_tool_call(
            self._ids[call_id], name, kind="other", status=status, raw_input=_json(arguments)
        )

    def is_shown(self, call_id: str) -> bool:
        """Whether the editor shows a call without its result."""
        return call_id in self._ids

    def report(self, call_id: str, text: str) -> Update:
        """Return the update with what a running tool reports of its progress."""
        content = [helpers.tool_content(helpers.text_block(text))] if text else None
        return helpers.update_tool_call(self._ids[call_id], status="in_progress", content=content)

    def end(self, call_id: str, result: Mapping[str, Any], *, ok: bool) -> Update:
        """Return the update with the result of a call."""
        return helpers.update_tool_call(
            self._ids.pop(call_id),
            status="completed" if ok else "failed",
            content=[helpers.tool_content(helpers.text_block(tool_value_text(result)))],
            raw_output=_json(result),
        )

    def request(self, wait: ApprovalWait) -> schema.ToolCallUpdate:
        """Return the call that a person is asked about."""
        content: list[helpers.ToolCallContentVariant] = [helpers.tool_content(helpers.text_block(wait.hint))]
        return schema.ToolCallUpdate(
            tool_call_id=self._ids[wait.call_id],
            title=wait.tool,
            kind="other",
            status="pending",
            content=content if wait.hint else None,
            raw_input=_json(wait.arguments),
        )


class TurnUpdates:
    """The updates of one turn."""

    def __init__(self, calls: ToolCalls) -> None:
        self._calls = calls
        self._order = TextOrder()
        self._text = FinalText()

    def add(self, event: events.TurnEvent) -> Iterator[Update]:
        """Yield what an event adds to the session."""
        for ready in self._order.add(event):
            if text := self._text.add(ready):
                yield helpers.update_agent_message_text(text)
            match ready:
                case events.ThoughtDelta():
                    yield helpers.update_agent_thought_text(ready.text)
                case events.ToolStart() if self._calls.is_shown(ready.call_id):  # it is approved
                    yield self._calls.report(ready.call_id, "")
                case events.ToolStart():
                    yield self._calls.start(ready.call_id, ready.name, ready.arguments, "in_progress")
                case events.ToolProgress() if self._calls.is_shown(ready.call_id):
                    yield self._calls.report(ready.call_id, ready.message)
                case events.ToolEnd():
                    if not self._calls.is_shown(ready.call_id):
                        yield self._calls.start(ready.call_id, ready.name, {}, "in_progress")
                    yield self._calls.end(ready.call_id, ready.result, ok=ready.ok)
                case events.WaitOpened():
                    yield from self._wait(ready.wait)
                case _:
                    pass

    def _wait(self, wait: Wait) -> Iterator[Update]:
        match wait:
            case ApprovalWait():
                if not self._calls.is_shown(wait.call_id):
                    yield self._calls.start(wait.call_id, wait.tool, wait.arguments, "pending")
            case ClientResultWait():
                pass
            case InputWait():  # the next prompt is the answer
                yield helpers.update_agent_message_text(f"\n\n{question_text(wait)}")
            case _:
                how = "Answer it with `lango inbox`." if asks_client(wait) else "It continues by itself."
                yield helpers.update_agent_message_text(f"\n\n[{question_text(wait)} {how}]")


def stored_updates(stored: StoredEvent, calls: ToolCalls) -> Iterator[Update]:
    """Yield the updates that show a stored message again."""
    message = stored.message
    if message is None or stored.is_note:
        return
    match message.role:
        case "user":
            names = [f"[file: {file.name}]" for file in stored.attachments]
            yield helpers.update_user_message_text("\n".join(text for text in (message.content, *names) if text))
        case "assistant":
            if stored.thoughts:
                yield helpers.update_agent_thought_text(stored.thoughts)
            if message.content:
                yield helpers.update_agent_message_text(message.content)
            for call in message.tool_calls:
                yield calls.start(call.id, call.name, call.input or {}, "pending")
        case "tool":
            for result in message.tool_calls:
                if calls.is_shown(result.id):
                    output = result.output or {}
                    yield calls.end(result.id, output, ok=set(output) != {"error"})
        case _:
            pass


def _json(value: Mapping[str, Any]) -> Any:
    return to_client_json(to_plain_values(value))
