"""Keep the system and developer messages of a conversation: in the state of its session, for all its responses."""

import uuid
from collections.abc import Sequence
from typing import Any

from msgspec import Struct, ValidationError, to_builtins

from lango.json_values import convert
from lango.server.compat.carried_history import to_history
from lango.server.compat.openai.responses.input_items import InputItem, ReadInput, is_instruction
from lango.sessions import SessionInfo

INSTRUCTIONS = "conversation_instructions"
"""Where the state of a session has them."""


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


def new_instructions(items: Sequence[InputItem], read: ReadInput, after: int) -> list[KeptInstruction]:
    """Return the instructions among items that are added after a message. Call it in a thread."""
    roles = [item.role or "" for item in items if is_instruction(item)]
    places = [after + len(to_history(read.messages[:count])) for count in read.messages_before]
    about = zip(roles, read.instructions, places, strict=True)
    return [KeptInstruction(f"msg_{uuid.uuid4().hex}", role, text, place) for role, text, place in about]


def to_state(kept: Sequence[KeptInstruction]) -> list[dict[str, Any]]:
    """Return the value of the state."""
    return to_builtins(list(kept))
