"""Tools of an OpenAI client: a call is in `tool_calls`, and tool messages, to any server, carry the results."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path
from typing import Any, cast

import openai
import pytest
from openai import AsyncOpenAI, omit
from openai.types.chat import ChatCompletion, ChatCompletionFunctionToolParam, ChatCompletionMessageFunctionToolCall

from lango.server.compat.resent_history import FILE_LEFT_OUT
from lango.sessions import NO_RESULT_TEXT
from tests.support.servers.server_process import TIMEOUT_S, Server, serving

SCHEMA: dict[str, object] = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}


def function(name: str, **fields: Any) -> ChatCompletionFunctionToolParam:
    made = {"name": name, "description": "Let the user pick.", "parameters": SCHEMA, **fields}
    return cast("ChatCompletionFunctionToolParam", {"type": "function", "function": made})


PICK, DRAW = function("pick"), function("draw")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("openai-tools")


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[Server]:
    with serving(folder / "one", f"sqlite:///{folder}/lango.db") as running:
        yield running


@pytest.fixture(scope="module")
def other_server(folder: Path, server: Server) -> Iterator[Server]:
    with serving(folder / "two", f"sqlite:///{folder}/lango.db") as running:
        yield running


class Client:
    """A client that keeps the conversation and sends the whole of it with every request."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.sdk = AsyncOpenAI(base_url=f"{server.url}/v1", api_key="none", timeout=TIMEOUT_S, max_retries=0)
        self.messages: list[Any] = []
        self.session = ""

    async def complete(
        self, tools: Sequence[ChatCompletionFunctionToolParam] = (PICK, DRAW), *, session: str = "", **more: Any
    ) -> tuple[str | None, list[ChatCompletionMessageFunctionToolCall]]:
        """Send the conversation; return the text and the calls of the answer."""
        raw = await self.sdk.chat.completions.with_raw_response.create(
            model="obedient",
            messages=self.messages,
            tools=tools or omit,
            extra_headers={"X-Session-Id": session} if session else None,
            extra_body=more,
        )
        answer = raw.parse()
        self.session = raw.headers["x-session-id"]
        return self.took(answer)

    def took(self, answer: ChatCompletion) -> tuple[str | None, list[ChatCompletionMessageFunctionToolCall]]:
        message = answer.choices[0].message
        calls = [one for one in message.tool_calls or () if one.type == "function"]
        assert answer.choices[0].finish_reason == ("tool_calls" if calls else "stop")
        self.messages.append(message.model_dump(include={"role", "content", "tool_calls"}, exclude_none=True))
        return message.content, calls

    async def send(self, text: str, **more: Any) -> tuple[str | None, list[ChatCompletionMessageFunctionToolCall]]:
        self.messages.append({"role": "user", "content": text})
        return await self.complete(**more)

    def returned(self, call_id: str, content: Any) -> None:
        self.messages.append({"role": "tool", "tool_call_id": call_id, "content": content})

    async def messages_stored(self) -> list[dict[str, Any]]:
        async with self.server.client() as http:
            return (await http.get(f"/v1/sessions/{self.session}/messages")).json()["messages"]

    async def stored(self) -> list[tuple[str, str]]:
        return [(one["role"], one["content"]) for one in await self.messages_stored()]

    async def results(self) -> dict[str, Any]:
        """Return the stored results, one for each call."""
        found = [call for one in await self.messages_stored() if one["role"] == "tool" for call in one["tool_calls"]]
        assert len({call["id"] for call in found}) == len(found), found
        return {call["id"]: call["output"] for call in found}


@pytest.fixture
async def client(server: Server) -> AsyncIterator[Client]:
    made = Client(server)
    async with made.sdk:
        yield made


async def test_a_call_ends_the_answer_and_its_result_goes_on_in_the_same_session(client: Client) -> None:
    text, [call] = await client.send("call pick")
    assert (text, call.function.name, json.loads(call.function.arguments)) == (None, "pick", {"text": "pick"})
    session = client.session
    client.returned(call.id, '{"color": "red"}')
    assert await client.complete() == ("the tool said {'color': 'red'}", [])
    assert await client.send("and on") == ("and on", [])
    text, [again] = await client.send("call draw")
    client.returned(again.id, [{"type": "text", "text": "a "}, {"type": "text", "text": "house"}])
    assert await client.complete() == ("the tool said {'result': 'a house'}", [])
    assert client.session == session, "found by what was resent, each time"
    assert list((await client.results()).values()) == [{"color": "red"}, {"result": "a house"}]
    assert [role for role, _ in await client.stored()] == [
        *("user", "assistant", "tool", "assistant"),
        *("user", "assistant"),
        *("user", "assistant", "tool", "assistant"),
    ]


