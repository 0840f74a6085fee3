"""ADK's own client against a real server; only the address differs."""

import asyncio
import base64
import uuid
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from google.adk.artifacts.base_artifact_service import ArtifactVersion
from google.adk.cli.adk_web_server import RunAgentRequest
from google.adk.cli.api_server import ListAppsResponse
from google.adk.cli.conformance.adk_web_server_client import AdkWebServerClient
from google.adk.events import Event
from google.adk.sessions import Session
from google.adk.tools.tool_confirmation import ToolConfirmation
from google.genai import types
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed

from lango.store import Store
from tests.agents.parts import add_api_key
from tests.support.servers.command_agent import file_summary
from tests.support.servers.server_process import TIMEOUT_S, Server, serving

APP = "obedient"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("adk")
    env = {"LANGO_AGENT__RETRY_DELAY_S": "0.01"}
    with serving(folder, f"sqlite:///{folder}/lango.db", server="heartbeat_s = 0.2", env=env) as running:
        yield running


@pytest.fixture
async def client(server: Server) -> AsyncIterator[AdkWebServerClient]:
    async with AdkWebServerClient(server.url, timeout=TIMEOUT_S) as made:
        yield made


@pytest.fixture
def user() -> str:
    return f"u-{uuid.uuid4().hex[:8]}"


@pytest.fixture
async def session(client: AdkWebServerClient, user: str) -> Session:
    return await client.create_session(app_name=APP, user_id=user, state={"city": "Bern"})


def run_request(session: Session, *parts: types.Part, streaming: bool = False) -> RunAgentRequest:
    return RunAgentRequest(
        app_name=APP,
        user_id=session.user_id,
        session_id=session.id,
        new_message=types.Content(role="user", parts=list(parts)),
        streaming=streaming,
    )


def text(content: str) -> types.Part:
    return types.Part(text=content)


async def run(client: AdkWebServerClient, request: RunAgentRequest) -> list[Event]:
    return [event async for event in client.run_agent(request)]


def texts(events: list[Event]) -> list[str]:
    return ["".join(part.text or "" for part in (event.content and event.content.parts) or []) for event in events]


async def run_whole(server: Server, request: RunAgentRequest, **headers: str) -> httpx.Response:
    """Call `POST /run`, for which the client has no method."""
    async with server.client(**headers) as client:
        return await client.post("/run", json=request.model_dump(mode="json", by_alias=True, exclude_none=True))


async def test_sessions_from_making_to_deleting(server: Server, client: AdkWebServerClient, user: str) -> None:
    made = await client.create_session(app_name=APP, user_id=user, state={"a": 1, "user:b": 2})
    assert (made.app_name, made.user_id, made.state) == (APP, user, {"a": 1, "user:b": 2})
    names: dict[str, Any] = {"app_name": APP, "user_id": user, "session_id": made.id}
    changed = await client.update_session(**names, state_delta={"a": 3})
    assert changed.state == {"a": 3, "user:b": 2}
    assert (await client.get_session(**names)).state == changed.state
    async with server.client() as http:
        assert (await http.get("/list-apps")).json() == [APP]
        base = f"/apps/{APP}/users/{user}/sessions"
        assert (await http.post(f"{base}/mine", json={"c": 4})).json()["state"] == {"c": 4, "user:b": 2}
        assert (await http.post(f"{base}/mine")).status_code == 409
        assert (await http.post(base)).status_code == 200, "no body is needed"
        assert {made.id, "mine"} < {Session.model_validate(item).id for item in (await http.get(base)).json()}
        event = {"author": APP, "content": {"role": "model", "parts": [{"text": "made up"}]}}
        assert (await http.post(base, json={"events": [event]})).status_code == 400
        assert (await http.get(f"/apps/nothing/users/{user}/sessions")).status_code == 404
    assert (await client.get_version_data())["language"] == "python"
    await client.delete_session(**names)
    with pytest.raises(httpx.HTTPStatusError, match="404"):
        await client.get_session(**names)


