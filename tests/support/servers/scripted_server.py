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
    """What it was asked, and what is left of the script."""

    def __init__(self, url: str, script: Sequence[Answer]) -> None:
        self.url = url
        self.asked: list[dict[str, Any]] = []
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
        self.asked.append(body)
        said = self._left.pop(0)
        if path.endswith("/chat/completions"):
            return "text/event-stream", "".join(f"data: {json.dumps(chunk)}\n\n" for chunk in _chat(said))
        whole = json.dumps(_gemini(said))
        return ("text/event-stream", f"data: {whole}\n\n") if "stream" in path else ("application/json", whole)


def _chat(said: Answer) -> list[dict[str, Any]]:
    about = {"id": "c", "object": "chat.completion.chunk", "created": 0, "model": "model"}
    if isinstance(said, str):
        deltas: list[dict[str, Any]] = [{"role": "assistant", "content": word} for word in said.split(" ", 1)]
        if len(deltas) == 2:
            deltas[1]["content"] = f" {deltas[1]['content']}"
    else:
        function = {"name": said.name, "arguments": json.dumps(dict(said.input or {}))}
        call = {"index": 0, "id": said.id, "type": "function", "function": function}
        deltas = [{"role": "assistant", "tool_calls": [call]}]
    end = "stop" if isinstance(said, str) else "tool_calls"
    chunks = [about | {"choices": [{"index": 0, "delta": one, "finish_reason": None}]} for one in deltas]
    return [*chunks, about | {"choices": [{"index": 0, "delta": {}, "finish_reason": end}]}]


def _gemini(said: Answer) -> dict[str, Any]:
    part = (
        {"text": said}
        if isinstance(said, str)
        else {"functionCall": {"name": said.name, "args": dict(said.input or {})}}
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
    assert len(ours.asked) == len(script), f"the model was called {len(ours.asked)} times, not {len(script)}"
