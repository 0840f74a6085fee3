"""Agents as tools of an MCP server, through the official client: over HTTP and a process, in both eras of the protocol.

Clients of version 2026-07-28 are asked by the results of their calls, older ones by requests of the server.
"""

import asyncio
import json
import sys
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import httpx2
import pytest
from anyio import BrokenResourceError, create_memory_object_stream
from mcp import Client, StdioServerParameters
from mcp.client._transport import TransportStreams
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError
from mcp.shared.message import SessionMessage
from mcp_types import (
    CallToolResult,
    ElicitRequestParams,
    ElicitResult,
    ResourceLink,
    TextContent,
    jsonrpc_message_adapter,
)

from lango.messages import ToolCall
from lango.store import Store
from tests.agents.parts import add_api_key
from tests.support.processes import LANGO, start_piped_command
from tests.support.servers import credential_agent, mcp_tools
from tests.support.servers.oauth_server import oauth_server
from tests.support.servers.scripted_server import scripted_server
from tests.support.servers.server_process import TIMEOUT_S, Server, configure, serving

AGENT = "obedient"
PROMPTS = """
[server.mcp.prompts.review]
description = "Review a change."
template = "Review {change}, not {this}."
arguments = { change = "What changed." }
"""
ERAS = ["2026-07-28", "legacy"]
INITIALIZE = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}},
}
SHOP = '''
from collections.abc import AsyncGenerator
from typing import Any

from google.adk.events import RequestInput
from google.adk.workflow import START, Workflow, node
from pydantic import BaseModel

class Order(BaseModel):
    size: int
    color: str | None = None


@node
async def ask(node_input: Any) -> AsyncGenerator[Any, None]:
    """Ask for the size."""
    yield RequestInput(message="Which size?", response_schema=Order)


async def order(node_input: dict[str, Any], ctx: Any) -> dict[str, Any]:
    """Save the order, and put it out."""
    from google.genai import types

    await ctx.save_artifact("order/1.txt", types.Part.from_text(text=f"size {node_input['size']}"))
    return {"size": node_input["size"]}


root_agent = Workflow(name="shop", description="Sells shirts.", edges=[(START, ask, order)])
'''


class Asked:
    """A user who reacts to every question in the same way."""

    def __init__(self, action: str = "accept", **content: Any) -> None:
        self.questions: list[ElicitRequestParams] = []
        self._result = ElicitResult.model_validate({"action": action, "content": content or None})

    async def __call__(self, context: Any, params: ElicitRequestParams) -> ElicitResult:
        self.questions.append(params)
        return self._result


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("mcp")
    with serving(folder, f"sqlite:///{folder}/lango.db", server="heartbeat_s = 0.2", rest=PROMPTS) as running:
        yield running
        assert "Traceback" not in running.log.read_text()


@asynccontextmanager
async def connected(server: Server, era: str, key: str = "", **options: Any) -> AsyncGenerator[Client]:
    """Connect over HTTP, with a key if there is one."""
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    async with httpx2.AsyncClient(headers=headers, timeout=TIMEOUT_S) as http:
        transport = streamable_http_client(f"{server.url}/mcp", http_client=http)
        async with Client(transport, mode=era, read_timeout_seconds=TIMEOUT_S, **options) as client:
            yield client


