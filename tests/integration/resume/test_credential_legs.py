"""Kills around a pause for a credential: before the request, between request and answer, and after the answer."""

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from google.adk.agents import LlmAgent
from google.adk.agents.context import Context
from google.adk.auth.auth_credential import AuthCredential
from google.adk.auth.auth_handler import AuthHandler
from google.adk.auth.auth_tool import AuthConfig
from google.adk.tools import ToolContext
from google.adk.tools.authenticated_function_tool import AuthenticatedFunctionTool
from google.adk.workflow import START, Workflow, node

from lango import open_runtime
from lango.adk import ProviderLlm
from lango.errors import ProviderRejected
from lango.runtime.playground import Changes
from lango.runtime.runtime import Runtime
from lango.store.credentials.secret_box import KEY_VARIABLE, new_key
from lango.testing import ScriptedProvider
from tests.agents.answers import open_credentials, submit_credential
from tests.agents.parts import collect, rows, settings_for, statuses
from tests.support.agent_shapes import agent, call, nodes
from tests.support.kill_points import Journal, copy_after_each_commit, left_behind, story, until_idle
from tests.support.openapi_tools import rest_tools
from tests.support.runtimes import store_of
from tests.support.servers.oauth_server import OAuthServer, oauth_server

Make = Callable[[Journal, OAuthServer], Any]


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(KEY_VARIABLE, new_key())


@pytest.fixture
def oauth() -> Iterator[OAuthServer]:
    with oauth_server(reusable_codes=True) as server:
        yield server


async def account_of(j: Journal, oauth: OAuthServer, credential: AuthCredential) -> dict[str, Any]:
    """Ask the API whose credential this is: the effect of every tool here."""
    assert credential.oauth2
    headers = {"Authorization": f"Bearer {credential.oauth2.access_token}"}
    async with httpx.AsyncClient() as client:
        found = (await client.get(f"{oauth.url}/api", headers=headers)).json()
    j.effects.append(f"account {found['user']}")
    return found


def manager_tool(j: Journal, oauth: OAuthServer) -> Any:
    """Make a tool whose credential ADK manages."""

    async def account(credential: AuthCredential) -> dict[str, Any]:
        """Return the name of the user's account."""
        return await account_of(j, oauth, credential)

    return AuthenticatedFunctionTool(func=account, auth_config=oauth.config(pkce=True))


def own_tool(j: Journal, oauth: OAuthServer) -> Any:
    """Make a tool that requests and reads the answer itself, as ADK's documentation shows it."""
    config = oauth.config(pkce=True)

    async def account(tool_context: ToolContext) -> dict[str, Any]:
        """Return the name of the user's account."""
        credential = await load(tool_context, config)
        if credential is None or not (credential.oauth2 and credential.oauth2.access_token):
            tool_context.request_credential(config)
            return {"status": "pending"}
        return await account_of(j, oauth, credential)

    return account


async def load(context: ToolContext, config: AuthConfig) -> AuthCredential | None:
    credential = await context.load_credential(config) or context.get_auth_response(config)
    if credential is not None and credential.oauth2 and credential.oauth2.access_token:
        saved = config.model_copy(deep=True)
        saved.exchanged_auth_credential = credential
        await context.save_credential(saved)
    return credential


def with_manager(j: Journal, oauth: OAuthServer) -> Any:
    return agent(j, "a", call("account"), "A done", tools=[manager_tool(j, oauth)])


def with_own_tool(j: Journal, oauth: OAuthServer) -> Any:
    return agent(j, "a", call("account"), "A done", tools=[own_tool(j, oauth)])


def in_agent_of_workflow(j: Journal, oauth: OAuthServer) -> Any:
    one, _, three = nodes(j)
    first = agent(j, "a", call("account"), "A done", tools=[manager_tool(j, oauth)])
    return Workflow(name="r", edges=[(START, one, first, three)])


def tool_node(j: Journal, oauth: OAuthServer) -> Any:
    one, _, three = nodes(j)

    def none(node_input: Any) -> dict[str, Any]:
        return {}

    return Workflow(name="r", edges=[(START, one, none, manager_tool(j, oauth), three)])


def function_node(j: Journal, oauth: OAuthServer) -> Any:
    one, _, three = nodes(j)
    config = oauth.config(pkce=True)

    async def account(ctx: Context, node_input: Any) -> dict[str, Any]:
        credential = AuthHandler(config).get_auth_response(ctx.state)
        assert credential
        return await account_of(j, oauth, credential)

    return Workflow(name="r", edges=[(START, one, node(account, auth_config=config, rerun_on_resume=True), three)])


def openapi_tool(j: Journal, oauth: OAuthServer) -> Any:
    tools = rest_tools(oauth, oauth.config(pkce=True), lambda: j.effects.append("account alice"))
    return agent(j, "a", call("account"), "A done", tools=[tools])


SHAPES: dict[str, Make] = {
    "a tool whose credential ADK manages": with_manager,
    "a tool that asks by itself": with_own_tool,
    "an agent of a workflow": in_agent_of_workflow,
    "a tool that is a node": tool_node,
    "a function that is a node": function_node,
    "a tool of an OpenAPI document": openapi_tool,
}


async def ask(runtime: Runtime) -> None:
    await collect((await runtime.submit("s", "go")).follow())


async def give(runtime: Runtime, oauth: OAuthServer, session: str = "s") -> int:
    """Answer every open request, as a user does who opens its address; return how many there were."""
    given = 0
    while requests := await open_credentials(runtime, session):
        for request in requests:
            given += 1
            address = await oauth.allow(request.auth_url)
            await collect((await submit_credential(runtime, session, request.id, address)).follow())
    return given


