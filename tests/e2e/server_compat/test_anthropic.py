"""The `anthropic` SDK, unchanged, against a real server: messages, whole and streamed, and their errors."""

import uuid
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import anthropic
import pytest
from anthropic import AsyncAnthropic
from anthropic.types import Message, MessageParam
from pydantic import BaseModel

from lango.store import Store
from tests.agents.parts import add_api_key
from tests.support.servers.server_process import TIMEOUT_S, Server, give, serving, text_of, waits_of
from tests.support.servers.wire_server import Exchange, wire_server

MARK = "The client that sent this request added these instructions."


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("anthropic")
    env = {"LANGO_AGENT__RETRY_DELAY_S": "0.01"}
    with serving(folder, f"sqlite:///{folder}/lango.db", server="heartbeat_s = 0.2", env=env) as running:
        yield running


@pytest.fixture
async def client(server: Server) -> AsyncIterator[AsyncAnthropic]:
    async with AsyncAnthropic(base_url=server.url, api_key="none", timeout=TIMEOUT_S) as made:
        yield made


def user(content: Any) -> MessageParam:
    return {"role": "user", "content": content}


def assistant(content: Any) -> MessageParam:
    return {"role": "assistant", "content": content}


async def create(client: AsyncAnthropic, *messages: MessageParam, **more: Any) -> Any:
    untyped: Any = client.messages
    return await untyped.create(**{"model": "obedient", "max_tokens": 1000, "messages": list(messages), **more})


