"""The `openai` SDK, unchanged, against a real server."""

import uuid
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import openai
import pytest
from openai import AsyncOpenAI
from openai.types.chat import ChatCompletionChunk, ChatCompletionMessageParam

from lango.store import Store
from tests.agents.parts import add_api_key
from tests.support.servers.server_process import TIMEOUT_S, Server, give, serving, text_of, waits_of


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("openai")
    env = {"LANGO_AGENT__RETRY_DELAY_S": "0.01"}
    with serving(folder, f"sqlite:///{folder}/lango.db", server="heartbeat_s = 0.2", env=env) as running:
        yield running


@pytest.fixture
async def client(server: Server) -> AsyncIterator[AsyncOpenAI]:
    async with AsyncOpenAI(base_url=f"{server.url}/v1", api_key="none", timeout=TIMEOUT_S) as made:
        yield made


def user(text: str) -> ChatCompletionMessageParam:
    return {"role": "user", "content": text}


def assistant(text: str | None) -> ChatCompletionMessageParam:
    return {"role": "assistant", "content": text}


async def complete(client: AsyncOpenAI, *messages: ChatCompletionMessageParam, **headers: str) -> tuple[str, str]:
    """Return the answer and the session that it belongs to."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    raw = await client.chat.completions.with_raw_response.create(
        model="obedient", messages=list(messages), extra_headers=named
    )
    return raw.parse().choices[0].message.content or "", raw.headers["x-session-id"]


async def stored(server: Server, session: str) -> list[tuple[str, str]]:
    async with server.client() as client:
        page = (await client.get(f"/v1/sessions/{session}/messages")).json()
    return [(one["role"], one["content"]) for one in page["messages"]]


async def test_the_agent_is_the_model(client: AsyncOpenAI) -> None:
    assert [model.id async for model in client.models.list()] == ["obedient"]
    assert (await client.models.retrieve("obedient")).owned_by == "lango"
    with pytest.raises(openai.NotFoundError) as raised:
        await client.models.retrieve("gpt-unknown")
    assert raised.value.code == "model_not_found"


async def test_an_answer_with_its_usage(client: AsyncOpenAI) -> None:
    answer = await client.chat.completions.create(model="any", messages=[user("hello there")], temperature=0.5)
    assert answer.model == "obedient"
    assert answer.object == "chat.completion"
    assert answer.choices[0].message.content == "hello there"
    assert answer.choices[0].message.role == "assistant"
    assert answer.choices[0].finish_reason == "stop"
    assert answer.usage
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens, answer.usage.total_tokens) == (10, 5, 15)


async def test_a_stream_gives_the_same_answer_and_usage_on_request(client: AsyncOpenAI) -> None:
    async def chunks_of(**options: Any) -> list[ChatCompletionChunk]:
        stream = await client.chat.completions.create(
            model="obedient", messages=[user("words 5 0.3")], stream=True, **options
        )
        return [chunk async for chunk in stream]

    plain = await chunks_of()
    assert all(chunk.choices and chunk.usage is None for chunk in plain)
    assert plain[0].choices[0].delta.role == "assistant"
    texts = [text for chunk in plain if (text := chunk.choices[0].delta.content)]
    assert "".join(texts) == "w0 w1 w2 w3 w4 "
    assert len(texts) > 1, "streamed as it is generated"
    assert [chunk.choices[0].finish_reason for chunk in plain[-2:]] == [None, "stop"]
    assert len({chunk.id for chunk in plain}) == 1

    last = (await chunks_of(stream_options={"include_usage": True}))[-1]
    assert last.choices == []
    assert last.usage
    assert last.usage.total_tokens == 15


@pytest.mark.parametrize("text", ["half of it and the rest", "another answer"])
async def test_withdrawn_text_is_in_no_answer_and_a_stream_goes_on_with_what_is_final(
    client: AsyncOpenAI, tmp_path: Path, text: str
) -> None:
    whole = await client.chat.completions.create(
        model="obedient", messages=[user(f"fail once {tmp_path / 'whole'} {text}")]
    )
    assert whole.choices[0].message.content == text
    stream = await client.chat.completions.create(
        model="obedient", messages=[user(f"fail once {tmp_path / 'stream'} {text}")], stream=True
    )
    pieces = [piece async for chunk in stream if (piece := chunk.choices[0].delta.content)]
    assert pieces == ["half of it", " and the rest" if text.startswith("half of it") else f"\n{text}"]


EXECUTED: dict[str, Any] = {
    "index": 0,
    "id": "call_1",
    "type": "function",
    "name": "note",
    "arguments": '{"text": "this"}',
    "output": '{"noted": "this"}',
    "ok": True,
}


async def test_the_agents_own_tools_are_shown_as_executed(client: AsyncOpenAI) -> None:
    whole = await client.chat.completions.create(model="obedient", messages=[user("note")])
    message = whole.choices[0].message
    assert (message.tool_calls, whole.choices[0].finish_reason) == (None, "stop")
    assert (message.model_extra or {})["executed_tools"] == [EXECUTED]
    stream = await client.chat.completions.create(model="obedient", messages=[user("note")], stream=True)
    merged: dict[str, Any] = {}
    async for chunk in stream:
        assert not chunk.choices[0].delta.tool_calls
        for piece in (chunk.choices[0].delta.model_extra or {}).get("executed_tools", []):
            assert not (merged.keys() & piece.keys()) - {"index"}, "each field is sent once"
            merged |= piece
    assert merged == EXECUTED


async def test_the_sdks_own_helper_puts_a_stream_together(client: AsyncOpenAI) -> None:
    async with client.chat.completions.stream(model="obedient", messages=[user("note")]) as stream:
        final = await stream.get_final_completion()
    assert (final.choices[0].message.model_extra or {})["executed_tools"] == [EXECUTED]
    assert "noted" in (final.choices[0].message.content or "")


async def test_without_tools_the_answer_is_openais_and_no_more(client: AsyncOpenAI) -> None:
    answer = await client.chat.completions.create(model="obedient", messages=[user("hello")])
    assert not answer.choices[0].message.model_extra


async def test_the_agent_runs_its_own_tools(client: AsyncOpenAI, server: Server) -> None:
    start = user(f"hello {uuid.uuid4().hex}")
    first, session = await complete(client, start)
    answer, _ = await complete(client, start, assistant(first), user("note"))
    assert answer == "the tool said {'noted': 'this'}"
    assert [role for role, _ in await stored(server, session)][2:] == ["user", "assistant", "tool", "assistant"]
    _, again = await complete(client, start, assistant(first), user("note"), assistant(answer), user("and now?"))
    assert again == session, "found again across the tool's messages"


async def test_a_tool_that_needs_approval_names_the_route(client: AsyncOpenAI, server: Server) -> None:
    answer, session = await complete(client, user("ask"))
    assert f"POST /v1/sessions/{session}/waits" in answer
    async with server.client() as http:
        [wait] = await waits_of(http, session)
        assert "the tool said {'noted': 'this'}" in text_of(await give(http, wait, {"type": "approve"}))


async def test_a_named_session_keeps_the_history(client: AsyncOpenAI, server: Server) -> None:
    session = f"s-{uuid.uuid4().hex[:8]}"
    assert await complete(client, user("one"), X_Session_Id=session) == ("one", session)
    assert await complete(client, user("two"), X_Session_Id=session) == ("two", session)
    found_messages = await stored(server, session)
    assert found_messages == [("user", "one"), ("assistant", "one"), ("user", "two"), ("assistant", "two")]
    headers = {"X_Session_Id": session, "Idempotency_Key": "k1"}
    assert await complete(client, user("three"), **headers) == await complete(client, user("three"), **headers)
    assert len(await stored(server, session)) == 6, "the same key is the same turn"


async def test_a_session_is_found_by_the_resent_history(client: AsyncOpenAI, server: Server) -> None:
    start = user(f"hello {uuid.uuid4().hex}")
    rules: ChatCompletionMessageParam = {"role": "system", "content": "be kind"}
    first, session = await complete(client, rules, start)
    _, other = await complete(client, rules, start)
    assert other != session, "the same first message starts another session"

    two: list[ChatCompletionMessageParam] = [rules, start, assistant(first), user("two")]
    second, found = await complete(client, *two)
    assert found == other, "the newest of those that fit"
    parts: ChatCompletionMessageParam = {"role": "user", "content": [{"type": "text", "text": "three"}]}
    _, found = await complete(client, *two, assistant(second + "\n"), parts)
    assert found == other
    assert [text for role, text in await stored(server, other) if role == "user"][1:] == ["two", "three"]

    _, found = await complete(client, *two)
    assert found == session, "the other session with the same history"
    _, found = await complete(client, rules, start, assistant("no such answer"), user("two"))
    assert found not in (session, other)


async def test_a_long_conversation_may_be_sent_again(client: AsyncOpenAI, server: Server) -> None:
    long, session = await complete(client, user("much 12"))
    _, same = await complete(client, user("much 12"), assistant(long), user("and now?"))
    assert same == session, "1.2 MB, of which nothing but the end is new"
    with pytest.raises(openai.APIStatusError) as raised:
        await complete(client, *[user(long)] * 9)
    assert raised.value.status_code == 413
    assert "server.limits.max_conversation_bytes" in str(raised.value)


async def test_a_failed_turn_is_an_error_and_is_not_repeated(client: AsyncOpenAI, server: Server) -> None:
    session = f"s-{uuid.uuid4().hex[:8]}"
    with pytest.raises(openai.BadRequestError) as raised:
        await complete(client, user("fail"), X_Session_Id=session)
    assert raised.value.code == "ProviderRejected"
    assert raised.value.type == "invalid_request_error"
    assert "the provider does not want to" in raised.value.message
    assert [role for role, _ in await stored(server, session)].count("user") == 1, "the SDK did not send it again"

    with pytest.raises(openai.BadRequestError) as too_long:
        await complete(client, user("many words " * 80_000))
    assert too_long.value.code == "BudgetTooSmall"

    stream = await client.chat.completions.create(model="obedient", messages=[user("fail")], stream=True)
    with pytest.raises(openai.APIError, match="the provider does not want to"):
        async for _ in stream:
            pass


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"messages": [user("a"), assistant("b")]}, "last message"),
        ({"messages": [user("")]}, "last message"),
        ({"messages": []}, "messages"),
        ({"messages": [{"role": "user", "content": [{"type": "text", "text": ""}]}]}, "last message"),
        ({"n": 2}, "n"),
        ({"extra_headers": {"X-Session-Id": "a/b"}}, "X-Session-Id"),
    ],
)
async def test_unsupported_requests_are_refused(client: AsyncOpenAI, wrong: dict[str, Any], message: str) -> None:
    request: dict[str, Any] = {"model": "obedient", "messages": [user("hi")]} | wrong
    with pytest.raises(openai.BadRequestError) as raised:
        await client.chat.completions.create(**request)
    assert raised.value.type == "invalid_request_error"
    assert raised.value.code == "BadRequest"
    assert message in raised.value.message


async def test_a_key_is_a_user_and_conversations_are_its_own(tmp_path: Path, sqlite_url: str) -> None:
    async with Store(sqlite_url) as store:
        alice, bob = [(await add_api_key(store, name))[1] for name in ("alice", "bob")]
    with serving(tmp_path, sqlite_url, server='auth = "keys"') as server:
        base = f"{server.url}/v1"
        async with (
            AsyncOpenAI(base_url=base, api_key=alice, timeout=TIMEOUT_S) as one,
            AsyncOpenAI(base_url=base, api_key=bob, timeout=TIMEOUT_S) as other,
            AsyncOpenAI(base_url=base, api_key="wrong", timeout=TIMEOUT_S) as nobody,
        ):
            for call in (nobody.models.list(), nobody.chat.completions.create(model="m", messages=[user("hi")])):
                with pytest.raises(openai.AuthenticationError) as raised:
                    await call
                assert raised.value.type == "authentication_error"
                assert raised.value.code == "Unauthorized"
            answer, session = await complete(one, user("hi"))
            talk = [user("hi"), assistant(answer), user("again")]
            _, theirs = await complete(other, *talk)
            assert theirs != session
            assert (await complete(one, *talk))[1] == session
            for name in (session, "not-there"):  # a session of another user and a missing one look the same
                assert (await complete(other, user("hi"), X_Session_Id=name))[1] == name
            shown = [
                (await client.get(f"{base}/sessions/{session}/messages", cast_to=dict[str, Any]))["messages"]
                for client in (one, other)
            ]
            assert [len(messages) for messages in shown] == [4, 2]
