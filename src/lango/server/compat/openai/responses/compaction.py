"""Compact a conversation: keep what the client said, and replace the rest by notes of the agent's model."""

import time
import uuid
from typing import Any

from pydantic import ConfigDict, Field

from lango.errors import UsageError
from lango.server.compat.carried_history import to_history
from lango.server.compat.openai.responses.input_items import (
    MAX_ITEMS,
    InputItem,
    InputPart,
    compaction_content,
    read_input,
)
from lango.server.compat.openai.responses.response_ids import StoredResponse
from lango.server.compat.openai.responses.response_request import Hints, Input
from lango.server.compat.openai.responses.response_view import response_usage
from lango.server.compat.openai.responses.stored_input import message_items
from lango.server.compat.openai.responses.submission import find_previous, load_item
from lango.server.context import AgentUser
from lango.server.errors import bad_request
from lango.threads import run_in_thread

_KEPT_ROLES = ("user", "system", "developer")


class CompactRequest(Hints):
    """A conversation to compact: `input`, after the response that it continues. The agent has its own model."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [{"model": "lango", "input": "Hello!"}]})

    model: str = Field(min_length=1)
    input: Input = Field(default=[])
    instructions: str | None = None
    """What the notes must heed."""
    previous_response_id: str | None = None


async def compact(user: AgentUser, body: CompactRequest) -> dict[str, Any]:
    """Return the compacted conversation: the client's own messages, then one compaction item."""
    await user.check_token_quota()
    previous = await find_previous(user, body.previous_response_id)
    stored = await _stored_items(user, previous) if previous else []
    items = [*stored, *body.input]
    read = await read_input(user, items, lambda item_id: load_item(user, item_id))
    if read.approvals:
        raise bad_request("input: answer approval requests with POST /v1/responses, and compact after that")
    if not read.messages:
        raise bad_request("input: there is nothing to compact; send a history or a previous_response_id")
    messages = await run_in_thread(to_history, read.messages)
    instructions = "\n\n".join([*filter(None, [body.instructions]), *read.instruction_texts])
    try:
        summary, usage = await user.runtime.summarize(messages, instructions)
    except UsageError as error:
        raise bad_request(str(error)) from error
    await user.spend_tokens(usage.input_tokens + usage.output_tokens)
    kept = [_message(item) for item in items if item.type == "message" and item.role in _KEPT_ROLES]
    item = {"id": f"cmp_{uuid.uuid4().hex}", "type": "compaction", "encrypted_content": compaction_content(summary)}
    return {
        "id": f"resp_compaction_{uuid.uuid4().hex}",
        "object": "response.compaction",
        "created_at": int(time.time()),
        "output": [*kept, item],
        "usage": response_usage(usage),
    }


async def _stored_items(user: AgentUser, previous: StoredResponse) -> list[InputItem]:
    """Read the session of a response up to its end; of a very long one, the newest messages."""
    session = previous.session
    last = await user.runtime.turns.last_message(session, previous.turn, previous.record)
    found = await user.messages(session, MAX_ITEMS, None if last is None else last + 1)
    await user.sessions.load_files(found)
    return await run_in_thread(
        lambda: [InputItem.model_validate(item) for stored in found for item in message_items(stored, session.key)]
    )


def _message(item: InputItem) -> dict[str, Any]:
    """Return a message of the client as an item of the output."""
    given = [InputPart(type="input_text", text=item.content)] if isinstance(item.content, str) else item.content
    return {
        "id": item.id or f"msg_{uuid.uuid4().hex}",
        "type": "message",
        "status": "completed",
        "role": item.role,
        "content": [part.shown() for part in given or ()],
    }
