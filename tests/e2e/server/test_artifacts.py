"""Artifacts over HTTP: listed, downloaded, uploaded and deleted, safely for browsers, by their own user alone."""

import base64
import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
from google.genai import types

from lango.adk import SqlArtifactService
from lango.store import Store
from tests.agents.parts import add_api_key
from tests.integration.runtime.test_attachments import PNG
from tests.support.servers.server_process import serving

PAGE = b"<script>alert(1)</script>"
LARGE = bytes(range(256)) * 3_000


async def save(client: httpx.AsyncClient, user: str, session: str, name: str, part: dict[str, Any]) -> None:
    body = {"filename": name, "artifact": part, "custom_metadata": {"by": user}}
    saved = await client.post(f"/apps/obedient/users/{user}/sessions/{session}/artifacts", json=body)
    assert saved.status_code == 200, saved.text


def data(mime_type: str, content: bytes) -> dict[str, Any]:
    return {"inlineData": {"mimeType": mime_type, "data": base64.b64encode(content).decode()}}


async def test_artifacts_are_listed_and_downloaded(tmp_path: Path) -> None:
    with serving(tmp_path, f"sqlite:///{tmp_path}/lango.db") as server:
        async with server.client() as client:
            await client.post("/v1/sessions", json={"id": "s"})
            await save(client, "user", "s", "a \u2603.png", data("image/png", PNG))
            await save(client, "user", "s", "pages/0", data("text/html", PAGE))
            await save(client, "user", "s", "pages", {"text": "first"})
            await save(client, "user", "s", "pages", data("application/pdf", LARGE))
            async with SqlArtifactService(f"sqlite:///{tmp_path}/lango.db") as agent:  # no client may save an address
                part = types.Part(file_data=types.FileData(file_uri="gs://bucket/x"))
                scope: Any = {
                    "app_name": "obedient",
                    "user_id": "user",
                    "session_id": "s",
                    "filename": "user:elsewhere",
                }
                await agent.save_artifact(**scope, artifact=part, custom_metadata={"by": "user"})
            place = "/v1/sessions/s/artifacts"
            listed = (await client.get(place)).json()["artifacts"]
            shown = [(one["name"], one["version"], one["belongs_to"], one["mime_type"], one["bytes"]) for one in listed]
            assert shown == [
                ("a \u2603.png", 0, "session", "image/png", len(PNG)),
                ("pages", 1, "session", "application/pdf", len(LARGE)),
                ("pages/0", 0, "session", "text/html", len(PAGE)),
                ("user:elsewhere", 0, "user", None, 0),
            ]
            assert [one["uri"] for one in listed] == [None, None, None, "gs://bucket/x"]
            assert {one["metadata"]["by"] for one in listed} == {"user"}
            versions = (await client.get(place, params={"name": "pages"})).json()["artifacts"]
            assert [(one["version"], one["bytes"]) for one in versions] == [(0, 5), (1, len(LARGE))]
            for path, content, kind, disposition in (
                ("a%20%E2%98%83.png", PNG, "image/png", "inline; filename*=UTF-8''a%20%E2%98%83.png"),
                ("a%20%E2%98%83.png/0", PNG, "image/png", "inline; filename*=UTF-8''a%20%E2%98%83.png"),
                ("pages", LARGE, "application/octet-stream", "attachment; filename*=UTF-8''pages"),
                ("pages/0", b"first", "application/octet-stream", "attachment; filename*=UTF-8''pages"),
                ("pages/1", LARGE, "application/octet-stream", "attachment; filename*=UTF-8''pages"),
                ("pages%2F0", PAGE, "application/octet-stream", "attachment; filename*=UTF-8''0"),
                ("pages%2F0/0", PAGE, "application/octet-stream", "attachment; filename*=UTF-8''0"),
            ):
                file = await client.get(f"{place}/{path}")
                assert (file.status_code, file.content) == (200, content), path
                assert file.headers["content-type"] == kind
                assert file.headers["content-length"] == str(len(content))
                assert file.headers["content-disposition"] == disposition
                assert file.headers["x-content-type-options"] == "nosniff"
                assert file.headers["content-security-policy"] == "default-src 'none'; sandbox"
            for path, status, error in (
                ("none", 404, "ArtifactNotFound"),
                ("pages/7", 404, "ArtifactNotFound"),
                ("..%2F..%2Flango.toml", 404, "ArtifactNotFound"),
                ("%00", 404, "ArtifactNotFound"),
                ("user:elsewhere", 409, "ArtifactElsewhere"),
            ):
                gone = await client.get(f"{place}/{path}")
                assert (gone.status_code, gone.json()["error"]["type"]) == (status, error), path
            for path in (place.replace("/s/", "/other/"), f"{place.replace('/s/', '/other/')}/pages"):
                assert (await client.get(path)).json()["error"]["type"] == "SessionNotFound"
            assert (await client.get(place, params={"name": "none"})).status_code == 404