async def conversation(runtime: Runtime) -> list[str]:
    """Return the conversation without what ADK makes anew for each request."""
    lines = await story(store_of(runtime))
    return [re.sub(r'"(state|authUri|functionCallId)": "[^"]*"', r'"\1": ""', line) for line in lines]


@pytest.mark.filterwarnings("ignore:Setting per-request cookies:DeprecationWarning")  # ADK's own request
@pytest.mark.parametrize("leg", ["the request", "the answer"])
@pytest.mark.parametrize("shape", SHAPES)
async def test_a_tool_that_needs_a_credential_goes_on_after_a_kill_at_each_commit(
    tmp_path: Path, shape: str, leg: str, oauth: OAuthServer
) -> None:
    journal = Journal()
    first = settings_for(f"sqlite:///{tmp_path}/first.db")
    async with open_runtime(first, root_agent=SHAPES[shape](journal, oauth)) as runtime:
        await runtime.sessions.create("s")
        if leg == "the request":
            copies = await copy_after_each_commit(runtime, tmp_path, lambda: ask(runtime))
            await give(runtime, oauth)
        else:
            await ask(runtime)

            async def answer() -> None:
                await give(runtime, oauth)

            copies = await copy_after_each_commit(runtime, tmp_path, answer)
        whole = await conversation(runtime)
        assert await statuses(runtime) == ["done", "done"]
        assert journal.effects.count("account alice") == 1
    assert len(copies) >= 3
    for copy in copies:
        before, again = left_behind(copy), Journal()
        async with open_runtime(settings_for(f"sqlite:///{copy}"), root_agent=SHAPES[shape](again, oauth)) as runtime:
            await until_idle(runtime)
            given = await give(runtime, oauth)
            ended = await conversation(runtime)
            unknown = await rows(
                store_of(runtime), "SELECT 1 FROM tool_journal WHERE result LIKE '%outcome is unknown%'"
            )
            assert set(await statuses(runtime)) == {"done"}, copy.name
        if unknown:
            continue  # a tool that had begun is never run again: the model reads that its outcome is unknown
        assert given == (0 if leg == "the answer" else 1), copy.name
        assert ended == whole, copy.name
        assert again.effects_by_name["account"] + before.finished["account"] == 1, copy.name
        assert "account None" not in again.effects, copy.name


@pytest.mark.filterwarnings("ignore:Setting per-request cookies:DeprecationWarning")  # ADK's own request
@pytest.mark.parametrize("shape", SHAPES)
async def test_a_turn_after_a_credential_runs_on_from_its_end_and_from_its_start(
    tmp_path: Path, shape: str, oauth: OAuthServer
) -> None:
    journal = Journal()
    settings = settings_for(f"sqlite:///{tmp_path}/runs.db")
    async with open_runtime(settings, root_agent=SHAPES[shape](journal, oauth)) as runtime:
        await runtime.sessions.create("s")
        await ask(runtime)
        await give(runtime, oauth)
        [_, turn] = (await runtime.sessions.trace("s")).turns
        before = (await runtime.sessions.messages("s"))[-1].seq + (turn.steps[-1].kind != "agent")
        end = runtime.playground.run_on("s", turn.turn, Changes(), before=before, new_id="end")
        _, running = await end
        await running.wait()
        assert running.error is None
        assert journal.effects.count("account alice") == 1, "no tool runs twice"
        assert not await runtime.sessions.check("end")
        assert await open_credentials(runtime, "end") == []
        _, running = await runtime.playground.run_on("s", turn.turn, Changes(), new_id="start")
        await running.wait()
        assert running.error is None
        asked = await open_credentials(runtime, "start")
        assert journal.effects.count("account alice") == 2 - len(asked), "the stored one, or it asks again"
        assert await give(runtime, oauth, "start") == len(asked)
        assert journal.effects.count("account alice") == 2
        assert set(await statuses(runtime)) == {"done"}
        assert not await runtime.sessions.check("start")


@pytest.mark.parametrize("failing", ["tool", "agent after it"])
async def test_a_failed_turn_runs_again_after_the_credential_of_its_node_is_gone(
    tmp_path: Path, failing: str, oauth: OAuthServer
) -> None:
    journal, is_down = Journal(), [failing == "tool"]

    def none(node_input: Any) -> dict[str, Any]:
        return {}

    async def account(credential: AuthCredential) -> dict[str, Any]:
        if any(is_down):
            raise ConnectionError("the API is down")
        return await account_of(journal, oauth, credential)

    tool = AuthenticatedFunctionTool(func=account, auth_config=oauth.config(pkce=True))
    provider = ScriptedProvider(["Hello."] if failing == "tool" else [ProviderRejected("no"), "Hello."])
    flow = Workflow(name="r", edges=[(START, none, tool, LlmAgent(name="a", model=ProviderLlm(provider, "m")))])
    async with open_runtime(settings_for(f"sqlite:///{tmp_path}/runs.db"), root_agent=flow) as runtime:
        await ask(runtime)
        await give(runtime, oauth)
        [failed] = await runtime.turns.failed()
        assert failed.error == ("AgentFailed" if failing == "tool" else "ProviderRejected")
        assert await runtime.credentials.delete_all() == 1
        is_down.clear()
        await runtime.turns.retry("s", failed.turn)
        await until_idle(runtime)
        requests = await open_credentials(runtime, "s")
        assert len(requests) == (failing == "tool"), "a tool that has not run asks again"
        for request in requests:
            address = await oauth.allow(request.auth_url)
            await collect((await submit_credential(runtime, "s", request.id, address)).follow())
        assert journal.effects == ["account alice"]
        assert set(await statuses(runtime)) == {"done"}
        [*_, last] = await runtime.sessions.messages("s")
        assert last.message
        assert last.message.content == "Hello."
