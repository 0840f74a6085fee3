"""Report how far a running tool is, to the readers of its turn."""

import asyncio

from google.adk.tools import ToolContext

from lango.adk.turn.turn_run import TurnRun, current_turn
from lango.events import ToolProgress

_MAX_MESSAGE_CHARACTERS = 500


def report_progress(context: ToolContext, progress: float, total: float | None = None, message: str = "") -> None:
    """Report how far a tool of an ADK agent is, from any thread; readers get it at most once a second, and the end.

    `total` is what `progress` is at the end, if that is known. Outside of a turn of the runtime it does nothing.

    ```python
    def copy_files(names: list[str], tool_context: ToolContext) -> str:
        for done, name in enumerate(names):
            report_progress(tool_context, done, len(names), name)
    ```
    """
    turn, call_id = current_turn.get(), context.function_call_id or ""
    name = turn.output.name_of_call(call_id) if turn is not None else ""
    emit_progress(turn, call_id, name, progress, total, message)


def emit_progress(
    turn: TurnRun | None, call_id: str, name: str, progress: float, total: float | None, message: str
) -> None:
    """Emit the progress of a running call of a turn, from any thread."""
    if turn is None:
        return
    loop = turn.record.loop

    def emit() -> None:
        if not turn.record.is_running(call_id):
            return
        if turn.output.may_report(call_id, is_last=total is not None and progress >= total):
            sink = turn.output.sink
            reported = float(progress), total, message[:_MAX_MESSAGE_CHARACTERS]
            sink.emit(ToolProgress(sink.next_id(), call_id, name, *reported))

    try:
        is_here = asyncio.get_running_loop() is loop
    except RuntimeError:
        is_here = False
    if is_here:
        emit()
    else:
        loop.call_soon_threadsafe(emit)
