"""The model adapter: time to the first token and CPU per chunk, beside the vendor's SDK alone and ADK's own class.

A server process on loopback speaks OpenAI's wire format. All contestants alternate and read the same response to the
same request.
"""

import asyncio
import json
import statistics
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Any

from google.adk.models.llm_request import LlmRequest
from google.genai import types
from openai import AsyncOpenAI

from benchmarks.table import bar, quick, table
from lango.adk import ProviderLlm
from lango.adk.model.content import contents_to_messages
from lango.history import warm_up
from lango.providers.openai import OpenAIProvider, encode
from lango.providers.protocol import Request

CHUNKS = 400
MODEL = "gpt-4o"
SDK, PROVIDER, OURS, ADK = "openai SDK alone", "OpenAIProvider", "ProviderLlm", "ADK OpenAILlm"

SERVER = f"""
import asyncio, json, sys

def event(delta, finish=None):
    choice = {{"index": 0, "delta": delta, "finish_reason": finish}}
    chunk = {{"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "{MODEL}", "choices": [choice]}}
    return b"data: " + json.dumps(chunk).encode() + b"\\n\\n"

BODY = b"".join([
    event({{"role": "assistant", "content": ""}}),
    *(event({{"content": f"word{{n}} "}}) for n in range({CHUNKS})),
    event({{}}, "stop"),
    b"data: [DONE]\\n\\n",
])
HEAD = b"HTTP/1.1 200 OK\\r\\ncontent-type: text/event-stream\\r\\ncontent-length: %d\\r\\n\\r\\n" % len(BODY)

async def serve(reader, writer):
    try:
        while True:
            head = await reader.readuntil(b"\\r\\n\\r\\n")
            fields = (line.partition(b":") for line in head.lower().split(b"\\r\\n"))
            length = int(next(value for name, _, value in fields if name == b"content-length"))
            await reader.readexactly(length)
            writer.write(HEAD + BODY)
            await writer.drain()
    except (asyncio.IncompleteReadError, ConnectionError):
        writer.close()

async def main():
    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()

asyncio.run(main())
"""


@dataclass
class Reading:
    """The measurements of one contestant."""

    first_s: list[float] = field(default_factory=list)
    cpu_s: list[float] = field(default_factory=list)


def history() -> list[types.Content]:
    contents: list[types.Content] = []
    for n in range(20):
        call = types.FunctionCall(id=f"c{n}", name="look", args={"n": n})
        result = types.FunctionResponse(id=f"c{n}", name="look", response={"seen": f"thing {n} " * 20})
        contents += [
            types.Content(role="user", parts=[types.Part(text=f"question {n} " * 10)]),
            types.Content(role="model", parts=[types.Part(function_call=call)]),
            types.Content(role="user", parts=[types.Part(function_response=result)]),
            types.Content(role="model", parts=[types.Part(text=f"answer {n} " * 10)]),
        ]
    return [*contents, types.Content(role="user", parts=[types.Part(text="and now?")])]


async def read(chunks: AsyncIterator[Any], reading: Reading) -> None:
    cpu, started = time.process_time(), time.perf_counter()
    first = None
    async for _ in chunks:
        first = first or time.perf_counter() - started
    reading.cpu_s.append(time.process_time() - cpu)
    reading.first_s.append(first or 0.0)


async def compare(url: str, rounds: int) -> dict[str, Reading]:
    from google.adk.integrations.openai import OpenAILlm

    contents = history()
    client = AsyncOpenAI(api_key="k", base_url=url)
    provider = OpenAIProvider("k", base_url=url, api="chat")
    ours, adk = ProviderLlm(provider, MODEL), OpenAILlm(model=MODEL, client=client)
    request = Request(MODEL, tuple(contents_to_messages(contents)))
    body = encode(request)

    async def sdk() -> AsyncIterator[Any]:
        async for chunk in await client.chat.completions.create(**body):
            yield chunk

    def make_request() -> LlmRequest:
        return LlmRequest(model=MODEL, contents=list(contents))

    contestants: dict[str, Callable[[], AsyncIterator[Any]]] = {
        SDK: sdk,
        PROVIDER: lambda: provider.stream(request),
        OURS: lambda: ours.generate_content_async(make_request(), stream=True),
        ADK: lambda: adk.generate_content_async(make_request(), stream=True),
    }
    readings = {name: Reading() for name in contestants}
    for name, start in contestants.items():  # connections, imports, caches
        await read(start(), Reading())
        await read(start(), readings[name])
    readings = {name: Reading() for name in contestants}
    for _ in range(rounds):
        for name, start in contestants.items():
            await read(start(), readings[name])
    await client.close()
    await provider.aclose()
    return readings


def main() -> None:
    warm_up()
    server = subprocess.Popen([sys.executable, "-c", SERVER], stdout=subprocess.PIPE, text=True)
    try:
        assert server.stdout is not None
        url = f"http://127.0.0.1:{json.loads(server.stdout.readline())}/v1"
        readings = asyncio.run(compare(url, rounds=10 if quick() else 40))
    finally:
        server.terminate()
        server.wait()
    first = {name: statistics.median(one.first_s) * 1e3 for name, one in readings.items()}
    chunk = {name: statistics.median(one.cpu_s) / CHUNKS * 1e6 for name, one in readings.items()}
    table(
        f"One answer of {CHUNKS} chunks to a history of 81 messages, medians",
        ("", "first token ms", "CPU us/chunk", "of the SDK alone"),
        [(name, first[name], chunk[name], f"{chunk[name] / chunk[SDK]:.2f}x") for name in readings],
        bar("ms to the first token that we add to the SDK", first[OURS] - first[SDK], at_most=10),
        bar("CPU per chunk, times the SDK alone", chunk[OURS] / chunk[SDK], at_most=2),
    )


if __name__ == "__main__":
    main()
