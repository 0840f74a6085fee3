"""One table of HTTP statuses: for a request that is refused, and for a turn that fails later, in every protocol."""

import inspect

import pytest

from lango import errors
from lango.errors import (
    LangoError,
    ProviderAuthError,
    ProviderRejected,
    ProviderUnavailable,
    Stopping,
    StoreUnavailable,
    UnknownModel,
)
from lango.events import TurnError
from lango.server.errors import status_of, to_api_error, turn_api_error
from lango.server.streaming.sse import encode_turn_error

KINDS = [kind for _, kind in inspect.getmembers(errors, inspect.isclass) if issubclass(kind, LangoError)]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_a_turn_that_fails_has_the_status_of_its_error(kind: type[LangoError]) -> None:
    refused = to_api_error(kind("why"))
    failed = turn_api_error(TurnError(1, kind.__name__, "why"))
    assert (refused.status, refused.type, str(refused)) == (failed.status, failed.type, str(failed))
    assert refused.status == status_of(kind)
    assert ("Retry-After" in refused.headers) is ("Retry-After" in failed.headers) is (refused.status in (429, 503))


def test_what_a_vendor_rejects_is_the_clients_to_change_and_its_key_and_models_are_not() -> None:
    statuses = [status_of(kind) for kind in (ProviderRejected, ProviderAuthError, UnknownModel, ProviderUnavailable)]
    assert statuses == [400, 500, 500, 503]


def test_an_error_that_is_not_in_the_tree_fails_as_a_turn_does() -> None:
    error = turn_api_error(TurnError(1, "SomethingNewer", "why"))
    assert (error.status, error.type) == (500, "SomethingNewer")
    assert turn_api_error(TurnError(1, "inspect", "why")).status == 500


def test_a_stream_that_ends_because_its_server_stops_is_resumed_soon() -> None:
    frames = [encode_turn_error(to_api_error(error)) for error in (Stopping("why"), StoreUnavailable("why"))]
    assert ["retry: 500" in frame.splitlines() for frame in frames] == [True, False]
