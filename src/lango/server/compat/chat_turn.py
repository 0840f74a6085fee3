"""Submit the turn of a client that sends the whole conversation with each request."""

from typing import Protocol

from lango.config import ServerLimits, ServerSettings
from lango.messages import Message
from lango.server.compat.linked_files import FileLink, LinkedFiles, LoadUpload, load_links
from lango.server.compat.session_selection import NamedConversation, submit_carried_history, submit_to_named_session
from lango.server.compat.turn_answer import TurnAnswer
from lango.server.context import AgentUser
from lango.submissions import ModelOptions, TurnRequest
from lango.threads import run_in_thread
from lango.tools.tool import Tool


class ChatBody(Protocol):
    """The body of such a request."""

    def check_supported(self) -> None:
        """Raise `ApiError` for parameters that cannot be followed here."""
        ...

    async def read_turn(self, settings: ServerSettings) -> tuple[list[Tool], ModelOptions]:
        """Return the client's tools that the model may call, and the options of the turn."""
        ...

    def file_links(self) -> list[FileLink]:
        """Return where the files of the user's messages are."""
        ...

    def read_conversation(self, limits: ServerLimits, linked: LinkedFiles) -> list[Message]:
        """Return the messages without the client's instructions."""
        ...


async def submit_chat(
    user: AgentUser,
    body: ChatBody,
    key: str | None,
    conversation: NamedConversation | None,
    load_upload: LoadUpload | None = None,
) -> TurnAnswer:
    """Submit the last message of a conversation, and return the answer. Raise an error for what cannot be followed."""
    settings = user.settings.server
    body.check_supported()
    tools, options = await body.read_turn(settings)
    request = TurnRequest(key, tools, options)
    await user.check_token_quota()
    linked = await load_links(body.file_links(), settings, load_upload)
    messages = await run_in_thread(body.read_conversation, settings.limits, linked)
    if conversation and not conversation.has_several_sessions:
        turn = await submit_to_named_session(user, conversation.session_id, messages, request)
    else:
        turn = await submit_carried_history(user, messages, request, conversation)
    return TurnAnswer(user, turn, {tool.name for tool in tools}, only_json=options.shapes_answer)
