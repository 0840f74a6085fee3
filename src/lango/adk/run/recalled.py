"""Recall what matters for the user's message from the notes and messages that a request does not show."""

import logging

from google.adk.agents.callback_context import CallbackContext
from google.adk.models.llm_request import LlmRequest
from google.genai import types

from lango.adk.model.quoted_memory import MemoryContent, RecalledContent, gets_history
from lango.adk.run.turn_state import TurnState
from lango.adk.services.request_context import last_load
from lango.adk.services.stored_session import StoredSession
from lango.errors import LangoError
from lango.memory import Shown, recall_for
from lango.store import SessionId

_MAYBE_CUT = 4
_log = logging.getLogger("lango.memory")


async def insert_recalled(state: TurnState, context: CallbackContext, request: LlmRequest) -> None:
    """Insert what is recalled before the user's message, the same for every model call of a turn."""
    session = context.session
    first_seq = last_load.get().first_seq
    if isinstance(session, StoredSession) and first_seq > session.recalled.floor_seq:
        first_seq += _MAYBE_CUT  # the window is as large as its budget: the request may not show all of it
    if not state.recall_tokens or first_seq <= 1 or not isinstance(session, StoredSession) or not gets_history(context):
        return
    question = _text(context.user_content)
    places = [at for at, content in enumerate(request.contents) if question and _text(content) == question]
    if not places:
        return
    if question not in state.recalled_texts:
        name = SessionId(session.app_name, session.user_id, session.id)
        others = [content for content in request.contents if not isinstance(content, MemoryContent)]
        shown = Shown(first_seq, [text for content in others if (text := _text(content)) and text != question])
        try:
            state.recalled_texts[question] = await recall_for(
                state.store, name, session.recalled, question, shown=shown, max_tokens=state.recall_tokens
            )
        except LangoError as error:  # the turn goes on without it
            _log.warning("nothing was recalled in session %s: %s", session.id, error)
            state.recalled_texts[question] = ""
    if text := state.recalled_texts[question]:
        request.contents.insert(places[-1], RecalledContent(role="user", parts=[types.Part(text=text)]))


def _text(content: types.Content | None) -> str:
    if content is None or content.role != "user":
        return ""
    return " ".join(part.text for part in content.parts or () if part.text)
