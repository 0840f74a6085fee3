"""ADK's contract of an artifact service, on both databases: the scenarios of ADK's own tests of its three services.

Not here, because they are about files or buckets: reserved names of metadata files, permissions, abandoned folders,
layouts of older versions, signed URLs, and the limit on retries.
"""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from google.adk.artifacts import InMemoryArtifactService
from google.adk.artifacts.base_artifact_service import ArtifactVersion
from google.adk.errors.input_validation_error import InputValidationError
from google.genai import types

from lango.adk import SqlArtifactService
from lango.errors import ReferenceRefused
from lango.runtime.artifacts import Artifacts
from lango.sessions import SessionId
from lango.store import Store
from lango.store.engine.database import Operation
from lango.store.lifecycle.integrity import check_database
from lango.store.sessions.sessions import create_session

WHERE: Any = {"app_name": "app", "user_id": "alice", "session_id": "s1"}
USER: Any = {"app_name": "app", "user_id": "alice"}


@pytest.fixture
async def artifacts(store_url: str) -> AsyncIterator[SqlArtifactService]:
    """A service whose store is whole when the test is over."""
    async with SqlArtifactService(store_url) as service:
        yield service
        assert await service.store.read(check_database, service.store.dialect) == []


def text(content: str) -> types.Part:
    return types.Part(text=content)


def data(content: bytes, mime_type: str = "text/plain", **more: Any) -> types.Part:
    return types.Part(inline_data=types.Blob(data=content, mime_type=mime_type, **more))


def reference(target: str) -> types.Part:
    return types.Part(file_data=types.FileData(file_uri=f"artifact://apps/{target}", mime_type="text/plain"))


async def create_sessions(store: Store) -> None:
    """Artifacts over Lango's own interface need their session."""
    await store.write(create_session, SessionId("app", "alice", "s1"), None, 1.0)


async def test_what_was_never_saved_is_not_there(artifacts: SqlArtifactService) -> None:
    assert await artifacts.load_artifact(**WHERE, filename="none") is None
    assert await artifacts.get_artifact_version(**WHERE, filename="none") is None
    assert await artifacts.list_versions(**WHERE, filename="none") == []
    assert await artifacts.list_artifact_versions(**WHERE, filename="none") == []
    assert await artifacts.list_artifact_keys(**WHERE) == []
    await artifacts.delete_artifact(**WHERE, filename="none")


@pytest.mark.parametrize(
    "part",
    [
        data(b"\x00\xff", "application/pdf"),
        data(b"", "application/pdf"),
        data(b"\x89PNG", "image/png", display_name="My Report (final).png"),
        data(b"x" * 600_000, "image/png"),
        text('{"key": "value"}'),
        text(""),
        text("half a character: \ud800, and \0"),
        types.Part(file_data=types.FileData(file_uri="gs://bucket/report.pdf", mime_type="application/pdf")),
        types.Part(file_data=types.FileData(file_uri="gs://bucket/data.bin")),
        types.Part(text="a thought", thought=True, thought_signature=b"\xfe"),
    ],
)
async def test_a_part_comes_back_as_it_was_saved(artifacts: SqlArtifactService, part: types.Part) -> None:
    for name in ("file", "with/slash/file", "notes#1?v=100%real name.txt", "user:file", "データ.txt"):
        assert await artifacts.save_artifact(**WHERE, filename=name, artifact=part) == 0
        assert await artifacts.load_artifact(**WHERE, filename=name) == part
        assert await artifacts.load_artifact(**WHERE, filename=name, version=0) == part
        assert await artifacts.load_artifact(**WHERE, filename=name, version=3) is None
        assert await artifacts.load_artifact(**WHERE, filename=name, version=-1) is None
        assert await artifacts.get_artifact_version(**WHERE, filename=name, version=3) is None
        await artifacts.delete_artifact(**WHERE, filename=name)
        assert await artifacts.load_artifact(**WHERE, filename=name) is None
        assert await artifacts.list_artifact_keys(**WHERE) == []


