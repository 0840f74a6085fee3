"""Quote the memory of a session before the messages of a request.

`lango.memory` decides what is remembered; `lango.store.memory` stores it.
"""

from typing import Any

from google.adk.agents.callback_context import CallbackContext
from google.adk.models.llm_request import LlmRequest
from google.genai import types
from pydantic import Field

from lango.adk.services.stored_session import StoredSession
from lango.memory import quote
from lango.store.memory.observations import SessionMemory


class MemoryContent(types.Content):
    """The quoted memory in a request. `ProviderLlm` recognises the type, and fits it to its budget."""

    recalled: SessionMemory = Field(default_factory=SessionMemory, exclude=True)
    """The memory that it quotes."""

    @classmethod
    def of(cls, recalled: SessionMemory) -> "MemoryContent":
        """Quote a memory."""
        return cls(role="user", parts=[types.Part(text=quote(recalled))], recalled=recalled)


class RecalledContent(types.Content):
    """What was recalled for the user's message. `ProviderLlm` recognises the type, and puts it after the message."""


def gets_history(context: CallbackContext) -> bool:
    """Whether the requests of an agent hold the history of the session."""
    agent: Any = context.get_invocation_context().agent
    return getattr(agent, "include_contents", "default") != "none"


def insert_memory(context: CallbackContext, request: LlmRequest) -> None:
    """Insert the memory of the session before its messages, unless the agent gets no history."""
    session = context.session
    if not isinstance(session, StoredSession) or not (session.recalled.batches or session.recalled.facts):
        return
    if gets_history(context):
        request.contents.insert(0, MemoryContent.of(session.recalled))