async def test_withdrawn_text_is_only_in_partial_events(
    server: Server, client: AdkWebServerClient, session: Session, tmp_path: Path
) -> None:
    request = run_request(session, text(f"fail once {tmp_path / 'stream'} the whole answer"), streaming=True)
    events = await run(client, request)
    assert "half of it" in "".join(texts([event for event in events if event.partial]))
    assert "".join(texts([event for event in events if not event.partial])) == "the whole answer"
    whole = await run_whole(server, run_request(session, text(f"fail once {tmp_path / 'whole'} the whole answer")))
    assert "".join(texts([Event.model_validate(one) for one in whole.json()])) == "the whole answer"


async def test_a_run_returns_the_events_that_it_stored(client: AdkWebServerClient, session: Session) -> None:
    events = await run(client, run_request(session, text("note")))
    assert [[call.name for call in event.get_function_calls()] for event in events] == [["note"], [], []]
    assert events[1].get_function_responses()[0].response == {"noted": "this"}
    assert texts(events)[2] == "the tool said {'noted': 'this'}"
    assert {event.author for event in events} == {APP}
    assert len({event.invocation_id for event in events}) == 1
    stored = await client.get_session(app_name=APP, user_id=session.user_id, session_id=session.id)
    assert stored.state == {"city": "Bern"}
    assert stored.events[0].author == "user"
    assert stored.events[1:] == events


async def test_a_stream_sends_partial_events_and_then_the_whole(client: AdkWebServerClient, session: Session) -> None:
    events = await run(client, run_request(session, text("words 4 0.3"), streaming=True))
    assert [event.partial for event in events[:-1]] == [True] * (len(events) - 1)
    assert len(events) > 2
    assert not events[-1].partial
    assert "".join(texts(events[:-1])) == texts(events)[-1] == "w0 w1 w2 w3 "
    assert len({event.invocation_id for event in events}) == 1


async def test_turns_run_one_at_a_time_whole_or_streamed(
    server: Server, client: AdkWebServerClient, session: Session
) -> None:
    streamed, whole = await asyncio.gather(
        run(client, run_request(session, text("words 2 0.2"))), run_whole(server, run_request(session, text("hello")))
    )
    assert whole.status_code == 200
    assert texts([Event.model_validate(item) for item in whole.json()]) == ["hello"]
    assert texts(streamed) == ["w0 w1 "]
    stored = await client.get_session(app_name=APP, user_id=session.user_id, session_id=session.id)
    assert [event.author for event in stored.events].count("user") == 2
    again = [await run_whole(server, run_request(session, text("x")), **{"Idempotency-Key": "k"}) for _ in range(2)]
    assert again[0].json() == again[1].json()


async def test_an_approval_request_is_answered_as_in_adk(client: AdkWebServerClient, session: Session) -> None:
    events = await run(client, run_request(session, text("ask")))
    [question] = [
        call for event in events for call in event.get_function_calls() if call.name == "adk_request_confirmation"
    ]
    response = types.FunctionResponse(id=question.id, name=question.name, response={"confirmed": True})
    request = run_request(session, types.Part(function_response=response))
    answered = await run(client, request)
    assert not {event.id for event in events} & {event.id for event in answered}, "only what is new"
    assert "{'noted': 'this'}" in texts(answered)[-1]
    with pytest.raises(httpx.HTTPStatusError, match="409"):
        await run(client, request)


@pytest.mark.parametrize("is_wrapped", [False, True])
async def test_the_model_reads_the_reason_of_a_refusal(
    client: AdkWebServerClient, session: Session, *, is_wrapped: bool
) -> None:
    events = await run(client, run_request(session, text("ask")))
    [question] = [
        call for event in events for call in event.get_function_calls() if call.name == "adk_request_confirmation"
    ]
    answer = ToolConfirmation(confirmed=False, payload={"reason": "it is not yours"})
    response: dict[str, Any] = answer.model_dump(mode="json")
    if is_wrapped:  # as ADK's own page sends it
        response = {"response": answer.model_dump_json()}
    given = types.FunctionResponse(id=question.id, name=question.name, response=response)
    answered = await run(client, run_request(session, types.Part(function_response=given)))
    assert "it is not yours" in texts(answered)[-1]