@pytest.mark.parametrize(
    "raw",
    [
        {"inlineData": {"mimeType": "image/png", "data": "dGVzdA=="}},
        {"inline_data": {"mime_type": "image/png", "data": "dGVzdA=="}},
        {"inline_data": {"mime_type": "image/png", "data": b"test"}},
        {"text": "hello"},
        {"fileData": {"fileUri": "memory://apps/a/u/s/f/versions/0", "mimeType": "text/plain"}},
    ],
)
async def test_a_part_may_be_a_dictionary(artifacts: SqlArtifactService, raw: dict[str, Any]) -> None:
    for where in (WHERE, USER):
        assert await artifacts.save_artifact(**where, filename="f", artifact=raw) == 0
        assert await artifacts.load_artifact(**where, filename="f") == types.Part.model_validate(raw)
    assert await artifacts.list_artifact_keys(**USER) == ["user:f"]


async def test_versions_are_counted_and_listed_with_their_metadata(artifacts: SqlArtifactService) -> None:
    for number in range(12):
        saved = await artifacts.save_artifact(
            **WHERE, filename="f", artifact=data(bytes([number])), custom_metadata={"n": number} if number else None
        )
        assert saved == number
    assert await artifacts.list_versions(**WHERE, filename="f") == list(range(12))
    found = await artifacts.list_artifact_versions(**WHERE, filename="f")
    times = [version.create_time for version in found]
    assert times == sorted(times)
    assert found == [
        ArtifactVersion(
            version=number,
            canonical_uri=f"artifact://apps/app/users/alice/sessions/s1/artifacts/f/versions/{number}",
            custom_metadata={"n": number} if number else {},
            create_time=times[number],
            mime_type="text/plain",
        )
        for number in range(12)
    ]
    assert await artifacts.get_artifact_version(**WHERE, filename="f") == found[-1]
    assert await artifacts.get_artifact_version(**WHERE, filename="f", version=2) == found[2]
    assert await artifacts.load_artifact(**WHERE, filename="f", version=2) == data(b"\x02")


async def test_the_address_of_a_users_artifact_names_no_session(artifacts: SqlArtifactService) -> None:
    await artifacts.save_artifact(**WHERE, filename="user:f", artifact=text("x"))
    [found] = await artifacts.list_artifact_versions(**WHERE, filename="user:f")
    assert found.canonical_uri == "artifact://apps/app/users/alice/artifacts/user:f/versions/0"


async def test_a_nested_name_is_another_artifact(artifacts: SqlArtifactService) -> None:
    await artifacts.save_artifact(**WHERE, filename="doc", artifact=text("parent 0"))
    for number in range(3):
        await artifacts.save_artifact(**WHERE, filename="doc/nested", artifact=text(f"nested {number}"))
    assert await artifacts.list_versions(**WHERE, filename="doc") == [0]
    assert await artifacts.load_artifact(**WHERE, filename="doc") == text("parent 0")
    assert await artifacts.save_artifact(**WHERE, filename="doc", artifact=text("parent 1")) == 1
    assert await artifacts.list_artifact_keys(**WHERE) == ["doc", "doc/nested"]
    await artifacts.delete_artifact(**WHERE, filename="doc")
    assert await artifacts.list_versions(**WHERE, filename="doc/nested") == [0, 1, 2]


async def test_artifacts_of_a_user_are_in_every_session_and_others_in_their_own(artifacts: SqlArtifactService) -> None:
    await artifacts.save_artifact(**WHERE, filename="session.txt", artifact=text("s"))
    await artifacts.save_artifact(**WHERE, filename="user:b.txt", artifact=text("b"))
    await artifacts.save_artifact(**USER, filename="a.txt", artifact=text("a"))
    assert await artifacts.list_artifact_keys(**WHERE) == ["session.txt", "user:a.txt", "user:b.txt"]
    other: Any = {**WHERE, "session_id": "s2"}
    assert await artifacts.list_artifact_keys(**other) == ["user:a.txt", "user:b.txt"]
    assert await artifacts.list_artifact_keys(**USER) == ["user:a.txt", "user:b.txt"]
    assert await artifacts.load_artifact(**other, filename="session.txt") is None
    for name, where in (("user:a.txt", other), ("user:a.txt", USER), ("a.txt", USER)):
        assert await artifacts.load_artifact(**where, filename=name) == text("a")


