"""Addresses of artifacts are read as ADK reads them."""

import pytest
from google.adk.artifacts import artifact_util

from lango.errors import ReferenceRefused
from lango.store.artifacts.artifacts import Reference, check_reference, parse_reference
from tests.support.counted_work import counted_calls

VALID = [
    Reference("app", "alice", "s", "f", 0),
    Reference("app", "alice", None, "user:f", 12),
    Reference("app", "alice", "s", "folder/f.png", 3),
    Reference("projects/1/locations/x/reasoningEngines/4", "group/alice", "team/s", "f", 1),
    Reference("app", "alice", None, "sessions/s/artifacts/f", 1),
    Reference("app", "alice", "s", "a/versions/3", 1),
    Reference("app", "alice", "s", "データ \u2603.txt", 1),
]
INVALID = [
    "",
    "http://example.com",
    "artifact://",
    "artifact://invalid",
    "artifact://app/alice/sessions/s/artifacts/f",
    "artifact://apps/app/users/alice/sessions/s/artifacts/f",
    "artifact://apps/app/users/alice/artifacts/f/versions/1/extra",
    "artifact://apps/app/users/alice/artifacts/f/versions/",
    "artifact://apps/app/users/alice/artifacts/f/versions/-1",
    "artifact://apps/app/users/alice/artifacts//versions/1",
    "artifact://apps//users/alice/artifacts/f/versions/1",
    "artifact://apps/app/users//artifacts/f/versions/1",
    "artifact://apps/app/users/alice/sessions//artifacts/f/versions/1",
    "artifact://other/app/users/alice/artifacts/f/versions/1",
]


@pytest.mark.parametrize("reference", VALID, ids=str)
def test_an_address_is_written_and_read_as_by_adk(reference: Reference) -> None:
    theirs = artifact_util.parse_artifact_uri(reference.uri)
    assert theirs
    assert tuple(theirs) == (
        reference.app_name,
        reference.user_id,
        reference.session_id,
        reference.name,
        reference.version,
    )
    assert parse_reference(reference.uri) == reference
    uri = artifact_util.get_artifact_uri(
        reference.app_name, reference.user_id, reference.name, reference.version, reference.session_id
    )
    assert uri == reference.uri


@pytest.mark.parametrize("uri", INVALID)
def test_what_is_no_address_is_refused(uri: str) -> None:
    assert artifact_util.parse_artifact_uri(uri) is None
    assert parse_reference(uri) is None
    with pytest.raises(ReferenceRefused):
        check_reference(uri, "app", "alice", "s")


def test_a_version_of_many_digits_is_refused() -> None:
    assert parse_reference(f"artifact://apps/app/users/alice/artifacts/f/versions/{'9' * 5000}") is None


def test_a_reference_stays_within_its_session_and_user() -> None:
    for reference, session_id in ((VALID[0], "s"), (VALID[1], "s"), (VALID[1], None)):
        assert check_reference(reference.uri, "app", "alice", session_id) == reference
    for app_name, user_id, session_id in (
        ("x", "alice", "s"),
        ("app", "bob", "s"),
        ("app", "alice", "t"),
        ("app", "alice", None),
    ):
        with pytest.raises(ReferenceRefused, match="stay within"):
            check_reference(VALID[0].uri, app_name, user_id, session_id)


@pytest.mark.parametrize("piece", ["/users/", "/artifacts/", "/sessions/", "/versions/", "a"])
def test_a_long_address_takes_no_more_steps_than_a_short_one(piece: str) -> None:
    def steps(count: int) -> int:
        return counted_calls(parse_reference, "artifact://apps/" + piece * count)

    assert steps(100_000) == steps(100)
