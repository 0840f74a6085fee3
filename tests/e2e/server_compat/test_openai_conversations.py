"""The `openai` SDK's conversations, unchanged, against a real server: a conversation is a session."""

import base64
import json
import uuid
from pathlib import Path
from typing import Any, Literal

import openai
import pytest
from openai import AsyncOpenAI
from openai.types.conversations import ConversationItem
from openai.types.responses import ResponseInputItemParam

from lango.store import Store
from tests.agents.parts import add_api_key
from tests.e2e.server_compat.test_openai_files import count
from tests.integration.runtime.test_attachments import PNG
from tests.support.servers.command_agent import file_summary
from tests.support.servers.openai_client import client_of
from tests.support.servers.server_process import Server, serving

TOOL: Any = {
    "type": "function",
    "name": "pick",
    "parameters": {"type": "object", "properties": {"text": {"type": "string"}}},
    "strict": False,
}


def says(role: Any, text: str) -> ResponseInputItemParam:
    return {"role": role, "content": text, "type": "message"}


async def items_of(
    client: AsyncOpenAI, conversation: str, order: Literal["asc", "desc"] = "asc", limit: int = 20
) -> list[ConversationItem]:
    return [item async for item in client.conversations.items.list(conversation, order=order, limit=limit)]


def shown(items: list[ConversationItem]) -> list[tuple[str, str]]:
    """Return the role or type of each item, and its text."""
    return [
        (item.role, "".join(getattr(part, "text", "") for part in item.content))
        if item.type == "message"
        else (item.type, getattr(item, "name", None) or getattr(item, "output", ""))
        for item in items
    ]


async def test_a_conversation_is_created_read_changed_and_deleted(client: AsyncOpenAI, server: Server) -> None:
    made = await client.conversations.create(metadata={"topic": "travel"})
    assert (made.object, made.metadata) == ("conversation", {"topic": "travel"})
    assert await client.conversations.retrieve(made.id) == made
    changed = await client.conversations.update(made.id, metadata={"topic": "food"})
    assert (changed.id, changed.metadata) == (made.id, {"topic": "food"})
    assert (await client.conversations.update(made.id, metadata=None)).metadata == {}
    async with server.client() as http:
        assert (await http.get(f"/v1/sessions/{made.id}")).status_code == 200, "it is a session"
    deleted = await client.conversations.delete(made.id)
    assert (deleted.id, deleted.deleted, deleted.object) == (made.id, True, "conversation.deleted")
    with pytest.raises(openai.NotFoundError) as gone:
        await client.conversations.retrieve(made.id)
    assert gone.value.code == "SessionNotFound"


async def test_responses_continue_a_conversation(client: AsyncOpenAI) -> None:
    made = await client.conversations.create(items=[says("user", "My name is Ada."), says("assistant", "Hello Ada.")])
    response = await client.responses.create(model="obedient", input="recite", conversation=made.id)
    assert response.conversation
    assert response.conversation.id == made.id
    read = [["user", ["My name is Ada."]], ["assistant", ["Hello Ada."]], ["user", ["recite"]]]
    assert json.loads(response.output_text) == read
    await client.responses.create(model="obedient", input="hello", conversation={"id": made.id})
    assert [role for role, _ in shown(await items_of(client, made.id))] == ["user", "assistant"] * 3
    assert shown(await items_of(client, made.id))[-2:] == [("user", "hello"), ("assistant", "hello")]


async def test_items_are_listed_page_by_page_and_read(client: AsyncOpenAI) -> None:
    made = await client.conversations.create()
    added = await client.conversations.items.create(made.id, items=[says("user", f"message {n}") for n in range(5)])
    assert [item.type for item in added.data] == ["message"] * 5
    assert (added.first_id, added.last_id, added.has_more) == (added.data[0].id, added.data[-1].id, False)
    assert await items_of(client, made.id, limit=2) == added.data, "the oldest first"
    assert await items_of(client, made.id, limit=2, order="desc") == added.data[::-1]
    assert await client.conversations.items.retrieve(added.data[2].id or "", conversation_id=made.id) == added.data[2]
    with pytest.raises(openai.NotFoundError):
        await client.conversations.items.retrieve("msg_in_0_0", conversation_id=made.id)
    with pytest.raises(openai.BadRequestError, match="after: the list has no item 'msg_in_0_0'"):
        await client.conversations.items.list(made.id, after="msg_in_0_0")


