"""A key to encrypt credentials with, and an OAuth server."""

from collections.abc import Iterator

import pytest

from lango.store.credentials.secret_box import KEY_VARIABLE, new_key
from tests.support.servers.oauth_server import OAuthServer, oauth_server


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(KEY_VARIABLE, new_key())


@pytest.fixture
def oauth() -> Iterator[OAuthServer]:
    with oauth_server() as server:
        yield server
