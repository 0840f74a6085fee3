"""AG-UI against a real server; its events are parsed with the protocol's own types."""

import asyncio
import json
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from ag_ui.core import (
    AssistantMessage,
    Event,
    EventType,
    ResumeEntry,
    RunAgentInput,
    RunErrorEvent,
    RunFinishedCancelledOutcome,
    RunFinishedEvent,
    RunFinishedInterruptOutcome,
    RunStartedEvent,
    StateSnapshotEvent,
    TextMessageContentEvent,
    ToolCallArgsEvent,
    ToolCallResultEvent,
    ToolCallStartEvent,
    UserMessage,
)
from pydantic import TypeAdapter

from lango.store import Store
from tests.agents.parts import add_api_key
from tests.support.servers.server_process import TIMEOUT_S, Server, serving

EVENT: TypeAdapter[Event] = TypeAdapter(Event)
CALL = ["TOOL_CALL_START", "TOOL_CALL_ARGS", "TOOL_CALL_END"]
TEXT = ["TEXT_MESSAGE_START", "TEXT_MESSAGE_CONTENT", "TEXT_MESSAGE_END"]
START = ["RUN_STARTED", "STATE_SNAPSHOT"]
END = ["RUN_FINISHED"]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("agui")
    with serving(folder, f"sqlite:///{folder}/lango.db", server="heartbeat_s = 0.2") as running:
        yield running


@pytest.fixture
def thread() -> str:
    return f"t-{uuid.uuid4().hex[:8]}"


def run_input(thread: str, text: str, **more: Any) -> RunAgentInput:
    message = UserMessage(id=uuid.uuid4().hex, content=text)
    return RunAgentInput(thread_id=thread, run_id=uuid.uuid4().hex, messages=[message], **more)


async def run(client: httpx.AsyncClient, request: RunAgentInput) -> list[Event]:
    """Return all events of a run."""
    events: list[Event] = []
    body = request.model_dump(by_alias=True, mode="json")
    async with client.stream("POST", "/agui", json=body) as response:
        assert response.status_code == 200, await response.aread()
        assert response.headers["content-type"].startswith("text/event-stream")
        async for line in response.aiter_lines():
            assert line == "" or line.startswith((": ", "data: ")), line
            if line.startswith("data: "):
                events.append(EVENT.validate_json(line.removeprefix("data: ")))
    return events


def types_of(events: list[Event]) -> list[str]:
    """Return the types of events, with consecutive deltas as one."""
    names = [EventType(event.type).value for event in events]
    twice = "TEXT_MESSAGE_CONTENT"
    return [name for place, name in enumerate(names) if not (place and name == twice == names[place - 1])]


def one_of(kind: type[Any], events: list[Event]) -> Any:
    [found] = [event for event in events if isinstance(event, kind)]
    return found


async def test_a_run_streams_text_and_state(server: Server, thread: str) -> None:
    async with server.client() as client:
        await client.post("/v1/sessions", json={"id": thread, "state": {"city": "Bern"}})
        request = run_input(thread, "words 4 0.3")
        events = await run(client, request)
        assert types_of(events) == [*START, *TEXT, *END]
        texts = [event for event in events if isinstance(event, TextMessageContentEvent)]
        assert "".join(event.delta for event in texts) == "w0 w1 w2 w3 "
        assert len(texts) > 1, "streamed as it is generated"
        assert len({event.message_id for event in texts}) == 1
        assert one_of(StateSnapshotEvent, events).snapshot == {"city": "Bern"}
        for event in (one_of(RunStartedEvent, events), one_of(RunFinishedEvent, events)):
            assert (event.thread_id, event.run_id) == (thread, request.run_id)
        assert one_of(RunFinishedEvent, events).usage[0].total_tokens == 15


async def test_a_long_conversation_may_be_sent_again(server: Server, thread: str) -> None:
    request = run_input(thread, "and now?")
    long = UserMessage(id="m0", content="many words " * 100_000)
    request.messages = [long, AssistantMessage(id="m1", content="so many"), *request.messages]
    async with server.client() as client:
        assert types_of(await run(client, request)) == [*START, *TEXT, *END]
        page = (await client.get(f"/v1/sessions/{thread}/messages")).json()
        assert page["messages"][0]["content"] == "and now?", "what came before is in the session, or nowhere"