@pytest.mark.parametrize("other", [{"app_name": "other"}, {"user_id": "bob"}])
@pytest.mark.parametrize("name", ["f", "user:f"])
async def test_apps_and_users_do_not_see_each_other(
    artifacts: SqlArtifactService, other: dict[str, str], name: str
) -> None:
    await artifacts.save_artifact(**WHERE, filename=name, artifact=text("mine"))
    theirs: Any = WHERE | other
    assert await artifacts.load_artifact(**theirs, filename=name) is None
    assert await artifacts.list_artifact_keys(**theirs) == []
    assert await artifacts.list_versions(**theirs, filename=name) == []
    assert await artifacts.save_artifact(**theirs, filename=name, artifact=text("theirs")) == 0
    await artifacts.delete_artifact(**theirs, filename=name)
    assert await artifacts.load_artifact(**WHERE, filename=name) == text("mine")


async def test_spaces_around_a_session_id_do_not_count(artifacts: SqlArtifactService) -> None:
    padded = WHERE | {"session_id": " s1\n"}
    await artifacts.save_artifact(**padded, filename="source", artifact=text("hello"))
    await artifacts.save_artifact(
        **padded, filename="ref", artifact=reference("app/users/alice/sessions/s1/artifacts/source/versions/0")
    )
    for where in (WHERE, padded):
        assert await artifacts.load_artifact(**where, filename="ref") == text("hello")
        assert await artifacts.list_artifact_keys(**where) == ["ref", "source"]
    await artifacts.delete_artifact(**WHERE, filename="source")
    assert await artifacts.load_artifact(**padded, filename="source") is None


async def test_a_session_may_be_called_user(artifacts: SqlArtifactService) -> None:
    for session_id in ("user", "user/x", "user\\x"):
        await artifacts.save_artifact(**WHERE | {"session_id": session_id}, filename="f", artifact=text("x"))
        assert await artifacts.load_artifact(**WHERE | {"session_id": session_id}, filename="f") == text("x")
    assert await artifacts.list_artifact_keys(**USER) == []


@pytest.mark.parametrize("field", ["app_name", "user_id", "session_id"])
async def test_names_that_adk_refuses_are_refused(artifacts: SqlArtifactService, field: str) -> None:
    for value, why in {
        "../escape": "traversal",
        "foo/../../bar": "traversal",
        "..": "traversal",
        ".": "traversal",
        "null\x00byte": "null bytes",
        "": "empty",
        "/etc/passwd": "absolute",
        "\\back": "absolute",
        "C:/absolute": "drive",
        "victim/sessions/s1": "reserved",
        "victim/artifacts": "reserved",
    }.items():
        where: Any = WHERE | {field: value}
        with pytest.raises(InputValidationError, match=why):
            await artifacts.save_artifact(**where, filename="f", artifact=text("x"))
        with pytest.raises(InputValidationError, match=why):
            await artifacts.load_artifact(**where, filename="f")
        with pytest.raises(InputValidationError, match=why):
            await artifacts.delete_artifact(**where, filename="f")
        with pytest.raises(InputValidationError, match=why):
            await artifacts.list_artifact_keys(**where)


@pytest.mark.parametrize("user_id", ["group/user123", "alice@example.com"])
async def test_a_user_may_have_a_path(artifacts: SqlArtifactService, user_id: str) -> None:
    where: Any = WHERE | {"user_id": user_id, "app_name": "projects/1/locations/x/reasoningEngines/4"}
    await artifacts.save_artifact(**where, filename="f", artifact=text("x"))
    assert await artifacts.load_artifact(**where, filename="f") == text("x")


