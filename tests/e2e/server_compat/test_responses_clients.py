"""Clients of OpenAI's responses that people have, unchanged, from PyPI and npm, against a real server."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.clients import packages
from tests.support.servers.server_process import Server, serving

SCRIPTS = Path(packages.__file__).parent
ROME = {"name": "Rome", "inhabitants": 7}
WORDS = "w0 w1 w2 "
SEEN = "seen: file 1 image/png 4c4b6a3be131"
NOTED = "the tool said {'noted': 'this'}"
FAILED = "the provider does not want to"
WITH_CALL = ["user", "assistant", "tool", "assistant", "user"]
pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("responses-clients")
    with serving(folder, f"sqlite:///{folder}/lango.db") as running:
        yield running


@pytest.fixture(scope="module")
def by_python(server: Server) -> Any:
    return packages.run_python(SCRIPTS / "responses_clients.py", packages.RESPONSES_CLIENTS, url=server.url)


@pytest.fixture(scope="module")
def by_javascript(server: Server, tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = str(tmp_path_factory.mktemp("held"))
    return packages.run_javascript(SCRIPTS / "responses_clients.mjs", url=server.url, folder=folder)


def test_langchain_chats_streams_calls_tools_and_continues(by_python: Any) -> None:
    found = by_python["langchain"]
    assert found.pop("error") == f"OpenAIInvalidRequestError: Error code: 400 - {FAILED}"
    assert found.pop("stream_error") == f"APIError: {FAILED}"
    assert found.pop("refused").startswith("OpenAIInvalidRequestError: Error code: 400 - prompt: not supported")
    assert [role for role, _ in found.pop("continued")] == ["user", "assistant", "user"]
    assert found == {
        "chat": "Rome",
        "usage": 15,
        "stream": WORDS,
        "tools": "the tool said {'result': 'red pick'}",
        "forced": ROME,
        "structured": ROME,
        "function_calling": ROME,
        "pictures": SEEN,
        "own_tools": ["mcp_call", "text"],
    }


def test_the_agents_sdk_runs_its_agents_on_the_server(by_python: Any) -> None:
    found = by_python["agents"]
    assert found.pop("instructions").endswith("\n\nBe kind.")
    assert found.pop("error") == f"BadRequestError: Error code: 400 - {FAILED}"
    assert found == {
        "chat": "Rome",
        "tools": "the tool said {'result': 'house of draw'}",
        "stream": "the tool said {'result': 'house of draw'}",
        "stream_events": ["agent_updated_stream_event", "raw_response_event", "run_item_stream_event"],
        "forced": "the tool said {'result': 'house of Rome'}",
        "structured": ROME,
        "continued": WITH_CALL,
        "session": WITH_CALL,
        "pictures": SEEN,
        "own_tools": NOTED,
        "approval": NOTED,
        "asked": ["wipe"],
    }


def test_openais_sdk_for_javascript_does_all_of_it(by_javascript: Any) -> None:
    found = by_javascript["openai"]
    assert found.pop("deleted").startswith("NotFoundError: 404 there is no response")
    assert found.pop("error") == f"BadRequestError: 400 {FAILED}"
    assert found.pop("streamError") == f"APIError: {FAILED}"
    assert found.pop("refused").startswith("BadRequestError: 400 tools: 'web_search' is not supported")
    assert found == {
        "chat": "Rome",
        "stream": [WORDS, WORDS, "completed"],
        "resumed": 3,
        "tools": "the tool said {'result': 'red'}",
        "resent": "the tool said {'result': 'red'}",
        "forced": "pick",
        "structured": ROME,
        "pictures": SEEN,
        "background": ["completed", "later"],
        "cancelled": "cancelled",
    }


def test_the_ai_sdk_uses_its_default_provider(by_javascript: Any) -> None:
    found = by_javascript["ai"]
    for shown, results, text in found.pop("approvals"):
        assert shown[:2] == ["tool-call", "tool-approval-request"]
        assert "tool-result" not in shown, "a call that waits has no result"
        assert [json.loads(result).keys() & {"noted", "confirmed"} for result in results] != [set()]
        assert text.startswith("the tool said {")
    assert found.pop("error") == f"APICallError: {FAILED}"
    assert found.pop("streamError") == f"true {FAILED}"
    assert found == {
        "chat": "Rome",
        "stream": WORDS,
        "tools": "the tool said {'result': 'red'}",
        "resent": WITH_CALL,
        "forced": {"text": "Rome"},
        "structured": ROME,
        "pictures": SEEN,
        "ownTools": [["mcp.note", '{"noted": "this"}']],
        "continued": WITH_CALL,
    }
