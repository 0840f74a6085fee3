"""Tools and pauses in OpenAI's responses: the client's functions, the agent's own tools, approvals."""

import json
from pathlib import Path
from typing import Any

import openai
import pytest
from openai import AsyncOpenAI
from openai.types.responses import Response, ResponseFunctionToolCall

from tests.support.servers.server_process import TIMEOUT_S, serving

SCHEMA: dict[str, object] = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}


def function(name: str) -> dict[str, Any]:
    return {"type": "function", "name": name, "description": f"{name} it", "parameters": SCHEMA, "strict": True}


PICK, DRAW = function("pick"), function("draw")
OWN_TOOLS = {"type": "mcp", "server_label": "obedient"}


async def create(client: AsyncOpenAI, given: Any, **more: Any) -> Response:
    untyped: Any = client.responses
    return await untyped.create(model="obedient", input=given, **more)


def calls_of(response: Response) -> list[ResponseFunctionToolCall]:
    return [item for item in response.output if item.type == "function_call"]


def output_of(call: ResponseFunctionToolCall, output: Any) -> dict[str, Any]:
    return {"type": "function_call_output", "call_id": call.call_id, "output": output}


async def test_a_function_is_called_and_its_output_continues_the_response(client: AsyncOpenAI) -> None:
    first = await create(client, "first pick draw", tools=[PICK, DRAW])
    assert [item.type for item in first.output] == ["message", "function_call", "function_call"]
    pick, draw = calls_of(first)
    assert (pick.name, pick.arguments, pick.status) == ("pick", '{"text": "pick"}', "completed")
    assert [tool.to_dict() for tool in first.tools] == [PICK, DRAW]
    with pytest.raises(openai.BadRequestError, match=f"there is none for {draw.call_id}"):
        await create(client, [output_of(pick, "red")], previous_response_id=first.id)
    with pytest.raises(openai.BadRequestError, match="no call 'other' is waiting for an output"):
        await create(
            client, [{"type": "function_call_output", "call_id": "other", "output": "x"}], previous_response_id=first.id
        )
    parts = [{"type": "input_text", "text": "a "}, {"type": "input_text", "text": "house"}]
    given = [output_of(pick, '{"color": "red"}'), output_of(draw, parts)]
    second = await create(client, given, previous_response_id=first.id, tools=[PICK, DRAW])
    assert second.output_text == "the tool said {'color': 'red'} and the tool said {'result': 'a house'}"
    items: Any = [item.to_dict() async for item in client.responses.input_items.list(second.id, order="asc")]
    assert [(item["call_id"], json.loads(item["output"])) for item in items] == [
        (pick.call_id, {"color": "red"}),
        (draw.call_id, {"result": "a house"}),
    ]
    again = await create(client, given, previous_response_id=first.id, tools=[PICK, DRAW])
    assert again.output_text == second.output_text, "in a fork, where the calls wait again"
    said = json.loads((await create(client, "recite", previous_response_id=again.id)).output_text)
    assert [role for role, _ in said] == ["user", "assistant", "tool", "assistant", "user"]


async def test_a_message_may_come_with_the_outputs_or_instead_of_them(client: AsyncOpenAI) -> None:
    first = await create(client, "call pick", tools=[PICK])
    [call] = calls_of(first)
    with_output = await create(
        client, [output_of(call, "red"), {"role": "user", "content": "recite"}], previous_response_id=first.id
    )
    assert json.loads(with_output.output_text)[2] == ["tool", {call.call_id: {"result": "red"}}]
    instead = json.loads((await create(client, "recite", previous_response_id=first.id)).output_text)
    assert "no result" in instead[2][1][call.call_id]["error"]
    repeated = await create(client, [call.to_dict(), output_of(call, "red")], previous_response_id=first.id)
    assert repeated.output_text == "the tool said {'result': 'red'}", "a client may repeat the call, too"


async def test_the_whole_history_may_be_resent_with_calls_and_outputs(client: AsyncOpenAI) -> None:
    given: list[Any] = [{"role": "user", "content": "call pick draw"}]
    first = await create(client, given, tools=[PICK, DRAW])
    given += [item.to_dict() for item in first.output]
    given += [output_of(call, f"done {call.name}") for call in calls_of(first)]
    second = await create(client, given, tools=[PICK, DRAW])
    assert "{'result': 'done pick'}" in second.output_text
    assert second.id.split("_")[1] == first.id.split("_")[1], "found by what was resent"
    given += [item.to_dict() for item in second.output]
    given.append({"role": "user", "content": "recite"})
    said = json.loads((await create(client, given)).output_text)
    assert [role for role, _ in said] == ["user", "assistant", "tool", "assistant", "user"]


async def test_a_stream_has_the_events_of_a_call(client: AsyncOpenAI) -> None:
    async with client.responses.stream(model="obedient", input="call pick", tools=[PICK]) as streamed:  # pyright: ignore
        events = [event async for event in streamed]
        final = await streamed.get_final_response()
    assert [event.type.removeprefix("response.") for event in events] == [
        *("created", "in_progress", "output_item.added"),
        *("function_call_arguments.delta", "function_call_arguments.done", "output_item.done", "completed"),
    ]
    [call] = [item for item in final.output if item.type == "function_call"]
    assert (call.name, call.arguments) == ("pick", '{"text": "pick"}')


