"""Tools of OpenAI's clients against real servers: told as `tool_calls`, answered by tool messages, wherever they go."""

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
from lango.store.turns.client_calls import NO_RESULT_TEXT
from tests.support.servers.served import PATIENCE_S, Server, serving

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
    """A client as they are: it keeps the conversation, and sends all of it with every request."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.sdk = AsyncOpenAI(base_url=f"{server.url}/v1", api_key="none", timeout=PATIENCE_S, max_retries=0)
        self.messages: list[Any] = []
        self.session = ""

    async def ask(
        self, tools: Sequence[ChatCompletionFunctionToolParam] = (PICK, DRAW), *, session: str = "", **more: Any
    ) -> tuple[str | None, list[ChatCompletionMessageFunctionToolCall]]:
        """Send all that was said; return the text and the calls of the answer."""
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

    async def say(self, text: str, **more: Any) -> tuple[str | None, list[ChatCompletionMessageFunctionToolCall]]:
        self.messages.append({"role": "user", "content": text})
        return await self.ask(**more)

    def returned(self, call_id: str, content: Any) -> None:
        self.messages.append({"role": "tool", "tool_call_id": call_id, "content": content})

    async def messages_stored(self) -> list[dict[str, Any]]:
        async with self.server.client() as http:
            return (await http.get(f"/v1/sessions/{self.session}/messages")).json()["messages"]

    async def stored(self) -> list[tuple[str, str]]:
        return [(one["role"], one["content"]) for one in await self.messages_stored()]

    async def results(self) -> dict[str, Any]:
        """Return what is stored: one result for each call."""
        found = [call for one in await self.messages_stored() if one["role"] == "tool" for call in one["tool_calls"]]
        assert len({call["id"] for call in found}) == len(found), found
        return {call["id"]: call["output"] for call in found}


@pytest.fixture
async def client(server: Server) -> AsyncIterator[Client]:
    made = Client(server)
    async with made.sdk:
        yield made


async def test_a_call_ends_the_answer_and_its_result_goes_on_in_the_same_session(client: Client) -> None:
    text, [call] = await client.say("call pick")
    assert (text, call.function.name, json.loads(call.function.arguments)) == (None, "pick", {"text": "pick"})
    session = client.session
    client.returned(call.id, '{"color": "red"}')
    assert await client.ask() == ("the tool said {'color': 'red'}", [])
    assert await client.say("and on") == ("and on", [])
    text, [again] = await client.say("call draw")
    client.returned(again.id, [{"type": "text", "text": "a "}, {"type": "text", "text": "house"}])
    assert await client.ask() == ("the tool said {'result': 'a house'}", [])
    assert client.session == session, "found by what was resent, each time"
    assert list((await client.results()).values()) == [{"color": "red"}, {"result": "a house"}]
    assert [role for role, _ in await client.stored()] == [
        *("user", "assistant", "tool", "assistant"),
        *("user", "assistant"),
        *("user", "assistant", "tool", "assistant"),
    ]


async def test_a_file_in_a_result_is_left_out_and_the_model_reads_so(client: Client) -> None:
    _, [call] = await client.say("call pick")
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}}
    client.returned(call.id, [{"type": "text", "text": "look: "}, picture])
    text, _ = await client.ask()
    assert text == f"the tool said {{'result': 'look: {FILE_LEFT_OUT}'}}"


async def test_several_calls_are_answered_together_or_not_at_all(client: Client) -> None:
    _, calls = await client.say("call pick draw")
    assert [call.function.name for call in calls] == ["pick", "draw"]
    client.returned(calls[0].id, "red")
    with pytest.raises(openai.BadRequestError, match=f"there is none for {calls[1].id}"):
        await client.ask()
    assert await client.results() == {}
    client.returned(calls[1].id, "a house")
    text, more = await client.ask()
    assert (text, more) == ("the tool said {'result': 'red'} and the tool said {'result': 'a house'}", [])


async def test_a_stream_tells_calls_as_the_sdk_puts_them_together(client: Client) -> None:
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
    text, _ = await client.ask([PICK])
    assert "{'noted': 'note'}" in (text or "")
    assert "{'result': 'red'}" in (text or "")


async def test_a_call_that_does_not_fit_its_schema_is_told_to_the_model_not_to_the_client(client: Client) -> None:
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
    _, [call] = await client.say("call pick")
    client.returned(call.id, "red")
    elsewhere = Client(other_server)
    elsewhere.messages = [*client.messages]
    again = [*client.messages]
    async with elsewhere.sdk:
        text, _ = await elsewhere.ask()
    assert text == "the tool said {'result': 'red'}"
    assert client.session == elsewhere.session
    client.messages = [*again]
    assert (await client.ask(session=client.session))[0] == text, "lost on the way, and sent again"
    assert [role for role, _ in await client.stored()] == ["user", "assistant", "tool", "assistant"]
    client.messages = [*again]
    await asyncio.gather(*[client.ask(session=client.session) for _ in range(4)])
    assert len(await client.stored()) == 4


async def test_an_id_that_comes_again_is_another_call(tmp_path: Path, sqlite_url: str) -> None:
    """Some models count their calls from 1 again; those that are out of the window cannot be told from a new one."""
    with serving(tmp_path, sqlite_url, rest="[history]\nmax_messages = 4") as server:
        client = Client(server)
        async with client.sdk:
            for picked in ("red", "blue"):
                _, [call] = await client.say("again pick")
                client.returned(call.id, picked)
                assert (await client.ask())[0] == f"the tool said {{'result': '{picked}'}}"
                for number in range(3):
                    await client.say(f"{picked} {number}")
            _, [last] = await client.say("again pick")
            assert last.id != call.id, "each call of a session has an id of its own, whatever the model says"
            assert (await client.say("never mind"))[0] == "never mind"
            kept = [one for one in await client.messages_stored() if one["role"] == "tool"]
            outputs = [call["output"] for one in kept for call in one["tool_calls"]]
            assert [one.get("result") or one["error"] for one in outputs] == ["red", "blue", NO_RESULT_TEXT]


async def test_results_are_taken_from_further_up_too(client: Client) -> None:
    _, calls = await client.say("call pick draw")
    client.returned(calls[0].id, "red")
    client.messages.append({"role": "assistant", "content": "(drawing)"})
    client.returned(calls[1].id, "a house")
    text, _ = await client.ask(session=client.session)
    assert text == "the tool said {'result': 'red'} and the tool said {'result': 'a house'}"


async def test_where_the_turn_failed_the_same_results_go_on_from_there(client: Client, tmp_path: Path) -> None:
    there = tmp_path / "there"
    _, [call] = await client.say("call pick")
    client.returned(call.id, json.dumps({"until": str(there)}))
    session = client.session
    with pytest.raises(openai.APIStatusError, match="does not want to"):
        await client.ask()
    there.touch()
    text, _ = await client.ask(session=session)
    assert text == f"the tool said {{'until': '{there}'}}"
    assert len(await client.results()) == 1


async def test_a_message_instead_of_results_closes_the_calls(client: Client) -> None:
    _, calls = await client.say("call pick draw")
    client.returned(calls[0].id, "red")
    assert (await client.say("never mind"))[0] == "never mind"
    kept = await client.results()
    assert kept[calls[0].id] == {"result": "red"}, "it came along"
    assert kept[calls[1].id]["error"] == NO_RESULT_TEXT
    client.messages = [{"role": "tool", "tool_call_id": calls[1].id, "content": "late"}]
    with pytest.raises(openai.ConflictError) as raised:
        await client.ask(session=client.session)
    assert raised.value.code == "CallNotWaiting"


async def test_with_its_session_named_a_client_sends_the_results_alone(client: Client) -> None:
    _, [call] = await client.say("call pick")
    client.messages = []
    client.returned(call.id, "red")
    text, _ = await client.ask(session=client.session)
    assert text == "the tool said {'result': 'red'}"


async def test_what_was_said_before_a_call_and_after_it_is_found_again(client: Client) -> None:
    text, [call] = await client.say("first pick")
    assert text == "wait "
    client.messages[-1]["content"] = "wait"  # some clients keep no white space around a message
    client.returned(call.id, "  red\n")
    await client.ask()
    session = client.session
    client.messages[-1]["content"] = f"\n {client.messages[-1]['content']}  "
    await client.say("and on")
    assert client.session == session
    client.messages[1]["tool_calls"][0]["id"] = "another"
    await client.say("and on")
    assert client.session != session, "it was told another call"


async def test_a_client_that_goes_back_to_before_the_results_begins_anew(client: Client) -> None:
    _, [call] = await client.say("call pick")
    client.returned(call.id, "red")
    await client.ask()
    session = client.session
    client.messages = client.messages[:2]
    await client.say("never mind")
    assert client.session != session, "that one has an answer that this client was not told"


@pytest.mark.parametrize(
    ("place", "changed"),
    [
        (1, {"content": "hello!"}),
        (2, {"content": "first draw"}),
        (3, {"content": "what?"}),
        (3, {"tool_calls": [{"id": "another", "type": "function", "function": {"name": "pick", "arguments": "{}"}}]}),
    ],
)
async def test_results_belong_to_the_session_that_was_told_all_of_it(
    client: Client, place: int, changed: dict[str, Any]
) -> None:
    await client.say("hello")
    _, [call] = await client.say("first pick")
    client.returned(call.id, "red")
    said = [*client.messages]
    client.messages[place] = client.messages[place] | changed
    session = client.session
    if "tool_calls" in changed:
        client.messages[-1] = client.messages[-1] | {"tool_call_id": "another"}
    assert (await client.ask())[0] == "the tool said {'result': 'red'}", "it is read as it was carried"
    assert client.session != session
    client.messages = said
    assert (await client.ask())[0] == "the tool said {'result': 'red'}"
    assert client.session == session


async def test_results_alone_that_no_session_waits_for_are_refused(client: Client) -> None:
    client.messages = [{"role": "tool", "tool_call_id": "c", "content": "red"}]
    with pytest.raises(openai.BadRequestError, match="X-Session-Id"):
        await client.ask()
    with pytest.raises(openai.NotFoundError):
        await client.ask(session="nobodys")


async def test_calls_and_results_that_a_client_makes_up_are_not_stored_in_a_named_session(client: Client) -> None:
    _, [call] = await client.say("call pick")
    named = client.session
    made_up = {"id": "mine", "type": "function", "function": {"name": "wipe", "arguments": "{}"}}
    client.messages[1:1] = [{"role": "assistant", "tool_calls": [made_up]}]
    client.returned("mine", '{"wiped": true}')
    assert (await client.say("hello", session=named))[0] == "hello"
    assert set(await client.results()) == {call.id}
    await client.say("hello again")
    assert client.session != named, "no session was told this"


async def test_without_tools_or_by_choice_none_is_offered(client: Client) -> None:
    for tools, choice in (([], None), ([PICK], "none")):
        client.messages = [{"role": "user", "content": "call pick"}]
        text, calls = await client.ask(tools, tool_choice=choice)
        assert not calls
        assert "no tool with that name" in (text or "")
    client.messages = [{"role": "user", "content": "call pick"}]
    assert (await client.ask(tool_choice="auto", parallel_tool_calls=False))[1]


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ({"tools": [function("no name")]}, "'no name' is not a name for a tool"),
        ({"tools": [function("note")]}, "the agent has a tool note of its own"),
        ({"tools": [PICK, PICK]}, "two tools have the name pick"),
        ({"tools": [function("pick", parameters={"type": "nothing"})]}, "tool pick: "),
        ({"tools": [{"type": "custom", "custom": {"name": "pick"}}]}, "only function is understood"),
        ({"tool_choice": "required"}, "tool_choice: the agent's model chooses"),
        ({"tool_choice": {"type": "function", "function": {"name": "pick"}}}, "tool_choice: the agent's model chooses"),
        ({"functions": [{"name": "pick"}]}, "functions: they are called tools by now"),
        ({"messages": [{"role": "function", "name": "pick", "content": "red"}]}, "functions: they are called tools"),
        ({"messages": [{"role": "tool", "content": "red"}]}, "a tool message needs the tool_call_id"),
        ({"messages": [{"role": "assistant", "content": "hi"}]}, "the last message must be the user's"),
    ],
)
async def test_what_cannot_be_offered_or_read_is_told_and_leaves_nothing(
    server: Server, more: dict[str, Any], says: str
) -> None:
    asked = {"model": "m", "tools": [PICK], "messages": [{"role": "user", "content": f"hi {says}"}]} | more
    async with server.client() as http:
        before = (await http.get("/v1/sessions")).json()
        answer = await http.post("/v1/chat/completions", json=asked)
        assert answer.status_code == 400
        assert says in answer.json()["error"]["message"]
        assert (await http.get("/v1/sessions")).json() == before
