"""The table of clients: what each was tested with, unchanged, against a real server."""

import ast
from importlib.metadata import version
from pathlib import Path
from typing import Any

from msgspec import Struct

from tests.reference.source import heading, to_page
from tests.support.clients.packages import AGUI_CLIENT, NPM_CLIENTS, PYTHON_CLIENTS, RESPONSES_CLIENTS

_TESTS = Path(__file__).parents[1] / "e2e" / "server_compat"
_FEATURES = (
    "plain chat",
    "stream",
    "tools",
    "forced tool",
    "structured output",
    "pictures",
    "resume",
    "errors as its own exceptions",
)
_NOT_THERE = "-"
"""The client, or its protocol, has no such feature."""


class Client(Struct, frozen=True):
    """A client, the API that it uses, and the test of each feature: `file::function`."""

    name: str
    version: str
    api: str
    tests: dict[str, str]


def _all(test: str, **others: str) -> dict[str, str]:
    """Return one test for all features but some."""
    return dict.fromkeys(_FEATURES, test) | {name.replace("_", " "): other for name, other in others.items()}


def _pinned(package: str, pins: tuple[str, ...], sign: str) -> str:
    [pin] = [pin for pin in pins if pin.startswith(f"{package}{sign}")]
    return pin.removeprefix(f"{package}{sign}")


_CHAT, _RESPONSES = "chat completions", "responses"
_LANGCHAIN = "test_openai_clients::test_langchain_chats_streams_calls_tools_and_gets_structured_output_by_every_method"
_LITELLM = "test_openai_clients::test_litellm_chats_streams_calls_tools_and_gets_structured_output"
_LLM = "test_openai_clients::test_llm_chats_streams_and_gets_structured_output"
_INSTRUCTOR = "test_openai_clients::test_instructor_gets_structured_output_by_its_default_mode"
_JAVASCRIPT = "test_openai_clients::test_the_ai_sdk_and_openais_own_for_javascript_do_all_of_it"
_RESPONSES_LANGCHAIN = "test_responses_clients::test_langchain_chats_streams_calls_tools_and_continues"
_AGENTS = "test_responses_clients::test_the_agents_sdk_runs_its_agents_on_the_server"
_RESPONSES_JS = "test_responses_clients::test_openais_sdk_for_javascript_does_all_of_it"
_RESPONSES_AI = "test_responses_clients::test_the_ai_sdk_uses_its_default_provider"

CLIENTS = (
    Client(
        "openai-python",
        version("openai"),
        _CHAT,
        {
            "plain chat": "test_openai::test_an_answer_with_its_usage",
            "stream": "test_openai::test_the_sdks_own_helper_puts_a_stream_together",
            "tools": "test_openai_tools::test_a_call_ends_the_answer_and_its_result_goes_on_in_the_same_session",
            "forced tool": "test_openai_options::test_a_forced_tool_is_called_with_arguments_that_the_sdk_parses",
            "structured output": "test_openai_options::test_parse_returns_the_sdks_own_object_whole_and_streamed",
            "pictures": "test_openai_files::test_a_picture_and_a_file_reach_the_model_and_are_stored",
            "resume": "test_openai_histories::test_a_restarted_server_knows_every_session",
            "errors as its own exceptions": "test_openai::test_a_failed_turn_is_an_error_and_is_not_repeated",
        },
    ),
    Client(
        "openai-python",
        version("openai"),
        _RESPONSES,
        {
            "plain chat": "test_responses::test_a_response_shows_its_request_its_output_and_its_usage",
            "stream": "test_responses::test_the_sdks_stream_helper_and_parser_work",
            "tools": "test_responses_tools::test_a_function_is_called_and_its_output_continues_the_response",
            "forced tool": "test_responses_tools::test_a_call_is_forced_or_forbidden",
            "structured output": "test_responses::test_the_sdks_stream_helper_and_parser_work",
            "pictures": "test_responses::test_input_may_hold_a_whole_history_with_files",
            "resume": "test_responses::test_a_stream_has_every_event_in_order_and_can_be_read_again_from_any_event",
            "errors as its own exceptions": (
                "test_responses::test_a_failure_is_the_sdks_own_error_and_the_response_says_why"
            ),
        },
    ),
    Client(
        "anthropic-python",
        version("anthropic"),
        "messages",
        {
            "plain chat": "test_anthropic::test_an_answer_with_its_usage_and_the_id_of_its_request",
            "stream": "test_anthropic::test_a_stream_has_every_event_in_order_and_gives_the_same_message",
            "tools": "test_anthropic_histories::test_a_call_ends_the_message_and_its_result_continues_the_same_session",
            "forced tool": "test_anthropic_histories::test_a_call_is_forced_or_forbidden",
            "structured output": "test_anthropic::test_structured_output_and_sampling_reach_the_model",
            "pictures": "test_anthropic_histories::test_pictures_and_documents_reach_the_model",
            "resume": "test_anthropic_histories::test_a_repeated_request_with_its_key_is_one_turn",
            "errors as its own exceptions": "test_anthropic::test_a_failed_turn_is_an_error_and_is_not_repeated",
        },
    ),
    Client("openai-js", _pinned("openai", NPM_CLIENTS, "@"), _CHAT, _all(_JAVASCRIPT)),
    Client("openai-js", _pinned("openai", NPM_CLIENTS, "@"), _RESPONSES, _all(_RESPONSES_JS)),
    Client("AI SDK", _pinned("ai", NPM_CLIENTS, "@"), _CHAT, _all(_JAVASCRIPT)),
    Client("AI SDK", _pinned("ai", NPM_CLIENTS, "@"), _RESPONSES, _all(_RESPONSES_AI)),
    Client("langchain-openai", _pinned("langchain-openai", PYTHON_CLIENTS, "=="), _CHAT, _all(_LANGCHAIN)),
    Client(
        "langchain-openai",
        _pinned("langchain-openai", RESPONSES_CLIENTS, "=="),
        _RESPONSES,
        _all(_RESPONSES_LANGCHAIN),
    ),
    Client("openai-agents", _pinned("openai-agents", RESPONSES_CLIENTS, "=="), _RESPONSES, _all(_AGENTS)),
    Client("litellm", _pinned("litellm", PYTHON_CLIENTS, "=="), _CHAT, _all(_LITELLM)),
    Client(
        "instructor",
        _pinned("instructor", PYTHON_CLIENTS, "=="),
        _CHAT,
        _all(_INSTRUCTOR, plain_chat=_NOT_THERE, tools=_NOT_THERE, resume=_NOT_THERE),
    ),
    Client(
        "llm",
        _pinned("llm", PYTHON_CLIENTS, "=="),
        _CHAT,
        _all(_LLM, forced_tool=_NOT_THERE),
    ),
    Client(
        "@ag-ui/client",
        AGUI_CLIENT[0].rpartition("@")[2],
        "AG-UI",
        {
            "plain chat": "test_agui_state::test_the_clients_state_survives_runs_tools_and_reloads",
            "stream": "test_agui_tools::test_withdrawn_text_is_gone_from_ag_uis_own_client",
            "tools": "test_agui_tools::test_ag_uis_own_client_runs_its_tools",
            "forced tool": _NOT_THERE,
            "structured output": _NOT_THERE,
            "pictures": "test_agui_files::test_agui_s_own_client_sends_a_picture",
            "resume": "test_agui_state::test_the_clients_state_survives_runs_tools_and_reloads",
            "errors as its own exceptions": "test_agui_state::test_errors_reach_ag_uis_own_client",
        },
    ),
    Client(
        "google-adk `AdkWebServerClient`",
        version("google-adk"),
        "ADK's REST",
        {
            "plain chat": "test_adk_client::test_a_run_returns_the_events_that_it_stored",
            "stream": "test_adk_client::test_a_stream_sends_partial_events_and_then_the_whole",
            "tools": "test_adk_client::test_results_of_a_long_running_tool_come_as_in_adk",
            "forced tool": _NOT_THERE,
            "structured output": _NOT_THERE,
            "pictures": "test_adk_client::test_pictures_come_with_a_message",
            "resume": _NOT_THERE,
            "errors as its own exceptions": "test_adk_client::test_a_failed_turn_is_an_error",
        },
    ),
)

