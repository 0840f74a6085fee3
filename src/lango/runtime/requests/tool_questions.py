"""Answer the questions of tools that run, in any process: their turns go on with the answers."""

from typing import Any

from lango.adk.run.pauses.human_input import checked_value
from lango.errors import InvalidAnswer, WaitNotOpen
from lango.runtime.execution.turn_supervisor import TurnSupervisor
from lango.sessions import SessionId, SessionRecord
from lango.store import Store, Turn
from lango.store.sessions.sessions import find_session
from lango.store.tool_calls.input_requests import InputRequest
from lango.store.tool_calls.tool_questions import ToolAnswer, read_tool_questions
from lango.turns.running_turn import RunningTurn


class ToolQuestions:
    """The open questions of tools that run in sessions of one app."""

    def __init__(self, store: Store, turns: TurnSupervisor) -> None:
        self._store = store
        self._turns = turns

    async def open_questions(self, name: SessionId) -> list[tuple[InputRequest, int]]:
        """Return the questions of a session that can still be answered, each with the turn that asks."""
        session = await self._store.read(find_session, name)
        return await self._store.read(read_tool_questions, session) if session else []

    async def answer(self, name: SessionId, question_id: str, value: Any, *, decline: bool) -> RunningTurn | None:
        """Answer a question and return the turn that goes on with it; None: no tool asks this.

        Raise `InvalidAnswer` for a value that does not fit, `WaitNotOpen` if it was answered just now.
        """
        session = await self._store.read(find_session, name)
        asked = await self._store.read(read_tool_questions, session) if session else []
        for request, turn in asked:
            if request.call_id == question_id and session is not None:
                accepted = ToolAnswer("accept", checked_value(request, value)) if not decline else None
                answer = accepted or ToolAnswer("decline")
                if not await self._store.answer_tool_question(session.key, question_id, answer):
                    raise WaitNotOpen(f"the question {question_id!r} of session {name.id!r} is not open any more")
                return self._turn(session, turn)
        if decline:
            raise InvalidAnswer(f"{question_id!r} is no open question of a running tool: only such a one is declined")
        return None

    def _turn(self, session: SessionRecord, turn: int) -> RunningTurn:
        """Return the turn that runs in this process, or one that follows it in another one."""
        running = self._turns.find_turn(session.key, turn)
        if running is None:
            running = self._turns.start(session, Turn(session.key, turn, repeated=True))
            running.detach()
        return running