@pytest.mark.parametrize("tool", ["order", "ticket"])
async def test_results_of_a_long_running_tool_come_as_in_adk(
    client: AdkWebServerClient, session: Session, tool: str
) -> None:
    events = await run(client, run_request(session, text(f"call {tool}")))
    [call] = [call for event in events for call in event.get_function_calls()]
    assert any(event.long_running_tool_ids == {call.id} for event in events)
    for at in ("sea", "home"):  # ADK's clients need not say whether another one follows
        response = types.FunctionResponse(id=call.id, name=call.name, response={"at": at})
        answered = await run(client, run_request(session, types.Part(function_response=response)))
        assert texts(answered) == [f"the tool said {{'at': '{at}'}}"]
    last = types.FunctionResponse(id=call.id, name=call.name, response={"at": "rest"}, will_continue=False)
    await run(client, run_request(session, types.Part(function_response=last)))
    with pytest.raises(httpx.HTTPStatusError, match="409"):
        await run(client, run_request(session, types.Part(function_response=last)))


async def test_every_session_is_memory(server: Server, session: Session) -> None:
    path = f"/apps/{APP}/users/{session.user_id}/memory"
    async with server.client() as client:
        assert (await client.patch(path, json={"sessionId": session.id})).status_code == 200
        assert (await client.patch(path, json={"sessionId": "none"})).status_code == 404


async def test_a_failed_turn_is_an_error(server: Server, client: AdkWebServerClient, session: Session) -> None:
    with pytest.raises(RuntimeError, match=r"ProviderRejected: .*the provider does not want to"):
        await run(client, run_request(session, text("fail")))
    whole = await run_whole(server, run_request(session, text("fail")))
    assert (whole.status_code, whole.json()["error"]["type"]) == (400, "ProviderRejected")


async def test_state_is_changed_between_turns_only(
    client: AdkWebServerClient, session: Session, tmp_path: Path
) -> None:
    names: dict[str, Any] = {"app_name": APP, "user_id": session.user_id, "session_id": session.id}
    async with asyncio.timeout(TIMEOUT_S):
        running = asyncio.create_task(run(client, run_request(session, text(f"hold {tmp_path / 'go'}"))))
        while not (await client.get_session(**names)).events:
            await asyncio.sleep(0.05)
        with pytest.raises(httpx.HTTPStatusError, match="409"):
            await client.update_session(**names, state_delta={"city": "Basel"})
        (tmp_path / "go").touch()
        assert texts(await running) == ["begun ended"]
    assert (await client.update_session(**names, state_delta={"city": "Basel"})).state == {"city": "Basel"}


async def test_state_comes_with_a_message_when_its_turn_comes(
    server: Server, client: AdkWebServerClient, session: Session, tmp_path: Path
) -> None:
    names: dict[str, Any] = {"app_name": APP, "user_id": session.user_id, "session_id": session.id}
    await run(
        client, run_request(session, text("hi")).model_copy(update={"state_delta": {"city": "Basel", "user:n": 1}})
    )
    found = await client.get_session(**names)
    assert found.state == {"city": "Basel", "user:n": 1}
    assert found.events[0].actions.state_delta == {"city": "Basel", "user:n": 1}, "in the event of the message"
    async with asyncio.timeout(TIMEOUT_S):
        first = asyncio.create_task(run(client, run_request(session, text(f"hold {tmp_path / 'go'}"))))
        while len((await client.get_session(**names)).events) < 3:
            await asyncio.sleep(0.05)
        late = run_request(session, text("late")).model_copy(update={"state_delta": {"city": "Chur"}})
        second = asyncio.create_task(run(client, late))
        async with server.client() as scraping:
            while "lango_queue 1" not in (await scraping.get("/metrics")).text:
                await asyncio.sleep(0.05)
        assert (await client.get_session(**names)).state["city"] == "Basel", "it waits with its message"
        (tmp_path / "go").touch()
        await first
        assert texts(await second) == ["late"]
    assert (await client.get_session(**names)).state["city"] == "Chur"