async def test_file_names_that_could_be_used_to_escape_are_refused(artifacts: SqlArtifactService) -> None:
    for name in (
        "../escape.txt",
        r"..\escape.txt",
        "folder/../alias.txt",
        r"folder/..\alias.txt",
        "user:../escape.txt",
        "/absolute/path.txt",
        "user:/absolute/path.txt",
        r"C:\absolute\path.txt",
        "C:drive-relative.txt",
        r"\\server\share\file.txt",
        "",
        "user:",
        "nul\0.txt",
        "n" * 600,
        "half \ud800",
    ):
        with pytest.raises(InputValidationError):
            await artifacts.save_artifact(**WHERE, filename=name, artifact=text("x"))


@pytest.mark.parametrize(
    "part",
    [
        types.Part(),
        types.Part(inline_data=types.Blob(mime_type="image/png", data=None)),
        types.Part(file_data=types.FileData(file_uri="")),
        reference("app/invalid"),
        reference("app/users/bob/artifacts/user:secret/versions/0"),
        reference("other/users/alice/artifacts/user:secret/versions/0"),
        reference("app/users/alice/sessions/s2/artifacts/secret/versions/0"),
    ],
)
async def test_a_part_without_content_or_with_a_foreign_reference_is_refused(
    artifacts: SqlArtifactService, part: types.Part
) -> None:
    with pytest.raises(InputValidationError):
        await artifacts.save_artifact(**WHERE, filename="f", artifact=part)
    assert await artifacts.list_versions(**WHERE, filename="f") == []


FOREIGN = {
    "app/users/bob/artifacts/user:secret/versions/0": "same app and user scope",
    "other/users/alice/artifacts/user:secret/versions/0": "same app and user scope",
    "app/users/alice/sessions/s2/artifacts/secret/versions/0": "same session scope",
}


@pytest.mark.parametrize("target", FOREIGN)
async def test_a_reference_that_was_changed_in_the_store_leads_nowhere_else(
    artifacts: SqlArtifactService, target: str
) -> None:
    for other in ({"user_id": "bob"}, {"app_name": "other"}, {"session_id": "s2"}):
        for name in ("secret", "user:secret"):
            await artifacts.save_artifact(**(WHERE | other), filename=name, artifact=text("secret"))
    mine = reference("app/users/alice/sessions/s1/artifacts/own/versions/0")
    await artifacts.save_artifact(**WHERE, filename="ref", artifact=mine)

    def change() -> Operation[None]:
        part = '{"file_data":{"file_uri":"artifact://apps/' + target + '"}}'
        yield "UPDATE artifacts SET part = $1 WHERE name = 'ref'", (part,)

    await artifacts.store.write(change)
    with pytest.raises(InputValidationError, match=FOREIGN[target]):
        await artifacts.load_artifact(**WHERE, filename="ref")
    await create_sessions(artifacts.store)
    with pytest.raises(ReferenceRefused):
        await Artifacts(artifacts.store, "app").load("s1", "ref", user_id="alice")


async def test_as_many_references_are_followed_as_by_adks_own_service(artifacts: SqlArtifactService) -> None:
    theirs = InMemoryArtifactService()
    for service in (artifacts, theirs):
        await service.save_artifact(**WHERE, filename="0", artifact=text("the end"))
        for number in range(1, 8):
            target = reference(f"app/users/alice/sessions/s1/artifacts/{number - 1}/versions/0")
            await service.save_artifact(**WHERE, filename=str(number), artifact=target)
    for number in range(8):
        outcomes: list[Any] = []
        for service in (artifacts, theirs):
            try:
                outcomes.append(await service.load_artifact(**WHERE, filename=str(number)))
            except InputValidationError as error:
                outcomes.append(str(error).partition(":")[0])
        assert outcomes[0] == outcomes[1], number
    await create_sessions(artifacts.store)
    ours = Artifacts(artifacts.store, "app")
    assert await ours.load("s1", "5", user_id="alice") == b"the end"
    with pytest.raises(ReferenceRefused):
        await ours.load("s1", "6", user_id="alice")