async def test_a_thread_is_a_session_and_a_run_is_sent_once(server: Server, thread: str) -> None:
    async with server.client() as client:
        first, second = run_input(thread, "one"), run_input(thread, "two\u2028three")
        await run(client, first)
        await run(client, second)
        assert types_of(await run(client, second)) == [*START, *TEXT, *END], "a repeated run streams again"
        page = (await client.get(f"/v1/sessions/{thread}/messages")).json()
        assert [one["content"] for one in page["messages"]] == ["one", "one", "two\u2028three", "two three"]


async def test_messages_since_the_last_answer_are_all_read_and_each_once(server: Server, thread: str) -> None:
    def with_messages(*texts: str) -> RunAgentInput:
        request = run_input(thread, texts[-1])
        before: list[Any] = [UserMessage(id=uuid.uuid4().hex, content=text) for text in texts[:-1]]
        return request.model_copy(update={"messages": [*before, *request.messages]})

    def read(events: list[Event]) -> list[Any]:
        text_received = "".join(event.delta for event in events if isinstance(event, TextMessageContentEvent))
        return [text for _, [text] in json.loads(text_received)]

    async with server.client() as client:
        assert read(await run(client, with_messages("one", "recite"))) == ["one", "recite"]
        await run(client, with_messages("fail"))
        assert read(await run(client, with_messages("fail", "two", "recite")))[-4:-1] != ["fail", "fail", "two"]
        elsewhere = with_messages("one", "recite").model_copy(update={"thread_id": f"{thread}-other"})
        assert read(await run(client, elsewhere)) == ["one", "recite"], "a thread reads nothing of another"
        page = (await client.get(f"/v1/sessions/{thread}/messages")).json()["messages"]
        assert [one["content"] for one in page if one["role"] == "user"] == ["one", "recite", "fail", "two", "recite"]


async def test_the_agents_own_tools_are_streamed(server: Server, thread: str) -> None:
    async with server.client() as client:
        events = await run(client, run_input(thread, "note"))
    assert types_of(events) == [*START, *CALL, "TOOL_CALL_RESULT", *TEXT, *END]
    start, result = one_of(ToolCallStartEvent, events), one_of(ToolCallResultEvent, events)
    assert start.tool_call_name == "note"
    assert one_of(ToolCallArgsEvent, events).delta == '{"text": "this"}'
    assert start.tool_call_id == result.tool_call_id
    assert result.content == '{"noted": "this"}'


@pytest.mark.parametrize("approved", [True, False])
async def test_an_approval_is_an_interrupt_that_the_next_run_answers(
    server: Server, thread: str, approved: bool
) -> None:
    async with server.client() as client:
        events = await run(client, run_input(thread, "ask"))
        assert types_of(events) == [*START, *CALL, *END]
        outcome = one_of(RunFinishedEvent, events).outcome
        assert isinstance(outcome, RunFinishedInterruptOutcome)
        [interrupt] = outcome.interrupts
        assert interrupt.tool_call_id == one_of(ToolCallStartEvent, events).tool_call_id
        assert interrupt.message
        assert "wipe" in interrupt.message
        answer = ResumeEntry(interrupt_id=interrupt.id, status="resolved", payload={"approved": approved})
        resumed = run_input(thread, "ask", resume=[answer])
        events = await run(client, resumed)
        assert types_of(events)[-len([*TEXT, *END]) :] == [*TEXT, *END]
        assert not any(isinstance(event, ToolCallStartEvent) for event in events), "the earlier run streamed the call"
        assert ("noted" in one_of(ToolCallResultEvent, events).content) == approved
        again = await client.post("/agui", json=resumed.model_dump(by_alias=True, mode="json"))
        assert (again.status_code, again.json()["error"]["type"]) == (409, "WaitNotOpen")


async def test_an_approval_may_bring_a_grant_for_later_calls(server: Server, thread: str) -> None:
    async with server.client() as client:
        outcome = one_of(RunFinishedEvent, await run(client, run_input(thread, "ask"))).outcome
        assert isinstance(outcome, RunFinishedInterruptOutcome)

        def resumed(grant: Any) -> RunAgentInput:
            payload = {"approved": True, "grant": grant}
            answer = ResumeEntry(interrupt_id=outcome.interrupts[0].id, status="resolved", payload=payload)
            return run_input(thread, "ask", resume=[answer])

        for grant in ({"arguments": {"text": {"any": True}}}, {"arguments": 1}, 1):
            refused = await client.post("/agui", json=resumed(grant).model_dump(by_alias=True, mode="json"))
            assert (refused.status_code, refused.json()["error"]["type"]) == (422, "GrantRefused")
        await run(client, resumed({}))
        events = await run(client, run_input(thread, "ask"))
        assert "noted" in one_of(ToolCallResultEvent, events).content, "it asks no more"


