"""OpenAI's responses, by its own SDK, unchanged: create, stream, continue, background, read, cancel, delete."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import openai
import pytest
from openai import AsyncOpenAI
from openai.types.responses import Response, ResponseStreamEvent
from pydantic import BaseModel

from lango.store import Store
from lango.store.turns.event_log import KEPT_TURNS
from tests.agents.parts import add_api_key
from tests.support.servers.server_process import TIMEOUT_S, Server, serving


class City(BaseModel):
    name: str
    inhabitants: int


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("responses")


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[Server]:
    with serving(folder, f"sqlite:///{folder}/lango.db") as running:
        yield running


def sdk(server: Server, key: str = "none", **more: Any) -> AsyncOpenAI:
    return AsyncOpenAI(base_url=f"{server.url}/v1", api_key=key, timeout=TIMEOUT_S, max_retries=0, **more)


@pytest.fixture
async def client(server: Server) -> AsyncIterator[AsyncOpenAI]:
    async with sdk(server) as made:
        yield made


async def create(client: AsyncOpenAI, given: Any, **more: Any) -> Response:
    untyped: Any = client.responses
    return await untyped.create(model="obedient", input=given, **more)


async def stream(client: AsyncOpenAI, given: Any, **more: Any) -> list[ResponseStreamEvent]:
    return [event async for event in await create(client, given, stream=True, **more)]  # pyright: ignore


async def ended(client: AsyncOpenAI, response_id: str) -> Response:
    """Poll a background response to its end."""
    async with asyncio.timeout(TIMEOUT_S):
        while (found := await client.responses.retrieve(response_id)).status in ("queued", "in_progress"):
            await asyncio.sleep(0.05)
    return found


def text_of(response: Response) -> Any:
    return json.loads(response.output_text)


async def test_a_response_shows_its_request_its_output_and_its_usage(client: AsyncOpenAI) -> None:
    made = await create(client, "hello", metadata={"a": "b"}, temperature=0.5, max_output_tokens=99, user="alice")
    assert (made.output_text, made.status, made.model, made.error) == ("hello", "completed", "obedient", None)
    assert (made.metadata, made.temperature, made.max_output_tokens, made.user) == ({"a": "b"}, 0.5, 99, "alice")
    assert (made.background, made.previous_response_id, made.tools) == (False, None, [])
    assert made.usage
    assert (made.usage.input_tokens, made.usage.output_tokens, made.usage.total_tokens) == (10, 5, 15)
    assert (made.usage.input_tokens_details.cached_tokens, made.usage.output_tokens_details.reasoning_tokens) == (0, 0)
    assert made.created_at
    assert made.completed_at
    assert made.created_at <= made.completed_at
    assert (await client.responses.retrieve(made.id)).to_dict() == made.to_dict()


async def test_a_stream_has_every_event_in_order_and_can_be_read_again_from_any_event(client: AsyncOpenAI) -> None:
    events = await stream(client, "think")
    assert [event.type.removeprefix("response.") for event in events] == [
        *("created", "in_progress"),
        *("output_item.added", "reasoning_summary_part.added", "reasoning_summary_text.delta"),
        *("reasoning_summary_text.done", "reasoning_summary_part.done", "output_item.done"),
        *("output_item.added", "content_part.added", "output_text.delta"),
        *("output_text.done", "content_part.done", "output_item.done"),
        "completed",
    ]
    assert [event.sequence_number for event in events] == list(range(len(events)))
    assert events[-1].type == "response.completed"
    whole = events[-1].response
    assert [item.type for item in whole.output] == ["reasoning", "message"]
    assert whole.output[0].to_dict()["summary"] == [{"type": "summary_text", "text": "hm, well"}]
    assert whole.output_text == "thought"
    assert whole.to_dict() == (await client.responses.retrieve(whole.id)).to_dict()
    for after in (0, 7, len(events) - 1):
        again = [event async for event in await client.responses.retrieve(whole.id, stream=True, starting_after=after)]
        assert [event.to_dict() for event in again] == [event.to_dict() for event in events[after + 1 :]]


async def test_the_sdks_stream_helper_and_parser_work(client: AsyncOpenAI) -> None:
    async with client.responses.stream(model="obedient", input="words 3 0.01") as streamed:
        text = "".join([event.delta async for event in streamed if event.type == "response.output_text.delta"])
        final = await streamed.get_final_response()
    assert text == final.output_text == "w0 w1 w2 "
    parsed = await client.responses.parse(model="obedient", input="Rome", text_format=City)
    assert parsed.output_parsed == City(name="Rome", inhabitants=7)
    assert parsed.text
    assert parsed.text.format
    assert parsed.text.format.type == "json_schema"
    async with client.responses.stream(model="obedient", input="Rome", text_format=City) as streamed:
        assert (await streamed.get_final_response()).output_parsed == City(name="Rome", inhabitants=7)


async def test_options_of_the_request_hold_for_the_model(client: AsyncOpenAI) -> None:
    held = text_of(await create(client, "options", temperature=0.5, top_p=0.25, max_output_tokens=77))
    assert (held["temperature"], held["top_p"], held["max_tokens"]) == (0.5, 0.25, 77)
    as_json = await create(client, "Rome", text={"format": {"type": "json_object"}})
    assert text_of(as_json) == {"text": "Rome"}


async def test_instructions_hold_for_one_response_and_developer_messages_for_all_that_follow(
    client: AsyncOpenAI,
) -> None:
    given = [{"role": "developer", "content": "Be kind."}, {"role": "user", "content": "system"}]
    first = await create(client, given, instructions="Be brief.")
    assert first.output_text.endswith("Be brief.\n\nBe kind.")
    assert first.instructions == "Be brief."
    second = await create(client, "system", previous_response_id=first.id)
    assert second.output_text.endswith("Be kind.")
    assert "Be brief." not in second.output_text
    assert "Be kind." not in (await create(client, "system")).output_text


async def test_a_response_is_continued_and_an_older_one_in_a_fork(client: AsyncOpenAI, server: Server) -> None:
    first = await create(client, "one")
    second = await create(client, "two", previous_response_id=first.id)
    assert second.previous_response_id == first.id
    third = await create(client, "recite", previous_response_id=second.id)
    said = [["user", ["one"]], ["assistant", ["one"]], ["user", ["two"]], ["assistant", ["two"]]]
    assert text_of(third) == [*said, ["user", ["recite"]]]
    fork = await create(client, "recite", previous_response_id=first.id)
    assert text_of(fork) == [*said[:2], ["user", ["recite"]]]
    both = await asyncio.gather(*(create(client, f"recite {at}", previous_response_id=fork.id) for at in range(3)))
    assert [len(text_of(one)) for one in both] == [5, 5, 5], "none reads what another one said"
    assert len({one.id.rpartition("_")[0] for one in (third, fork)}) == 2


async def test_input_may_hold_a_whole_history_with_files(client: AsyncOpenAI) -> None:
    picture = {"type": "input_image", "image_url": "data:image/png;base64,iVBORw0KGgo=", "detail": "auto"}
    file = {"type": "input_file", "filename": "a.txt", "file_data": "data:text/plain;base64,aGVsbG8="}
    given: list[Any] = [
        {"role": "assistant", "content": "I am here.", "type": "message", "phase": "commentary"},
        {"role": "user", "content": [{"type": "input_text", "text": "Who?"}]},
        {"role": "assistant", "content": [{"type": "output_text", "text": "Me.", "annotations": []}]},
        {"role": "user", "content": [{"type": "input_text", "text": "see"}, picture, file]},
    ]
    seen = await create(client, given)
    assert seen.output_text.startswith("seen: file 1 image/png")
    assert "a.txt text/plain" in seen.output_text
    items: list[Any] = [item.to_dict() async for item in client.responses.input_items.list(seen.id, order="asc")]
    assert [(item["role"], item["content"][0]["text"]) for item in items] == [
        ("assistant", "I am here."),
        ("user", "Who?"),
        ("assistant", "Me."),
        ("user", "see"),
    ]
    assert items[-1]["content"][1]["image_url"] == picture["image_url"]
    assert items[-1]["content"][2] == file
    page = await client.responses.input_items.list(seen.id, limit=3)
    assert (page.has_more, len(page.data)) == (True, 3)
    assert [item.id async for item in page] == [item["id"] for item in reversed(items)]
    again = [*given, *(item.to_dict() for item in seen.output), {"role": "user", "content": "recite"}]
    resent = await create(client, again)
    assert [role for role, _ in text_of(resent)] == ["assistant", "user", "assistant", "user", "assistant", "user"]
    assert resent.id.split("_")[1] == seen.id.split("_")[1], "the session is found by its history"


async def test_a_resent_item_leads_to_its_session_with_what_only_the_agent_knows(client: AsyncOpenAI) -> None:
    answers = [await create(client, "note") for _ in range(2)]
    for answer in answers:
        references = [{"type": "item_reference", "id": item.id} for item in answer.output]
        given = [{"role": "user", "content": "note"}, *references, {"role": "user", "content": "recite"}]
        said = text_of(await create(client, given))
        assert [role for role, _ in said] == ["user", "assistant", "tool", "assistant", "user"]
    with pytest.raises(openai.NotFoundError, match="there is no item 'msg_1_1_1'"):
        await create(client, [{"type": "item_reference", "id": "msg_1_1_1"}])


async def test_a_named_session_is_continued_as_a_conversation(client: AsyncOpenAI, server: Server) -> None:
    raw = await client.responses.with_raw_response.create(
        model="obedient", input="one", extra_headers={"X-Session-Id": "named"}
    )
    assert raw.headers["x-session-id"] == "named"
    then = await create(client, "recite", conversation="named")
    assert [role for role, _ in text_of(then)] == ["user", "assistant", "user"]
    assert then.conversation
    assert then.conversation.id == "named"
    with pytest.raises(openai.NotFoundError, match="there is no session 'other'"):
        await create(client, "recite", conversation={"id": "other"})


async def test_a_background_response_returns_at_once_and_is_read_later(client: AsyncOpenAI, tmp_path: Path) -> None:
    made = await create(client, f"hold {tmp_path}/go", background=True)
    assert made.status in ("queued", "in_progress")
    assert (made.background, made.usage) == (True, None)
    events: list[Any] = []
    async for event in await client.responses.retrieve(made.id, stream=True):
        events.append(event)
        if event.type == "response.output_text.delta":
            break  # the client leaves, and the turn goes on
    halfway = await client.responses.retrieve(made.id)
    assert (halfway.status, halfway.output_text, halfway.usage) == ("in_progress", "begun ", None)
    with pytest.raises(openai.BadRequestError, match="still in progress"):
        await create(client, "and then?", previous_response_id=made.id)
    with pytest.raises(openai.BadRequestError, match="still in progress"):
        await client.responses.delete(made.id)
    (tmp_path / "go").touch()
    last = events[-1].sequence_number
    rest = [event async for event in await client.responses.retrieve(made.id, stream=True, starting_after=last)]
    assert [event.sequence_number for event in rest] == list(range(last + 1, last + 1 + len(rest)))
    assert (await ended(client, made.id)).output_text == "begun ended"


async def test_a_background_response_is_cancelled(client: AsyncOpenAI, tmp_path: Path) -> None:
    made = await create(client, f"hold {tmp_path}/never", background=True)
    cancelled = await client.responses.cancel(made.id)
    assert cancelled.status == "cancelled"
    assert (await client.responses.cancel(made.id)).status == "cancelled", "a second time changes nothing"
    assert (await client.responses.retrieve(made.id)).status == "cancelled"
    done = await create(client, "done")
    with pytest.raises(openai.BadRequestError, match="only a response with background"):
        await client.responses.cancel(done.id)


async def test_what_waits_for_another_turn_is_queued_and_can_be_cancelled(client: AsyncOpenAI, tmp_path: Path) -> None:
    session = {"X-Session-Id": "queue"}
    running = await create(client, f"hold {tmp_path}/go", background=True, extra_headers=session)
    waiting = await create(client, "two", background=True, extra_headers=session)
    other = await create(client, "three", background=True, extra_headers=session)
    assert (await client.responses.retrieve(waiting.id)).status == "queued"
    assert [item.to_dict()["content"] async for item in client.responses.input_items.list(waiting.id)] == [
        [{"type": "input_text", "text": "two"}]
    ]
    assert (await client.responses.cancel(waiting.id)).status == "cancelled"
    (tmp_path / "go").touch()
    assert (await ended(client, running.id)).output_text == "begun ended"
    assert (await ended(client, other.id)).output_text == "three"
    types = [event.type async for event in await client.responses.retrieve(other.id, stream=True)]
    assert types[:3] == ["response.created", "response.queued", "response.in_progress"]


async def test_a_deleted_response_is_gone_and_with_the_last_one_its_session(
    client: AsyncOpenAI, server: Server
) -> None:
    raw = await client.responses.with_raw_response.create(model="obedient", input="one")
    session, first = raw.headers["x-session-id"], raw.parse()
    second = await create(client, "two", previous_response_id=first.id)
    await client.responses.delete(first.id)
    with pytest.raises(openai.NotFoundError, match="there is no response"):
        await client.responses.retrieve(first.id)
    with pytest.raises(openai.BadRequestError, match="there is no response") as refused:
        await create(client, "on", previous_response_id=first.id)
    assert (refused.value.code, refused.value.param) == ("previous_response_not_found", "previous_response_id")
    third = await create(client, "recite", previous_response_id=second.id)
    assert len(text_of(third)) == 5, "what follows still has its history"
    await client.responses.delete(third.id)
    await client.responses.delete(second.id)
    async with server.client() as http:
        assert (await http.get(f"/v1/sessions/{session}")).status_code == 404


async def test_a_response_that_is_not_stored_cannot_be_read_by_its_id(client: AsyncOpenAI) -> None:
    made = await create(client, "one", store=False)
    assert (made.to_dict()["store"], made.output_text) == (False, "one")
    with pytest.raises(openai.NotFoundError):
        await client.responses.retrieve(made.id)
    with pytest.raises(openai.BadRequestError, match="there is no response"):
        await create(client, "two", previous_response_id=made.id)


async def test_a_repeated_request_gets_the_same_response(client: AsyncOpenAI) -> None:
    first = await create(client, "one", extra_headers={"Idempotency-Key": "k1"})
    again = await create(client, "one", extra_headers={"Idempotency-Key": "k1"})
    assert again.to_dict() == first.to_dict()
    with pytest.raises(openai.UnprocessableEntityError, match="use another key"):
        await create(client, "other", extra_headers={"Idempotency-Key": "k1"})
    for previous, key in ((first, "k2"), (first, "k3")):  # the second in a fork
        more = {"previous_response_id": previous.id, "extra_headers": {"Idempotency-Key": key}}
        second = await create(client, "two", **more)
        assert (await create(client, "two", **more)).id == second.id


async def test_a_compacted_conversation_goes_on_from_notes_and_the_users_messages(client: AsyncOpenAI) -> None:
    picture = {"type": "input_image", "image_url": "data:image/png;base64,iVBORw0KGgo=", "detail": "auto"}
    first = await create(client, [{"role": "developer", "content": "Be kind."}, {"role": "user", "content": "one"}])
    more: list[Any] = [{"role": "user", "content": [{"type": "input_text", "text": "two"}, picture]}]
    made = await client.responses.compact(model="obedient", input=more, previous_response_id=first.id)
    assert (made.object, made.usage.input_tokens, made.usage.output_tokens) == ("response.compaction", 10, 5)
    kept: list[Any] = [item.to_dict(warnings=False) for item in made.output]  # the SDK has types for answers alone
    assert [item["type"] for item in kept] == ["message", "message", "compaction"]
    assert [item["content"][0]["text"] for item in kept[:-1]] == ["one", "two"]
    assert kept[1]["content"][1] == picture
    said = text_of(await create(client, [*kept, {"role": "user", "content": "recite"}]))
    assert [role for role, _ in said] == ["user"] * 4
    assert said[2][1][0].endswith("Write the notes on the conversation up to here now."), "what the model wrote"
    again = await client.responses.compact(model="obedient", input=[*kept, {"role": "user", "content": "three"}])
    assert [item.type for item in again.output] == ["message"] * 3 + ["compaction"], "one compaction at a time"
    bad: list[tuple[dict[str, Any], str]] = [
        ({"input": []}, "input: there is nothing to compact"),
        ({"input": [{"type": "compaction", "encrypted_content": "gAAA"}]}, "input: the compaction item was not made"),
        ({"input": "x", "previous_response_id": "resp_1_99"}, "previous_response_id: there is no response"),
        ({"input": "fail", "extra_body": {"nonsense": 1}}, "nonsense: is not allowed here"),
    ]
    for wrong, message in bad:
        untyped: Any = client.responses
        with pytest.raises(openai.BadRequestError) as refused:
            await untyped.compact(model="obedient", **wrong)
        assert str(refused.value.message).partition(" - ")[2].startswith(message)


async def test_a_failure_is_the_sdks_own_error_and_the_response_says_why(client: AsyncOpenAI) -> None:
    with pytest.raises(openai.BadRequestError, match="the provider does not want to"):
        await create(client, "fail")
    with pytest.raises(openai.APIError, match="the provider does not want to"):
        await stream(client, "fail")
    made = await create(client, "fail", background=True)
    failed = await ended(client, made.id)
    assert (failed.status, failed.error and failed.error.code) == ("failed", "invalid_prompt")
    assert failed.error
    assert "the provider does not want to" in failed.error.message


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"tools": [{"type": "web_search"}]}, "tools: 'web_search' is not supported"),
        ({"tools": [{"type": "mcp", "server_label": "x", "server_url": "http://x"}]}, "tools: 'mcp' is not supported"),
        ({"prompt": {"id": "p"}}, "prompt: not supported"),
        ({"max_tool_calls": 3}, "max_tool_calls: not supported"),
        ({"include": ["message.output_text.logprobs"]}, "include: 'message.output_text.logprobs'"),
        ({"background": True, "store": False}, "background: a background response must be stored"),
        ({"conversation": "a", "previous_response_id": "resp_1_1"}, "conversation: cannot be combined with"),
        ({"tool_choice": "required"}, "tool_choice: only a function in tools can be forced"),
        ({"text": {"format": {"type": "json_schema", "name": "x", "schema": {"type": "array"}}}}, "text.format: the"),
        ({"metadata": {"a": 1}}, "metadata.a: "),
        ({"extra_body": {"nonsense": 1}}, "nonsense: is not allowed here"),
        ({"input": []}, "input: there is nothing to answer"),
        ({"input": [{"role": "assistant", "content": "I"}]}, "input: the last message must be the user's"),
        ({"input": [{"type": "computer_call", "id": "x"}]}, "input: items of type 'computer_call' are not"),
        ({"input": [{"type": "function_call_output", "call_id": "c", "output": "x"}]}, "input: the tool messages"),
        (
            {"input": [{"role": "user", "content": [{"type": "input_file", "filename": "f"}]}]},
            "input: an input_file needs file_data",
        ),
        (
            {"input": [{"role": "user", "content": [{"type": "input_image", "image_url": "http://10.0.0.1/y"}]}]},
            "input: could not fetch http://10.0.0.1/y: its address is not public",
        ),
        ({"input": [{"type": "mcp_approval_response", "approval_request_id": "x", "approve": True}]}, "input: an mcp"),
    ],
)
async def test_what_is_not_supported_is_refused(client: AsyncOpenAI, wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(openai.BadRequestError) as refused:
        await create(client, **({"given": "hello"} | {("given" if k == "input" else k): v for k, v in wrong.items()}))
    assert str(refused.value.message).partition(" - ")[2].startswith(message)
    assert refused.value.type == "invalid_request_error"


async def test_a_key_is_a_user_and_finds_only_its_own_responses(tmp_path: Path, sqlite_url: str) -> None:
    async with Store(sqlite_url) as store:
        keys = [(await add_api_key(store, name))[1] for name in ("alice", "bob")]
    with serving(tmp_path, sqlite_url, server='auth = "keys"') as server:
        async with sdk(server, keys[0]) as alice, sdk(server, keys[1]) as bob:
            made = await create(alice, "secret")
            assert (await alice.responses.retrieve(made.id)).output_text == "secret"
            for call in (bob.responses.retrieve, bob.responses.cancel, bob.responses.delete):
                with pytest.raises(openai.NotFoundError):
                    await call(made.id)
            with pytest.raises(openai.BadRequestError, match="there is no response"):
                await create(bob, "recite", previous_response_id=made.id)
        async with sdk(server, "another") as stranger:
            with pytest.raises(openai.AuthenticationError):
                await create(stranger, "hello")


async def test_a_killed_background_response_is_completed_by_the_next_process(tmp_path: Path, store_url: str) -> None:
    with serving(tmp_path / "one", store_url) as first:
        async with sdk(first) as client:
            before = await create(client, "one", metadata={"kept": "yes"})
            made = await create(
                client, f"hold {tmp_path}/go", background=True, previous_response_id=before.id, instructions="Be brief."
            )
            async for event in await client.responses.retrieve(made.id, stream=True):
                if event.type == "response.output_text.delta":
                    break
            first.kill()
    (tmp_path / "go").touch()
    with serving(tmp_path / "two", store_url) as second:
        async with sdk(second) as client:
            found = await ended(client, made.id)
            assert (found.status, found.output_text, found.instructions) == ("completed", "begun ended", "Be brief.")
            assert (await client.responses.retrieve(before.id)).to_dict() == before.to_dict()
            then = await create(client, "recite", previous_response_id=made.id)
            assert [role for role, _ in text_of(then)] == ["user", "assistant"] * 2 + ["user"]
            fork = await create(client, "recite", previous_response_id=before.id)
            assert len(text_of(fork)) == 3
            await client.responses.delete(fork.id)
            with pytest.raises(openai.NotFoundError):
                await client.responses.retrieve(fork.id)


async def test_a_response_without_its_events_is_read_as_its_text(client: AsyncOpenAI, folder: Path) -> None:
    raw = await client.responses.with_raw_response.create(model="obedient", input="note", store=True)
    made, session = raw.parse(), raw.headers["x-session-id"]
    async with Store(f"sqlite:///{folder}/lango.db") as store:
        await store.write(_drop_events, int(made.id.split("_")[1]))
    old = await client.responses.retrieve(made.id)
    assert (old.output_text, [item.id for item in old.output]) == (made.output_text, [made.output[-1].id])
    assert session
    streamed = [event.type async for event in await client.responses.retrieve(made.id, stream=True)]
    assert (streamed[0], streamed[-1]) == ("response.created", "response.completed")


def _drop_events(key: int) -> Any:
    """Drop the events of a session, as happens `KEPT_TURNS` turns later."""
    assert KEPT_TURNS
    yield "DELETE FROM event_log WHERE session_key = $1", (key,)
