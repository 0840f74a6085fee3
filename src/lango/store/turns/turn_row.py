"""Define what a turn's row keeps as JSON: what came with its input, and how it ended.

The column `request` has what is not in the message of the turn: another process needs it to run the turn. The column
`extra` has its end.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Self

from msgspec import Struct, ValidationError, field, to_builtins

from lango.errors import InvalidExport, LangoError
from lango.events import TurnDone, TurnError, Usage
from lango.json_values import convert
from lango.model_options import ModelOptions
from lango.store.codec.json_text import dumps, loads
from lango.store.waits.waits import WaitAnswer
from lango.waits import Wait


class TurnFailure(Struct, frozen=True, omit_defaults=True):
    """The error that a turn ended with."""

    type: str
    message: str
    retry_after_s: float | None = None

    @classmethod
    def of(cls, error: LangoError) -> Self:
        """Describe an error."""
        return cls(type(error).__name__, str(error), error.retry_after_s)


class TurnResult(Struct, frozen=True, omit_defaults=True):
    """How a turn ended, and what it used."""

    error: TurnFailure | None = None
    status: str = "done"
    """That of its `TurnDone`."""
    finish_reason: str = ""
    stop_sequence: str = ""
    output: Any = None
    """The final output of a workflow."""
    usage: Usage = field(default_factory=Usage)
    calls: Sequence[Mapping[str, Any]] = ()
    """The model calls, in order; see `lango.adk.turn.model_calls`."""
    invocations: Sequence[str] = ()
    """The ids of the invocations of ADK's Runner in this turn."""

    def encode(self) -> str:
        """Return the JSON that the row stores."""
        return dumps(to_builtins(self))

    @classmethod
    def decode(cls, text: str | None) -> Self:
        """Read the JSON of a row; without any, nothing is known of the end."""
        return convert(loads(text), cls) if text else cls()

    @classmethod
    def check(cls, text: str | None) -> None:
        """Raise `InvalidExport` if a text is not what a row stores."""
        try:
            cls.decode(text)
        except ValidationError as error:
            raise InvalidExport(f"extra: {error}") from error

    def final_event(
        self, event_id: int, turn: int, row_status: str, *, has_run: bool, waits: tuple[Wait, ...] = ()
    ) -> TurnDone | TurnError:
        """Build the final event of an ended turn from its row, and from the waits that hold it up, where known."""
        if row_status in ("done", "steered"):
            status: Any = self.status
            return TurnDone(
                event_id, turn, status, self.usage, self.finish_reason, self.output, waits, self.stop_sequence
            )
        failed = self.error or _default_failure(row_status, has_run=has_run)
        return TurnError(event_id, failed.type, failed.message, retry_after_s=failed.retry_after_s)


def _default_failure(row_status: str, *, has_run: bool) -> TurnFailure:
    if row_status == "cancelled" and not has_run:
        message = "the message was withdrawn before its turn started: send it with another key"
        return TurnFailure("TurnCancelled", message)
    if row_status == "cancelled":
        return TurnFailure("TurnCancelled", "the turn was stopped")
    message = "the process that ran this turn is gone; what was stored is kept: send the message again"
    return TurnFailure("TurnFailed", message)


class StoredClientTool(Struct, frozen=True):
    """A tool that the client runs itself, as it was defined."""

    name: str
    description: str
    parameters: Mapping[str, Any] | None = None


class StoredRequest(Struct, frozen=True):
    """What a turn's row keeps of the request that brought its input."""

    client_tools: Sequence[StoredClientTool] = ()
    options: ModelOptions = ModelOptions()
    answer: WaitAnswer | None = None
    """The answer that the input brings, without its content: the row of the wait has that."""
    retry_of: str = ""
    """The event with the results from which the turn continues, if it is a retry."""
    quota: str | None = None
    """What the turn's tokens are counted against."""
    tokens_per_day: int | None = None
    """The tokens that the quota allows in a day, or None if it has no limit."""
    trace: Mapping[str, str] = {}
    """The trace and span that the request belongs to."""

    @property
    def as_json(self) -> dict[str, Any]:
        """The request as a JSON object, without what it does not set."""
        return {name: value for name, value in to_builtins(self).items() if value}


def request_to_text(request: StoredRequest) -> str | None:
    """Write a request for a turn's row, or return None if it sets nothing."""
    return dumps(fields) if (fields := request.as_json) else None


def text_to_request(text: str | None) -> StoredRequest:
    """Read the request of a turn's row."""
    return convert(loads(text), StoredRequest) if text else StoredRequest()