async def complete(client: AsyncAnthropic, *messages: MessageParam, **headers: str) -> tuple[str, str]:
    """Return the text of the answer and the session that it belongs to."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    raw = await client.messages.with_raw_response.create(
        model="obedient", max_tokens=1000, messages=list(messages), extra_headers=named
    )
    return text_of_message(await raw.parse()), raw.headers["x-session-id"]


def text_of_message(message: Message) -> str:
    return "".join(block.text for block in message.content if block.type == "text")


async def stored(server: Server, session: str) -> list[tuple[str, str]]:
    async with server.client() as http:
        page = (await http.get(f"/v1/sessions/{session}/messages")).json()
    return [(one["role"], one["content"]) for one in page["messages"]]


async def test_the_agents_are_the_models(client: AsyncAnthropic) -> None:
    assert [(model.id, model.type, model.display_name) async for model in client.models.list()] == [
        ("obedient", "model", "obedient")
    ]
    assert (await client.models.retrieve("obedient")).id == "obedient"
    with pytest.raises(anthropic.NotFoundError, match="there is no model 'claude'"):
        await client.models.retrieve("claude")


async def test_an_answer_with_its_usage_and_the_id_of_its_request(client: AsyncAnthropic) -> None:
    answer = await create(client, user("hello there"))
    assert (answer.type, answer.role, answer.model) == ("message", "assistant", "obedient")
    assert [block.type for block in answer.content] == ["text"]
    assert text_of_message(answer) == "hello there"
    assert (answer.stop_reason, answer.stop_sequence) == ("end_turn", None)
    assert (answer.usage.input_tokens, answer.usage.output_tokens) == (10, 5)
    assert answer._request_id.startswith("req_")


async def test_a_stream_has_every_event_in_order_and_gives_the_same_message(client: AsyncAnthropic) -> None:
    async with client.messages.stream(model="obedient", max_tokens=99, messages=[user("words 5 0.3")]) as stream:
        kinds = [event.type async for event in stream]
        final = await stream.get_final_message()
    assert kinds[:2] == ["message_start", "content_block_start"]
    assert kinds[-3:] == ["content_block_stop", "message_delta", "message_stop"]
    assert kinds.count("content_block_delta") > 1, "streamed as it is generated"
    assert (text_of_message(final), final.stop_reason) == ("w0 w1 w2 w3 w4 ", "end_turn")
    assert (final.usage.input_tokens, final.usage.output_tokens) == (10, 5)


@pytest.mark.parametrize("thinking", [{"type": "enabled", "budget_tokens": 1024}, {"type": "adaptive"}])
async def test_thoughts_are_shown_to_clients_that_ask_for_them(client: AsyncAnthropic, thinking: Any) -> None:
    plain = await create(client, user("think"))
    assert [block.type for block in plain.content] == ["text"]
    whole = await create(client, user("think"), thinking=thinking)
    async with client.messages.stream(
        model="obedient", max_tokens=99, messages=[user("think")], thinking=thinking
    ) as stream:
        streamed = await stream.get_final_message()
    message: Any
    for message in (whole, streamed):
        assert [block.type for block in message.content] == ["thinking", "text"]
        assert (message.content[0].thinking, message.content[1].text) == ("hm, well", "thought")
        assert message.usage.output_tokens_details.thinking_tokens == 3
        assert message.usage.cache_creation_input_tokens == 2
    start = user(f"think {uuid.uuid4().hex}")
    first = await client.messages.with_raw_response.create(
        model="obedient", max_tokens=99, messages=[start], thinking=thinking
    )
    again = await complete(client, start, assistant((await first.parse()).content), user("and now?"))
    assert again == ("and now?", first.headers["x-session-id"]), "thoughts that come back are read from the session"


async def test_the_agents_own_tools_are_reported_beside_the_message(client: AsyncAnthropic) -> None:
    whole = await create(client, user("note"))
    assert (whole.stop_reason, text_of_message(whole)) == ("end_turn", "the tool said {'noted': 'this'}")
    [executed] = whole.model_extra["executed_tools"]
    assert (executed["name"], executed["output"], executed["ok"]) == ("note", '{"noted": "this"}', True)
    events = [event async for event in await create(client, user("note"), stream=True)]
    [ended] = [event for event in events if event.type == "message_delta"]
    assert ended.delta.model_extra["executed_tools"] == [executed]
    assert (await create(client, user("hello"))).model_extra == {}, "without tools it is Anthropic's and no more"


async def test_a_tool_that_waits_for_approval_ends_the_message_with_a_note_and_runs_once_it_is_approved(
    client: AsyncAnthropic, server: Server
) -> None:
    raw = await client.messages.with_raw_response.create(model="obedient", max_tokens=99, messages=[user("ask")])
    message, session = await raw.parse(), raw.headers["x-session-id"]
    assert message.stop_reason == "end_turn", "nothing that the client could run"
    assert {block.type for block in message.content} == {"text"}
    assert f"POST /v1/sessions/{session}/waits" in text_of_message(message)
    streamed = [event async for event in await create(client, user("ask"), stream=True)]
    pieces = [event.delta.text for event in streamed if event.type == "content_block_delta"]
    assert "This needs approval: wipe(" in "".join(pieces)
    async with server.client() as http:
        [wait] = await waits_of(http, session)
        assert "the tool said {'noted': 'this'}" in text_of(await give(http, wait, {"type": "approve"}))


async def test_the_system_text_reaches_the_model_as_the_clients_instruction(client: AsyncAnthropic) -> None:
    own = text_of_message(await create(client, user("system")))
    assert MARK not in own
    parts = [{"type": "text", "text": "Be kind.", "cache_control": {"type": "ephemeral"}}]
    later: Any = {"role": "system", "content": "Be quick."}
    read = text_of_message(await create(client, later, user("system"), system=parts))
    added = read.removeprefix(own)
    assert read != added, "the agent's own comes first"
    assert added.lstrip().startswith(MARK)
    assert added.endswith("\n\nBe kind.\n\nBe quick.")


async def test_a_setting_refuses_instructions(tmp_path: Path) -> None:
    with serving(tmp_path, f"sqlite:///{tmp_path}/lango.db", server="client_instructions = false") as server:
        async with AsyncAnthropic(base_url=server.url, api_key="none", timeout=TIMEOUT_S) as client:
            with pytest.raises(anthropic.BadRequestError, match="accepts no instructions from clients"):
                await create(client, user("hello"), system="Be brief.")
            assert text_of_message(await create(client, user("hello"))) == "hello"


class City(BaseModel):
    name: str
    inhabitants: int


async def test_structured_output_and_sampling_reach_the_model(client: AsyncAnthropic) -> None:
    parsed = await client.messages.parse(model="m", max_tokens=99, messages=[user("Rome")], output_format=City)
    assert parsed.parsed_output == City(name="Rome", inhabitants=7)
    held = text_of_message(
        await create(
            client,
            user("options"),
            max_tokens=20,
            stop_sequences=["A", ""],
            extra_body={"temperature": 0.5, "top_p": 0.25},
        )
    )
    assert '"temperature": 0.5, "top_p": 0.25, "max_tokens": 20, "stop": ["A"]' in held


async def end_at_a_stop_sequence(exchange: Exchange) -> None:
    """Answer as Anthropic's API does."""
    about: dict[str, Any] = {"id": "m", "type": "message", "role": "assistant", "model": "claude", "content": []}
    await exchange.events(
        {"type": "message_start", "message": about | {"usage": {"input_tokens": 3, "output_tokens": 1}}},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "one "}},
        {"type": "content_block_stop", "index": 0},
        {
            "type": "message_delta",
            "delta": {"stop_reason": "stop_sequence", "stop_sequence": exchange.body["stop_sequences"][1]},
            "usage": {"output_tokens": 2},
        },
        {"type": "message_stop"},
        named=True,
    )
    await exchange.end()


async def test_the_stop_sequence_that_ended_the_answer_is_named(tmp_path: Path, sqlite_url: str) -> None:
    async with wire_server(end_at_a_stop_sequence) as model:
        rest = f'[providers.mine]\ntype = "anthropic"\nbase_url = "{model.url}"\napi_key_env = "MY_KEY"'
        agent = 'model = "mine/claude"'
        with serving(tmp_path, sqlite_url, agent=agent, env={"MY_KEY": "k"}, rest=rest) as server:
            async with AsyncAnthropic(base_url=server.url, api_key="none", timeout=TIMEOUT_S) as client:
                whole = await create(client, user("count"), stop_sequences=["nine", "two"])
                async with client.messages.stream(
                    model="any", max_tokens=99, messages=[user("again")], stop_sequences=["nine", "two"]
                ) as stream:
                    streamed = await stream.get_final_message()
    for message in (whole, streamed):
        assert (message.stop_reason, message.stop_sequence) == ("stop_sequence", "two")
        assert text_of_message(message) == "one "


