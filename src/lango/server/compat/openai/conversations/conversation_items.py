"""Show the messages of a session as the items of a conversation.

A call of a client's tool is a `function_call`, and its result a `function_call_output`. A call of the agent's own tools
is an `mcp_call` with its result. One that waits for approval is only an `mcp_approval_request`, as in a response.
System and developer messages are in the state of the session, with the number of the message before them.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct

from lango.messages import ToolCall, byte_size
from lango.server.compat.openai.openai_routes import Order, following_items, list_body
from lango.server.compat.openai.responses.output_items import call_outcome
from lango.server.compat.openai.responses.response_ids import approval_request_id, response_id
from lango.server.compat.openai.responses.stored_input import KeptInstruction, kept_instructions, message_items
from lango.server.context import AgentUser
from lango.server.json_body import tool_value_text
from lango.server.streaming.turn_streams import TurnRef
from lango.sessions import INPUT_CALL, REQUEST_PREFIX, SessionInfo, StoredEvent
from lango.threads import run_in_thread
from lango.waits import ApprovalWait

MAX_MESSAGES = 10_000
"""How many of a session's newest messages are shown as items."""


class ConversationItem(Struct, frozen=True):
    """An item, and the message that it is a part of, whose files are not loaded."""

    id: str
    stored: StoredEvent
    make: Callable[[], dict[str, Any]]

    @property
    def file_bytes(self) -> int:
        """How many bytes the files of its message have."""
        return sum(byte_size(file.data) for file in self.stored.attachments)


class _Context(Struct, frozen=True):
    """What the items of a session depend on besides their message."""

    session: SessionInfo
    server_label: str
    results: Mapping[str, ToolCall]
    client_calls: frozenset[str]
    approvals: Mapping[str, ApprovalWait]


async def read_items(user: AgentUser, session: SessionInfo) -> list[ConversationItem]:
    """Return the items of a session, the oldest first."""
    found = await user.messages(session, MAX_MESSAGES)
    waits = await user.waits(session.name.id)
    approvals = {wait.call_id: wait for wait in waits if isinstance(wait, ApprovalWait)}
    stored = await run_in_thread(_items, session, user.runtime.app_name, found, approvals)
    kept = [_instruction_item(one) for one in kept_instructions(session)]
    return sorted([*stored, *kept], key=lambda item: item.stored.seq)


def _instruction_item(kept: KeptInstruction) -> ConversationItem:
    content = [{"type": "input_text", "text": kept.text}]
    item = {"id": kept.id, "type": "message", "status": "completed", "role": kept.role, "content": content}
    return _item(StoredEvent(kept.after, "", 0.0, None), item)


def _items(
    session: SessionInfo, server_label: str, found: Sequence[StoredEvent], approvals: Mapping[str, ApprovalWait]
) -> list[ConversationItem]:
    results = {
        call.id: call
        for stored in found
        if stored.message is not None and stored.message.role == "tool"
        for call in stored.message.tool_calls
    }
    clients = frozenset(call_id for stored in found for call_id in stored.client_call_ids)
    context = _Context(session, server_label, results, clients, approvals)
    return [item for stored in found for item in _items_of_message(stored, context)]


def _items_of_message(stored: StoredEvent, context: _Context) -> Iterator[ConversationItem]:
    message = stored.message
    if message is None or stored.is_note or message.role not in ("user", "assistant", "tool"):
        return
    place = f"in_{context.session.key}_{stored.seq}"
    if message.role == "assistant" and stored.thoughts:
        summary = [{"type": "summary_text", "text": stored.thoughts}]
        yield _item(stored, {"id": f"rs_{place}", "type": "reasoning", "summary": summary})
    own = {
        number: call
        for number, call in enumerate(message.tool_calls, 1)
        if call.id not in context.client_calls and call.name != INPUT_CALL
    }
    shown = [f"fco_{place}_{number}" if message.role == "tool" else f"fc_{place}_{number}" for number in own]
    for outline in message_items(stored, context.session.key):
        if outline["id"] not in shown:
            yield ConversationItem(outline["id"], stored, _maker(stored, context.session.key, outline["id"]))
    if message.role == "assistant":
        for number, call in own.items():
            if (item := _own_call(call, f"mcp_{place}_{number}", context)) is not None:
                yield _item(stored, item)


def _item(stored: StoredEvent, item: dict[str, Any]) -> ConversationItem:
    return ConversationItem(item["id"], stored, lambda: item)


def _maker(stored: StoredEvent, key: int, item_id: str) -> Callable[[], dict[str, Any]]:
    """Return a function that makes an item anew, once the files of its message are loaded."""
    return lambda: next(item for item in message_items(stored, key) if item["id"] == item_id)


def _own_call(call: ToolCall, item_id: str, context: _Context) -> dict[str, Any] | None:
    """Return a call of the agent's own tools, or None for a call by which ADK asks a person."""
    if call.name.startswith(REQUEST_PREFIX):
        return None
    about = {
        "server_label": context.server_label,
        "name": call.name,
        "arguments": tool_value_text(call.input or {}),
    }
    if (wait := context.approvals.get(call.id)) is not None:
        turn = TurnRef(context.session, wait.turn or 0)
        return {"id": approval_request_id(response_id(turn), call.id), "type": "mcp_approval_request", **about}
    outcome: dict[str, Any] = {"status": "incomplete", "output": None, "error": None}
    if (result := context.results.get(call.id)) is not None:
        output = result.output or {}
        outcome = call_outcome(output, ok=not output.get("error"))
    return {"id": item_id, "type": "mcp_call", **about, **outcome}


async def shown_page(
    user: AgentUser, items: Sequence[ConversationItem], after: str | None, limit: int, order: Order
) -> dict[str, Any]:
    """Return a page of items with their files. It ends early where the files have as many bytes as a conversation."""
    following = following_items(items, after, order, lambda item: item.id)
    page: list[ConversationItem] = []
    left = user.settings.server.limits.max_conversation_bytes
    for item in following[:limit]:
        left -= item.file_bytes
        if page and left < 0:
            break
        page.append(item)
    return list_body(await make_items(user, page), has_more=len(page) < len(following))


async def make_items(user: AgentUser, items: Sequence[ConversationItem]) -> list[dict[str, Any]]:
    """Return items with their files."""
    await user.sessions.load_files([item.stored for item in items])
    return await run_in_thread(lambda: [item.make() for item in items])
