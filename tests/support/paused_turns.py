"""Turns that pause for an answer, each step in a process of its own that is killed after it.

Every process makes the same agents. Models answer by what they are sent, and effects are lines in a file, so that a
test sees what happened in all processes together.
"""

import asyncio
import json
import logging
import os
import signal
import warnings
from collections import Counter
from collections.abc import AsyncGenerator, Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from fastapi.openapi.models import APIKey
from google.adk.auth.auth_credential import AuthCredential
from google.adk.auth.auth_tool import AuthConfig
from google.adk.events import Event, RequestInput
from google.adk.tools import FunctionTool, LongRunningFunctionTool
from google.adk.tools.authenticated_function_tool import AuthenticatedFunctionTool
from google.adk.workflow import START, Workflow, node
from google.genai import types

from lango import open_runtime, tool
from lango.adk import AdkTool
from lango.runtime.runtime import Runtime
from lango.store.credentials.secret_box import KEY_VARIABLE, new_key
from lango.turns.running_turn import RunningTurn
from lango.waits import Approve
from tests.agents.answers import (
    awaited_results,
    open_credentials,
    open_inputs,
    submit_credential,
    submit_input,
    submit_results,
)
from tests.agents.parts import settings_for
from tests.support.agent_shapes import agent, call
from tests.support.kill_points import Journal, until_idle
from tests.support.servers.oauth_server import OAuthServer

Effect = Callable[[str], None]

API_KEY = "api-key-0123456789abcdef"
OAUTH = "TEST_OAUTH_URL", "TEST_OAUTH_SECRET"
"""The variables with the address and the secret of the OAuth server."""


def effects_in(folder: Path) -> Counter[str]:
    """Return how often each effect happened, in all processes."""
    file = folder / "effects"
    return Counter(file.read_text().split() if file.exists() else [])


def _effect_in(folder: Path) -> Effect:
    def effect(name: str) -> None:
        with (folder / "effects").open("a") as file:
            file.write(f"{name}\n")

    return effect


async def ask(node_input: Any) -> AsyncGenerator[Any, None]:
    yield RequestInput(message="How many?", response_schema=int)


def workflow_input(effect: Effect) -> Any:
    def before(node_input: Any) -> None:
        effect("before")

    def after(node_input: Any) -> dict[str, Any]:
        effect("after")
        return {"got": node_input}

    return Workflow(name="flow", edges=[(START, before, ask, after)])


def nested_workflow_input(effect: Effect) -> Any:
    def before(node_input: Any) -> None:
        effect("before")

    def look(x: str) -> dict[str, str]:
        """Look."""
        effect("look")
        return {"seen": x}

    def after(node_input: Any) -> dict[str, Any]:
        effect("after")
        return {"got": node_input}

    first = agent(Journal(), "first", call("look", x="1"), "seen", tools=[look])
    inner = Workflow(name="inner", edges=[(START, before, node(ask, name="ask"))])
    return Workflow(name="flow", edges=[(START, first, inner, after)])


def workflow_in_an_agent(effect: Effect) -> Any:
    def count(node_input: int) -> int:
        effect("after")
        return node_input

    survey = Workflow(name="survey", description="Ask.", input_schema=dict[str, str], edges=[(START, ask, count)])
    return agent(Journal(), "root", call("survey", topic="boats"), "asked", tools=[survey])


def confirmation(effect: Effect) -> Any:
    def pay(x: str) -> dict[str, str]:
        """Pay."""
        effect("pay")
        return {"paid": x}

    return agent(Journal(), "a", call("pay", x="1"), "paid", tools=[FunctionTool(pay, require_confirmation=True)])


def approval(effect: Effect) -> Any:
    @tool(level="dangerous")
    def pay(x: str) -> dict[str, str]:
        """Pay."""
        effect("pay")
        return {"paid": x}

    return agent(Journal(), "a", call("pay", x="1"), "paid", tools=[AdkTool(pay)])


def long_running(effect: Effect) -> Any:
    def order(x: str) -> None:
        """Order."""
        effect("order")

    return agent(Journal(), "a", call("order", x="1"), "ordered", tools=[LongRunningFunctionTool(order)])


def ticket(effect: Effect) -> Any:
    def order(x: str) -> dict[str, str]:
        """Order."""
        effect("order")
        return {"status": "pending"}

    return agent(Journal(), "a", call("order", x="1"), "ordered", tools=[LongRunningFunctionTool(order)])


