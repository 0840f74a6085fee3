"""Input requests of a workflow over HTTP, WebSocket, AG-UI, OpenAI's protocol and ADK's REST, on a real server."""

import asyncio
import json
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from ag_ui.core import Event as AguiEvent
from ag_ui.core import (
    Interrupt,
    ResumeEntry,
    RunAgentInput,
    RunFinishedEvent,
    RunFinishedInterruptOutcome,
    StepFinishedEvent,
    StepStartedEvent,
    TextMessageContentEvent,
    UserMessage,
)
from google.adk.cli.adk_web_server import RunAgentRequest
from google.adk.cli.conformance.adk_web_server_client import AdkWebServerClient
from google.genai import types
from pydantic import TypeAdapter
from websockets.asyncio.client import connect

from lango.store import Store
from tests.support.servers.server_process import TIMEOUT_S, Server, give, send, serving, wait_path, waits_of
from tests.support.servers.workflow_agent import SIZE

AGENT = Path(__file__).parents[2] / "support" / "servers" / "workflow_agent.py"
MODULE = f"module = {json.dumps(str(AGENT))}"
ORDERED = '{"ordered":{"size":3,"color":null}}'
AGUI_EVENT: TypeAdapter[AguiEvent] = TypeAdapter(AguiEvent)


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> str:
    return f"sqlite:///{tmp_path_factory.mktemp('inputs')}/lango.db"


