"""Read the instructions that a client sends with its request, in any protocol.

They are options of the turn (`ModelOptions.instruction`): they are stored with it, hold for its model calls, also after
a crash or a pause, and are no part of the session's history.
"""

from collections.abc import Iterable

from lango.config import ServerSettings
from lango.server.errors import ApiError


def client_instruction(texts: Iterable[str], settings: ServerSettings) -> str:
    """Join the instructions of a client to one text. Raise `ApiError` if there are any and the settings refuse them."""
    instruction = "\n\n".join(text for text in texts if text.strip())
    if instruction and not settings.client_instructions:
        raise ApiError(
            400,
            "ClientInstructionsRefused",
            "messages: this server accepts no instructions from clients; remove system and developer messages, "
            "instructions and context (setting server.client_instructions)",
        )
    return instruction