def long_running_in_a_workflow(effect: Effect) -> Any:
    def after(node_input: Any) -> dict[str, Any]:
        effect("after")
        return {"got": node_input}

    return Workflow(name="flow", edges=[(START, long_running(effect), after)])


def call_of_a_node(effect: Effect) -> Any:
    async def order(node_input: Any) -> AsyncGenerator[Any, None]:
        effect("order")
        called = types.FunctionCall(id="o1", name="warehouse", args={})
        content = types.Content(role="model", parts=[types.Part(function_call=called)])
        yield Event(content=content, long_running_tool_ids={"o1"})

    def after(node_input: Any) -> dict[str, Any]:
        effect("after")
        return {"got": node_input}

    return Workflow(name="flow", edges=[(START, order, after)])


def long_running_in_a_tool(effect: Effect) -> Any:
    def after(node_input: Any) -> str:
        effect("after")
        return "counted"

    survey = Workflow(
        name="survey", description="Ask.", input_schema=dict[str, str], edges=[(START, long_running(effect), after)]
    )
    return agent(Journal(), "root", call("survey", topic="boats"), "asked", tools=[survey])


def confirmation_in_a_tool(effect: Effect) -> Any:
    def after(node_input: Any) -> str:
        effect("after")
        return "counted"

    survey = Workflow(
        name="survey", description="Ask.", input_schema=dict[str, str], edges=[(START, confirmation(effect), after)]
    )
    return agent(Journal(), "root", call("survey", topic="boats"), "asked", tools=[survey])


def confirmation_in_a_task(effect: Effect) -> Any:
    def pay(x: str) -> dict[str, str]:
        """Pay."""
        effect("pay")
        return {"paid": x}

    tools = [FunctionTool(pay, require_confirmation=True)]
    child = agent(Journal(), "child", call("pay", x="1"), call("finish_task", result="paid"), tools=tools, mode="task")
    return agent(Journal(), "root", call("child", request="pay"), "paid", sub_agents=[child])


def key_tool(effect: Effect) -> Any:
    scheme = APIKey.model_validate({"type": "apiKey", "in": "header", "name": "X-Key"})

    def forecast(credential: AuthCredential) -> dict[str, bool]:
        """Forecast the weather."""
        effect("forecast" if credential.api_key == API_KEY else "wrong")
        return {"fine": True}

    config = AuthConfig(auth_scheme=scheme, credential_key="weather")
    return AuthenticatedFunctionTool(func=forecast, auth_config=config)


def key(effect: Effect) -> Any:
    return agent(Journal(), "a", call("forecast"), "fine", tools=[key_tool(effect)])


def key_after_a_transfer(effect: Effect) -> Any:
    child = agent(Journal(), "child", call("forecast"), "fine", tools=[key_tool(effect)])
    return agent(Journal(), "root", call("transfer_to_agent", agent_name="child"), "never", sub_agents=[child])


def key_in_a_single_turn_agent(effect: Effect) -> Any:
    child = agent(Journal(), "child", call("forecast"), "fine", tools=[key_tool(effect)], mode="single_turn")
    return agent(Journal(), "root", call("child", request="go"), "fine", sub_agents=[child])


def key_in_a_tool(effect: Effect) -> Any:
    def after(node_input: Any) -> str:
        effect("after")
        return "counted"

    survey = Workflow(
        name="survey", description="Ask.", input_schema=dict[str, str], edges=[(START, key(effect), after)]
    )
    return agent(Journal(), "root", call("survey", topic="boats"), "asked", tools=[survey])


def access_tool(effect: Effect) -> Any:
    url, secret = [os.environ[name] for name in OAUTH]

    def account(credential: AuthCredential) -> dict[str, bool]:
        """Open the account."""
        effect("account" if credential.oauth2 and credential.oauth2.access_token else "wrong")
        return {"open": True}

    config = OAuthServer(url=url, client_secret=secret).config(pkce=True)
    return AuthenticatedFunctionTool(func=account, auth_config=config)


def access(effect: Effect) -> Any:
    return agent(Journal(), "a", call("account"), "open", tools=[access_tool(effect)])


def access_in_a_workflow(effect: Effect) -> Any:
    def after(node_input: Any) -> dict[str, Any]:
        effect("after")
        return {"got": node_input}

    return Workflow(name="flow", edges=[(START, access(effect), after)])


