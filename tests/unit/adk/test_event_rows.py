"""Events to rows and back: S3-S7 and S9, without a database."""

from typing import Any

import pytest
from google.adk.events import Event, EventActions
from google.adk.events.event import NodeInfo
from google.genai import types
from hypothesis import example, given
from msgspec.structs import replace

from lango.adk.events.events_to_rows import complete_event, event_to_entry
from lango.adk.events.rows_to_events import stored_to_events
from lango.history.pairing import parse_result_text
from lango.messages import Message, ToolCall
from lango.sessions import StoredEvent
from lango.store import NewEvent
from lango.store.codec.rows import (
    STATE_COLUMNS,
    calls_from_json,
    calls_to_json,
    event_to_row,
    row_to_event,
    row_to_state_event,
)
from tests.support import strategies
from tests.support.examples import examples

assert STATE_COLUMNS == "seq, event_id, created_at, state_delta, extra"


def reload(event: Event, root_agent_name: str = "root") -> Event:
    """Write an event to columns and read it again, as a database would."""
    complete_event(event, root_agent_name)
    entry = event_to_entry(event)
    row = event_to_row(entry)
    for column in (row.content, row.author, row.event_id, row.invocation_id, row.extra or "", row.tool_calls or ""):
        column.encode()  # SQLite and PostgreSQL store only UTF-8,
        assert "\0" not in column  # and PostgreSQL no NUL
    if entry.message is None:
        stored = row_to_state_event((0, row.event_id, row.created_at, row.state_delta or "{}", row.extra))
        stored = replace(stored, invocation_id=row.invocation_id)
    else:
        values = (row.role, row.author, row.content, row.tool_calls, row.tokens, 0, row.created_at)
        stored = row_to_event((1, *values, row.event_id, row.invocation_id, row.state_delta, row.extra, None))
    [again] = stored_to_events([stored], root_agent_name)
    return again


def with_stored_role(event: Event) -> Event:
    """What S5 changes: results have the role `function`."""
    if event.content and event.get_function_responses():
        event.content.role = "function"
    event.actions.state_delta = {k: v for k, v in event.actions.state_delta.items() if not k.startswith("temp:")}
    return event


@given(strategies.events)
@example(Event(author="node", output={"\ud800": b""}, node_info=NodeInfo(output_for=["flow"])))
@examples(500)
def test_s9_any_event_comes_back_equal(event: Event) -> None:
    again = reload(event)
    assert again == with_stored_role(event)


def model_event(*parts: types.Part, **fields: Any) -> Event:
    return Event(author="root", content=types.Content(role="model", parts=list(parts)), **fields)


def call(name: str, id_: str | None = None, **args: Any) -> types.Part:
    return types.Part(function_call=types.FunctionCall(id=id_, name=name, args=args))


def result(name: str, id_: str | None = None, **response: Any) -> types.Part:
    return types.Part(function_response=types.FunctionResponse(id=id_, name=name, response=response))


def test_s3_a_call_keeps_its_id() -> None:
    message = event_to_entry(model_event(call("exec", "adk-uuid-123", cmd="ls"))).message
    assert message == Message("assistant", "", (ToolCall("adk-uuid-123", "exec", {"cmd": "ls"}),), "root")


def test_s3_calls_without_ids_get_unique_ones() -> None:
    event = model_event(call("search"), call("search"), call("exec"), call("search", "call_search_3"), call("search"))
    complete_event(event, "root")
    assert [c.id for c in event.get_function_calls()] == [
        "call_search",
        "call_search_2",
        "call_exec",
        "call_search_3",
        "call_search_4",
    ]
    assert reload(event) == event


def test_s4_a_result_is_in_tool_calls_and_in_content() -> None:
    event = Event(author="root", content=types.Content(role="user", parts=[result("exec", "c1", output="file.txt")]))
    message = event_to_entry(event).message
    assert message is not None
    assert message.role == "tool"
    assert message.tool_calls == (ToolCall("c1", "exec", output={"output": "file.txt"}),)
    assert message.content == '{"output":"file.txt"}'
    assert calls_to_json(message.tool_calls) == '[{"id":"c1","name":"exec","output":{"output":"file.txt"}}]'


