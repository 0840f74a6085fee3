"""Files that the `openai` SDK uploads: messages refer to them by their ids, and only their user has them."""

import uuid
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
from openai import AsyncOpenAI

from lango.store import Store
from tests.agents.parts import add_api_key
from tests.e2e.server_compat.test_openai import complete, user
from tests.e2e.server_compat.test_openai_files import file, text, user_parts
from tests.integration.runtime.test_attachments import PNG
from tests.support.servers.command_agent import file_summary
from tests.support.servers.openai_client import client_of
from tests.support.servers.server_process import TIMEOUT_S, Server, serving

NOBODYS = f"file-{'0' * 32}"
NOTES = b"Buy milk."


async def upload(client: AsyncOpenAI, name: str = "notes.txt", data: bytes = NOTES) -> str:
    return (await client.files.create(file=(name, data), purpose="user_data")).id


async def test_a_file_is_uploaded_listed_read_and_deleted(client: AsyncOpenAI) -> None:
    made = await client.files.create(file=("notes.txt", NOTES), purpose="user_data")
    assert (made.object, made.filename, made.bytes, made.purpose) == ("file", "notes.txt", len(NOTES), "user_data")
    assert made.status == "processed"
    assert await client.files.retrieve(made.id) == made
    other = await upload(client, "cat.png", PNG)
    listed = [one.id async for one in client.files.list(limit=1)]
    assert {made.id, other} <= {*listed}, "page by page"
    assert listed.index(other) < listed.index(made.id), "the newest first"
    assert made.id not in [one.id async for one in client.files.list(purpose="vision")]
    content = await client.files.content(made.id)
    assert content.content == NOTES
    assert "notes.txt" in content.response.headers["content-disposition"]
    assert (await client.files.delete(made.id)).deleted
    with pytest.raises(openai.NotFoundError) as gone:
        await client.files.retrieve(made.id)
    assert gone.value.code == "file_not_found"


async def test_messages_refer_to_uploads(client: AsyncOpenAI, server: Server) -> None:
    notes, cat = await upload(client), await upload(client, "cat.png", PNG)
    seen = [file_summary("notes.txt", "text/plain", NOTES), file_summary("cat.png", "image/png", PNG)]
    answer, session = await complete(client, user_parts(text("see"), file(file_id=notes), file(file_id=cat)))
    assert answer == f"seen: {', '.join(seen)}"
    response = await client.responses.create(
        model="obedient",
        input=[
            {
                "role": "user",
                "content": [
                    {"type": "input_text", "text": "see"},
                    {"type": "input_file", "file_id": notes},
                    {"type": "input_image", "file_id": cat, "detail": "auto"},
                ],
            }
        ],
    )
    assert response.output_text == answer
    await client.files.delete(notes)
    answer, _ = await complete(client, user("see"), X_Session_Id=session)
    assert answer == f"seen: {', '.join(seen)}", "the message keeps the file"


async def test_a_resent_conversation_with_an_upload_continues_its_session(client: AsyncOpenAI) -> None:
    first = user_parts(text(f"see {uuid.uuid4().hex}"), file(file_id=await upload(client)))
    answer, session = await complete(client, first)
    again = await complete(client, first, {"role": "assistant", "content": answer}, user("and?"))
    assert again[1] == session


