"""Fold the events of a turn into the result of a tool call and its progress. Imports `mcp`."""

from typing import Any

from mcp_types import CallToolResult, ContentBlock, ResourceLink, TextContent

from lango import events
from lango.errors import TurnCancelled
from lango.events import output_to_text, to_plain_values
from lango.events.text import LastText
from lango.json_values import to_client_json
from lango.server.compat.mcp.resources import artifact_uri
from lango.server.compat.wait_answers import asks_client, question_text
from lango.server.streaming.turn_streams import TurnRef
from lango.waits import ApprovalWait, CredentialWait, Wait

OUTPUT_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "session": {"type": "string", "description": "Name it in the next call to continue the conversation."},
        "turn": {"type": "integer"},
        "status": {"type": "string", "enum": ["done", "waiting", "failed", "cancelled"]},
        "answer": {"type": "string"},
        "output": {"description": "The output of a workflow, if it is no text."},
        "waits": {
            "type": "array",
            "description": "What the agent waits for, each with an id and a question.",
            "items": {"type": "object"},
        },
    },
    "required": ["session", "turn", "status", "answer"],
}


class CallView:
    """The result of a call, as the events of its turn so far show it."""

    def __init__(self, turn: TurnRef) -> None:
        self._turn = turn
        self._text = LastText()
        self._answer = ""
        self._output: Any = None
        self._error = ""
        self._artifacts: dict[str, int] = {}
        self._status = "failed"
        self.waits: tuple[Wait, ...] = ()
        """What the turn waits for at its end."""

    def add(self, event: events.TurnEvent) -> str:
        """Add the next event of the turn; return what it reports of the progress, if anything."""
        self._answer = self._text.add(event) or self._answer
        match event:
            case events.Accepted(waiting=waiting):
                return f"session {self._turn.session.name.id}" + (": queued behind another turn" if waiting else "")
            case events.ToolStart():
                return f"runs {event.name}"
            case events.ToolProgress(message=str(message)) if message:
                return f"{event.name}: {message}"
            case events.NodeProgress(status="started"):
                return f"runs {event.name}"
            case events.Resumed():
                return "continues after an interruption"
            case events.ArtifactSaved():
                self._artifacts[event.name] = event.version
                return f"saved {event.name}"
            case events.TurnDone():
                self._status = "done" if event.status == "steered" else event.status
                self._output, self.waits = event.output, event.waits
            case events.TurnError(fatal=True):
                self._status = "cancelled" if event.error == TurnCancelled.__name__ else "failed"
                self._error = event.message
            case _:
                pass
        return ""

    def result(self, note: str = "") -> CallToolResult:
        """Return the result of the call; `note` says why it is not answered."""
        session = self._turn.session.name
        answer = self._answer or ("" if self._output is None else output_to_text(self._output))
        waits = [to_client_json(to_plain_values(wait)) | {"question": question_text(wait)} for wait in self.waits]
        about: dict[str, Any] = {"session": session.id, "turn": self._turn.turn, "status": self._status}
        structured = about | {"answer": answer or self._error}
        if waits:
            structured["waits"] = waits
        if self._output is not None and not isinstance(self._output, str):
            structured["output"] = to_client_json(to_plain_values(self._output))
        texts = [answer, self._error, note, *(_how_to_answer(wait) for wait in self.waits)]
        if self._status == "cancelled" and not self._error:
            texts.append("The turn was stopped.")
        content: list[ContentBlock] = [TextContent(text="\n\n".join(text for text in texts if text))]
        content += [
            ResourceLink(name=name, uri=artifact_uri(session.app_name, session.id, name, version))
            for name, version in self._artifacts.items()
        ]
        is_error = self._status in ("failed", "cancelled")
        return CallToolResult(content=content, structured_content=structured, is_error=is_error)


def _how_to_answer(wait: Wait) -> str:
    """Say what the agent waits for, and how its answer reaches it."""
    question = question_text(wait)
    if not asks_client(wait):
        return f"{question} It continues by itself; call again with the session alone to read its answer."
    if isinstance(wait, CredentialWait):
        where = "" if wait.auth_url else " The user enters it on the agent's page or in its terminal."
        return f"The agent waits for access: {question}{where} Then call again with the session alone."
    kind = "approval" if isinstance(wait, ApprovalWait) else "an answer"
    hint = "true or false" if isinstance(wait, ApprovalWait) else "the answer"
    return (
        f"The agent waits for {kind}: {question} Ask the user, and call again with the session, "
        f"with wait = {wait.id!r} and answer = {hint}."
    )
