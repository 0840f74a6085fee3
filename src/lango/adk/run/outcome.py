"""Check how a run of ADK ended: with an answer, with a bad transfer, or with an error."""

from lango.adk.run.turn_state import TurnState
from lango.errors import AgentFailed, AgentNotFound, EmptyAnswer, LangoError


def transfer_failure(state: TurnState) -> AgentNotFound | None:
    """Return the error of a transfer to an agent that does not exist; None: there was none."""
    if state.bad_transfer is None:
        return None
    valid = ", ".join(state.valid_agents)
    return AgentNotFound(f"there is no agent {state.bad_transfer!r}; there are {valid}")


def require_answer(state: TurnState) -> None:
    """Raise `EmptyAnswer` if a model was called, and neither answered nor left anything pending."""
    if state.error is not None:
        raise EmptyAnswer(f"the model gave no answer: {': '.join(part for part in state.error if part)}")
    if state.model_calls and not (state.is_pending or state.ended_by_tool or state.has_text_since_tool):
        why = f" (finish reason: {state.finish_reason})" if state.finish_reason else ""
        raise EmptyAnswer(f"the model gave an empty answer{why}")


def to_agent_error(error: BaseException) -> LangoError:
    """Return the `LangoError` among an error's causes, or else `AgentFailed`."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, LangoError):
            return cause
        cause = cause.__cause__
    return AgentFailed(f"{type(error).__name__}: {error}")