REFUSED: dict[str, Any] = {
    "max_tokens": 0,
    "messages": [assistant("prefilled")],
    "temperature": 1.5,
    "top_k": 5,
    "container": "c",
    "compaction": {"instructions": "short"},
    "thread": {"type": "continue", "previous_message_id": "msg_1_1"},
    "mcp_servers": [{"type": "url", "url": "https://example.com", "name": "x"}],
    "output_config": {"format": {"type": "json_schema", "schema": {"type": "string"}}},
    "tool_choice": {"type": "tool", "name": "no such"},
    "tools": [{"type": "web_search_20250305", "name": "web_search"}],
}


@pytest.mark.parametrize("name", REFUSED)
async def test_what_cannot_be_followed_is_refused_by_name(client: AsyncAnthropic, name: str) -> None:
    with pytest.raises(anthropic.BadRequestError, match=rf"{name}\b") as raised:
        await create(client, user("hello"), extra_body={name: REFUSED[name]})
    body: Any = raised.value.body
    assert (body["type"], body["error"]["type"]) == ("error", "invalid_request_error")
    assert body["request_id"] == raised.value.request_id


async def test_hints_are_accepted(client: AsyncAnthropic) -> None:
    hints = {
        "cache_control": {"type": "ephemeral"},
        "metadata": {"user_id": "u"},
        "service_tier": "auto",
        "output_config": {"effort": "low"},
        "thinking": {"type": "disabled"},
    }
    assert text_of_message(await create(client, user("hello"), **hints)) == "hello"


async def test_tokens_are_counted(client: AsyncAnthropic) -> None:
    few = await client.messages.count_tokens(model="obedient", messages=[user("hello")])
    tool: Any = {"name": "pick", "description": "Pick one.", "input_schema": {"type": "object"}}
    more = await client.messages.count_tokens(
        model="obedient", messages=[user("hello")], system="Be brief.", tools=[tool]
    )
    assert 0 < few.input_tokens < more.input_tokens


async def test_a_failed_turn_is_an_error_and_is_not_repeated(client: AsyncAnthropic, server: Server) -> None:
    session = uuid.uuid4().hex
    with pytest.raises(anthropic.BadRequestError, match="the provider does not want to"):
        await complete(client, user("fail"), X_Session_Id=session)
    assert len([role for role, _ in await stored(server, session) if role == "user"]) == 1
    with pytest.raises(anthropic.APIStatusError, match="the provider does not want to") as raised:
        [_ async for _ in await create(client, user("fail"), stream=True)]
    body: Any = raised.value.body
    assert (body["error"]["type"], body["error"]["code"]) == ("invalid_request_error", "ProviderRejected")


async def test_a_key_is_accepted_in_either_header_and_its_sessions_are_its_users(
    tmp_path: Path, sqlite_url: str
) -> None:
    async with Store(sqlite_url) as store:
        alice, bob = [(await add_api_key(store, name))[1] for name in ("alice", "bob")]
    with serving(tmp_path, sqlite_url, server='auth = "keys"') as server:

        def sdk(key: str | None, token: str | None = None) -> AsyncAnthropic:
            return AsyncAnthropic(base_url=server.url, api_key=key, auth_token=token, timeout=TIMEOUT_S)

        async with sdk(alice) as one, sdk(None, alice) as same, sdk(bob) as other, sdk("wrong") as nobody:
            for client in (one, same):
                assert await complete(client, user("mine"), X_Session_Id="s") == ("mine", "s")
            await complete(other, user("mine"), X_Session_Id="s")
            read = await complete(other, user("recite"), X_Session_Id="s")
            assert read[0].count("mine") == 2, "its own session, with one question and its answer"
            with pytest.raises(anthropic.AuthenticationError) as raised:
                await create(nobody, user("hello"))
            body: Any = raised.value.body
            assert (body["type"], body["error"]["type"]) == ("error", "authentication_error")
            with pytest.raises(anthropic.AuthenticationError):
                await nobody.messages.count_tokens(model="m", messages=[user("hello")])


async def test_a_message_to_a_busy_session_is_handled_as_the_header_says(
    client: AsyncAnthropic, tmp_path: Path
) -> None:
    session, held = {"X-Session-Id": uuid.uuid4().hex}, tmp_path / "held"
    stream = await create(client, user(f"hold {held}"), stream=True, extra_headers=session)
    events = aiter(stream)
    while (await anext(events)).type != "content_block_delta":
        pass
    fast = client.with_options(max_retries=0)
    try:
        with pytest.raises(anthropic.ConflictError):
            await create(fast, user("and?"), extra_headers=session | {"X-When-Busy": "refuse"})
        with pytest.raises(anthropic.BadRequestError, match="X-When-Busy: send one of"):
            await create(fast, user("and?"), extra_headers=session | {"X-When-Busy": "sometimes"})
    finally:
        held.touch()
    assert [event.type async for event in events][-1] == "message_stop"