def access_in_a_nested_workflow(effect: Effect) -> Any:
    def before(node_input: Any) -> str:
        effect("before")
        return "go"

    def after(node_input: Any) -> dict[str, Any]:
        effect("after")
        return {"got": node_input}

    inner = Workflow(name="inner", edges=[(START, before, access(effect))])
    return Workflow(name="flow", edges=[(START, inner, after)])


def access_in_a_task(effect: Effect) -> Any:
    plan = call("account"), call("finish_task", result="open")
    child = agent(Journal(), "child", *plan, tools=[access_tool(effect)], mode="task")
    return agent(Journal(), "root", call("child", request="open"), "open", sub_agents=[child])


SHAPES: dict[str, Callable[[Effect], Any]] = {
    "an input of a workflow": workflow_input,
    "an input of a nested workflow after an agent": nested_workflow_input,
    "an input of a workflow that is an agent's tool": workflow_in_an_agent,
    "a confirmation": confirmation,
    "an approval": approval,
    "a long-running tool": long_running,
    "a long-running tool with a first report": ticket,
    "a long-running tool in a workflow": long_running_in_a_workflow,
    "a call that a node of a workflow makes": call_of_a_node,
    "a long-running tool in a workflow that is an agent's tool": long_running_in_a_tool,
    "a confirmation in a workflow that is an agent's tool": confirmation_in_a_tool,
    "a confirmation in a task": confirmation_in_a_task,
    "a key": key,
    "an OAuth access": access,
    "an OAuth access in a workflow": access_in_a_workflow,
    "an OAuth access in a nested workflow": access_in_a_nested_workflow,
    "an OAuth access in a task": access_in_a_task,
    "a key after a transfer": key_after_a_transfer,
    "a key in a single-turn agent": key_in_a_single_turn_agent,
    "a key in a workflow that is an agent's tool": key_in_a_tool,
}
CREDENTIALS = [shape for shape in SHAPES if "key" in shape or "OAuth access" in shape]


async def _ask(runtime: Runtime) -> RunningTurn:
    return await runtime.submit("s", "go")


async def _update(runtime: Runtime) -> RunningTurn:
    [awaited] = await awaited_results(runtime, "s")
    return await submit_results(runtime, "s", {awaited.call_id: {"at": "sea"}}, will_continue=True)


async def _answer(runtime: Runtime) -> RunningTurn:
    for request in await open_inputs(runtime, "s"):
        return await submit_input(runtime, "s", request.id, 3)
    for awaited in await awaited_results(runtime, "s"):
        return await submit_results(runtime, "s", {awaited.call_id: {"at": "home"}})
    for wanted in await open_credentials(runtime, "s"):
        value = await OAuthServer().allow(wanted.auth_url) if wanted.auth_url else API_KEY
        return await submit_credential(runtime, "s", wanted.id, value)
    [wait] = await runtime.waits("s")
    return await runtime.answer("s", wait.id, Approve())


def write_environment(folder: Path, oauth: OAuthServer) -> None:
    """Write down the environment of the processes that take steps in a folder."""
    values = {KEY_VARIABLE: new_key(), OAUTH[0]: oauth.url, OAUTH[1]: oauth.client_secret}
    (folder / "environment").write_text(json.dumps(values))


STEPS = {"ask": _ask, "update": _update, "answer": _answer}


def take_step(pipe: Connection, url: str, folder: str, shape: str, step: str, dies: bool) -> None:
    """Take one step in a process of its own: to its end, or, if the process `dies`, until the input is stored.

    Then wait for the kill. The step "wait" only waits until the turns of dead processes have ended.
    """

    async def run() -> None:
        os.environ.update(json.loads((Path(folder) / "environment").read_text()))
        root = SHAPES[shape](_effect_in(Path(folder)))
        async with open_runtime(settings_for(url), root_agent=root) as runtime:
            if step == "wait":
                await until_idle(runtime)
                pipe.send("idle")
            else:
                turn = await STEPS[step](runtime)
                if dies:
                    os.kill(os.getpid(), signal.SIGKILL)
                await turn.wait()
                pipe.send((getattr(turn.events[-1], "status", turn.events[-1]), turn.answer))
            await asyncio.to_thread(pipe.recv)

    logging.disable(logging.WARNING)
    warnings.simplefilter("ignore")
    asyncio.run(run())