async def test_pictures_come_with_a_message(server: Server, client: AdkWebServerClient, session: Session) -> None:
    large = bytes(range(256)) * 8000  # more than a request without files may have
    picture = types.Part(inline_data=types.Blob(data=large, mime_type="image/PNG", display_name="a.png"))
    nameless = types.Part(inline_data=types.Blob(data=b"x", mime_type="text/plain", display_name="../x"))
    answered = (await run_whole(server, run_request(session, text("look"), picture, nameless))).json()
    assert answered[-1]["content"]["parts"] == [{"text": "look"}]
    alone = (await run_whole(server, run_request(session, nameless))).json()
    sent = [
        file_summary("a.png", "image/png", large),
        file_summary("file 2", "text/plain", b"x"),
        file_summary("file 1", "text/plain", b"x"),
    ]
    assert alone[-1]["content"]["parts"] == [{"text": f"seen: {', '.join(sent)}"}], "the model received them"
    found = await client.get_session(app_name=APP, user_id=session.user_id, session_id=session.id)
    parts = (found.events[0].content and found.events[0].content.parts) or []
    files = [part.inline_data for part in parts if part.inline_data]
    assert [(item.display_name, item.mime_type, item.data) for item in files] == [
        ("a.png", "image/png", large),
        ("file 2", "text/plain", b"x"),
    ]
    empty = types.Part(inline_data=types.Blob(data=b"", mime_type="image/png"))
    refused = await run_whole(server, run_request(session, text("look"), empty))
    assert (refused.status_code, refused.json()["error"]["type"]) == (413, "AttachmentRefused")


async def test_the_app_is_described_as_adk_does(server: Server) -> None:
    async with server.client() as client:
        assert (await client.get("/health")).json() == {"status": "ok"}
        assert (await client.get("/list-apps")).json() == [APP]
        described = ListAppsResponse.model_validate((await client.get("/list-apps?detailed=true")).json())
    assert [(item.name, item.root_agent_name) for item in described.apps] == [(APP, APP)]


async def test_artifacts_are_saved_listed_loaded_and_deleted_as_in_adk(server: Server, session: Session) -> None:
    base = f"/apps/{APP}/users/{session.user_id}/sessions/{session.id}/artifacts"
    large = base64.b64encode(bytes(300_000)).decode()
    async with server.client() as client:
        assert (await client.get(base)).json() == []
        for number, part in enumerate([{"text": "first"}, {"inlineData": {"mimeType": "image/png", "data": large}}]):
            body = {"filename": "a/b.png", "artifact": part, "customMetadata": {"n": number}}
            saved = ArtifactVersion.model_validate((await client.post(base, json=body)).json())
            assert (saved.version, saved.custom_metadata) == (number, {"n": number})
        assert (await client.post(base, json={"filename": "user:c", "artifact": {"text": "c"}})).status_code == 200
        assert (await client.get(base)).json() == ["a/b.png", "user:c"]
        assert (await client.get(f"{base}/a/b.png/versions")).json() == [0, 1]
        metadata = (await client.get(f"{base}/a/b.png/versions/metadata")).json()
        assert [one["mimeType"] for one in metadata] == ["text/plain", "image/png"]
        assert (await client.get(f"{base}/a/b.png/versions/0/metadata")).json() == metadata[0]
        assert (await client.get(f"{base}/a/b.png/versions/latest/metadata")).json() == metadata[1]
        for place in ("a/b.png", "a/b.png/versions/1", "a/b.png/versions/latest"):
            loaded = types.Part.model_validate((await client.get(f"{base}/{place}")).json())
            assert loaded == types.Part(inline_data=types.Blob(data=bytes(300_000), mime_type="image/png"))
        for place in ("a/b.png/versions/0", "a/b.png?version=0"):
            assert (await client.get(f"{base}/{place}")).json() == {"text": "first"}
        for place in ("none", "a/b.png/versions/7", "a/b.png/versions/7/metadata", "..%2f..%2fsecret"):
            missing = await client.get(f"{base}/{place}")
            assert (missing.status_code, missing.json()["error"]["type"]) == (404, "NotFound"), place
        assert (await client.get(f"{base}/a/b.png/versions/x")).status_code == 422
        for name, part in (("../x", {"text": "x"}), ("x", {}), ("x", {"text": 1})):
            refused = await client.post(base, json={"filename": name, "artifact": part})
            assert (refused.status_code, refused.json()["error"]["type"]) == (400, "BadRequest")
        assert (await client.get(base.replace(session.id, "nobodys"))).status_code == 404
        assert (await client.delete(f"{base}/a/b.png")).status_code == 200
        assert (await client.get(base)).json() == ["user:c"]


