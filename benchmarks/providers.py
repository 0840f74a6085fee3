"""The providers: time to the first token and CPU per chunk, beside each vendor's SDK alone and ADK's own model class.

A server process on loopback speaks every wire format. All contestants alternate and read the same response to the same
request. `resilient` is the provider with timeouts and retries around it, as the runtime uses it.
"""

import asyncio
import statistics
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Any

from benchmarks.table import bar, quick, table
from lango.messages import Message, ToolCall
from lango.providers import Request, ResilientProvider, TextDelta
from lango.providers import anthropic as our_anthropic
from lango.providers import gemini as our_gemini
from lango.providers import openai as our_openai
from lango.providers import openai_responses as our_responses

CHUNKS = 400
SDK, OURS, RESILIENT, ADK = "SDK alone", "provider", "resilient", "ADK's class"

SERVER = f"""
import asyncio, json, sys

N = {CHUNKS}

def event(data, name=""):
    head = f"event: {{name}}\\n" if name else ""
    return (head + "data: " + (data if isinstance(data, str) else json.dumps(data)) + "\\n\\n").encode()

def chat(delta, finish=None):
    choice = {{"index": 0, "delta": delta, "finish_reason": finish}}
    return event({{"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice]}})

def typed(**data):
    return event(data, data["type"])

def response(status):
    return {{"id": "r", "object": "response", "created_at": 1, "model": "m", "status": status, "output": [],
            "parallel_tool_calls": True, "tool_choice": "auto", "tools": []}}

def gemini(text, finish=None):
    candidate = {{"content": {{"role": "model", "parts": [{{"text": text}}]}}, "index": 0}}
    if finish:
        candidate["finishReason"] = finish
    return event({{"candidates": [candidate], "modelVersion": "m"}})

words = [f"word{{n}} " for n in range(N)]
item = {{"type": "message", "id": "i", "role": "assistant", "status": "in_progress", "content": []}}
message = {{"id": "m", "type": "message", "role": "assistant", "content": [], "model": "m",
           "usage": {{"input_tokens": 1, "output_tokens": 1}}}}
BODIES = {{
    "/chat/completions": [*(chat({{"content": w}}) for w in words), chat({{}}, "stop"), event("[DONE]")],
    "/responses": [
        typed(type="response.created", sequence_number=0, response=response("in_progress")),
        typed(type="response.output_item.added", sequence_number=1, output_index=0, item=item),
        *(typed(type="response.output_text.delta", sequence_number=2 + n, item_id="i", output_index=0,
                content_index=0, delta=w, logprobs=[]) for n, w in enumerate(words)),
        typed(type="response.completed", sequence_number=N + 3, response=response("completed")),
    ],
    "/v1/messages": [
        typed(type="message_start", message=message),
        typed(type="content_block_start", index=0, content_block={{"type": "text", "text": ""}}),
        *(typed(type="content_block_delta", index=0, delta={{"type": "text_delta", "text": w}}) for w in words),
        typed(type="content_block_stop", index=0),
        typed(type="message_delta", delta={{"stop_reason": "end_turn"}}, usage={{"output_tokens": N}}),
        typed(type="message_stop"),
    ],
    "GenerateContent": [*(gemini(w) for w in words), gemini("", "STOP")],
}}
HEAD = b"HTTP/1.1 200 OK\\r\\ncontent-type: text/event-stream\\r\\ntransfer-encoding: chunked\\r\\n\\r\\n"

async def serve(reader, writer):
    try:
        while True:
            head = await reader.readuntil(b"\\r\\n\\r\\n")
            fields = (line.partition(b":") for line in head.lower().split(b"\\r\\n"))
            length = int(next(value for name, _, value in fields if name == b"content-length"))
            await reader.readexactly(length)
            first = head.split(b"\\r\\n")[0].decode()
            events = next(body for path, body in BODIES.items() if path in first)
            writer.write(HEAD)
            for one in events:
                writer.write(b"%x\\r\\n" % len(one) + one + b"\\r\\n")
                await writer.drain()
            writer.write(b"0\\r\\n\\r\\n")
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


@dataclass
class Wire:
    """One wire format: its contestants, and how to recognise the first text of each."""

    name: str
    contestants: dict[str, Callable[[], AsyncIterator[Any]]]
    has_text: dict[str, Callable[[Any], bool]]
    close: Callable[[], Any]


def history() -> tuple[Message, ...]:
    messages: list[Message] = []
    for n in range(20):
        messages += [
            Message("user", f"question {n} " * 10),
            Message("assistant", tool_calls=(ToolCall(f"c{n}", "look", {"n": n}),)),
            Message("tool", tool_calls=(ToolCall(f"c{n}", "look", output={"seen": f"thing {n} " * 20}),)),
            Message("assistant", f"answer {n} " * 10),
        ]
    return (*messages, Message("user", "and now?"))


def adk_request() -> Any:
    from google.adk.models.llm_request import LlmRequest
    from google.genai import types

    contents: list[types.Content] = []
    for message in history():
        role = "model" if message.role == "assistant" else "user"
        parts = [types.Part(text=message.content)] if message.content else []
        for call in message.tool_calls:
            if call.output is None:
                made = types.FunctionCall(id=call.id, name=call.name, args=dict(call.input or {}))
                parts.append(types.Part(function_call=made))
            else:
                given = types.FunctionResponse(id=call.id, name=call.name, response=dict(call.output))
                parts.append(types.Part(function_response=given))
        contents.append(types.Content(role=role, parts=parts))
    return LlmRequest(model="m", contents=contents)


def wire(name: str, provider: Any, request: Request, sdk: Any, sdk_text: Any, adk: Any, close: Any) -> Wire:
    resilient = ResilientProvider(provider)

    def ours_text(delta: Any) -> bool:
        return isinstance(delta, TextDelta)

    async def closes() -> None:
        await provider.aclose()
        await close()

    return Wire(
        name,
        {
            SDK: sdk,
            OURS: lambda: provider.stream(request),
            RESILIENT: lambda: resilient.stream(request),
            ADK: lambda: adk.generate_content_async(adk_request(), stream=True),
        },
        {SDK: sdk_text, OURS: ours_text, RESILIENT: ours_text, ADK: lambda reply: bool(reply.content)},
        closes,
    )


def openai_wires(url: str) -> list[Wire]:
    from google.adk.integrations.openai import OpenAILlm, OpenAIResponsesLlm
    from openai import AsyncOpenAI

    client: Any = AsyncOpenAI(api_key="k", base_url=url)
    request = Request("m", history())
    chat_body, responses_body = our_openai.encode(request), our_responses.encode(request)

    async def chat() -> AsyncIterator[Any]:
        async for chunk in await client.chat.completions.create(**chat_body):
            yield chunk

    async def responses() -> AsyncIterator[Any]:
        async for event in await client.responses.create(**responses_body):
            yield event

    async def nothing() -> None:
        pass

    return [
        wire(
            "OpenAI chat",
            our_openai.OpenAIProvider("k", base_url=url, api="chat"),
            request,
            chat,
            lambda chunk: bool(chunk.choices and chunk.choices[0].delta.content),
            OpenAILlm(model="m", client=client),
            nothing,
        ),
        wire(
            "OpenAI responses",
            our_openai.OpenAIProvider("k", base_url=url, api="responses"),
            request,
            responses,
            lambda event: event.type == "response.output_text.delta",
            OpenAIResponsesLlm(model="m", client=client),
            client.close,
        ),
    ]


def anthropic_wire(url: str) -> Wire:
    from anthropic import AsyncAnthropic
    from google.adk.models.anthropic_llm import AnthropicLlm

    client: Any = AsyncAnthropic(api_key="k", base_url=url)
    request = Request("m", history(), max_tokens=1000)
    body = our_anthropic.encode(request)

    async def sdk() -> AsyncIterator[Any]:
        async for event in await client.messages.create(**body):
            yield event

    return wire(
        "Anthropic",
        our_anthropic.AnthropicProvider("k", base_url=url),
        request,
        sdk,
        lambda event: event.type == "content_block_delta",
        AnthropicLlm(model="m", client=client),
        client.close,
    )


def gemini_wire(url: str) -> Wire:
    from google import genai
    from google.adk.models.google_llm import Gemini

    client = genai.Client(api_key="k", vertexai=False, http_options={"base_url": url})
    request = Request("m", history())
    body: Any = our_gemini.encode(request)

    async def sdk() -> AsyncIterator[Any]:
        async for chunk in await client.aio.models.generate_content_stream(**body):
            yield chunk

    return wire(
        "Gemini",
        our_gemini.GeminiProvider("k", base_url=url),
        request,
        sdk,
        lambda chunk: bool(chunk.text),
        Gemini(model="m", base_url=url),
        client.aio.aclose,
    )


async def read(chunks: AsyncIterator[Any], has_text: Callable[[Any], bool], reading: Reading) -> None:
    cpu, started = time.process_time(), time.perf_counter()
    first = None
    async for chunk in chunks:
        if first is None and has_text(chunk):
            first = time.perf_counter() - started
    reading.cpu_s.append(time.process_time() - cpu)
    reading.first_s.append(first or float("nan"))


async def compare(one: Wire, rounds: int) -> dict[str, Reading]:
    for name, start in one.contestants.items():  # connections, imports, caches
        for _ in range(2):
            await read(start(), one.has_text[name], Reading())
    readings = {name: Reading() for name in one.contestants}
    for _ in range(rounds):
        for name, start in one.contestants.items():
            await read(start(), one.has_text[name], readings[name])
    await one.close()
    return readings


def show(name: str, readings: dict[str, Reading]) -> None:
    first = {reader: statistics.median(one.first_s) * 1e3 for reader, one in readings.items()}
    chunk = {reader: statistics.median(one.cpu_s) / CHUNKS * 1e6 for reader, one in readings.items()}
    table(
        f"{name}: one answer of {CHUNKS} chunks to a history of 81 messages, medians",
        ("", "first token ms", "more than SDK", "CPU us/chunk", "of the SDK alone"),
        [
            (
                reader,
                first[reader],
                f"{first[reader] - first[SDK]:+.2f} ms",
                chunk[reader],
                f"{chunk[reader] / chunk[SDK]:.2f}x",
            )
            for reader in readings
        ],
        bar("ms to the first token that we add to the SDK", first[RESILIENT] - first[SDK], at_most=10),
        bar("CPU per chunk, times the SDK alone", chunk[RESILIENT] / chunk[SDK], at_most=2),
    )


async def measure(url: str) -> None:
    for one in (*openai_wires(f"{url}/v1"), anthropic_wire(url), gemini_wire(url)):
        show(one.name, await compare(one, rounds=8 if quick() else 30))


def main() -> None:
    import os

    os.environ.setdefault("GOOGLE_API_KEY", "k")  # for ADK's Gemini, which reads the environment
    server = subprocess.Popen([sys.executable, "-c", SERVER], stdout=subprocess.PIPE, text=True)
    try:
        assert server.stdout is not None
        asyncio.run(measure(f"http://127.0.0.1:{int(server.stdout.readline())}"))
    finally:
        server.terminate()
        server.wait()


if __name__ == "__main__":
    main()
