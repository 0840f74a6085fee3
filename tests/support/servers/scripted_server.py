"""A server that speaks OpenAI's chat API and Gemini's, and answers from a script: for programs in other processes."""

import json
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from typing import Any

from lango.messages import ToolCall
from tests.support.servers.thread_server import serving

Answer = str | ToolCall


class ScriptedServer:
    """Its requests, and what is left of the script."""

    def __init__(self, url: str, script: Sequence[Answer]) -> None:
        self.url = url
        self.requests: list[dict[str, Any]] = []
        self._left = list(script)

    @property
    def environment(self) -> dict[str, str]:
        """What makes this server the model of a program: for our providers, and for Google's SDK."""
        return {
            "LANGO_AGENT__MODEL": "script/model",
            "LANGO_PROVIDERS__SCRIPT__TYPE": "openai",
            "LANGO_PROVIDERS__SCRIPT__BASE_URL": f"{self.url}/v1",
        }

    @property
    def google_environment(self) -> dict[str, str]:
        return {"GOOGLE_GEMINI_BASE_URL": self.url, "GOOGLE_API_KEY": "none", "GOOGLE_GENAI_USE_VERTEXAI": "0"}

    def answer(self, path: str, body: dict[str, Any]) -> tuple[str, str]:
        """Return the type and the text of the next answer."""
        self.requests.append(body)
        reply = self._left.pop(0)
        if path.endswith("/chat/completions"):
            return "text/event-stream", "".join(f"data: {json.dumps(chunk)}\n\n" for chunk in _chat(reply))
        whole = json.dumps(_gemini(reply))
        return ("text/event-stream", f"data: {whole}\n\n") if "stream" in path else ("application/json", whole)


def _chat(reply: Answer) -> list[dict[str, Any]]:
    about = {"id": "c", "object": "chat.completion.chunk", "created": 0, "model": "model"}
    if isinstance(reply, str):
        deltas: list[dict[str, Any]] = [{"role": "assistant", "content": word} for word in reply.split(" ", 1)]
        if len(deltas) == 2:
            deltas[1]["content"] = f" {deltas[1]['content']}"
    else:
        function = {"name": reply.name, "arguments": json.dumps(dict(reply.input or {}))}
        call = {"index": 0, "id": reply.id, "type": "function", "function": function}
        deltas = [{"role": "assistant", "tool_calls": [call]}]
    end = "stop" if isinstance(reply, str) else "tool_calls"
    chunks = [about | {"choices": [{"index": 0, "delta": one, "finish_reason": None}]} for one in deltas]
    return [*chunks, about | {"choices": [{"index": 0, "delta": {}, "finish_reason": end}]}]


def _gemini(reply: Answer) -> dict[str, Any]:
    part = (
        {"text": reply}
        if isinstance(reply, str)
        else {"functionCall": {"name": reply.name, "args": dict(reply.input or {})}}
    )
    usage = {"promptTokenCount": 1, "candidatesTokenCount": 1, "totalTokenCount": 2}
    candidate = {"content": {"role": "model", "parts": [part]}, "finishReason": "STOP", "index": 0}
    return {"candidates": [candidate], "usageMetadata": usage}


@contextmanager
def scripted_server(*script: Answer) -> Generator[ScriptedServer]:
    """Serve a script, one entry per call of the model. What is left of it at the end is a failure."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            kind, text = ours.answer(self.path.partition("?")[0], body)
            self.send_response(200)
            self.send_header("content-type", kind)
            self.send_header("content-length", str(len(text.encode())))
            self.end_headers()
            self.wfile.write(text.encode())

    with serving(Handler) as url:
        ours = ScriptedServer(url, script)
        yield ours
    assert len(ours.requests) == len(script), f"the model was called {len(ours.requests)} times, not {len(script)}"
