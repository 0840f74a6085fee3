"""Clients of OpenAI's chat completions that people have, unchanged, from PyPI and npm, against a real server."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.clients import packages
from tests.support.servers.server_process import Server

SCRIPTS = Path(packages.__file__).parent
ROME = {"name": "Rome", "inhabitants": 7}
WORDS = "w0 w1 w2 "
SEEN = "seen: file 1 image/png 4c4b6a3be131"
TOOL_SAID = "the tool said {'result': 'red'}"
REFUSED_N = "n: only one answer is supported; leave n out, or send 1"
pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def by_python(server: Server) -> Any:
    return packages.run_python(SCRIPTS / "python_clients.py", url=server.url)


def check_resumed(found: dict[str, Any]) -> None:
    """Check that the model was sent the conversation that a client goes on with, and not only its last message."""
    assert [text for _, [text, *_] in json.loads(found.pop("resume"))] == ["remember me", "remember me", "recite"]


def test_langchain_chats_streams_calls_tools_and_gets_structured_output_by_every_method(by_python: Any) -> None:
    found = by_python["langchain"]
    assert REFUSED_N in found.pop("error")
    check_resumed(found)
    assert found == {
        "chat": "Rome",
        "stream": WORDS,
        "structured": ROME,
        "streamed": ROME,
        "forced": ROME,
        "any": ROME,
        "tools": ["Pick"],
        "pictures": SEEN,
        "function_calling": ROME,
        "json_mode": '{"text": "Rome"}',
    }


def test_instructor_gets_structured_output_by_its_default_mode(by_python: Any) -> None:
    found = by_python["instructor"]
    assert found.pop("error").startswith("instructor.InstructorRetryException: ")
    assert found == {"forced": ROME, "structured": ROME, "streamed": ROME, "pictures": ["image/png"]}


def test_litellm_chats_streams_calls_tools_and_gets_structured_output(by_python: Any) -> None:
    found = by_python["litellm"]
    error = found.pop("error")
    assert (error.startswith("litellm.BadRequestError: "), REFUSED_N in error) == (True, True)
    check_resumed(found)
    assert found == {
        "chat": "Rome",
        "stream": WORDS,
        "structured": ROME,
        "object": {"text": "Rome"},
        "forced": ROME,
        "tools": ["pick"],
        "pictures": SEEN,
    }


def test_llm_chats_streams_and_gets_structured_output(by_python: Any) -> None:
    found = by_python["llm"]
    assert "logit_bias: not supported" in found.pop("error")
    check_resumed(found)
    assert found == {
        "chat": "Rome",
        "stream": WORDS.strip(),
        "structured": ROME,
        "tools": TOOL_SAID,
        "pictures": SEEN,
    }


def test_the_ai_sdk_and_openais_own_for_javascript_do_all_of_it(server: Server) -> None:
    found = packages.run_javascript(SCRIPTS / "ai_sdk_client.mjs", url=server.url)
    for provider in ("compatible", "chat"):
        answers = found[provider]
        assert answers.pop("snapshots") >= 1
        assert "400 frequency_penalty: not supported" in answers.pop("error")
        check_resumed(answers)
        shapes = dict.fromkeys(("structured", "output", "streamed", "forced", "required"), ROME)
        assert answers == {"chat": "Rome", "stream": WORDS, "tools": TOOL_SAID, "pictures": SEEN} | shapes
    error = found["openai"].pop("error")
    assert ("400 n " in error, REFUSED_N in error) == (True, True)
    check_resumed(found["openai"])
    assert found["openai"] == {
        "chat": "Rome",
        "stream": WORDS,
        "tools": TOOL_SAID,
        "pictures": SEEN,
        "structured": ROME,
        "streamed": ROME,
        "forced": {"name": "Rome"},
    }