async def test_a_call_is_forced_or_forbidden(client: AsyncOpenAI) -> None:
    named = await create(client, "hi", tools=[PICK, DRAW], tool_choice={"type": "function", "name": "draw"})
    assert [(call.name, json.loads(call.arguments)) for call in calls_of(named)] == [("draw", {"text": "hi"})]
    allowed = {"type": "allowed_tools", "mode": "required", "tools": [{"type": "function", "name": "draw"}]}
    some = await create(client, "hi", tools=[PICK, DRAW], tool_choice=allowed)
    assert [call.name for call in calls_of(some)] == ["draw"]
    assert [call.name for call in calls_of(await create(client, "hi", tools=[PICK], tool_choice="required"))] == [
        "pick"
    ]
    held = json.loads((await create(client, "options", tools=[PICK], tool_choice="none")).output_text)
    assert "pick" not in held["tools"]


async def test_the_agents_own_tools_run_here_and_are_shown(client: AsyncOpenAI) -> None:
    answer = await create(client, "call note pick", tools=[PICK])
    assert [item.type for item in answer.output] == ["mcp_call", "function_call"]
    own: Any = answer.output[0]
    assert (own.server_label, own.name, own.arguments) == ("obedient", "note", '{"text": "note"}')
    assert (own.status, own.output, own.error) == ("completed", '{"noted": "note"}', None)
    untyped: Any = client.responses
    events = [event async for event in await untyped.create(model="obedient", input="note", stream=True)]
    assert [event.type.removeprefix("response.") for event in events][2:8] == [
        *("output_item.added", "mcp_call.in_progress", "mcp_call_arguments.delta", "mcp_call_arguments.done"),
        *("mcp_call.completed", "output_item.done"),
    ]


@pytest.mark.parametrize("approve", [True, False])
async def test_an_approval_request_is_answered_by_the_next_response(client: AsyncOpenAI, approve: bool) -> None:
    asked = await create(client, "ask", tools=[OWN_TOOLS])
    request: Any = asked.output[-1]
    assert (request.type, request.name, json.loads(request.arguments)) == (
        "mcp_approval_request",
        "wipe",
        {"text": "this"},
    )
    answer = {"type": "mcp_approval_response", "approval_request_id": request.id, "approve": approve}
    with pytest.raises(openai.BadRequestError, match="send an mcp_approval_response alone"):
        await create(client, [answer, {"role": "user", "content": "and?"}], previous_response_id=asked.id)
    given = [{"role": "user", "content": "ask"}, request.to_dict(), answer]  # as a client that resends everything
    done = await create(
        client, [answer] if approve else given, **({"previous_response_id": asked.id} if approve else {})
    )
    own: Any = done.output[0]
    assert (own.type, own.name, own.status) == ("mcp_call", "wipe", "completed" if approve else "failed")
    assert own.approval_request_id == request.id
    assert ("noted" in done.output_text) == approve
    [item] = [item.to_dict() async for item in client.responses.input_items.list(done.id)]
    assert {name: item[name] for name in answer} == answer
    with pytest.raises(openai.ConflictError, match="wait"):
        await create(client, [answer])


@pytest.mark.parametrize("name", ["wipe", "guarded", "pay"])
@pytest.mark.parametrize("stream", [True, False])
async def test_a_call_that_waits_for_approval_is_only_a_request(client: AsyncOpenAI, name: str, stream: bool) -> None:
    """The tools need our approval, ADK's confirmation, and one that they ask for while they run."""
    asked: Any = await create(client, f"call {name}", stream=stream, store=False)
    if stream:
        events: list[Any] = [event async for event in asked]
        added = [event.output_index for event in events if event.type == "response.output_item.added"]
        done = [event for event in events if event.type == "response.output_item.done"]
        assert added == [event.output_index for event in done]
        asked = events[-1].response
        assert [event.item.to_dict() for event in done] == [item.to_dict() for item in asked.output]
    request = asked.output[0]
    assert (request.type, request.name) == ("mcp_approval_request", name)
    assert "mcp_call" not in [item.type for item in asked.output]
    answer = {"type": "mcp_approval_response", "approval_request_id": request.id, "approve": True}
    given = [{"role": "user", "content": f"call {name}"}, request.to_dict(), answer]
    approved = await create(client, given, store=False)
    own: Any = approved.output[0]
    assert (own.type, own.name, own.status, own.approval_request_id) == ("mcp_call", name, "completed", request.id)
    assert approved.output_text.startswith("the tool said {'" + ("confirmed" if name == "pay" else "noted"))


async def test_another_process_goes_on_with_the_tools_and_the_approval(tmp_path: Path, store_url: str) -> None:
    with serving(tmp_path / "one", store_url) as first:
        async with AsyncOpenAI(base_url=f"{first.url}/v1", api_key="none", timeout=TIMEOUT_S) as client:
            called, asked = await create(client, "call pick", tools=[PICK]), await create(client, "ask")
            first.kill()
    with serving(tmp_path / "two", store_url) as second:
        async with AsyncOpenAI(base_url=f"{second.url}/v1", api_key="none", timeout=TIMEOUT_S) as client:
            read = await client.responses.retrieve(called.id)
            assert read.to_dict() == called.to_dict()
            [call] = calls_of(read)
            answered = await create(client, [output_of(call, "red")], previous_response_id=called.id)
            assert answered.output_text == "the tool said {'result': 'red'}"
            answer = {"type": "mcp_approval_response", "approval_request_id": asked.output[-1].id, "approve": True}
            assert "noted" in (await create(client, [answer])).output_text