async def test_tools_are_items(client: AsyncOpenAI) -> None:
    made = await client.conversations.create()
    response = await client.responses.create(model="obedient", input="call pick", conversation=made.id, tools=[TOOL])
    [call] = response.output
    assert call.type == "function_call"
    with pytest.raises(openai.ConflictError):
        await client.conversations.items.create(made.id, items=[says("user", "and?")])
    output: Any = {"type": "function_call_output", "call_id": call.call_id, "output": '{"picked": "red"}'}
    await client.responses.create(model="obedient", input=[output], conversation=made.id, tools=[TOOL])
    await client.responses.create(model="obedient", input="call note", conversation=made.id)
    assert shown(await items_of(client, made.id)) == [
        ("user", "call pick"),
        ("function_call", "pick"),
        ("function_call_output", '{"picked": "red"}'),
        ("assistant", "the tool said {'picked': 'red'}"),
        ("user", "call note"),
        ("mcp_call", "note"),
        ("assistant", "the tool said {'noted': 'note'}"),
    ]


async def test_a_call_that_waits_for_approval_is_only_a_request(client: AsyncOpenAI) -> None:
    made = await client.conversations.create()
    response = await client.responses.create(model="obedient", input="call wipe", conversation=made.id)
    [asked] = [item for item in response.output if item.type == "mcp_approval_request"]
    listed = await items_of(client, made.id)
    assert [item.type for item in listed] == ["message", "mcp_approval_request"]
    assert listed[-1].id == asked.id
    answer: Any = {"type": "mcp_approval_response", "approval_request_id": asked.id, "approve": True}
    await client.responses.create(model="obedient", input=[answer], conversation=made.id)
    assert [item.type for item in await items_of(client, made.id)] == ["message", "mcp_call", "message"]


async def test_a_history_with_calls_and_a_picture_is_added_and_read_by_the_model(client: AsyncOpenAI) -> None:
    url = f"data:image/png;base64,{base64.b64encode(PNG).decode()}"
    items: list[Any] = [
        {"role": "user", "content": [{"type": "input_image", "image_url": url, "detail": "auto"}]},
        {"type": "function_call", "call_id": "c1", "name": "pick", "arguments": '{"text": "x"}'},
        {"type": "function_call_output", "call_id": "c1", "output": "red"},
        {"role": "assistant", "content": "It is red."},
    ]
    made = await client.conversations.create(items=items)
    listed = await items_of(client, made.id)
    assert [item.type for item in listed] == ["message", "function_call", "function_call_output", "message"]
    assert listed[0].type == "message"
    assert listed[0].content[0].type == "input_image"
    assert listed[0].content[0].image_url == url
    response = await client.responses.create(model="obedient", input="see", conversation=made.id)
    assert response.output_text == f"seen: {file_summary('file 1', 'image/png', PNG)}"


async def test_instructions_hold_for_the_whole_conversation_and_have_their_place(client: AsyncOpenAI) -> None:
    async def system_prompt(conversation: str) -> str:
        return (await client.responses.create(model="any", input="system", conversation=conversation)).output_text

    made = await client.conversations.create(items=[says("developer", "Be kind."), says("user", "hello")])
    assert (await system_prompt(made.id)).endswith("\n\nBe kind.")
    added = await client.conversations.items.create(
        made.id, items=[says("assistant", "one"), says("system", "Be brief."), says("user", "two")]
    )
    assert shown(added.data) == [("assistant", "one"), ("system", "Be brief."), ("user", "two")]
    kind, hello, *turn, one, brief, two = await items_of(client, made.id)
    assert shown([kind, hello, *turn]) == [
        ("developer", "Be kind."),
        ("user", "hello"),
        ("user", "system"),
        shown(turn)[-1],
    ]
    assert [one, brief, two] == added.data
    assert await client.conversations.items.retrieve(kind.id or "", conversation_id=made.id) == kind
    await client.conversations.items.delete(two.id or "", conversation_id=made.id)
    left = [kind, hello, *turn, one, brief]
    assert await items_of(client, made.id) == left, "the rewound item came with an instruction"
    assert (await system_prompt(made.id)).endswith("\n\nBe kind.\n\nBe brief.")
    await client.conversations.items.delete(kind.id or "", conversation_id=made.id)
    later = await system_prompt(made.id)
    assert (later.endswith("\n\nBe brief."), "Be kind." in later) == (True, False)


async def test_a_call_that_failed_is_a_failed_item(client: AsyncOpenAI) -> None:
    made = await client.conversations.create()
    asked = await client.responses.create(model="any", input="call wipe", conversation=made.id)
    [request] = [item for item in asked.output if item.type == "mcp_approval_request"]
    refusal: Any = {"type": "mcp_approval_response", "approval_request_id": request.id, "approve": False}
    response = await client.responses.create(model="any", input=[refusal], conversation=made.id)
    listed = await items_of(client, made.id)
    for items in (response.output, listed):
        [own] = [item for item in items if item.type == "mcp_call"]
        assert (own.status, own.output) == ("failed", None)
        error: Any = own.error
        assert error.type == "mcp_tool_execution_error"
        assert "not run" in error.content[0]["text"]


