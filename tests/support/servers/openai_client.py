"""OpenAI's own client, for tests: it does not retry."""

from openai import AsyncOpenAI

from tests.support.servers.server_process import TIMEOUT_S, Server


def client_of(server: Server, key: str = "none") -> AsyncOpenAI:
    return AsyncOpenAI(base_url=f"{server.url}/v1", api_key=key, timeout=TIMEOUT_S, max_retries=0)
