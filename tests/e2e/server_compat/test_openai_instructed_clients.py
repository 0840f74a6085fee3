"""Clients that send instructions with chat completions, unchanged, from PyPI: the model reads what they sent."""

import json
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import pytest

from lango.messages import ToolCall
from tests.support.clients import packages
from tests.support.processes import TIMEOUT_S
from tests.support.servers import thread_server
from tests.support.servers.scripted_server import Answer, ScriptedServer, scripted_server
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


class Heard(NamedTuple):
    """What a client answered and sent, and what the model of its server received."""

    answer: Any
    sent: list[dict[str, Any]]
    received: list[dict[str, Any]]


@pytest.fixture(scope="module")
def heard(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Heard]:
    """Return what happened to a client. The clients of an environment run in one process, each with its own server."""
    found: dict[str, Heard] = {}

    def ask(name: str) -> Heard:
        if name not in found:
            installed = CASES[name].packages
            folder = tmp_path_factory.mktemp("servers")
            found.update(ask_all(folder, installed, [one for one, case in CASES.items() if case.packages == installed]))
        return found[name]

    return ask


def ask_all(folder: Path, installed: tuple[str, ...], names: list[str]) -> dict[str, Heard]:
    """Start a server with a model for each client, and run the clients."""
    agent, rest = f'instruction = "{OWN}"', "[tools]\nenabled = []"
    urls: dict[str, str] = {}
    sent: dict[str, list[dict[str, Any]]] = {}
    models: dict[str, ScriptedServer] = {}
    with ExitStack() as stack:
        for name in names:
            models[name] = model = stack.enter_context(scripted_server(*CASES[name].model))
            url = f"sqlite:///{folder}/{name}.db"
            server = serving(folder / name, url, env=model.environment, agent=agent, rest=rest)
            urls[name], sent[name] = stack.enter_context(recording(stack.enter_context(server).url))
        answers = packages.run_python(SCRIPT, installed, urls=urls, instructions=SAID)
    return {name: Heard(answers[name], sent[name], models[name].requests) for name in names}


@pytest.mark.parametrize("name", CASES)
def test_the_model_reads_the_instructions_of_a_client_after_the_agents_own(
    heard: Callable[[str], Heard], name: str
) -> None:
    case, (answer, requests, received_by_model) = CASES[name], heard(name)
    assert answer == case.answer
    assert len(requests) == len(received_by_model)
    for sent, received in zip(requests, received_by_model, strict=True):
        given = texts_of(sent, "system", "developer")
        assert SAID in "".join(given)
        assert case.prompt in "".join(given)
        [read] = texts_of(received, "system")
        own, _, added = read.partition(MARK)
        assert OWN in own
        assert "\n\n" + "\n\n".join(given) in added, "each of them, whole and in order"
