"""Keep what came with the input of a turn and is not in its message: another process needs it to run the turn."""

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct, to_builtins

from lango.json_values import convert
from lango.model_options import ModelOptions
from lango.store.codec.json_text import dumps, loads
from lango.store.waits.waits import WaitAnswer


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
