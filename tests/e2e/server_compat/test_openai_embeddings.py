"""The `openai` SDK's embeddings, against a real server whose provider is a server that nobody here wrote."""

import json
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import TYPE_CHECKING, Any

import openai
import pytest
from openai import AsyncOpenAI

from lango.errors import ProviderRejected
from lango.providers.gemini import GeminiProvider
from lango.providers.protocol import EmbeddingRequest
from lango.store import Store
from tests.agents.parts import add_api_key
from tests.support.servers import thread_server
from tests.support.servers.server_process import TIMEOUT_S, Server, serving

if TYPE_CHECKING:
    from llmock.pytest_plugin import LLMock

TEXTS = ["Bern", "Rome"]


@pytest.fixture
def server(tmp_path: Path, llmock: "LLMock") -> Iterator[Server]:
    lab = f'[providers.lab]\ntype = "openai"\nbase_url = "{llmock.base_url("openai")}"'
    models = 'embedding_models = ["lab/small", "anthropic/large"]'
    env = {"ANTHROPIC_API_KEY": "key"}
    with serving(tmp_path, f"sqlite:///{tmp_path}/lango.db", server=models, rest=lab, env=env) as running:
        yield running


def client_of(server: Server, key: str = "none") -> AsyncOpenAI:
    return AsyncOpenAI(base_url=f"{server.url}/v1", api_key=key, timeout=TIMEOUT_S, max_retries=0)


async def test_texts_become_vectors(server: Server, llmock: "LLMock") -> None:
    async with client_of(server) as client:
        in_base64 = await client.embeddings.create(model="small", input=TEXTS)
        floats = await client.embeddings.create(model="lab/small", input=TEXTS, encoding_format="float")
        [one] = (await client.embeddings.create(model="small", input="Bern", dimensions=3)).data
    assert [each.index for each in floats.data] == [0, 1]
    for exact, packed in zip(floats.data, in_base64.data, strict=True):
        assert packed.embedding == pytest.approx(exact.embedding, rel=1e-6)
    assert floats.data[0].embedding != floats.data[1].embedding
    assert floats.usage.prompt_tokens == floats.usage.total_tokens > 0
    assert one.embedding
    assert llmock.last_request.body["dimensions"] == 3
    assert llmock.last_request.body["model"] == "small"


async def test_what_the_server_does_not_have_says_what_to_configure(server: Server, llmock: "LLMock") -> None:
    async with client_of(server) as client:
        with pytest.raises(openai.NotFoundError) as refused:
            await client.embeddings.create(model="large-3", input="x")
        assert (refused.value.code, "'lab/small'" in refused.value.message) == ("model_not_found", True)
        with pytest.raises(openai.BadRequestError, match="has no embeddings: name a model of OpenAI"):
            await client.embeddings.create(model="anthropic/large", input="x")
        wrongs: list[Any] = ["", [], [""], [[]], ["x"] * 2_049]
        for wrong in wrongs:
            with pytest.raises(openai.BadRequestError) as refused:
                await client.embeddings.create(model="small", input=wrong)
            assert refused.value.type == "invalid_request_error"
        llmock.fail(429, message="slow down", retry_after=7)
        with pytest.raises(openai.RateLimitError) as limited:
            await client.embeddings.create(model="small", input="x")
        assert limited.value.response.headers["retry-after"] == "7"


async def test_a_server_without_embedding_models_names_the_setting(tmp_path: Path) -> None:
    with serving(tmp_path, f"sqlite:///{tmp_path}/lango.db") as server:
        async with client_of(server) as client:
            with pytest.raises(openai.NotFoundError, match=r"the setting server\.embedding_models") as refused:
                await client.embeddings.create(model="text-embedding-3-small", input="x")
    assert refused.value.code == "model_not_found"


async def test_tokens_count_against_the_quota_of_the_key(tmp_path: Path, sqlite_url: str, llmock: "LLMock") -> None:
    async with Store(sqlite_url) as store:
        _, key = await add_api_key(store, "ada", tokens_per_day=5)
    lab = f'[providers.lab]\ntype = "openai"\nbase_url = "{llmock.base_url("openai")}"'
    settings = 'auth = "keys"\nembedding_models = ["lab/small"]'
    with serving(tmp_path, sqlite_url, server=settings, rest=lab) as server:
        async with client_of(server, key) as client:
            await client.embeddings.create(model="small", input="a text of more tokens than the key has left today")
            with pytest.raises(openai.RateLimitError):
                await client.embeddings.create(model="small", input="x")


class GeminiEmbeddings(BaseHTTPRequestHandler):
    """Answers as Google's API does: a vector for each text."""

    def do_POST(self) -> None:
        asked: dict[str, Any] = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        texts = [one["content"]["parts"][0]["text"] for one in asked["requests"]]
        body = json.dumps({"embeddings": [{"values": [float(len(text)), 0.5]} for text in texts]}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


async def test_gemini_embeds_texts_and_takes_no_tokens() -> None:
    with thread_server.serving(GeminiEmbeddings) as url:
        provider = GeminiProvider("key", base_url=url)
        made = await provider.embed(EmbeddingRequest("gemini-embedding-001", ["Bern", "Geneva"]))
        with pytest.raises(ProviderRejected, match="texts, not tokens"):
            await provider.embed(EmbeddingRequest("gemini-embedding-001", [[1, 2]]))
        await provider.aclose()
    assert (made.vectors, made.input_tokens) == ([[4.0, 0.5], [6.0, 0.5]], None)