_INSTRUCTED = "test_openai_instructed_clients::test_the_model_reads_the_instructions_of_a_client_after_the_agents_own"
INSTRUCTED_CLIENTS = (
    ("instructor", PYTHON_CLIENTS, "its JSON modes"),
    ("llama-index-core", PYTHON_CLIENTS, "`ReActAgent`"),
    ("llm", PYTHON_CLIENTS, "`llm -s`"),
    ("langchain", RESPONSES_CLIENTS, "`create_agent(system_prompt=...)`"),
    ("openai-agents", RESPONSES_CLIENTS, "`instructions`, on a chat model"),
    ("pydantic-ai-slim[openai]", RESPONSES_CLIENTS, "`instructions`"),
    ("smolagents", RESPONSES_CLIENTS, "`CodeAgent`"),
)
"""The clients whose instructions in chat completions are shown to reach the model, and by which of their features."""


def page() -> str:
    """Return the page; raise if a named test does not exist."""
    lines = heading(
        "Clients",
        "Each client below was run unchanged, as it comes from PyPI or npm, against a real server: yes, with the test "
        f"that shows it in `tests/e2e/server_compat`; {_NOT_THERE}: the client or its protocol has no such feature. "
        "This page is made from the tests.",
    )
    lines += [
        f"| client | version | API | {' | '.join(_FEATURES)} |",
        f"| --- | --- | --- |{' --- |' * len(_FEATURES)}",
    ]
    for client in CLIENTS:
        cells = [_cell(client.tests[feature]) for feature in _FEATURES]
        lines.append(f"| {client.name} | {client.version} | {client.api} | {' | '.join(cells)} |")
    about = "The model reads the instructions that these clients send with chat completions, after the agent's own:"
    lines += ["", "## Instructions", "", about, ""]
    lines += [f"- {name} {_pinned(name, pins, '==')}: {feature}" for name, pins, feature in INSTRUCTED_CLIENTS]
    lines += ["", "## Tests", ""]
    for client in CLIENTS:
        named = dict.fromkeys(test for test in client.tests.values() if "::" in test)
        lines += [f"- {client.name}, {client.api}:", *(f"  - `{_checked(test)}`" for test in named)]
    lines.append(f"- instructions: `{_checked(_INSTRUCTED)}`")
    return to_page([*lines, ""])


def _cell(test: str) -> str:
    return "yes" if "::" in test else test


def _checked(test: str) -> str:
    file, _, function = test.partition("::")
    tree = ast.parse((_TESTS / f"{file}.py").read_text())
    functions: list[Any] = [node for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    if function not in {node.name for node in functions}:
        raise AssertionError(f"tests/reference/clients.py names {test}, which does not exist")
    return f"{file}.py::{function}"
