"""Clients that send instructions with chat completions, unchanged, from PyPI: the model reads what they sent."""

import json
from collections.abc import Generator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import pytest

from lango.messages import ToolCall
from tests.support.clients import packages
from tests.support.processes import TIMEOUT_S
from tests.support.servers import thread_server
from tests.support.servers.scripted_server import Answer, scripted_server
from tests.support.servers.server_process import serving

SCRIPT = Path(packages.__file__).parent / "instructed_clients.py"
MARK = "The client that sent this request added these instructions."
OWN = "Help the user."
SAID = "Speak like a pirate."
ROME = {"name": "Rome", "inhabitants": 7}
CALL = ToolCall("c1", "pick", {"text": "red"})
pytestmark = pytest.mark.long


class Case(NamedTuple):
    """The model's answers to a client, the client's answer to its user, and words that the client adds."""

    packages: tuple[str, ...]
    model: list[Answer]
    answer: Any
    prompt: str = ""


CASES = {
    "instructor": Case(
        packages.PYTHON_CLIENTS, [json.dumps(ROME), f"```json\n{json.dumps(ROME)}\n```"], [ROME, ROME], "json_schema"
    ),
    "llama_index": Case(
        packages.PYTHON_CLIENTS,
        [
            'Thought: I need a tool.\nAction: pick\nAction Input: {"text": "red"}',
            "Thought: I can answer without using any more tools.\nAnswer: It is red.",
        ],
        "It is red.",
        "> Tool Name: pick",
    ),
    "llm": Case(packages.PYTHON_CLIENTS, ["It is red."], "It is red."),
    "langchain": Case(packages.RESPONSES_CLIENTS, [CALL, "It is red."], "It is red."),
    "pydantic_ai": Case(packages.RESPONSES_CLIENTS, ["It is red."], "It is red."),
    "agents": Case(packages.RESPONSES_CLIENTS, [CALL, "It is red."], "It is red."),
    "smolagents": Case(
        packages.RESPONSES_CLIENTS,
        [
            'Thought: I pick.\n<code>\nprint(pick("red"))\n</code>',
            'Thought: I answer.\n<code>\nfinal_answer("It is red.")\n</code>',
        ],
        "It is red.",
        "using code blobs",
    ),
}


@contextmanager
def recording(url: str) -> Generator[tuple[str, list[dict[str, Any]]]]:
    """Pass requests on to a server, and keep their bodies: the test compares them with what the model reads."""
    bodies: list[dict[str, Any]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            content = self.rfile.read(int(self.headers["content-length"]))
            bodies.append(json.loads(content))
            headers = {"Content-Type": "application/json"}
            response = httpx.post(f"{url}{self.path}", content=content, headers=headers, timeout=TIMEOUT_S)
            self.send_response(response.status_code)
            self.send_header("content-type", response.headers["content-type"])
            self.send_header("content-length", str(len(response.content)))
            self.end_headers()
            self.wfile.write(response.content)

    with thread_server.serving(Handler) as address:
        yield address, bodies


def texts_of(request: dict[str, Any], *roles: str) -> list[str]:
    """Return the texts of the messages of some roles."""
    contents = [one["content"] for one in request["messages"] if one["role"] in roles]
    return [one if isinstance(one, str) else "".join(part["text"] for part in one) for one in contents]


@pytest.mark.parametrize("name", CASES)
def test_the_model_reads_the_instructions_of_a_client_after_the_agents_own(tmp_path: Path, name: str) -> None:
    case, agent, rest = CASES[name], f'instruction = "{OWN}"', "[tools]\nenabled = []"
    with (
        scripted_server(*case.model) as model,
        serving(tmp_path, f"sqlite:///{tmp_path}/lango.db", env=model.environment, agent=agent, rest=rest) as server,
        recording(server.url) as (url, requests),
    ):
        answer = packages.run_python(SCRIPT, case.packages, url=url, client=name, instructions=SAID)
    assert answer == case.answer
    assert len(requests) == len(model.requests)
    for sent, received in zip(requests, model.requests, strict=True):
        given = texts_of(sent, "system", "developer")
        assert SAID in "".join(given)
        assert case.prompt in "".join(given)
        [read] = texts_of(received, "system")
        own, _, added = read.partition(MARK)
        assert OWN in own
        assert "\n\n" + "\n\n".join(given) in added, "each of them, whole and in order"