async def test_a_reference_of_another_session_may_lead_to_an_artifact_of_the_user(
    artifacts: SqlArtifactService,
) -> None:
    await artifacts.save_artifact(**WHERE, filename="user:profile", artifact=text("profile"))
    other: Any = WHERE | {"session_id": "s2"}
    target = reference("app/users/alice/artifacts/user:profile/versions/0")
    await artifacts.save_artifact(**other, filename="ref", artifact=target)
    assert await artifacts.load_artifact(**other, filename="ref") == text("profile")


async def test_a_reference_is_followed_and_a_circle_ends(artifacts: SqlArtifactService) -> None:
    await artifacts.save_artifact(**WHERE, filename="folder/source", artifact=text("hello"))
    await artifacts.save_artifact(**WHERE, filename="user:profile", artifact=text("profile"))
    targets = {
        "of the session": "app/users/alice/sessions/s1/artifacts/folder/source/versions/0",
        "of the user": "app/users/alice/artifacts/user:profile/versions/0",
        "missing": "app/users/alice/artifacts/user:none/versions/0",
        "circle": "app/users/alice/sessions/s1/artifacts/circle/versions/0",
    }
    for name, target in targets.items():
        await artifacts.save_artifact(**WHERE, filename=name, artifact=reference(target))
    assert await artifacts.load_artifact(**WHERE, filename="of the session") == text("hello")
    assert await artifacts.load_artifact(**WHERE, filename="of the user") == text("profile")
    assert await artifacts.load_artifact(**WHERE, filename="missing") is None
    with pytest.raises(InputValidationError, match="maximum recursion depth"):
        await artifacts.load_artifact(**WHERE, filename="circle")


async def test_saves_at_the_same_time_get_versions_of_their_own(artifacts: SqlArtifactService, store_url: str) -> None:
    async with SqlArtifactService(store_url) as another:
        saved = await asyncio.gather(
            *(
                service.save_artifact(**WHERE, filename="f", artifact=text(f"{number}" if number % 3 else "same"))
                for number in range(8)
                for service in (artifacts, another)
            )
        )
    assert sorted(saved) == list(range(16))


async def test_a_save_that_fails_leaves_nothing(artifacts: SqlArtifactService) -> None:
    await artifacts.save_artifact(**WHERE, filename="f", artifact=text("v0"))
    nested: dict[str, Any] = {"a": 1}
    for _ in range(500):
        nested = {"a": nested}
    with pytest.raises(InputValidationError):
        await artifacts.save_artifact(**WHERE, filename="f", artifact=text("poison"), custom_metadata=nested)
    assert await artifacts.list_versions(**WHERE, filename="f") == [0]
    assert await artifacts.load_artifact(**WHERE, filename="f") == text("v0")


async def test_the_version_with_which_adk_removes_an_artifact_is_not_shown(artifacts: SqlArtifactService) -> None:
    await artifacts.save_artifact(**WHERE, filename="f", artifact=text("v0"))
    await artifacts.save_artifact(**WHERE, filename="f", artifact=data(b"", "application/octet-stream"))
    assert await artifacts.load_artifact(**WHERE, filename="f") is None
    assert await artifacts.list_artifact_keys(**WHERE) == []
    assert await artifacts.load_artifact(**WHERE, filename="f", version=0) == text("v0")
    assert await artifacts.save_artifact(**WHERE, filename="f", artifact=text("v2")) == 2


async def test_an_artifact_above_the_limit_is_refused(store_url: str) -> None:
    async with SqlArtifactService(store_url, max_bytes=10) as service:
        await service.save_artifact(**WHERE, filename="f", artifact=data(b"x" * 10))
        with pytest.raises(InputValidationError, match="has 11 bytes; the limit is 10"):
            await service.save_artifact(**WHERE, filename="f", artifact=data(b"x" * 11))
