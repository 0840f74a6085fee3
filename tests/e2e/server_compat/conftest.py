"""The server that most tests of this folder share, and OpenAI's client for it."""

from collections.abc import AsyncIterator, Iterator

import pytest
from openai import AsyncOpenAI

from tests.support.servers.openai_client import client_of
from tests.support.servers.server_process import Server, serving


@pytest.fixture(scope="package")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("server")
    with serving(folder, f"sqlite:///{folder}/lango.db") as running:
        yield running


@pytest.fixture
async def client(server: Server) -> AsyncIterator[AsyncOpenAI]:
    async with client_of(server) as made:
        yield made