@pytest.fixture(scope="module")
def server(url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with serving(tmp_path_factory.mktemp("server"), url, agent=MODULE) as running:
        yield running


@pytest.fixture
def session() -> str:
    return f"s-{uuid.uuid4().hex[:8]}"


async def ask(client: httpx.AsyncClient, session: str, text: str = "go") -> dict[str, Any]:
    events = await send(client, session, text)
    assert events[-1].data["status"] == "waiting"
    [wait] = await waits_of(client, session)
    assert wait["kind"] == "input"
    return wait


def value(given: Any) -> dict[str, Any]:
    return {"type": "value", "value": given}


async def test_an_input_request_is_listed_and_answered_once(server: Server, session: str) -> None:
    async with server.client() as client:
        request = await ask(client, session)
        assert (request["message"], request["schema"]) == ("How large, and which color?", SIZE)
        assert request["payload"] == {"shop": "Bern"}
        events = await give(client, request, value({"size": 3}), **{"Idempotency-Key": "k"})
        assert [event.data["text"] for event in events if event.type == "text_delta"] == [ORDERED]
        assert events[-1].data["output"] == {"ordered": {"size": 3, "color": None}}
        nodes = [(event.data["name"], event.data["status"]) for event in events if event.type == "node"]
        assert nodes == [("ask_size", "ended"), ("order", "started"), ("order", "ended")]
        assert await waits_of(client, session) == []
        again = await give(client, request, value({"size": 3}), **{"Idempotency-Key": "k"})
        assert [event.id for event in again] == [event.id for event in events]
        late = await client.post(wait_path(request), json=value({"size": 4}))
        assert (late.status_code, late.json()["error"]["type"]) == (409, "WaitNotOpen")
        shown = (await client.get(f"/v1/sessions/{session}/messages")).json()["messages"]
        assert (shown[-1]["role"], shown[-1]["content"]) == ("assistant", ORDERED)


async def test_a_wrong_value_is_refused_with_the_reason(server: Server, session: str) -> None:
    async with server.client() as client:
        request = await ask(client, session)
        before = (await client.get(f"/v1/sessions/{session}/messages")).json()
        path = wait_path(request)
        for wrong in ({"size": "large"}, "large", {"color": "red"}):
            refused = await client.post(path, json=value(wrong))
            assert (refused.status_code, refused.json()["error"]["type"]) == (422, "InvalidAnswer")
            assert "does not fit" in refused.json()["error"]["message"]
        assert (await client.post(path, json={})).status_code == 400
        by_message = await client.post(f"/v1/sessions/{session}/messages", json={"text": "large"})
        assert (by_message.status_code, by_message.json()["error"]["type"]) == (422, "InvalidAnswer")
        assert (await client.get(f"/v1/sessions/{session}/messages")).json() == before
        events = await send(client, session, '{"size": 3}')
        assert events[-1].data["output"] == {"ordered": {"size": 3, "color": None}}, "a message is an answer, too"


async def test_cancel_closes_the_request(server: Server, session: str) -> None:
    async with server.client() as client:
        request = await ask(client, session)
        assert (await client.post(f"/v1/sessions/{session}/cancel")).json() == {"cancelled": True}
        assert (await client.post(wait_path(request), json=value({"size": 3}))).status_code == 409
        await ask(client, session, "again")


async def test_reading_a_session_closes_expired_requests(server: Server, url: str, session: str) -> None:
    async with server.client() as client, Store(url) as store:
        request = await ask(client, session)

        def expire() -> Any:
            yield "UPDATE waits SET expires_at = 1 WHERE kind = 'input'", ()

        await store.write(expire)
        assert await waits_of(client, session) == []
        shown = (await client.get(f"/v1/sessions/{session}/messages")).json()["messages"]
        assert shown[-1]["tool_calls"][0]["output"] == {"error": "no answer: the input request expired"}
        late = await client.post(wait_path(request), json=value({"size": 3}))
        assert late.json()["error"]["type"] == "WaitNotOpen"


async def test_the_server_may_be_killed_between_question_and_answer(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/lango.db"
    with serving(tmp_path / "first", url, agent=MODULE) as first:
        async with first.client() as client:
            request = await ask(client, "s")
        first.kill()
    with serving(tmp_path / "second", url, agent=MODULE) as second:
        async with second.client() as client:
            events = await give(client, request, value({"size": 3, "color": "red"}))
            assert events[-1].data["output"] == {"ordered": {"size": 3, "color": "red"}}


async def test_websocket(server: Server, session: str) -> None:
    async def read(kind: str) -> dict[str, Any]:
        async with asyncio.timeout(TIMEOUT_S):
            while (event := json.loads(await socket.recv()))["type"] != kind:
                pass
            return event

    async with connect(f"ws://127.0.0.1:{server.port}/v1/ws") as socket:
        await socket.send(json.dumps({"type": "message", "session": session, "text": "go"}))
        request = (await read("wait_opened"))["wait"]
        assert (await read("done"))["status"] == "waiting"
        message = {"type": "answer", "session": session, "wait_id": request["id"]}
        await socket.send(json.dumps({**message, "answer": value({"size": 0})}))
        refused = await read("turn_error")
        assert (refused["error"], refused["session"], refused["fatal"]) == ("InvalidAnswer", session, False)
        await socket.send(json.dumps({**message, "answer": value({"size": 3})}))
        assert (await read("done"))["output"] == {"ordered": {"size": 3, "color": None}}
        await socket.send(json.dumps({**message, "answer": value({"size": 3})}))
        assert (await read("turn_error"))["error"] == "WaitNotOpen"


async def run_agui(client: httpx.AsyncClient, request: RunAgentInput) -> list[AguiEvent]:
    body = request.model_dump(mode="json", by_alias=True, exclude_none=True)
    async with client.stream("POST", "/agui", json=body) as response:
        assert response.status_code == 200, await response.aread()
        lines = [line async for line in response.aiter_lines()]
    return [AGUI_EVENT.validate_json(line.removeprefix("data: ")) for line in lines if line.startswith("data: ")]


def one_interrupt(events: list[AguiEvent]) -> Interrupt:
    finished = events[-1]
    assert isinstance(finished, RunFinishedEvent)
    assert isinstance(finished.outcome, RunFinishedInterruptOutcome)
    [interrupt] = finished.outcome.interrupts
    return interrupt


async def test_agui_answers_an_interrupt(server: Server, session: str) -> None:
    async with server.client() as client:
        first = RunAgentInput(thread_id=session, run_id="r1", messages=[UserMessage(id="m1", content="go")])
        events = await run_agui(client, first)
        started = [event.step_name for event in events if isinstance(event, StepStartedEvent)]
        assert started == ["obedient@1/prepare@1", "obedient@1/ask_size@1"]
        assert [event.step_name for event in events if isinstance(event, StepFinishedEvent)] == started
        interrupt = one_interrupt(events)
        assert (interrupt.reason, interrupt.message, interrupt.response_schema) == (
            "input_needed",
            "How large, and which color?",
            SIZE,
        )
        wrong = ResumeEntry(interrupt_id=interrupt.id, status="resolved", payload={"size": "large"})
        body = RunAgentInput(thread_id=session, run_id="r2", messages=first.messages, resume=[wrong])
        refused = await client.post("/agui", json=body.model_dump(mode="json", by_alias=True, exclude_none=True))
        assert (refused.status_code, refused.json()["error"]["type"]) == (422, "InvalidAnswer")
        right = ResumeEntry(interrupt_id=interrupt.id, status="resolved", payload={"size": 3})
        events = await run_agui(
            client, RunAgentInput(thread_id=session, run_id="r3", messages=first.messages, resume=[right])
        )
        assert [event.delta for event in events if isinstance(event, TextMessageContentEvent)] == [ORDERED]


async def test_agui_answers_with_a_message_or_cancels(server: Server, session: str) -> None:
    async with server.client() as client:
        messages: list[Any] = [UserMessage(id="m1", content="go")]
        await run_agui(client, RunAgentInput(thread_id=session, run_id="r1", messages=messages))
        messages.append(UserMessage(id="m2", content='{"size": 3}'))
        events = await run_agui(client, RunAgentInput(thread_id=session, run_id="r2", messages=messages))
        assert [event.delta for event in events if isinstance(event, TextMessageContentEvent)] == [ORDERED]
        messages.append(UserMessage(id="m3", content="again"))
        events = await run_agui(client, RunAgentInput(thread_id=session, run_id="r3", messages=messages))
        interrupt = one_interrupt(events)
        given_up = ResumeEntry(interrupt_id=interrupt.id, status="cancelled")
        events = await run_agui(
            client, RunAgentInput(thread_id=session, run_id="r4", messages=messages, resume=[given_up])
        )
        assert isinstance(events[-1], RunFinishedEvent)
        assert await waits_of(client, session) == []


async def test_openai_asks_in_the_answer_and_the_next_message_answers(server: Server, session: str) -> None:
    async with server.client(**{"X-Session-Id": session}) as client:
        body: dict[str, Any] = {"model": "obedient", "messages": [{"role": "user", "content": "free"}]}
        asked = (await client.post("/v1/chat/completions", json=body)).json()["choices"][0]["message"]
        assert asked["content"].strip() == "[This needs input: What else?]"
        body["messages"] += [asked, {"role": "user", "content": "42"}]
        answered = (await client.post("/v1/chat/completions", json=body)).json()["choices"][0]["message"]
        assert answered["content"] == '{"ordered":"42"}'


async def test_adks_client_sends_a_function_response_or_a_text(server: Server) -> None:
    async with AdkWebServerClient(server.url, timeout=TIMEOUT_S) as client:
        session = await client.create_session(app_name="obedient", user_id="user", state={})

        async def run(part: types.Part) -> list[Any]:
            content = types.Content(role="user", parts=[part])
            request = RunAgentRequest(
                app_name="obedient", user_id="user", session_id=session.id, new_message=content, streaming=False
            )
            return [event async for event in client.run_agent(request)]

        for give_text in (False, True):
            events = await run(types.Part(text="go"))
            [call] = [call for event in events for call in event.get_function_calls()]
            assert (call.name, (call.args or {})["response_schema"]) == ("adk_request_input", SIZE)
            response = types.FunctionResponse(id=call.id, name=call.name, response={"result": '{"size": 3}'})
            answer = types.Part(text='{"size": 3}') if give_text else types.Part(function_response=response)
            [event] = await run(answer)
            assert event.output == {"ordered": {"size": 3, "color": None}}