def test_s4_parallel_calls_and_results_in_one_event() -> None:
    calls = model_event(types.Part(text="both"), call("a", "1"), call("b", "2", x=1))
    results = Event(author="root", content=types.Content(role="user", parts=[result("a", "1", r=1), result("b", "2")]))
    assert event_to_entry(calls).extra == {}, "the plain layout takes no room"
    assert event_to_entry(results).extra == {}
    assert reload(calls) == calls
    again = reload(results)
    assert [(r.id, r.name, r.response) for r in again.get_function_responses()] == [
        ("1", "a", {"r": 1}),
        ("2", "b", {}),
    ]


def test_s5_results_come_back_with_the_role_function() -> None:
    stored = StoredEvent(1, "e", 0.0, Message("tool", "x", (ToolCall("c1", "exec", output={"result": "ok"}),)))
    [event] = stored_to_events([stored], "root")
    assert event.content is not None
    assert event.content.role == "function"
    assert event.get_function_responses() == [types.FunctionResponse(id="c1", name="exec", response={"result": "ok"})]


def test_s5_calls_come_back_with_id_name_and_arguments() -> None:
    calls = calls_from_json('[{"id": "adk-uuid-123", "name": "exec", "input": "{\\"cmd\\":\\"ls\\"}"}]')
    [event] = stored_to_events([StoredEvent(1, "e", 0.0, Message("assistant", "", calls))], "root")
    assert event.get_function_calls() == [types.FunctionCall(id="adk-uuid-123", name="exec", args={"cmd": "ls"})]


def legacy(*messages: Message) -> list[Event]:
    return stored_to_events([StoredEvent(n, str(n), 0.0, message) for n, message in enumerate(messages, 1)], "root")


def test_s6_results_of_an_older_version_are_paired_by_position() -> None:
    calling = Message("assistant", "", (ToolCall("c1", "exec", {}), ToolCall("", "read", {})))
    _, first, second, third = legacy(
        calling, Message("tool", '{"result":"file.txt"}'), Message("tool", "plain"), Message("tool", "one too many")
    )
    assert first.get_function_responses() == [
        types.FunctionResponse(id="c1", name="exec", response={"result": "file.txt"})
    ]
    assert second.get_function_responses() == [
        types.FunctionResponse(id="call_read", name="read", response={"result": "plain"})
    ]
    assert third.get_function_responses() == []
    assert third.content is not None
    assert third.content.parts == [types.Part(text="one too many")]


def test_s6_each_call_is_used_once_even_by_results_with_its_id() -> None:
    calling = Message("assistant", "", (ToolCall("a", "exec", {}), ToolCall("b", "read", {})))
    named = Message("tool", "", (ToolCall("a", "exec", output={"n": 1}),))
    for events in (legacy(calling, named, Message("tool", "plain")), legacy(calling, Message("tool", "plain"), named)):
        answers = {
            response.id: (response.name, response.response)
            for event in events
            for response in event.get_function_responses()
        }
        assert answers == {"a": ("exec", {"n": 1}), "b": ("read", {"result": "plain"})}


@pytest.mark.parametrize(
    ("made", "answered"), [("abc", ""), ("abc", "call_exec"), ("abc", "call_exec_2"), ("", ""), ("", "toolu_1")]
)
def test_s6_a_stored_result_answers_its_call_where_an_id_is_missing_on_either_side(made: str, answered: str) -> None:
    calling, given = legacy(
        Message("assistant", "", (ToolCall(made, "exec", {}),)),
        Message("tool", "", (ToolCall(answered, "exec", output={"n": 1}),)),
    )
    [call_], [answer] = calling.get_function_calls(), given.get_function_responses()
    assert (answer.id, answer.response) == (call_.id, {"n": 1})
    assert call_.id == (made or "call_exec")