async def test_live_is_refused_with_a_sentence(server: Server, session: Session) -> None:
    url = f"ws://127.0.0.1:{server.port}/run_live?app_name={APP}&user_id={session.user_id}&session_id={session.id}"
    async with connect(url) as socket:
        with pytest.raises(ConnectionClosed, match=r"Live .* is not supported"):
            await socket.recv()


WRONG: list[dict[str, Any]] = [
    {"newMessage": None},
    {"newMessage": {"role": "user", "parts": []}},
    {"newMessage": {"role": "user", "parts": [{"inlineData": {"mimeType": "image/png", "data": "?"}}]}},
    {"newMessage": {"role": "user", "parts": [{"text": "see"}, {"fileData": {"fileUri": "file:///etc/passwd"}}]}},
    {"newMessage": {"role": "user", "parts": [{"functionResponse": {"name": "order", "response": {}}}]}},
    {"newMessage": {"role": "user", "parts": [{"functionResponse": {"id": "c", "name": "order"}}, {"text": "x"}]}},
    {"newMessage": {"parts": "x"}},
    {"sessionId": "a/b"},
]


@pytest.mark.parametrize("wrong", WRONG)
async def test_an_invalid_run_is_refused(server: Server, session: Session, wrong: dict[str, Any]) -> None:
    body = run_request(session, text("hi")).model_dump(mode="json", by_alias=True, exclude_none=True) | wrong
    async with server.client() as client:
        for path in ("/run", "/run_sse"):
            response = await client.post(path, json=body)
            assert (response.status_code, response.json()["error"]["type"]) == (400, "BadRequest")


async def test_with_keys_only_ones_own_user_is_there(tmp_path: Path, sqlite_url: str) -> None:
    async with Store(sqlite_url) as store:
        alice, bob = [(await add_api_key(store, name))[1] for name in ("alice", "bob")]
    with serving(tmp_path, sqlite_url, server='auth = "keys"') as server:
        base = f"/apps/{APP}/users/alice/sessions"
        async with server.client(Authorization=f"Bearer {alice}") as client:
            assert (await client.post(base, json={"sessionId": "s"})).status_code == 200
        item = run_request(Session(id="s", app_name=APP, user_id="alice"), text("hi"))
        body = item.model_dump(mode="json", by_alias=True, exclude_none=True)
        calls: list[tuple[str, str, Any]] = [
            ("GET", base, None),
            ("POST", base, {}),
            ("GET", f"{base}/s", None),
            ("POST", f"{base}/t", None),
            ("PATCH", f"{base}/s", {"stateDelta": {"a": 1}}),
            ("DELETE", f"{base}/s", None),
            ("POST", "/run", body),
            ("POST", "/run_sse", body),
        ]
        async with server.client(Authorization=f"Bearer {bob}") as client, server.client() as nobody:
            for method, path, sent in calls:
                theirs = await client.request(method, path, json=sent)
                assert (theirs.status_code, theirs.json()["error"]["type"]) == (404, "NotFound"), path
                unknown = await nobody.request(method, path, json=sent)
                assert (unknown.status_code, "valid API key" in unknown.json()["detail"]) == (401, True)
            assert (await client.post("/run", json=body | {"userId": "bob"})).status_code == 404
        assert (await run_whole(server, item, Authorization=f"Bearer {alice}")).status_code == 200