@asynccontextmanager
async def piped(*command: str, cwd: Path) -> AsyncGenerator[TransportStreams]:
    """Start a process by a fork, and carry the client's messages through its pipes, one in each line."""
    received_in, received = create_memory_object_stream[SessionMessage | Exception](0)
    sent, sent_out = create_memory_object_stream[SessionMessage](0)

    async def read() -> None:
        async with received_in:
            async for line in reader:
                await received_in.send(SessionMessage(jsonrpc_message_adapter.validate_json(line, by_name=False)))

    async def write() -> None:
        async for one in sent_out:
            writer.write(one.message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n")

    async with start_piped_command(*command, cwd=cwd) as (reader, writer, _), received, sent, sent_out:
        reading, writing = asyncio.create_task(read()), asyncio.create_task(write())
        yield received, sent
        sent.close()
        await writing
        writer.close()
        received.close()
        with suppress(BrokenResourceError):  # it still answered
            await reading


@asynccontextmanager
async def started(
    config: Path, era: str, *arguments: str, fresh: bool = False, **options: Any
) -> AsyncGenerator[Client]:
    """Connect to a process; the client itself starts a `fresh` one, as its users let it."""
    args, folder = ["mcp", "--config", str(config), *arguments], config.parent
    process = (
        StdioServerParameters(command=LANGO, args=args, cwd=str(folder)) if fresh else piped("lango", *args, cwd=folder)
    )
    async with Client(process, mode=era, read_timeout_seconds=TIMEOUT_S, **options) as client:
        yield client


async def call(client: Client, agent: str = AGENT, **arguments: Any) -> dict[str, Any]:
    """Call an agent; return the structured result of a call that worked."""
    result = await client.call_tool(agent, arguments)
    assert not result.is_error, result
    return result.structured_content


def text_of(result: CallToolResult) -> str:
    return "\n".join(block.text for block in result.content if isinstance(block, TextContent))


@pytest.mark.parametrize("era", ERAS)
async def test_an_agent_is_a_tool_whose_session_continues(server: Server, era: str) -> None:
    async with connected(server, era) as client:
        [tool] = (await client.list_tools()).tools
        assert (tool.name, tool.description) == (AGENT, f"The agent {AGENT}.")
        reports: list[str | None] = []

        async def on_progress(progress: float, total: float | None, message: str | None) -> None:
            reports.append(message)

        result = await client.call_tool(AGENT, {"message": "note"}, progress_callback=on_progress)
        first = result.structured_content
        assert (first["status"], first["turn"]) == ("done", 1)
        assert text_of(result) == first["answer"] == "the tool said {'noted': 'this'}"
        # a report is repeated while nothing else happens
        assert [*dict.fromkeys(reports)] == [f"session {first['session']}", "runs note"]
        second = await call(client, message="recite", session=first["session"])
        assert "noted" in second["answer"]
        assert (second["session"], second["turn"]) == (first["session"], 2)
        assert await call(client, session=first["session"]) == second


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize(
    ("user", "said"),
    [
        (Asked(approved=True), "the tool said {'noted': 'wipe'}"),
        (Asked(approved=False, reason="too risky"), "too risky"),
        (Asked("decline"), "not run"),
    ],
    ids=["accepted", "refused", "declined"],
)
async def test_the_user_of_a_client_approves_or_refuses(server: Server, era: str, user: Asked, said: str) -> None:
    user.questions.clear()
    async with connected(server, era, elicitation_callback=user) as client:
        done = await call(client, message="call wipe")
    assert (done["status"], said in done["answer"]) == ("done", True), done
    [question] = user.questions
    assert question.message.startswith("May the tool wipe run with ")


@pytest.mark.parametrize("era", ERAS)
async def test_several_approvals_are_asked_for_in_one_call(server: Server, era: str) -> None:
    user = Asked(approved=True)
    async with connected(server, era, elicitation_callback=user) as client:
        done = await call(client, message="call wipe wipe")
    assert done["status"] == "done"
    assert len(user.questions) == 2


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("user", [None, Asked("cancel")], ids=["not asked", "cancelled"])
async def test_what_no_user_answers_is_in_the_result_and_a_later_call_continues(
    server: Server, era: str, user: Asked | None
) -> None:
    async with connected(server, era, elicitation_callback=user) as client:
        result = await client.call_tool(AGENT, {"message": "call wipe"})
        waiting = result.structured_content
        [wait] = waiting["waits"]
        assert (waiting["status"], wait["kind"], wait["tool"]) == ("waiting", "approval", "wipe")
        assert wait["id"] in text_of(result)
        refused = await client.call_tool(
            AGENT, {"session": waiting["session"], "wait": wait["id"], "answer": "perhaps"}
        )
        assert refused.is_error
        assert "yes or no" in text_of(refused)
        done = await call(client, session=waiting["session"], wait=wait["id"], answer=True)
        assert done["answer"] == "the tool said {'noted': 'wipe'}"
        late = await client.call_tool(AGENT, {"session": waiting["session"], "wait": wait["id"], "answer": True})
        assert late.is_error


@pytest.mark.parametrize("era", ERAS)
async def test_a_cancelled_call_stops_its_turn(server: Server, era: str, tmp_path: Path) -> None:
    async with connected(server, era) as client:
        await cancel_a_call(client, tmp_path)


async def cancel_a_call(client: Client, folder: Path) -> None:
    """Cancel a call whose agent would never end; read afterwards that its turn was stopped."""
    session = f"held-{folder.name}"
    accepted = asyncio.Event()

    async def on_progress(progress: float, total: float | None, message: str | None) -> None:
        accepted.set()

    message = {"message": f"hold {folder / 'never'}", "session": session}
    calling = asyncio.create_task(client.call_tool(AGENT, message, progress_callback=on_progress))
    await accepted.wait()
    calling.cancel()
    with pytest.raises(asyncio.CancelledError):
        await calling
    result = await client.call_tool(AGENT, {"session": session})
    assert result.structured_content["status"] == "cancelled", result


@pytest.mark.parametrize("era", ERAS)
async def test_a_client_that_lost_its_server_continues_after_a_restart(tmp_path: Path, era: str) -> None:
    url, gate = f"sqlite:///{tmp_path}/lango.db", tmp_path / "gate"
    with serving(tmp_path, url, server="heartbeat_s = 0.2") as first, pytest.raises((ExceptionGroup, MCPError)):
        await lose_server(first, era, {"message": f"hold {gate}", "session": "s"})
    gate.touch()
    with serving(tmp_path, url) as second:
        async with connected(second, era) as client:
            assert (await call(client, session="s"))["answer"] == "begun ended"


async def lose_server(server: Server, era: str, arguments: dict[str, Any]) -> None:
    """Kill a server while it runs a call."""
    accepted = asyncio.Event()

    async def on_progress(progress: float, total: float | None, message: str | None) -> None:
        accepted.set()

    async with connected(server, era) as client, asyncio.TaskGroup() as group:
        group.create_task(client.call_tool(AGENT, arguments, progress_callback=on_progress))
        await accepted.wait()
        server.kill()


async def test_a_server_stops_while_clients_are_connected(tmp_path: Path) -> None:
    with serving(tmp_path, f"sqlite:///{tmp_path}/lango.db", server="heartbeat_s = 0.2\ndrain_s = 0.5") as server:
        accepted = asyncio.Event()

        async def on_progress(progress: float, total: float | None, message: str | None) -> None:
            accepted.set()

        async with connected(server, "legacy") as old, connected(server, "2026-07-28") as new:
            await old.list_tools()
            held = {"message": f"hold {tmp_path / 'never'}", "session": "s"}
            calling = asyncio.create_task(new.call_tool(AGENT, held, progress_callback=on_progress))
            await accepted.wait()
            stopped = asyncio.create_task(asyncio.to_thread(server.terminate))
            result = await calling
            assert result.is_error
            assert "call again with session = 's' alone" in text_of(result)
            assert await stopped == 0
        assert "Traceback" not in server.log.read_text()


@pytest.mark.parametrize("era", ERAS)
async def test_bad_requests_are_errors_of_the_protocol(server: Server, era: str) -> None:
    async with connected(server, era) as client:
        with pytest.raises(MCPError, match="no agent 'nobody'"):
            await client.call_tool("nobody", {"message": "hello"})
        for arguments, said in (
            ({}, "message: say what to send"),
            ({"message": ""}, "message: say what to send"),
            ({"message": "", "session": "s"}, "message: say what to send"),
            ({"message": 3}, "Expected `str | null`, got `int`"),
            ({"message": "hello", "color": "red"}, "color"),
            ({"message": "hello", "session": "a/b"}, "session"),
            ({"message": "hello", "session": ""}, "session"),
            ({"session": "unknown"}, "there is no session 'unknown'"),
            ({"wait": "w", "answer": True}, "wait: send it with its session"),
            ({"session": "unknown", "wait": "w", "answer": True}, "there is no session"),
        ):
            result = await client.call_tool(AGENT, arguments)
            assert result.is_error, arguments
            assert said in text_of(result)
        failed = await client.call_tool(AGENT, {"message": "fail"})
        assert (failed.is_error, failed.structured_content["status"]) == (True, "failed")
        assert "the provider does not want to" in text_of(failed)
        for uri in (
            "lango://obedient/sessions/unknown",
            "lango://nobody/sessions/s",
            "https://example.org/",
            "nonsense",
        ):
            with pytest.raises(MCPError):
                await client.read_resource(uri)
        with pytest.raises(MCPError, match="cursor"):
            await client.list_resources(cursor="nonsense")


@pytest.mark.parametrize("era", ERAS)
async def test_prompts_come_from_the_configuration(server: Server, era: str) -> None:
    async with connected(server, era) as client:
        [prompt] = (await client.list_prompts()).prompts
        [argument] = prompt.arguments or []
        assert (prompt.name, prompt.description) == ("review", "Review a change.")
        assert (argument.name, argument.description, argument.required) == ("change", "What changed.", True)
        filled = await client.get_prompt("review", {"change": "all of {this}"})
        [message] = filled.messages
        assert isinstance(message.content, TextContent)
        assert (message.role, message.content.text) == ("user", "Review all of {this}, not {this}.")
        for name, arguments in (("review", {}), ("review", {"change": "a", "more": "b"}), ("unknown", {})):
            with pytest.raises(MCPError):
                await client.get_prompt(name, arguments)


async def test_keys_hold_and_another_users_sessions_do_not_exist(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/lango.db"
    async with Store(url) as store:
        _, ada = await add_api_key(store, "ada")
        _, ben = await add_api_key(store, "ben")
    with serving(tmp_path, url, server='auth = "keys"') as server:
        async with server.client() as stranger:
            for method in ("GET", "POST", "DELETE"):
                assert (await stranger.request(method, "/mcp")).status_code == 401
        for era in ERAS:
            async with connected(server, era, ada) as hers, connected(server, era, ben) as his:
                session = (await call(hers, message="hello"))["session"]
                [uri] = [one.uri for one in (await hers.list_resources()).resources if one.name == session]
                assert "hello" in str(await hers.read_resource(uri))
                assert (await his.list_resources()).resources == []
                with pytest.raises(MCPError, match="no session"):
                    await his.read_resource(uri)
                assert (await his.call_tool(AGENT, {"session": session})).is_error
        await check_that_a_connection_is_its_owners(server, ada, ben)


async def check_that_a_connection_is_its_owners(server: Server, owner: str, other: str) -> None:
    """A client with the id of a connection of another user gets nothing by it."""
    accept = {"Accept": "application/json, text/event-stream"}
    async with server.client(**accept) as client:
        opened = await client.post("/mcp", json=INITIALIZE, headers={"Authorization": f"Bearer {owner}"})
        known = {"Mcp-Session-Id": opened.headers["mcp-session-id"], "Mcp-Protocol-Version": "2025-11-25"}
        ping = {"jsonrpc": "2.0", "id": 2, "method": "ping"}
        for key, status in ((owner, 200), (other, 404)):
            headers = {**known, "Authorization": f"Bearer {key}"}
            assert (await client.post("/mcp", json=ping, headers=headers)).status_code == status


async def test_the_stream_of_a_connection_opens_and_that_of_an_unknown_one_is_refused(server: Server) -> None:
    async with server.client(Accept="application/json, text/event-stream") as client:
        assert (await client.get("/mcp")).status_code == 400
        assert (await client.get("/mcp", headers={"Mcp-Session-Id": "unknown"})).status_code == 404
        opened = await client.post("/mcp", json=INITIALIZE)
        known = {"Mcp-Session-Id": opened.headers["mcp-session-id"], "Mcp-Protocol-Version": "2025-11-25"}
        async with client.stream("GET", "/mcp", headers=known) as stream:
            assert (stream.status_code, stream.headers["content-type"]) == (200, "text/event-stream")
        assert (await client.delete("/mcp", headers=known)).status_code == 200


async def test_pages_of_other_sites_may_not_call(server: Server) -> None:
    async with server.client(Origin="https://evil.example") as client:
        assert (await client.post("/mcp", json={})).status_code == 403
    async with server.client(Host="evil.example") as client:
        assert (await client.post("/mcp", json={})).status_code == 403


@pytest.mark.parametrize("era", ERAS)
async def test_a_form_asks_for_input_and_the_file_and_the_sessions_are_resources(tmp_path: Path, era: str) -> None:
    (tmp_path / "agents" / "shop").mkdir(parents=True)
    (tmp_path / "agents" / "shop" / "agent.py").write_text(SHOP)
    (tmp_path / "agents" / "echo").mkdir()
    (tmp_path / "agents" / "echo" / "agent.py").write_text(
        "from tests.support.servers.command_agent import root_agent\n"
    )
    url = f"sqlite:///{tmp_path}/lango.db"
    with serving(tmp_path, url, str(tmp_path / "agents"), agent="", name="") as server:
        user = Asked(size=3)
        async with connected(server, era, elicitation_callback=user) as client:
            tools = {tool.name: tool.description for tool in (await client.list_tools()).tools}
            assert tools == {AGENT: f"The agent {AGENT}.", "shop": "Sells shirts."}
            result = await client.call_tool("shop", {"message": "a shirt"})
            assert result.structured_content["output"] == {"size": 3}
            [question] = user.questions
            assert question.mode == "form"
            assert question.requested_schema["properties"]["color"]["type"] == "string"
            assert question.requested_schema["required"] == ["size"]

            [link] = [block for block in result.content if isinstance(block, ResourceLink)]
            assert "size 3" in str(await client.read_resource(link.uri))
            await call(client, message="hello")
            listed = (await client.list_resources()).resources
            cursor = (await client.list_resources()).next_cursor
            while cursor:
                page = await client.list_resources(cursor=cursor)
                listed, cursor = [*listed, *page.resources], page.next_cursor
            session = result.structured_content["session"]
            assert {one.name for one in listed} >= {session, "order/1.txt"}
            for one in listed:
                assert (await client.read_resource(one.uri)).contents
            templates = (await client.list_resource_templates()).resource_templates
            assert "lango://{agent}/sessions/{session}" in [one.uri_template for one in templates]


async def test_the_list_of_sessions_has_pages(tmp_path: Path) -> None:
    with serving(tmp_path, f"sqlite:///{tmp_path}/lango.db") as server:
        async with server.client() as http:
            for number in range(25):
                await http.post("/v1/sessions", json={"id": f"s{number}"})
        async with connected(server, "2026-07-28") as client:
            first = await client.list_resources()
            second = await client.list_resources(cursor=first.next_cursor)
            assert (len(first.resources), len(second.resources), second.next_cursor) == (20, 5, None)
            assert {one.name for one in [*first.resources, *second.resources]} == {f"s{number}" for number in range(25)}


@pytest.mark.parametrize("era", ERAS)
async def test_a_tool_asks_while_it_runs(tmp_path: Path, sqlite_url: str, era: str) -> None:
    script = [ToolCall("c1", "paint", {}), "painted", ToolCall("c2", "paint", {}), "not painted"]
    rest = f"[mcp.media]\ncommand = {json.dumps(sys.executable)}\nargs = [{json.dumps(mcp_tools.__file__)}]\n"
    rest += '[tools]\nenabled = []\napproval = "auto"\n'
    with (
        scripted_server(*script) as model,
        serving(tmp_path, sqlite_url, agent='instruction = "Help."', rest=rest, env=model.environment) as server,
    ):
        user = Asked(colour="red", layers=1)
        async with connected(server, era, elicitation_callback=user) as client:
            assert (await call(client, message="paint"))["answer"] == "painted"
        assert "accept" in json.dumps(model.requests[1]["messages"][-1])
        assert [question.message for question in user.questions] == ["Which paint?"]
        async with connected(server, era, elicitation_callback=Asked("decline")) as client:
            assert (await call(client, message="paint"))["answer"] == "not painted"
        assert "decline" in json.dumps(model.requests[3]["messages"][-1])


@pytest.mark.parametrize("era", ERAS)
async def test_a_credential_is_asked_for_by_its_address_and_no_secret_by_a_form(tmp_path: Path, era: str) -> None:
    with oauth_server() as oauth:
        module, env = f"module = {json.dumps(str(credential_agent.FILE))}", credential_agent.environment(oauth)
        with serving(tmp_path, f"sqlite:///{tmp_path}/lango.db", agent=module, env=env) as server:

            async def allow(context: Any, params: ElicitRequestParams) -> ElicitResult:
                assert params.mode == "url"
                query = (await oauth.allow(params.url)).partition("?")[2]
                async with server.client() as browser:
                    assert (await browser.get(f"/v1/oauth/callback?{query}")).status_code == 200
                return ElicitResult(action="accept")

            async with connected(server, era, elicitation_callback=allow) as client:
                done = await call(client, message="account")
                assert "alice" in done["answer"], done
                waiting = await call(client, message="key")
                [wait] = waiting["waits"]
                assert (waiting["status"], wait["kind"]) == ("waiting", "credential")
                secret = {"session": waiting["session"], "wait": wait["id"], "answer": "a secret"}
                refused = await client.call_tool(AGENT, secret)
                assert "secret" in text_of(refused)


async def test_a_process_speaks_nothing_but_the_protocol_and_keeps_its_sessions(tmp_path: Path) -> None:
    agent = tmp_path / "shop.py"
    agent.write_text(SHOP.replace("    yield ", "    print('asking')\n    yield ") + "\nprint('loading')\n")
    config = configure(tmp_path, f"sqlite:///{tmp_path}/lango.db", agent=f"module = {json.dumps(str(agent))}", name="")
    sessions: list[str] = []
    for era in ERAS:
        user = Asked(size=4)
        async with started(config, era, fresh=era == ERAS[0], elicitation_callback=user) as client:
            for session in sessions:  # of the process before
                assert (await call(client, "shop", session=session))["output"] == {"size": 4}
            done = await call(client, "shop", message="a shirt")
            assert done["output"] == {"size": 4}
            [question] = user.questions
            assert question.message == "Which size?"
            sessions.append(done["session"])
    async with started(config, ERAS[0], "--user", "ben") as client:
        assert (await client.call_tool("shop", {"session": sessions[0]})).is_error


@pytest.mark.parametrize("era", ERAS)
async def test_a_process_stops_the_turn_of_a_cancelled_call(tmp_path: Path, era: str) -> None:
    config = configure(tmp_path, f"sqlite:///{tmp_path}/lango.db")
    async with started(config, era) as client:
        await cancel_a_call(client, tmp_path)