async def test_only_their_own_user_reaches_artifacts(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/lango.db"
    async with Store(url) as store:
        alice, bob = [(await add_api_key(store, user))[1] for user in ("alice", "bob")]
    with serving(tmp_path, url, server='auth = "keys"') as server:
        async with (
            server.client(Authorization=f"Bearer {alice}") as hers,
            server.client(Authorization=f"Bearer {bob}") as his,
            server.client() as anybody,
        ):
            for client in (hers, his):
                await client.post("/v1/sessions", json={"id": "s" if client is hers else "other"})
            for name in ("f", "user:f"):
                await save(hers, "alice", "s", name, {"text": "the canary"})
                assert (await hers.get(f"/v1/sessions/s/artifacts/{name}")).text == "the canary"
                for session in ("s", "other"):
                    assert (await his.get(f"/v1/sessions/{session}/artifacts/{name}")).status_code == 404
                    theirs = f"/apps/obedient/users/alice/sessions/{session}/artifacts/{name}"
                    assert (await his.get(theirs)).status_code == 404
                assert (await anybody.get(f"/v1/sessions/s/artifacts/{name}")).status_code == 401


async def test_an_artifact_above_the_limits_is_refused(tmp_path: Path) -> None:
    limits = {"LANGO_STORE__MAX_ARTIFACT_BYTES": "1000", "LANGO_SERVER__LIMITS__MAX_ATTACHMENT_BYTES": "3000"}
    env = limits | {"LANGO_SERVER__LIMITS__MAX_BODY_BYTES": "1000"}
    with serving(tmp_path, f"sqlite:///{tmp_path}/lango.db", env=env) as server:
        async with server.client() as client:
            await client.post("/v1/sessions", json={"id": "s"})
            place = "/apps/obedient/users/user/sessions/s/artifacts"
            body = {"filename": "f", "artifact": data("image/png", bytes(1_001))}
            refused = await client.post(place, json=body)
            assert refused.status_code == 400
            assert "has 1001 bytes; the limit is 1000" in refused.json()["detail"]
            too_large = await client.post(place, json={"filename": "f", "artifact": data("image/png", bytes(9_000))})
            assert too_large.status_code == 413
            assert (await client.get(place)).json() == []


async def test_the_routes_are_documented(tmp_path: Path) -> None:
    with serving(tmp_path, f"sqlite:///{tmp_path}/lango.db") as server:
        async with server.client() as client:
            paths = (await client.get("/openapi.json")).json()["paths"]
    for place in ("/v1/sessions/{session_id}/artifacts", "/v1/artifacts"):
        assert paths[place].keys() == {"get"}
        assert paths[f"{place}/{{name}}"].keys() == {"get", "put", "delete"}


NAMES = [
    "report.pdf",
    "reports/2026/sales \u2603.pdf",
    "2026/1",
    'quo"te;\r\nX-Evil: 1',
    "user:mine",
    "a%2Fb",
    "artifacts/x",
    "?a=b#c",
    "back\\slash",
]


async def test_files_are_uploaded_and_deleted_whatever_their_names_are(tmp_path: Path) -> None:
    with serving(tmp_path, f"sqlite:///{tmp_path}/lango.db") as server:
        async with server.client() as client:
            await client.post("/v1/sessions", json={"id": "artifacts"})
            place = "/v1/sessions/artifacts/artifacts"
            for name in NAMES:
                path = f"{place}/{quote(name, safe='')}"
                for version, content in enumerate((b"first " + name.encode(), LARGE)):
                    saved = await client.put(path, content=content, headers={"Content-Type": "image/png; x=y"})
                    assert saved.status_code == 201, saved.text
                    shown = saved.json()
                    assert (shown["name"], shown["version"], shown["bytes"]) == (name, version, len(content))
                    assert shown["mime_type"] == "image/png"
                newest, first = await client.get(path), await client.get(f"{path}/0")
                assert (newest.content, first.content) == (LARGE, b"first " + name.encode())
                assert "x-evil" not in newest.headers
                last = name.removeprefix("user:").replace("\\", "/").rpartition("/")[2]
                assert newest.headers["content-disposition"] == f"inline; filename*=UTF-8''{quote(last, safe='')}"
                for wrong in (client.put(f"{path}/1", content=b"x"), client.delete(f"{path}/1")):
                    assert (await wrong).status_code == 400
            listed = (await client.get(place)).json()["artifacts"]
            assert [one["name"] for one in listed] == sorted(NAMES)
            mine = (await client.get("/v1/artifacts")).json()["artifacts"]
            assert [one["name"] for one in mine] == ["user:mine"]
            for name in NAMES:
                path = f"{place}/{quote(name, safe='')}"
                assert (await client.delete(path)).status_code == 204
                gone = await client.delete(path)
                assert (gone.status_code, gone.json()["error"]["type"]) == (404, "ArtifactNotFound")
                assert (await client.get(path)).status_code == 404
            assert (await client.get(place)).json() == {"artifacts": []}
    assert no_bytes_are_left(tmp_path)


def no_bytes_are_left(folder: Path) -> bool:
    with closing(sqlite3.connect(folder / "lango.db")) as connection:
        return connection.execute("SELECT COUNT(*) FROM content_chunks").fetchone() == (0,)


async def test_a_users_artifacts_need_no_session(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/lango.db"
    async with Store(url) as store:
        alice, bob = [(await add_api_key(store, user))[1] for user in ("alice", "bob")]
    with serving(tmp_path, url, server='auth = "keys"') as server:
        async with (
            server.client(Authorization=f"Bearer {alice}") as hers,
            server.client(Authorization=f"Bearer {bob}") as his,
            server.client() as anybody,
        ):
            for version in range(2):
                saved = await hers.put("/v1/artifacts/a%2Fb.txt", content=b"the canary")
                assert saved.json() | {"created_at": ""} == {
                    "name": "user:a/b.txt",
                    "version": version,
                    "belongs_to": "user",
                    "mime_type": "application/octet-stream",
                    "bytes": 10,
                    "uri": None,
                    "metadata": {},
                    "created_at": "",
                }
            versions = (await hers.get("/v1/artifacts", params={"name": "a/b.txt"})).json()["artifacts"]
            assert [one["version"] for one in versions] == [0, 1]
            for path in ("a%2Fb.txt", "user:a%2Fb.txt", "a%2Fb.txt/0"):
                assert (await hers.get(f"/v1/artifacts/{path}")).content == b"the canary"
                assert (await his.get(f"/v1/artifacts/{path}")).status_code == 404
                assert (await anybody.get(f"/v1/artifacts/{path}")).status_code == 401
            assert (await his.get("/v1/artifacts")).json() == {"artifacts": []}
            assert (await his.delete("/v1/artifacts/a%2Fb.txt")).status_code == 404
            assert (await anybody.put("/v1/artifacts/x", content=b"x")).status_code == 401
            assert (await anybody.delete("/v1/artifacts/a%2Fb.txt")).status_code == 401
            await hers.post("/v1/sessions", json={"id": "s"})
            for wrong in (
                his.put("/v1/sessions/s/artifacts/x", content=b"x"),
                his.delete("/v1/sessions/s/artifacts/x"),
            ):
                assert (await wrong).json()["error"]["type"] == "SessionNotFound"
            assert (await hers.delete("/v1/artifacts/a%2Fb.txt")).status_code == 204
            assert (await hers.get("/v1/artifacts")).json() == {"artifacts": []}


async def test_uploads_that_cannot_be_saved_are_refused(tmp_path: Path) -> None:
    env = {"LANGO_STORE__MAX_ARTIFACT_BYTES": "1000", "LANGO_SERVER__LIMITS__MAX_BODY_BYTES": "100"}
    with serving(tmp_path, f"sqlite:///{tmp_path}/lango.db", env=env) as server:
        async with server.client() as client:
            await client.post("/v1/sessions", json={"id": "s"})
            place = "/v1/sessions/s/artifacts"

            async def pieces() -> AsyncIterator[bytes]:
                for _ in range(3):
                    yield bytes(500)

            for path, content, headers, status, error in (
                ("a", bytes(1_001), {}, 413, "TooLarge"),
                ("a", pieces(), {}, 413, "TooLarge"),
                ("a", b"", {}, 400, "Unstorable"),
                ("a", b"x", {"Content-Type": "no type"}, 400, "BadRequest"),
                ("..%2Fa", b"x", {}, 400, "Unstorable"),
                ("%2Fetc%2Fpasswd", b"x", {}, 400, "Unstorable"),
                ("a%00b", b"x", {}, 400, "Unstorable"),
                ("%FF", b"x", {}, 400, "BadRequest"),
                ("user:", b"x", {}, 400, "Unstorable"),
                ("a" * 650, b"x", {}, 400, "Unstorable"),
                ("a" * 800, b"x", {}, 400, "BadRequest"),
                ("a", b"x", {"Origin": "https://evil.example"}, 403, "ForeignOrigin"),
            ):
                refused = await client.put(f"{place}/{path}", content=content, headers=headers)
                assert (refused.status_code, refused.json()["error"]["type"]) == (status, error), path
            none = await client.put("/v1/sessions/none/artifacts/a", content=b"x")
            assert (none.status_code, none.json()["error"]["type"]) == (404, "SessionNotFound")
            assert (await client.put(f"{place}/a", content=bytes(1_000))).status_code == 201
            assert (
                await client.put(f"{place}/b", content=b"", headers={"Content-Type": "text/plain"})
            ).status_code == 201
            assert (await client.get(f"{place}/b")).content == b""
            assert [one["name"] for one in (await client.get(place)).json()["artifacts"]] == ["a", "b"]


async def test_a_part_of_a_file_is_downloaded(tmp_path: Path) -> None:
    size = len(LARGE)
    with serving(tmp_path, f"sqlite:///{tmp_path}/lango.db") as server:
        async with server.client() as client:
            path = "/v1/artifacts/large.bin"
            await client.put(path, content=LARGE)
            tag = (await client.get(path)).headers["etag"]
            for asked, first, end in (
                ("bytes=0-0", 0, 1),
                ("bytes=0-", 0, size),
                ("bytes=100-200", 100, 201),
                ("bytes=262143-262144", 262_143, 262_145),
                ("bytes=524287-", 524_287, size),
                (f"bytes={size - 1}-{size + 100}", size - 1, size),
                ("bytes=-1", size - 1, size),
                ("bytes=-10000000", 0, size),
            ):
                part = await client.get(path, headers={"Range": asked})
                assert (part.status_code, part.content) == (206, LARGE[first:end]), asked
                assert part.headers["content-range"] == f"bytes {first}-{end - 1}/{size}"
                assert part.headers["content-length"] == str(end - first)
                assert part.headers["etag"] == tag
            for asked in ("bytes=0-1,3-4", "bytes=5-2", "bytes=", "bytes=-", "lines=1-2", "bytes=x-y", "bytes=1" * 50):
                whole = await client.get(path, headers={"Range": asked})
                assert (whole.status_code, len(whole.content)) == (200, size), asked
            for asked in (f"bytes={size}-", f"bytes={10**17}-", "bytes=-0"):
                none = await client.get(path, headers={"Range": asked})
                assert (none.status_code, none.headers["content-range"]) == (416, f"bytes */{size}"), asked
            for known, status in ((tag, 206), ('"another"', 200)):
                part = await client.get(path, headers={"Range": "bytes=0-0", "If-Range": known})
                assert part.status_code == status
            same = await client.get(path, headers={"If-None-Match": f'"x", {tag}'})
            assert (same.status_code, same.content) == (304, b"")
            message = {"text": "see", "attachments": [{"name": "f", "mime_type": "image/png", "data": "eHl6" * 1000}]}
            await client.post("/v1/sessions/s/messages", json=message)
            part = await client.get("/v1/sessions/s/messages/1/attachments/0", headers={"Range": "bytes=1-3"})
            assert (part.status_code, part.content) == (206, b"yzx")


async def test_a_reference_is_downloaded_as_what_it_refers_to(tmp_path: Path) -> None:
    with serving(tmp_path, f"sqlite:///{tmp_path}/lango.db") as server:
        async with server.client() as client:
            await client.post("/v1/sessions", json={"id": "s"})
            place = "/v1/sessions/s/artifacts"
            await client.put(f"{place}/f.png", content=PNG, headers={"Content-Type": "image/png"})
            mine = "artifact://apps/obedient/users/user"
            for name, target in (
                ("ref", f"{mine}/sessions/s/artifacts/f.png/versions/0"),
                ("ref of ref", f"{mine}/sessions/s/artifacts/ref/versions/0"),
                ("gone", f"{mine}/sessions/s/artifacts/none/versions/0"),
                ("circle", f"{mine}/sessions/s/artifacts/circle/versions/0"),
            ):
                await save(client, "user", "s", name, {"fileData": {"fileUri": target}})
            for name in ("ref", "ref%20of%20ref"):
                file = await client.get(f"{place}/{name}")
                assert (file.content, file.headers["content-type"]) == (PNG, "image/png")
            for name, status, error in (("gone", 404, "ArtifactNotFound"), ("circle", 403, "ReferenceRefused")):
                refused = await client.get(f"{place}/{name}")
                assert (refused.status_code, refused.json()["error"]["type"]) == (status, error)
            fork = (await client.post("/v1/sessions/s/fork", json={"id": "fork"})).json()
            assert (await client.get(f"/v1/sessions/{fork['id']}/artifacts/ref")).content == PNG
            await client.delete("/v1/sessions/s")
            assert (await client.get(f"/v1/sessions/{fork['id']}/artifacts/ref%20of%20ref")).content == PNG


async def test_a_message_takes_artifacts_as_its_files(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/lango.db"
    async with Store(url) as store:
        alice, bob = [(await add_api_key(store, user))[1] for user in ("alice", "bob")]
    with serving(tmp_path, url, server='auth = "keys"') as server:
        async with (
            server.client(Authorization=f"Bearer {alice}") as hers,
            server.client(Authorization=f"Bearer {bob}") as his,
        ):
            for client, session in ((hers, "s"), (hers, "other"), (his, "t")):
                await client.post("/v1/sessions", json={"id": session})
                for version in range(2):
                    content = PNG + session.encode() + bytes([version])
                    headers = {"Content-Type": "image/png"}
                    await client.put(f"/v1/sessions/{session}/artifacts/a%2Ff.png", content=content, headers=headers)
            await hers.put("/v1/artifacts/note.txt", content=b"mine", headers={"Content-Type": "text/plain"})
            place = "artifact://apps/obedient/users"
            for file, expected in (
                ({"artifact": "a/f.png"}, ("f.png", "image/png", PNG + b"s\x01")),
                ({"artifact": "a/f.png", "version": 0}, ("f.png", "image/png", PNG + b"s\x00")),
                ({"artifact": "user:note.txt"}, ("note.txt", "text/plain", b"mine")),
                (
                    {"artifact": f"{place}/alice/sessions/s/artifacts/a/f.png/versions/0"},
                    ("f.png", "image/png", PNG + b"s\x00"),
                ),
            ):
                sent = await hers.post("/v1/sessions/s/messages", json={"text": "see", "attachments": [file]})
                assert sent.status_code == 200, sent.text
                assert await last_file(hers) == expected
            for file, status, error in (
                ({"artifact": "none"}, 404, "ArtifactNotFound"),
                ({"artifact": "a/f.png", "version": 9}, 404, "ArtifactNotFound"),
                ({"artifact": f"{place}/alice/sessions/other/artifacts/a/f.png/versions/0"}, 403, "ReferenceRefused"),
                ({"artifact": f"{place}/bob/sessions/t/artifacts/a/f.png/versions/0"}, 403, "ReferenceRefused"),
                ({"artifact": f"{place}/bob/artifacts/user:none/versions/0"}, 403, "ReferenceRefused"),
                ({"artifact": "artifact://x"}, 403, "ReferenceRefused"),
                ({"artifact": "a/f.png", "data": "eHl6"}, 400, "BadRequest"),
            ):
                refused = await hers.post("/v1/sessions/s/messages", json={"text": "see", "attachments": [file]})
                assert (refused.status_code, refused.json()["error"]["type"]) == (status, error), file
            for uri, status in (
                (f"{place}/alice/sessions/s/artifacts/a/f.png/versions/1", 200),
                (f"{place}/bob/sessions/t/artifacts/a/f.png/versions/1", 403),
                (f"{place}/alice/sessions/s/artifacts/none/versions/1", 404),
                ("gs://bucket/x", 400),
            ):
                parts = [{"text": "see"}, {"fileData": {"fileUri": uri, "mimeType": "image/png"}}]
                body = {"appName": "obedient", "userId": "alice", "sessionId": "s"}
                run = await hers.post("/run", json=body | {"newMessage": {"role": "user", "parts": parts}})
                assert run.status_code == status, run.text
            assert await last_file(hers) == ("f.png", "image/png", PNG + b"s\x01")


async def last_file(client: httpx.AsyncClient) -> tuple[str, str, bytes]:
    """The name, type and bytes of the file of the newest message of the user."""
    page = (await client.get("/v1/sessions/s/messages")).json()["messages"]
    [*_, message] = [message for message in page if message["role"] == "user"]
    [file] = message["attachments"]
    content = await client.get(f"/v1/sessions/s/messages/{message['seq']}/attachments/0")
    return file["name"], file["mime_type"], content.content


async def test_the_file_of_a_queued_message_is_stored_apart(tmp_path: Path) -> None:
    with serving(tmp_path, f"sqlite:///{tmp_path}/lango.db") as server:
        async with server.client() as client:
            await client.post("/v1/sessions", json={"id": "s"})
            async with client.stream(
                "POST", "/v1/sessions/s/messages", json={"text": f"hold {tmp_path}/go"}
            ) as running:
                async for line in running.aiter_lines():
                    if line.startswith("event: text_delta"):
                        break
                file = {"name": "f", "mime_type": "image/png", "data": base64.b64encode(LARGE).decode()}
                body = {"text": "and this", "attachments": [file]}
                async with client.stream("POST", "/v1/sessions/s/messages", json=body) as queued:
                    async for line in queued.aiter_lines():
                        if line.startswith("event: accepted"):
                            break
                    waiting = (await client.get("/v1/sessions/s/waiting")).json()["waiting"]
                    assert [one["attachments"][0]["bytes"] for one in waiting] == [len(LARGE)]
                    assert (await client.delete(f"/v1/sessions/s/waiting/{waiting[0]['turn']}")).status_code == 204
            await client.post("/v1/sessions/s/cancel")
    assert no_bytes_are_left(tmp_path)