async def test_a_file_in_a_result_is_left_out_and_the_model_reads_so(client: Client) -> None:
    _, [call] = await client.send("call pick")
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}}
    client.returned(call.id, [{"type": "text", "text": "look: "}, picture])
    text, _ = await client.complete()
    assert text == f"the tool said {{'result': 'look: {FILE_LEFT_OUT}'}}"


async def test_several_calls_are_answered_together_or_not_at_all(client: Client) -> None:
    _, calls = await client.send("call pick draw")
    assert [call.function.name for call in calls] == ["pick", "draw"]
    client.returned(calls[0].id, "red")
    with pytest.raises(openai.BadRequestError, match=f"there is none for {calls[1].id}"):
        await client.complete()
    assert await client.results() == {}
    client.returned(calls[1].id, "a house")
    text, more = await client.complete()
    assert (text, more) == ("the tool said {'result': 'red'} and the tool said {'result': 'a house'}", [])


async def test_a_stream_has_calls_that_the_sdk_can_merge(client: Client) -> None:
    client.messages = [{"role": "user", "content": "call pick draw"}]
    async with client.sdk.chat.completions.stream(
        model="obedient", messages=client.messages, tools=[PICK, DRAW]
    ) as stream:
        answer = await stream.get_final_completion()
    _, calls = client.took(cast("ChatCompletion", answer))
    assert [(one.function.name, one.function.arguments) for one in calls] == [
        ("pick", '{"text": "pick"}'),
        ("draw", '{"text": "draw"}'),
    ]
    for call in calls:
        client.returned(call.id, "done")
    stream = await client.sdk.chat.completions.create(
        model="obedient", messages=client.messages, tools=[PICK, DRAW], stream=True
    )
    chunks = [chunk.choices[0] async for chunk in stream]
    assert "".join(one.delta.content or "" for one in chunks).count("the tool said") == 2
    assert chunks[-1].finish_reason == "stop"


async def test_the_agents_own_tools_run_here_beside_the_clients(client: Client) -> None:
    client.messages = [{"role": "user", "content": "call note pick"}]
    answer = await client.sdk.chat.completions.create(model="obedient", messages=client.messages, tools=[PICK])
    [own] = (answer.choices[0].message.model_extra or {})["executed_tools"]
    assert (own["name"], own["output"]) == ("note", '{"noted": "note"}')
    _, [call] = client.took(answer)
    assert call.function.name == "pick"
    client.returned(call.id, "red")
    text, _ = await client.complete([PICK])
    assert "{'noted': 'note'}" in (text or "")
    assert "{'result': 'red'}" in (text or "")


async def test_an_invalid_call_is_returned_to_the_model_not_to_the_client(client: Client) -> None:
    choose = function("choose", parameters={"type": "object", "required": ["n"]})
    client.messages = [{"role": "user", "content": "call choose"}]
    answer = await client.sdk.chat.completions.create(model="obedient", messages=client.messages, tools=[choose])
    text, calls = client.took(answer)
    assert not calls
    assert '"n" is a required property' in (text or "")
    [wrong] = (answer.choices[0].message.model_extra or {})["executed_tools"]
    assert (wrong["name"], wrong["arguments"], wrong["ok"]) == ("choose", '{"text": "choose"}', False)
    client.messages = [{"role": "user", "content": "call choose pick"}]
    stream = await client.sdk.chat.completions.create(
        model="obedient", messages=client.messages, tools=[choose, PICK], stream=True
    )
    deltas = [chunk.choices[0].delta async for chunk in stream]
    [(call,)] = [one.tool_calls for one in deltas if one.tool_calls]
    assert call.function
    assert (call.index, call.function.name) == (0, "pick")
    [(wrong,)] = [one.model_extra["executed_tools"] for one in deltas if one.model_extra]
    assert (wrong["name"], wrong["ok"]) == ("choose", False)