def test_s6_an_empty_result_of_an_older_version_is_a_result() -> None:
    _, given = legacy(Message("assistant", "", (ToolCall("a", "exec", {}),)), Message("tool", ""))
    assert given.get_function_responses() == [types.FunctionResponse(id="a", name="exec", response={"result": ""})]


@pytest.mark.parametrize("role", ["tool", "function"])
@pytest.mark.parametrize("agent", ["assistant", "model", "bot"])
def test_s5_roles_of_older_versions_are_known(role: Any, agent: Any) -> None:
    calling, given, plain = legacy(
        Message(agent, "", (ToolCall("a", "exec", {}), ToolCall("b", "read", {}))),
        Message(role, "", (ToolCall("a", "exec", output={"n": 1}),)),
        Message(role, "text"),
    )
    assert [call.id for call in calling.get_function_calls()] == ["a", "b"]
    assert [response.id for event in (given, plain) for response in event.get_function_responses()] == ["a", "b"]


def test_s6_a_result_is_given_the_id_of_its_call_when_it_is_appended() -> None:
    calling = [model_event(call("exec", "a"), call("exec", "b"), call("read"))]
    complete_event(calling[0], "root")
    given = model_event(result("read", "toolu_1", n=3), result("exec", "a"), result("exec"), result("other"))
    complete_event(given, "root", calling)
    assert [response.id for response in given.get_function_responses()] == ["call_read", "a", "b", "call_other"]


def test_s6_a_call_and_its_result_in_one_event_belong_together() -> None:
    event = model_event(call("exec", "a"), result("exec"))
    complete_event(event, "root")
    assert [response.id for response in event.get_function_responses()] == ["a"]
    assert reload(event) == with_stored_role(event)


def test_s6_a_result_without_any_call_becomes_text() -> None:
    [event] = legacy(Message("tool", '{"a":1}'))
    assert event.content is not None
    assert event.content.parts == [types.Part(text='{"a":1}')]


@pytest.mark.parametrize(
    ("text", "response"), [("[1]", {"result": "[1]"}), ("", {"result": ""}), ('{"a":1}', {"a": 1})]
)
def test_s6_content_that_is_no_object_becomes_a_result(text: str, response: dict[str, Any]) -> None:
    assert parse_result_text(text) == response


@pytest.mark.parametrize(
    ("role", "stored_author", "author"),
    [
        ("user", "", "user"),
        ("assistant", "", "root"),
        ("model", "", "root"),
        ("strange", "", "root"),
        ("tool", "", "root"),
        ("assistant", "helper", "helper"),
        ("user", "somebody", "somebody"),
    ],
)
def test_s7_author(role: Any, stored_author: str, author: str) -> None:
    [event] = legacy(Message(role, "hi", author=stored_author))
    assert event.author == author


@pytest.mark.parametrize("root_agent_name", ["lango-agent", "", " \n", None])
@pytest.mark.parametrize("message", [Message("assistant", "hi"), Message("tool", "{}"), Message("event"), None])
def test_s7_without_a_root_name_the_author_is_lango_agent(message: Message | None, root_agent_name: str | None) -> None:
    stored = StoredEvent(1, "e", 0.0, message, state_delta={"k": 1})
    [event] = stored_to_events([stored], root_agent_name)
    assert event.author == "lango-agent"


