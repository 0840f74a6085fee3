"""List the input of a stored response as items."""

import base64
from collections.abc import Iterator
from typing import Any

from lango.json_values import convert
from lango.messages import Attachment
from lango.server.compat.openai.responses.input_items import Approval
from lango.server.compat.openai.responses.output_items import text_part
from lango.server.compat.openai.responses.response_ids import APPROVAL, StoredResponse, approval_request_id
from lango.server.context import ServerContext
from lango.server.json_body import tool_value_text
from lango.sessions import INPUT_CALL, StoredEvent


async def read_input_items(context: ServerContext, response: StoredResponse) -> list[dict[str, Any]]:
    """Return what the client sent for a response, in order."""
    session, turn, record = response.session, response.turn, response.record
    if (approval := response.parameters.get(APPROVAL)) is not None:
        return [_approval_item(convert(approval, Approval), response.id)]
    if record.request.answer is not None and record.request.answer.kind == "credential":
        return []
    messages = await context.runtime.turns.input_messages(session, turn, record)
    return [item for message in messages for item in message_items(message, response.session.key)]


def _approval_item(approval: Approval, response_id: str) -> dict[str, Any]:
    return {
        "id": f"mcpr_in_{response_id}",
        "type": "mcp_approval_response",
        "approval_request_id": approval_request_id(approval.response_id, approval.call_id),
        "approve": approval.approved,
        "reason": None,
    }


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
