"""Tools of an AG-UI client: a call ends the run, and the next run, on any server, has the result."""

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
    DataSource,
    Event,
    FunctionCall,
    ImagePart,
    Message,
    ResumeEntry,
    RunAgentInput,
    RunErrorEvent,
    RunFinishedEvent,
    RunFinishedInterruptOutcome,
    TextMessageContentEvent,
    TextPart,
    Tool,
    ToolCall,
    ToolCallArgsEvent,
    ToolCallResultEvent,
    ToolCallStartEvent,
    ToolMessage,
    UserMessage,
)

from lango.server.compat.resent_history import FILE_LEFT_OUT
from lango.sessions import NO_RESULT_TEXT
from lango.store import Store
from tests.agents.parts import add_api_key
from tests.e2e.server_compat.test_agui import CALL, END, START, TEXT, one_of, run, types_of
from tests.support.clients.packages import AGUI_CLIENT, run_javascript
from tests.support.servers.server_process import Server, serving

SCRIPT = Path(__file__).parents[2] / "support" / "servers" / "agui_client.mjs"
PICK = Tool(
    name="pick",
    description="Let the user pick.",
    parameters={"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]},
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("agui-tools")


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[Server]:
    env = {"LANGO_AGENT__RETRY_DELAY_S": "0.01"}
    with serving(folder / "one", f"sqlite:///{folder}/lango.db", env=env) as running:
        yield running


class Client:
    """A client as they are: it keeps the conversation, and sends all of it with every run."""

    def __init__(self, http: httpx.AsyncClient, tools: list[Tool] | None = None) -> None:
        self.http = http
        self.thread = f"t-{uuid.uuid4().hex[:8]}"
        self.messages: list[Message] = []
        self.tools = [PICK] if tools is None else tools
        self.calls: dict[str, str] = {}

    def run_input(self, **more: Any) -> RunAgentInput:
        return RunAgentInput(
            thread_id=self.thread, run_id=uuid.uuid4().hex, messages=self.messages, tools=self.tools, **more
        )

    async def run(self, **more: Any) -> list[Event]:
        events = await run(self.http, self.run_input(**more))
        arguments = {one.tool_call_id: one.delta for one in events if isinstance(one, ToolCallArgsEvent)}
        starts = [one for one in events if isinstance(one, ToolCallStartEvent)]
        calls = [
            ToolCall(
                id=one.tool_call_id,
                function=FunctionCall(name=one.tool_call_name, arguments=arguments[one.tool_call_id]),
            )
            for one in starts
        ]
        if calls:
            self.messages.append(AssistantMessage(id=uuid.uuid4().hex, tool_calls=calls))
        for one in events:
            if isinstance(one, ToolCallResultEvent):
                self.returned(one.tool_call_id, str(one.content))
        self.calls = {one.tool_call_name: one.tool_call_id for one in starts}
        if text := text_of(events):
            self.messages.append(AssistantMessage(id=uuid.uuid4().hex, content=text))
        return events

    async def send(self, text: str) -> list[Event]:
        self.messages.append(UserMessage(id=uuid.uuid4().hex, content=text))
        return await self.run()

    def returned(self, call_id: str, content: Any, **more: Any) -> None:
        self.messages.append(ToolMessage(id=uuid.uuid4().hex, tool_call_id=call_id, content=content, **more))

    async def refused(self, **more: Any) -> tuple[int, str, str]:
        answer = await self.http.post("/agui", json=self.run_input(**more).model_dump(by_alias=True, mode="json"))
        error = answer.json()["error"]
        return answer.status_code, error["type"], error["message"]

    async def results(self) -> dict[str, Any]:
        """Return what is stored: one result for each call."""
        page = (await self.http.get(f"/v1/sessions/{self.thread}/messages")).json()["messages"]
        found = [call for one in page if one["role"] == "tool" for call in one["tool_calls"]]
        # a call that waits for approval has an interrupt
        found = [
            call for call in found if call["name"] != "adk_request_confirmation" and "status" not in call["output"]
        ]
        assert len({call["id"] for call in found}) == len(found), found
        return {call["id"]: call["output"] for call in found}


def text_of(events: list[Event]) -> str:
    return "".join(one.delta for one in events if isinstance(one, TextMessageContentEvent))


async def test_a_call_ends_the_run_and_the_next_run_brings_its_result(server: Server) -> None:
    async with server.client() as http:
        client = Client(http)
        events = await client.send("call pick")
        assert types_of(events) == [*START, *CALL, *END], "no result: it is the client's to give"
        assert one_of(ToolCallArgsEvent, events).delta == '{"text": "pick"}'
        assert one_of(RunFinishedEvent, events).outcome is None
        client.returned(client.calls["pick"], '{"color": "red"}')
        events = await client.run()
        assert types_of(events) == [*START, *TEXT, *END]
        assert text_of(events) == "the tool said {'color': 'red'}"
        assert text_of(await client.send("and on")) == "and on"
        assert list((await client.results()).values()) == [{"color": "red"}]
        client.tools = []
        assert "no tool with that name" in str(one_of(ToolCallResultEvent, await client.send("call pick")).content), (
            "not offered"
        )


@pytest.mark.parametrize(
    ("content", "error", "kept"),
    [
        ("red", None, {"result": "red"}),
        ("[1, 2]", None, {"result": "[1, 2]"}),
        ('{"a": NaN}', None, {"result": '{"a": NaN}'}),
        ("[" * 100_000, None, None),
        ("", "the user closed the page", {"error": "the user closed the page"}),
        ("x" * 200_000, None, None),
    ],
)
async def test_whatever_a_client_returns_is_kept_as_a_result(
    server: Server, content: str, error: str | None, kept: dict[str, Any] | None
) -> None:
    async with server.client() as http:
        client = Client(http)
        await client.send("call pick")
        client.returned(client.calls["pick"], content, error=error)
        assert types_of(await client.run())[-1] == "RUN_FINISHED"
        [stored] = (await client.results()).values()
        if kept is None:
            assert len(json.dumps(stored)) < 50_000
            assert "were left out" in (stored.get("result") or stored["text"])
            assert text_of(await client.send("and on")) == "and on"
        else:
            assert stored == kept


async def test_a_file_in_a_result_is_left_out_and_the_model_reads_so(server: Server) -> None:
    async with server.client() as http:
        client = Client(http)
        await client.send("call pick")
        source = DataSource(value="iVBORw0KGgo=", mime_type="image/png")
        client.returned(client.calls["pick"], [TextPart(text="look: "), ImagePart(source=source)])
        assert text_of(await client.run()) == f"the tool said {{'result': 'look: {FILE_LEFT_OUT}'}}"


async def test_calls_beside_the_agents_own_tools_go_on_together(server: Server) -> None:
    async with server.client() as http:
        client = Client(http)
        events = await client.send("call pick note pick")
        assert types_of(events).count("TOOL_CALL_START") == 3
        assert len([one for one in events if isinstance(one, ToolCallResultEvent)]) == 1, "the agent's own"
        first, second = [
            one.tool_call_id for one in events if isinstance(one, ToolCallStartEvent) if one.tool_call_name == "pick"
        ]
        client.returned(first, "red")
        assert types_of(await client.run()) == [*START, *END], "the other one still waits"
        client.returned(second, "blue")
        answer_text = text_of(await client.run())
        assert answer_text.count("the tool said") == 3
        assert "red" in answer_text
        assert "blue" in answer_text
        assert len(await client.results()) == 3


async def test_a_message_instead_closes_the_call_and_one_beside_a_result_takes_it(server: Server) -> None:
    async with server.client() as http:
        client = Client(http)
        await client.send("call pick")
        assert text_of(await client.send("never mind")) == "never mind"
        client.returned(client.calls.get("pick", "c1-0"), "too late")
        status, kind, message = await client.refused()
        assert (status, kind) == (409, "WaitNotOpen")
        assert client.thread in message
        await client.send("call pick")
        client.returned(client.calls["pick"], "in time")
        assert text_of(await client.send("hello")) == "hello"
        assert [one.get("error") or one["result"] for one in (await client.results()).values()] == [
            NO_RESULT_TEXT,
            "in time",
        ]


async def test_a_repeated_result_streams_again_and_is_stored_once(server: Server) -> None:
    async with server.client() as http:
        client = Client(http)
        await client.send("call pick")
        client.returned(client.calls["pick"], "red")
        request = client.run_input()
        runs = [await run(http, one) for one in (request, request, client.run_input())]
        assert {text_of(events) for events in runs} == {"the tool said {'result': 'red'}"}
        assert len(await client.results()) == 1


async def test_an_id_that_comes_again_is_another_call(server: Server) -> None:
    """Some models restart their call ids in every answer."""
    async with server.client() as http:
        client = Client(http)
        for picked in ("red", "blue"):
            await client.send("again pick")
            client.returned(client.calls["pick"], picked)
            assert picked in text_of(await client.run())
        await client.send("again pick")
        assert text_of(await client.send("never mind")) == "never mind"
        page = (await http.get(f"/v1/sessions/{client.thread}/messages")).json()["messages"]
        results = [call["output"] for one in page if one["role"] == "tool" for call in one["tool_calls"]]
        assert [one.get("result") or one["error"] for one in results] == ["red", "blue", NO_RESULT_TEXT]


async def test_a_run_that_failed_after_the_result_is_tried_again_by_the_next(server: Server, tmp_path: Path) -> None:
    async with server.client() as http:
        client = Client(http)
        await client.send("call pick")
        file = tmp_path / "now"
        client.returned(client.calls["pick"], json.dumps({"until": str(file)}))
        failed = client.run_input()
        for request in (failed, client.run_input(), failed):
            assert one_of(RunErrorEvent, await run(http, request)).code == "ProviderRejected"
        file.touch()
        again = client.run_input()
        for request in (again, again):
            assert text_of(await run(http, request)).startswith("the tool said")
        status, kind, _ = await client.refused()
        assert (status, kind) == (409, "WaitNotOpen"), "it is answered"
        assert len(await client.results()) == 1
        assert text_of(await client.send("fine")) == "fine"


async def test_an_approval_and_a_result_are_answered_in_any_order(server: Server) -> None:
    async with server.client() as http:
        for together in (True, False):
            client = Client(http)
            finished = one_of(RunFinishedEvent, await client.send("call wipe pick"))
            assert isinstance(finished.outcome, RunFinishedInterruptOutcome)
            [interrupt] = finished.outcome.interrupts
            client.returned(client.calls["pick"], "red")
            if not together:
                finished = one_of(RunFinishedEvent, await client.run())
                assert isinstance(finished.outcome, RunFinishedInterruptOutcome), "the question is still open"
                assert finished.outcome.interrupts == [interrupt]
            answer = ResumeEntry(interrupt_id=interrupt.id, status="resolved", payload={"approved": True})
            answer_text = text_of(await client.run(resume=[answer]))
            assert "red" in answer_text
            assert "noted" in answer_text
            assert len(await client.results()) == 2


@pytest.mark.parametrize(
    ("tools", "says"),
    [
        ([Tool(name="note", description="Mine.")], "a tool named note"),
        ([PICK, PICK], "two tools"),
        ([Tool(name="", description="")], "not a valid tool name"),
        ([Tool(name="odd", description="", parameters={"type": "object", "properties": {"a": {"type": 7}}})], "odd"),
        ([Tool(name="odd", description="", parameters="a string")], "of an object"),
        ([Tool(name=f"t{at}", description="") for at in range(101)], "100 tools"),
    ],
)
async def test_tools_that_cannot_be_offered_are_refused_and_nothing_is_begun(
    server: Server, tools: list[Tool], says: str
) -> None:
    async with server.client() as http:
        client = Client(http, tools)
        client.messages.append(UserMessage(id="m", content="hi"))
        status, kind, message = await client.refused()
        assert (status, kind) == (400, "ClientToolRefused")
        assert says in message
        assert (await http.get(f"/v1/sessions/{client.thread}")).status_code == 404


async def test_the_call_waits_through_a_kill_in_its_turn_and_is_answered_elsewhere(
    sqlite_url: str, tmp_path: Path
) -> None:
    with serving(tmp_path / "a", sqlite_url) as first:
        async with first.client() as http:
            client = Client(http)
            client.messages.append(UserMessage(id="m", content="call pick linger"))
            body = client.run_input().model_dump(by_alias=True, mode="json")
            async with http.stream("POST", "/agui", json=body) as response:
                seen: list[str] = []
                async for line in response.aiter_lines():
                    seen += [json.loads(line.removeprefix("data: "))["type"]] if line else []
                    if seen.count("TOOL_CALL_END") == 2:
                        break
                first.kill()
    with serving(tmp_path / "b", sqlite_url) as second:
        async with second.client() as http:
            client.http = http
            client.returned("nobody", "x")
            assert (await client.refused())[:2] == (409, "WaitNotOpen")
            client.messages.pop()
            client.returned("c1-0", "red")
            answer_text = text_of(await client.run())
            assert "the tool said {'result': 'red'}" in answer_text
            assert "outcome is unknown" in answer_text, "of the agent's own tool"
            assert len(await client.results()) == 2


async def test_a_result_for_a_session_of_another_user_is_404(tmp_path: Path, sqlite_url: str) -> None:
    async with Store(sqlite_url) as store:
        alice, bob = [(await add_api_key(store, name))[1] for name in ("alice", "bob")]
    with serving(tmp_path, sqlite_url, server='auth = "keys"') as server:
        async with server.client(Authorization=f"Bearer {alice}") as http:
            client = Client(http)
            await client.send("call pick")
            client.returned(client.calls["pick"], "red")
            async with server.client(Authorization=f"Bearer {bob}") as theirs:
                client.http = theirs
                status, kind, message = await client.refused()
                assert (status, kind, message) == (404, "SessionNotFound", f"there is no session {client.thread!r}")
            client.http = http
            assert text_of(await client.run()) == "the tool said {'result': 'red'}"


async def test_ag_uis_own_client_runs_its_tools(server: Server) -> None:
    thread = f"t-{uuid.uuid4().hex[:8]}"
    says = ["hello", "call pick", "call pick note pick", "bye"]
    report = await asyncio.to_thread(run_javascript, SCRIPT, AGUI_CLIENT, url=server.url, thread=thread, says=says)
    assert [types[0] for types in report["runs"]] == ["RUN_STARTED"] * 6
    assert [types[-1] for types in report["runs"]] == ["RUN_FINISHED"] * 6
    texts = [one["content"] for one in report["messages"] if one["role"] == "assistant" and one.get("content")]
    assert texts[0] == "hello"
    assert texts[1] == "the tool said {'picked': 'pick'}"
    assert texts[2].count("the tool said {'picked': 'pick'}") == 2
    assert "{'noted': 'note'}" in texts[2]
    assert texts[3] == "bye"
    async with server.client() as http:
        client = Client(http)
        client.thread = thread
        assert sorted(map(str, (await client.results()).values())) == [
            "{'noted': 'note'}",
            "{'picked': 'pick'}",
            "{'picked': 'pick'}",
            "{'picked': 'pick'}",
        ]


async def test_withdrawn_text_is_gone_from_ag_uis_own_client(server: Server, tmp_path: Path) -> None:
    says = ["hello", f"fail once {tmp_path / 'failed'} the whole answer", "call note", "bye"]
    thread = f"t-{uuid.uuid4().hex[:8]}"
    report = await asyncio.to_thread(run_javascript, SCRIPT, AGUI_CLIENT, url=server.url, thread=thread, says=says)
    types = report["runs"][1]
    assert types.index("TEXT_MESSAGE_END") < types.index("MESSAGES_SNAPSHOT"), "the open message is closed before"
    assert types[-len(END) :] == END
    shown = [(one["role"], one["content"]) for one in report["messages"] if one.get("content")]
    assert shown == [
        ("user", "hello"),
        ("assistant", "hello"),
        ("user", says[1]),
        ("assistant", "the whole answer"),
        ("user", "call note"),
        ("tool", '{"noted": "note"}'),
        ("assistant", "the tool said {'noted': 'note'}"),
        ("user", "bye"),
        ("assistant", "bye"),
    ]
