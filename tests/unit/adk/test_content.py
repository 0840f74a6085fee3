"""Contents to messages and back: ids, signatures, media, code."""

import pytest
from google.genai import types
from hypothesis import given
from hypothesis import strategies as st

from lango.adk.model.content import bytes_to_signature, content_to_messages, contents_to_messages, signature_to_bytes
from lango.adk.model.responses import reply_to_content, usage_to_metadata
from lango.history import CONTEXT_AUTHOR
from lango.messages import Media, Message, Signature, Thought, ToolCall
from lango.providers.protocol import Finish, UsageDelta
from lango.providers.reply_assembly import Reply


def content(role: str, *parts: types.Part) -> types.Content:
    return types.Content(role=role, parts=list(parts))


def call(call_id: str | None = None, name: str = "exec") -> types.Part:
    return types.Part(function_call=types.FunctionCall(id=call_id, name=name, args={"a": 1}))


def result(call_id: str | None = None, name: str = "exec") -> types.Part:
    return types.Part(function_response=types.FunctionResponse(id=call_id, name=name, response={"b": 2}))


def test_m5_a_call_keeps_its_id() -> None:
    """Seed scenario: the provider's message has the id of the call."""
    [message] = content_to_messages(content("model", call("adk-uuid-123")))
    assert message == Message("assistant", tool_calls=(ToolCall("adk-uuid-123", "exec", {"a": 1}),))


def test_m5_calls_and_results_without_ids_are_named_alike() -> None:
    calling = content("model", call(), call("c1"), call(), call(name="search"))
    answered = content("user", result(), result("c1"), result(), result(name="search"))
    named = [[c.id for c in m.tool_calls] for m in contents_to_messages([calling, answered])]
    assert named == [["call_exec", "c1", "call_exec_2", "call_search"]] * 2


def test_m5_results_without_ids_are_named_as_their_calls_are() -> None:
    calling = content("model", call("a"), call(), call("c", name="search"))
    answered = content("user", result(), result(), result(name="other"))
    named = [[c.id for c in m.tool_calls] for m in contents_to_messages([calling, answered])]
    assert named == [["a", "call_exec", "c"], ["a", "call_exec", "call_other"]]


def test_results_and_text_in_one_content_become_two_messages() -> None:
    messages = content_to_messages(content("user", result("c1"), types.Part(text="and?")))
    assert [message.role for message in messages] == ["tool", "user"]
    messages = content_to_messages(content("model", types.Part(text="a"), call("c1"), result("c1")))
    assert [message.role for message in messages] == ["assistant", "tool"]
    assert [message.role for message in content_to_messages(content("user", call("c1")))] == ["assistant"]


def test_s5_the_role_function_holds_results() -> None:
    assert [message.role for message in content_to_messages(content("function", result("c1")))] == ["tool"]


def test_texts_of_the_model_are_one_text_and_texts_of_the_user_are_lines() -> None:
    parts = (types.Part(text="a"), types.Part(text="b"))
    assert content_to_messages(content("model", *parts)) == [Message("assistant", "ab")]
    assert content_to_messages(content("user", *parts)) == [Message("user", "a\nb")]
    assert content_to_messages(types.Content(role="user")) == []


def test_pictures_and_files_go_in() -> None:
    blob = types.Part(inline_data=types.Blob(mime_type="image/png", data=b"png", display_name="a.png"))
    file = types.Part(file_data=types.FileData(mime_type="application/pdf", file_uri="gs://b/a.pdf"))
    empty = types.Part(inline_data=types.Blob(mime_type="image/png", data=b""))
    [message] = content_to_messages(content("user", blob, file, empty))
    assert message.media == (
        Media("image/png", b"png", name="a.png"),
        Media("application/pdf", uri="gs://b/a.pdf"),
    )


def test_pictures_in_a_result_go_in() -> None:
    piece = types.FunctionResponsePart(inline_data=types.FunctionResponseBlob(mime_type="image/png", data=b"png"))
    part = types.Part(function_response=types.FunctionResponse(id="c1", name="shot", response={}, parts=[piece]))
    [message] = content_to_messages(content("user", part))
    assert message.media == (Media("image/png", b"png"),)
    assert message.tool_calls[0].output == {}


def test_code_and_its_output_are_text() -> None:
    code = types.Part(executable_code=types.ExecutableCode(code="print(1)", language=types.Language.PYTHON))
    output = types.Part(code_execution_result=types.CodeExecutionResult(outcome=types.Outcome.OUTCOME_OK, output="1"))
    [message] = content_to_messages(content("model", code, output))
    assert message.content == "```python\nprint(1)\n``````tool_output\n1\n```"


def test_quoted_actions_of_another_agent_are_not_a_user_message() -> None:
    from google.adk.flows.llm_flows.context import _fencing

    preamble = _fencing.OTHER_AGENT_CONTEXT_PREAMBLE  # ADK's wording, checked here because we recognise it
    [message] = content_to_messages(content("user", types.Part(text=preamble), types.Part(text="[a] said: hi")))
    assert message.author == CONTEXT_AUTHOR
    assert content_to_messages(content("user", types.Part(text="For context: I am Ann")))[0].author == ""


@given(st.text(alphabet=st.characters(exclude_characters="\0", codec="utf-8")), st.binary())
def test_a_stored_signature_names_its_provider_and_model(model: str, value: bytes) -> None:
    signature = Signature("openai", model, value)
    assert bytes_to_signature(signature_to_bytes(signature)) == signature


@pytest.mark.parametrize("value", [None, b"", b"raw", b"\0\0\0\0", b"lango-signature\0half"])
def test_m8_a_signature_of_an_unknown_maker_is_left_out(value: bytes | None) -> None:
    assert bytes_to_signature(value) is None


def test_m8_a_part_that_is_only_an_untagged_signature_is_left_out() -> None:
    lone = types.Part(thought_signature=b"raw")
    thought = types.Part(text="", thought=True, thought_signature=b"raw")
    assert content_to_messages(content("model", lone)) == []
    assert content_to_messages(content("model", thought, types.Part(text="hi"), lone)) == [
        Message("assistant", "hi", thoughts=(Thought(""),))
    ]


def test_a_reply_comes_back_as_the_message_it_was() -> None:
    signature = Signature("p", "m", b"\x00\xff")
    thoughts = (Thought("hm", signature), Thought("", signature))
    calls = (ToolCall("c1", "exec", {"a": 1}, signature=signature), ToolCall("c2", "exec", {}))
    reply = Reply(Finish("stop", signature=signature), "said", thoughts, calls)
    [message] = content_to_messages(reply_to_content(reply))
    assert message == Message("assistant", "said", calls, thoughts=thoughts, signature=signature)


def test_a_signature_survives_an_answer_without_text() -> None:
    signature = Signature("p", "m", b"s")
    reply = Reply(Finish("stop", signature=signature), calls=(ToolCall("c1", "exec", {}),))
    assert content_to_messages(reply_to_content(reply))[0].signature == signature
    assert reply_to_content(Reply(Finish("stop"))).parts == []


def test_usage_counts_thoughts_separately_as_adk_does() -> None:
    usage = usage_to_metadata(UsageDelta(100, 50, 20, 30))
    assert usage is not None
    assert (usage.prompt_token_count, usage.candidates_token_count, usage.thoughts_token_count) == (100, 20, 30)
    assert (usage.cached_content_token_count, usage.total_token_count) == (20, 150)
    assert usage_to_metadata(UsageDelta()) is None
    only_input = usage_to_metadata(UsageDelta(5))
    assert only_input is not None
    assert only_input.candidates_token_count is None