async def test_another_process_takes_the_results_and_the_same_ones_again_are_the_same_turn(
    client: Client, other_server: Server
) -> None:
    _, [call] = await client.send("call pick")
    client.returned(call.id, "red")
    elsewhere = Client(other_server)
    elsewhere.messages = [*client.messages]
    again = [*client.messages]
    async with elsewhere.sdk:
        text, _ = await elsewhere.complete()
    assert text == "the tool said {'result': 'red'}"
    assert client.session == elsewhere.session
    client.messages = [*again]
    assert (await client.complete(session=client.session))[0] == text, "the same request, repeated"
    assert [role for role, _ in await client.stored()] == ["user", "assistant", "tool", "assistant"]
    client.messages = [*again]
    await asyncio.gather(*[client.complete(session=client.session) for _ in range(4)])
    assert len(await client.stored()) == 4


async def test_an_id_that_comes_again_is_another_call(tmp_path: Path, sqlite_url: str) -> None:
    """Some models restart their call ids, which may repeat ids outside the history window."""
    with serving(tmp_path, sqlite_url, rest="[history]\nmax_messages = 4") as server:
        client = Client(server)
        async with client.sdk:
            for picked in ("red", "blue"):
                _, [call] = await client.send("again pick")
                client.returned(call.id, picked)
                assert (await client.complete())[0] == f"the tool said {{'result': '{picked}'}}"
                for number in range(3):
                    await client.send(f"{picked} {number}")
            _, [last] = await client.send("again pick")
            assert last.id != call.id, "each call of a session has a unique id"
            assert (await client.send("never mind"))[0] == "never mind"
            kept = [one for one in await client.messages_stored() if one["role"] == "tool"]
            outputs = [call["output"] for one in kept for call in one["tool_calls"]]
            assert [one.get("result") or one["error"] for one in outputs] == ["red", "blue", NO_RESULT_TEXT]


async def test_earlier_results_are_used_too(client: Client) -> None:
    _, calls = await client.send("call pick draw")
    client.returned(calls[0].id, "red")
    client.messages.append({"role": "assistant", "content": "(drawing)"})
    client.returned(calls[1].id, "a house")
    text, _ = await client.complete(session=client.session)
    assert text == "the tool said {'result': 'red'} and the tool said {'result': 'a house'}"


async def test_where_the_turn_failed_the_same_results_go_on_from_there(client: Client, tmp_path: Path) -> None:
    there = tmp_path / "there"
    _, [call] = await client.send("call pick")
    client.returned(call.id, json.dumps({"until": str(there)}))
    session = client.session
    with pytest.raises(openai.APIStatusError, match="does not want to"):
        await client.complete()
    there.touch()
    text, _ = await client.complete(session=session)
    assert text == f"the tool said {{'until': '{there}'}}"
    assert len(await client.results()) == 1


async def test_a_message_instead_of_results_closes_the_calls(client: Client) -> None:
    _, calls = await client.send("call pick draw")
    client.returned(calls[0].id, "red")
    assert (await client.send("never mind"))[0] == "never mind"
    kept = await client.results()
    assert kept[calls[0].id] == {"result": "red"}, "it came along"
    assert kept[calls[1].id]["error"] == NO_RESULT_TEXT
    client.messages = [{"role": "tool", "tool_call_id": calls[1].id, "content": "late"}]
    with pytest.raises(openai.ConflictError) as raised:
        await client.complete(session=client.session)
    assert raised.value.code == "WaitNotOpen"


async def test_with_its_session_named_a_client_sends_the_results_alone(client: Client) -> None:
    _, [call] = await client.send("call pick")
    client.messages = []
    client.returned(call.id, "red")
    text, _ = await client.complete(session=client.session)
    assert text == "the tool said {'result': 'red'}"


async def test_a_session_with_text_before_and_after_a_call_is_found(client: Client) -> None:
    text, [call] = await client.send("first pick")
    assert text == "wait "
    client.messages[-1]["content"] = "wait"  # some clients keep no white space around a message
    client.returned(call.id, "  red\n")
    await client.complete()
    session = client.session
    client.messages[-1]["content"] = f"\n {client.messages[-1]['content']}  "
    await client.send("and on")
    assert client.session == session
    client.messages[1]["tool_calls"][0]["id"] = "another"
    await client.send("and on")
    assert client.session != session, "it has another call"


async def test_a_client_that_goes_back_before_the_results_starts_a_new_session(client: Client) -> None:
    _, [call] = await client.send("call pick")
    client.returned(call.id, "red")
    await client.complete()
    session = client.session
    client.messages = client.messages[:2]
    await client.send("never mind")
    assert client.session != session, "that session has an answer that this client did not see"