async def test_a_long_running_tool_is_an_interrupt_that_the_next_run_answers(server: Server, thread: str) -> None:
    async with server.client() as client:
        events = await run(client, run_input(thread, "call order"))
        assert types_of(events) == [*START, *CALL, *END]
        outcome = one_of(RunFinishedEvent, events).outcome
        assert isinstance(outcome, RunFinishedInterruptOutcome)
        [interrupt] = outcome.interrupts
        assert (interrupt.reason, interrupt.message) == ("result_needed", "The tool order waits for its result.")
        assert interrupt.tool_call_id == one_of(ToolCallStartEvent, events).tool_call_id
        cancelled = ResumeEntry(interrupt_id=interrupt.id, status="cancelled")
        assert types_of(await run(client, run_input(thread, "", resume=[cancelled]))) == [*START, *END]
        given = ResumeEntry(interrupt_id=interrupt.id, status="resolved", payload="home")
        events = await run(client, run_input(thread, "", resume=[given]))
        assert types_of(events) == [*START, *TEXT, *END]
        text = "".join(event.delta for event in events if isinstance(event, TextMessageContentEvent))
        assert text == "the tool said {'result': 'home'}"


async def test_a_failed_run_ends_with_the_error(server: Server, thread: str) -> None:
    async with server.client() as client:
        events = await run(client, run_input(thread, "fail"))
    assert types_of(events) == [*START, "RUN_ERROR"]
    error = one_of(RunErrorEvent, events)
    assert error.code == "ProviderRejected"
    assert "the provider does not want to" in error.message


async def test_a_run_that_is_cancelled_closes_what_is_open(server: Server, thread: str, tmp_path: Path) -> None:
    async with server.client() as client, asyncio.timeout(TIMEOUT_S):
        running = asyncio.create_task(run(client, run_input(thread, f"hold {tmp_path / 'never'}")))
        while not (await client.post(f"/v1/sessions/{thread}/cancel")).json().get("cancelled"):
            await asyncio.sleep(0.05)
        events = await running
    assert isinstance(one_of(RunFinishedEvent, events).outcome, RunFinishedCancelledOutcome)
    names = types_of(events)
    assert names.count("TEXT_MESSAGE_START") == names.count("TEXT_MESSAGE_END")


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        ({"threadId": "a/b"}, "threadId"),
        ({"runId": None}, "runId"),
        ({"messages": []}, "last message"),
        ({"messages": [{"id": "m", "role": "user", "content": ""}]}, "last message"),
        ({"messages": [{"id": "m", "role": "assistant", "content": "hi"}]}, "last message"),
        ({"messages": [{"id": "m", "role": "nobody", "content": "x"}]}, "messages.0"),
    ],
)
async def test_an_invalid_run_is_refused(server: Server, wrong: dict[str, Any], reason: str) -> None:
    async with server.client() as client:
        body = run_input("t", "hi").model_dump(by_alias=True, mode="json") | wrong
        response = await client.post("/agui", json=body)
        assert response.status_code == 400
        assert reason in response.json()["error"]["message"]


async def test_threads_are_their_users_own_and_a_missing_package_is_named(tmp_path: Path, sqlite_url: str) -> None:
    async with Store(sqlite_url) as store:
        alice, bob = [(await add_api_key(store, name))[1] for name in ("alice", "bob")]
    with serving(tmp_path, sqlite_url, server='auth = "keys"') as server:
        async with server.client() as client:
            body = run_input("t", "hi").model_dump(by_alias=True, mode="json")
            assert (await client.post("/agui", json=body)).status_code == 401
        for key, text in ((alice, "of alice"), (bob, "of bob")):
            async with server.client(Authorization=f"Bearer {key}") as client:
                assert types_of(await run(client, run_input("t", text)))[-1] == "RUN_FINISHED"
                page = (await client.get("/v1/sessions/t/messages")).json()
                assert [one["content"] for one in page["messages"]] == [text, text]

    hidden = tmp_path / "hidden" / "ag_ui"
    hidden.mkdir(parents=True)
    (hidden / "__init__.py").write_text("raise ModuleNotFoundError('ag_ui')\n")
    with serving(tmp_path, sqlite_url, env={"PYTHONPATH": str(hidden.parent)}, fresh=True) as server:
        async with server.client() as client:
            body = run_input("t", "hi").model_dump(by_alias=True, mode="json")
            response = await client.post("/agui", json=body)
            assert response.status_code == 501
            assert 'pip install "lango-adk[agui]"' in response.json()["error"]["message"]
