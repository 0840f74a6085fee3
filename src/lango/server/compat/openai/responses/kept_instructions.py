"""Keep the system and developer messages of a conversation: in the state of its session, for all its responses."""

import uuid
from collections.abc import Sequence
from typing import Any

from msgspec import Struct, ValidationError, to_builtins

from lango.json_values import convert
from lango.server.compat.openai.responses.input_items import InputItem
from lango.sessions import SessionInfo

INSTRUCTIONS = "conversation_instructions"
"""Where the state of a session has them."""


class KeptInstruction(Struct, frozen=True):
    """A system or developer message."""

    id: str
    role: str
    text: str


def kept_instructions(session: SessionInfo) -> list[KeptInstruction]:
    """Return the instructions of a conversation, in order; none if something else wrote the state."""
    try:
        return convert(session.state.get(INSTRUCTIONS, []), list[KeptInstruction])
    except ValidationError:
        return []


def new_instructions(items: Sequence[InputItem], texts: Sequence[str]) -> list[KeptInstruction]:
    """Return the instructions among items to add; `texts` are those that were read from them."""
    roles = [item.role for item in items if item.type == "message" and item.role in ("system", "developer")]
    return [KeptInstruction(f"msg_{uuid.uuid4().hex}", role, text) for role, text in zip(roles, texts, strict=True)]


def to_state(kept: Sequence[KeptInstruction]) -> list[dict[str, Any]]:
    """Return the value of the state."""
    return to_builtins(list(kept))