async def test_an_upload_that_is_gone_is_refused_in_the_last_message_and_a_note_before(client: AsyncOpenAI) -> None:
    sent = user_parts(text("see"), file(file_id=NOBODYS))
    with pytest.raises(openai.NotFoundError) as refused:
        await complete(client, sent)
    assert refused.value.code == "file_not_found"
    response = {"role": "user", "content": [{"type": "input_file", "file_id": "../../etc/passwd"}]}
    with pytest.raises(openai.NotFoundError) as refused:
        await client.responses.create(model="obedient", input=[response])  # pyright: ignore[reportArgumentType]
    assert refused.value.code == "file_not_found"
    answer, _ = await complete(client, sent, {"role": "assistant", "content": "I do"}, user("echo on"))
    assert answer


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"file": ("empty.txt", b""), "purpose": "user_data"}, "file: it is empty"),
        ({"file": ("a.txt", NOTES), "purpose": "fine-tune"}, "purpose: 'fine-tune' is not supported"),
        ({"file": ("x" * 300, NOTES), "purpose": "user_data"}, "file: its name"),
        (
            {"file": ("a.txt", NOTES), "purpose": "user_data", "expires_after": {"anchor": "created_at", "seconds": 9}},
            "expires_after: not supported",
        ),
    ],
)
async def test_uploads_that_cannot_be_kept_are_refused(client: AsyncOpenAI, given: dict[str, Any], why: str) -> None:
    with pytest.raises(openai.BadRequestError) as refused:
        await client.files.create(**given)
    assert why in refused.value.message
    assert refused.value.type == "invalid_request_error"
    assert refused.value.param == why.partition(":")[0]


async def test_a_form_without_a_file_is_refused(server: Server) -> None:
    async with server.client() as http:
        for form in ({"data": {"purpose": "user_data"}}, {"files": {"purpose": ("a", b"x")}}):
            refused = await http.post("/v1/files", **({"files": {"other": ("a", b"x")}} | form))  # pyright: ignore
            assert refused.status_code == 400, refused.text
            assert refused.json()["error"]["type"] == "invalid_request_error"
        two = [("file", ("a", b"x")), ("file", ("b", b"y"))]
        refused = await http.post("/v1/files", data={"purpose": "user_data"}, files=two)
        assert refused.status_code == 400, refused.text
        broken = await http.post("/v1/files", content=b"x", headers={"Content-Type": "multipart/form-data"})
        assert broken.status_code == 400
        assert (await http.post("/v1/files", json={})).status_code == 415


async def test_attack_uploads_have_limits(tmp_path: Path) -> None:
    limits, env = "limits.max_uploaded_bytes = 300000", {"LANGO_STORE__MAX_ARTIFACT_BYTES": "150000"}
    with serving(tmp_path, f"sqlite:///{tmp_path}/lango.db", server=limits, env=env) as server:
        async with client_of(server) as client:
            with pytest.raises(openai.APIStatusError) as refused:
                await upload(client, data=bytes(150_001))
            assert refused.value.status_code == 413
            first = await upload(client, data=bytes(150_000))
            await upload(client, data=b"small, and counts for 100,000 bytes")
            with pytest.raises(openai.APIStatusError) as refused:
                await upload(client)
            assert (refused.value.status_code, refused.value.code) == (413, "storage_limit_exceeded")
            await client.files.delete(first)
            await upload(client)


async def test_attack_a_key_has_only_its_own_files(tmp_path: Path, sqlite_url: str) -> None:
    async with Store(sqlite_url) as store:
        keys = [(await add_api_key(store, name))[1] for name in ("alice", "bob")]
    with serving(tmp_path, sqlite_url, server='auth = "keys"') as server:
        async with client_of(server, keys[0]) as alice, client_of(server, keys[1]) as bob:
            own = await upload(alice)
            assert [one.id async for one in bob.files.list()] == []
            for id_ in (own, NOBODYS, "x"):
                for attempt in (bob.files.retrieve, bob.files.content, bob.files.delete):
                    with pytest.raises(openai.NotFoundError):
                        await attempt(id_)
                with pytest.raises(openai.NotFoundError):
                    await complete(bob, user_parts(text("see"), file(file_id=id_)))
            assert (await alice.files.content(own)).content == NOTES
        async with httpx.AsyncClient(base_url=server.url, timeout=TIMEOUT_S) as nobody:
            assert (await nobody.get(f"/v1/files/{own}/content")).status_code == 401
            assert (await nobody.post("/v1/files", files={"file": ("a", NOTES)})).status_code == 401