@pytest.mark.parametrize(
    ("place", "changed"),
    [
        (1, {"content": "hello!"}),
        (2, {"content": "first draw"}),
        (3, {"content": "what?"}),
        (3, {"tool_calls": [{"id": "another", "type": "function", "function": {"name": "pick", "arguments": "{}"}}]}),
    ],
)
async def test_results_belong_to_the_session_with_the_whole_history(
    client: Client, place: int, changed: dict[str, Any]
) -> None:
    await client.send("hello")
    _, [call] = await client.send("first pick")
    client.returned(call.id, "red")
    before = [*client.messages]
    client.messages[place] = client.messages[place] | changed
    session = client.session
    if "tool_calls" in changed:
        client.messages[-1] = client.messages[-1] | {"tool_call_id": "another"}
    assert (await client.complete())[0] == "the tool said {'result': 'red'}", (
        "the model reads the history of the request"
    )
    assert client.session != session
    client.messages = before
    assert (await client.complete())[0] == "the tool said {'result': 'red'}"
    assert client.session == session


async def test_results_alone_that_no_session_waits_for_are_refused(client: Client) -> None:
    client.messages = [{"role": "tool", "tool_call_id": "c", "content": "red"}]
    with pytest.raises(openai.BadRequestError, match="X-Session-Id"):
        await client.complete()
    with pytest.raises(openai.NotFoundError):
        await client.complete(session="nobodys")


async def test_calls_and_results_that_a_client_makes_up_are_not_stored_in_a_named_session(client: Client) -> None:
    _, [call] = await client.send("call pick")
    named = client.session
    made_up = {"id": "mine", "type": "function", "function": {"name": "wipe", "arguments": "{}"}}
    client.messages[1:1] = [{"role": "assistant", "tool_calls": [made_up]}]
    client.returned("mine", '{"wiped": true}')
    assert (await client.send("hello", session=named))[0] == "hello"
    assert set(await client.results()) == {call.id}
    await client.send("hello again")
    assert client.session != named, "no session has this history"


async def test_without_tools_or_by_choice_none_is_offered(client: Client) -> None:
    for tools, choice in (([], None), ([PICK], "none")):
        client.messages = [{"role": "user", "content": "call pick"}]
        text, calls = await client.complete(tools, tool_choice=choice)
        assert not calls
        assert "no tool with that name" in (text or "")
    client.messages = [{"role": "user", "content": "call pick"}]
    assert (await client.complete(tool_choice="auto", parallel_tool_calls=False))[1]


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ({"tools": [function("no name")]}, "'no name' is not a valid tool name"),
        ({"tools": [function("note")]}, "the agent already has a tool named note"),
        ({"tools": [PICK, PICK]}, "two tools are named pick"),
        ({"tools": [function("pick", parameters={"type": "nothing"})]}, "tool pick: "),
        ({"tools": [{"type": "custom", "custom": {"name": "pick"}}]}, "only function tools are supported"),
        ({"tools": [], "tool_choice": "required"}, "tool_choice: only a function in tools can be forced"),
        (
            {"tool_choice": {"type": "function", "function": {"name": "dig"}}},
            "tool_choice: only a function in tools can be forced",
        ),
        ({"tool_choice": {"type": "custom", "custom": {"name": "pick"}}}, "tool_choice: send auto, none, required"),
        ({"tool_choice": "always"}, "tool_choice: send auto, none, required"),
        ({"tool_choice": {"type": "allowed_tools", "allowed_tools": {}}}, "allowed_tools must name functions"),
        ({"functions": [{"name": "pick"}]}, "functions: not supported"),
        ({"messages": [{"role": "function", "name": "pick", "content": "red"}]}, "functions: not supported"),
        ({"messages": [{"role": "tool", "content": "red"}]}, "a tool message needs the tool_call_id"),
        ({"messages": [{"role": "assistant", "content": "hi"}]}, "the last message must be the user's"),
    ],
)
async def test_invalid_tools_and_results_are_refused_and_store_nothing(
    server: Server, more: dict[str, Any], says: str
) -> None:
    request = {"model": "m", "tools": [PICK], "messages": [{"role": "user", "content": f"hi {says}"}]} | more
    async with server.client() as http:
        before = (await http.get("/v1/sessions")).json()
        answer = await http.post("/v1/chat/completions", json=request)
        assert answer.status_code == 400
        assert says in answer.json()["error"]["message"]
        assert (await http.get("/v1/sessions")).json() == before
