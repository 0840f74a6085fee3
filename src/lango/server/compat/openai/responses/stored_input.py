"""Return what clients sent as it is stored: the input of a response, and the instructions of a conversation.

System and developer messages of a conversation are in the state of its session, for all its responses.
"""

import base64
import uuid
from collections.abc import Iterator, Sequence
from typing import Any

from msgspec import Struct, ValidationError, to_builtins

from lango.json_values import convert
from lango.messages import Attachment
from lango.server.compat.carried_history import to_history
from lango.server.compat.openai.responses.input_items import Approval, Instruction, ReadInput
from lango.server.compat.openai.responses.output_items import text_part
from lango.server.compat.openai.responses.response_ids import APPROVAL, StoredResponse, approval_request_id
from lango.server.context import ServerContext
from lango.server.json_body import tool_value_text
from lango.sessions import INPUT_CALL, SessionInfo, StoredEvent
from lango.threads import run_in_thread

INSTRUCTIONS = "conversation_instructions"
"""Where the state of a session has them."""


async def read_input_items(context: ServerContext, response: StoredResponse) -> list[dict[str, Any]]:
    """Return what the client sent for a response, in order."""
    session, turn, record = response.session, response.turn, response.record
    if (given := response.parameters.get(APPROVAL)) is not None:
        approval = convert(given, Approval)
        item = {
            "id": f"mcpr_in_{response.id}",
            "type": "mcp_approval_response",
            "approval_request_id": approval_request_id(approval.response_id, approval.call_id),
            "approve": approval.approved,
            "reason": None,
        }
        return [item]
    if record.request.answer is not None and record.request.answer.kind == "credential":
        return []
    messages = await context.runtime.turns.input_messages(session, turn, record)
    return await run_in_thread(
        lambda: [item for message in messages for item in message_items(message, response.session.key)]
    )


def message_items(stored: StoredEvent, key: int) -> Iterator[dict[str, Any]]:
    """Yield a stored message as items."""
    message = stored.message
    if message is None:
        return
    place = f"in_{key}_{stored.seq}"
    files = stored.attachments
    if message.role == "tool":
        for number, call in enumerate(message.tool_calls, 1):
            output = tool_value_text(call.output or {})
            if call.name == INPUT_CALL:  # the user's message was the answer to an input request
                content = [{"type": "input_text", "text": output}]
                yield {
                    "id": f"msg_{place}",
                    "type": "message",
                    "status": "completed",
                    "role": "user",
                    "content": content,
                }
                continue
            yield {
                "id": f"fco_{place}_{number}",
                "type": "function_call_output",
                "status": "completed",
                "call_id": call.id,
                "output": output,
            }
        return
    if message.content or files:
        role = "user" if message.role == "user" else "assistant"
        content = [_file_part(file) for file in files]
        if message.content and role == "user":
            content.insert(0, {"type": "input_text", "text": message.content})
        elif message.content:
            content.insert(0, text_part(message.content))
        yield {"id": f"msg_{place}", "type": "message", "status": "completed", "role": role, "content": content}
    for number, call in enumerate(message.tool_calls, 1):
        yield {
            "id": f"fc_{place}_{number}",
            "type": "function_call",
            "status": "completed",
            "call_id": call.id,
            "name": call.name,
            "arguments": tool_value_text(call.input or {}),
        }


def _file_part(file: Attachment) -> dict[str, Any]:
    url = f"data:{file.mime_type};base64,{base64.b64encode(file.data).decode()}"
    if file.mime_type.startswith("image/"):
        return {"type": "input_image", "detail": "auto", "image_url": url, "file_id": None}
    return {"type": "input_file", "filename": file.name, "file_data": url}


class KeptInstruction(Struct, frozen=True):
    """A system or developer message."""

    id: str
    role: str
    text: str
    after: int = 0
    """The number of the message before it."""


def kept_instructions(session: SessionInfo) -> list[KeptInstruction]:
    """Return the instructions of a conversation, in order; none if something else wrote the state."""
    try:
        return convert(session.state.get(INSTRUCTIONS, []), list[KeptInstruction])
    except ValidationError:
        return []


def new_instructions(read: ReadInput, after: int) -> list[KeptInstruction]:
    """Return the instructions among items that are added after a message. Call it in a thread."""

    def kept(one: Instruction) -> KeptInstruction:
        place = after + len(to_history(read.messages[: one.messages_before]))
        return KeptInstruction(f"msg_{uuid.uuid4().hex}", one.role, one.text, place)

    return [kept(one) for one in read.instructions]


def to_state(kept: Sequence[KeptInstruction]) -> list[dict[str, Any]]:
    """Return the value of the state."""
    return to_builtins(list(kept))
