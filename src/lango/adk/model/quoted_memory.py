"""Memory in ADK's requests: quoted data before the first message, for every model that answers in the session."""

from typing import Any

from google.adk.agents.callback_context import CallbackContext
from google.adk.models.llm_request import LlmRequest
from google.genai import types
from pydantic import PrivateAttr

from lango.adk.services.stored_session import StoredSession
from lango.memory import quote
from lango.store.memory.observations import SessionMemory


class MemoryContent(types.Content):
    """What is remembered, as a content of a request: our own models know it by its type, and fit it to their room."""

    _recalled: SessionMemory = PrivateAttr(default_factory=SessionMemory)

    @property
    def recalled(self) -> SessionMemory:
        """What it quotes."""
        return self._recalled

    @classmethod
    def of(cls, recalled: SessionMemory) -> "MemoryContent":
        """Quote what is remembered."""
        content = cls(role="user", parts=[types.Part(text=quote(recalled))])
        content._recalled = recalled
        return content


def insert_memory(context: CallbackContext, request: LlmRequest) -> None:
    """Put what is remembered of the session before its messages. An agent that wants no history gets none of it."""
    session = context.session
    if not isinstance(session, StoredSession) or not (session.recalled.batches or session.recalled.facts):
        return
    agent: Any = context.get_invocation_context().agent
    if getattr(agent, "include_contents", "default") != "none":
        request.contents.insert(0, MemoryContent.of(session.recalled))