@pytest.mark.parametrize(
    ("event", "is_message"),
    [
        (Event(author="a", actions=EventActions(state_delta={"k": 1})), False),
        (Event(author="a", actions=EventActions(state_delta={"temp:k": 1})), False),
        (Event(author="a", branch="x.y", actions=EventActions(state_delta={"k": None})), False),
        (Event(author="a"), True),
        (Event(author="a", error_code="500", actions=EventActions(state_delta={"k": 1})), True),
        (Event(author="a", actions=EventActions(state_delta={"k": 1}, end_of_agent=True)), True),
        (Event(author="a", actions=EventActions(state_delta={"k": 1}, artifact_delta={"f": 1})), True),
        (Event(author="a", actions=EventActions(state_delta={"k": 1}, rewind_before_invocation_id="i")), True),
        (Event(author="a", actions=EventActions(agent_state={"s": 1})), True),
        (Event(author="a", content=types.Content(parts=[]), actions=EventActions(state_delta={"k": 1})), True),
    ],
)
def test_s8_only_a_state_delta_is_no_message(event: Event, is_message: bool) -> None:
    assert (event_to_entry(event).message is not None) == is_message


@pytest.mark.parametrize(
    "part",
    [
        types.Part(text="let me think", thought=True),
        types.Part(text="said", thought=False),
        types.Part(text="Hello", thought_signature=b"\xff\x00"),
        types.Part(text="of a film", video_metadata=types.VideoMetadata(fps=2.0)),
        types.Part(text="a call", function_call=types.FunctionCall(id="c", name="f", args={})),
        types.Part(text=""),
        types.Part(text="said"),
        types.Part(text="with \0 and \ud800"),
        types.Part(function_call=types.FunctionCall(id="c", name="f", args={"n": 1})),
        types.Part(function_call=types.FunctionCall(id="c", name="f")),
        types.Part(function_call=types.FunctionCall(id="c", args={})),
        types.Part(function_call=types.FunctionCall(id="c", name="", args={})),
        types.Part(function_call=types.FunctionCall(id="c", name="f", args={}, will_continue=True)),
        types.Part(function_call=types.FunctionCall(id="c", name="f", args={}), thought_signature=b"\xff"),
        types.Part(function_response=types.FunctionResponse(id="c", name="f", response={"n": 1})),
        types.Part(function_response=types.FunctionResponse(id="c", name="f")),
        types.Part(function_response=types.FunctionResponse(id="c", response={})),
        types.Part(function_response=types.FunctionResponse(id="c", name="f", response={}, will_continue=False)),
        types.Part(function_response=types.FunctionResponse(id="c", name="f", response={}), thought_signature=b"\xff"),
    ],
)
@pytest.mark.parametrize("role", ["user", "model", "odd", None])
def test_s9_a_content_of_one_part_loses_nothing(part: types.Part, role: str | None) -> None:
    event = Event(author="agent", content=types.Content(role=role, parts=[part]))
    assert reload(event.model_copy(deep=True)) == with_stored_role(event)


def test_s9_thoughts_and_signatures_are_stored_once_outside_of_the_columns() -> None:
    event = model_event(
        types.Part(text="let me think", thought=True),
        types.Part(text="Hello", thought_signature=b"\xff\x00"),
        types.Part(text=" world"),
        types.Part(function_call=types.FunctionCall(id="c", name="f", args={}), thought_signature=b"sig"),
    )
    entry = event_to_entry(event)
    assert entry.message == Message("assistant", "Hello world", (ToolCall("c", "f", {}),), "root")
    assert entry.extra == {
        "parts": [
            {"text": "let me think", "thought": True},
            {"text": 5, "thought_signature": b"\xff\x00"},
            6,
            {"call": {}, "thought_signature": b"sig"},
        ]
    }
    assert reload(event) == event


def test_s9_genais_content_subclasses_come_back_equal() -> None:
    event = Event(author="user", content=types.UserContent("hi"))
    assert reload(event) == event


def test_the_content_column_has_the_storable_text_and_extra_the_exact_text() -> None:
    event = model_event(types.Part(text="a\0b\ud800"), types.Part(text="c"))
    assert event_to_row(event_to_entry(event)).content == "a\ufffdb\ufffdc"
    assert reload(event) == event


def test_an_entry_without_extra_fields_has_no_extra_column() -> None:
    assert event_to_row(NewEvent("e", 0.0, Message("user", "hi"))).extra is None
