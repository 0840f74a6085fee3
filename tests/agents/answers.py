"""Answer what turns wait for: an approval by its call, a value or a credential by its wait."""

from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from lango.events import TurnDone, TurnEvent, WaitOpened
from lango.messages import ToolCall
from lango.runtime import RunningTurn, Runtime
from lango.submissions import ModelOptions, SubmittedResults, TurnRequest
from lango.tools import Tool
from lango.waits import (
    ApprovalWait,
    Approve,
    Credential,
    CredentialWait,
    Decline,
    InputWait,
    LongRunningWait,
    NewGrant,
    QuestionWait,
    Refuse,
    Value,
    WaitBase,
)

W = TypeVar("W", bound=WaitBase)


def opened(events: Iterable[TurnEvent], kind: type[W]) -> list[W]:
    """The waits of a kind that a turn opened."""
    return [event.wait for event in events if isinstance(event, WaitOpened) and isinstance(event.wait, kind)]


def waiting_for(events: list[TurnEvent]) -> str:
    """What a turn that ended waits for first, or `done`."""
    last = events[-1]
    assert isinstance(last, TurnDone), events
    return last.waits[0].kind if last.waits else last.status


async def approval_id(runtime: Runtime, session: str, call: str | ToolCall, user_id: str = "user") -> str:
    """The id of the wait for the approval of a call; the call's own id if there is none."""
    call_id = call if isinstance(call, str) else call.id
    waits = await runtime.waits(session, user_id=user_id)
    return next((one.id for one in waits if isinstance(one, ApprovalWait) and one.call_id == call_id), call_id)


async def submit_results(
    runtime: Runtime,
    session: str,
    results: Mapping[str, Mapping[str, Any]],
    *,
    user_id: str = "user",
    idempotency_key: str | None = None,
    client_tools: Sequence[Tool] | None = None,
    options: ModelOptions | None = None,
    will_continue: bool | None = False,
) -> RunningTurn:
    """Submit results of client calls and long-running tools, by the calls' ids, as clients of the protocols do."""
    request = TurnRequest(idempotency_key, client_tools, options)
    return await runtime.accept(session, SubmittedResults(results, will_continue, request=request), user_id=user_id)


async def submit_approval(
    runtime: Runtime,
    session: str,
    call_id: str,
    *,
    approved: bool = True,
    user_id: str = "user",
    grant: NewGrant | None = None,
    reason: str = "",
    payload: Any = None,
    **request: Any,
) -> RunningTurn:
    answer = Approve(grant, payload) if approved else Refuse(reason, payload)
    wait_id = await approval_id(runtime, session, call_id, user_id)
    return await runtime.answer(session, wait_id, answer, user_id=user_id, **request)


async def approve(
    runtime: Runtime, session: str, call_id: str, *, approved: bool = True, **answer: Any
) -> AsyncGenerator[TurnEvent, None]:
    turn = await submit_approval(runtime, session, call_id, approved=approved, **answer)
    async for event in turn.follow():
        yield event


async def submit_input(
    runtime: Runtime, session: str, wait_id: str, value: Any, *, decline: bool = False, **request: Any
) -> RunningTurn:
    return await runtime.answer(session, wait_id, Decline() if decline else Value(value), **request)


async def submit_credential(runtime: Runtime, session: str, wait_id: str, value: Any, **request: Any) -> RunningTurn:
    return await runtime.answer(session, wait_id, Credential(value), **request)


async def open_inputs(runtime: Runtime, session: str, **of: Any) -> list[InputWait]:
    return [one for one in await runtime.waits(session, **of) if isinstance(one, InputWait)]


async def open_questions(runtime: Runtime, session: str, **of: Any) -> list[QuestionWait]:
    return [one for one in await runtime.waits(session, **of) if isinstance(one, QuestionWait)]


async def open_credentials(runtime: Runtime, session: str, **of: Any) -> list[CredentialWait]:
    return [one for one in await runtime.waits(session, **of) if isinstance(one, CredentialWait)]


async def awaited_results(runtime: Runtime, session: str) -> list[LongRunningWait]:
    return [one for one in await runtime.waits(session) if isinstance(one, LongRunningWait)]