async def test_the_newest_item_is_taken_back_unless_it_is_a_part_of_a_turn(client: AsyncOpenAI) -> None:
    made = await client.conversations.create(items=[says("user", "one"), says("assistant", "two")])
    one, two = await items_of(client, made.id)
    with pytest.raises(openai.BadRequestError) as refused:
        await client.conversations.items.delete(one.id or "", conversation_id=made.id)
    assert refused.value.code == "item_not_deletable"
    assert f"1 newer items follow it; only the newest can be deleted, which is {two.id}" in str(refused.value)
    await client.conversations.update(made.id, metadata={"topic": "food"})
    left = await client.conversations.items.delete(two.id or "", conversation_id=made.id)
    assert left == await client.conversations.retrieve(made.id)
    assert left.metadata == {"topic": "food"}
    assert shown(await items_of(client, made.id)) == [("user", "one")]
    await client.responses.create(model="obedient", input="hello", conversation=made.id)
    [*_, answer] = await items_of(client, made.id)
    with pytest.raises(openai.BadRequestError, match="it belongs to a response"):
        await client.conversations.items.delete(answer.id or "", conversation_id=made.id)
    with pytest.raises(openai.NotFoundError):
        await client.conversations.items.delete("x", conversation_id=made.id)


@pytest.mark.parametrize(
    ("items", "why"),
    [
        ([{"type": "mcp_approval_response", "approval_request_id": "mcpr_1_1_c", "approve": True}], "items: answer"),
        ([says("user", "x")] * 21, "items: "),
        ([{"type": "computer_call", "id": "x"}], "input: items of type 'computer_call' are not supported"),
        (
            [{"type": "function_call", "call_id": "c", "name": "adk_request_confirmation", "arguments": "{}"}],
            "a client",
        ),
    ],
)
async def test_items_that_no_session_holds_are_refused(
    client: AsyncOpenAI, server: Server, items: list[Any], why: str
) -> None:
    made = await client.conversations.create()
    before = await count(server)
    with pytest.raises(openai.BadRequestError):
        await client.conversations.create(items=items)
    assert await count(server) == before
    with pytest.raises(openai.BadRequestError) as refused:
        await client.conversations.items.create(made.id, items=items)
    assert str(refused.value.body["message"]).startswith(why)  # pyright: ignore
    assert await items_of(client, made.id) == []


async def test_attack_a_key_has_only_its_own_conversations(tmp_path: Path, sqlite_url: str) -> None:
    async with Store(sqlite_url) as store:
        keys = [(await add_api_key(store, name))[1] for name in ("alice", "bob")]
    with serving(tmp_path, sqlite_url, server='auth = "keys"') as server:
        async with client_of(server, keys[0]) as alice, client_of(server, keys[1]) as bob:
            own = await alice.conversations.create(items=[says("user", "secret")])
            [item] = await items_of(alice, own.id)
            for id_ in (own.id, uuid.uuid4().hex):
                for attempt in (
                    bob.conversations.retrieve(id_),
                    bob.conversations.update(id_, metadata={"a": "b"}),
                    bob.conversations.delete(id_),
                    bob.conversations.items.list(id_),
                    bob.conversations.items.create(id_, items=[says("user", "x")]),
                    bob.conversations.items.retrieve(item.id or "", conversation_id=id_),
                    bob.conversations.items.delete(item.id or "", conversation_id=id_),
                    bob.responses.create(model="obedient", input="recite", conversation=id_),
                ):
                    with pytest.raises(openai.NotFoundError):
                        await attempt
            assert shown(await items_of(alice, own.id)) == [("user", "secret")]


async def test_a_page_ends_early_where_its_files_are_large(tmp_path: Path) -> None:
    limits = "limits.max_conversation_bytes = 400000\nlimits.max_body_bytes = 1000"
    with serving(tmp_path, f"sqlite:///{tmp_path}/lango.db", server=limits) as server:
        async with client_of(server) as client:
            made = await client.conversations.create()
            for byte in (b"a", b"b"):
                url = f"data:image/png;base64,{base64.b64encode(byte * 250_000).decode()}"
                part: Any = {"type": "input_image", "image_url": url, "detail": "auto"}
                await client.conversations.items.create(made.id, items=[{"role": "user", "content": [part]}])
            page = await client.conversations.items.list(made.id)
            assert (len(page.data), page.has_more) == (1, True)
            assert len(await items_of(client, made.id)) == 2
