"""Run scenarios of workflows: each answer to a pause goes to another runtime, with or without ADK's resumability."""

import re
from collections import Counter
from collections.abc import AsyncGenerator, Callable
from typing import Any, NamedTuple

from google.adk.apps import App
from google.adk.apps.app import ResumabilityConfig
from google.adk.events import Event, RequestInput
from google.adk.plugins import BasePlugin
from google.adk.workflow import Workflow, node

from lango import open_runtime
from lango.events import TurnDone, TurnEvent
from lango.runtime.runtime import Runtime
from lango.testing import ScriptedProvider
from lango.waits import Approve, Refuse
from tests.agents.answers import awaited_results, open_inputs, submit_input, submit_results
from tests.agents.parts import collect, last_error, settings_for, text_of


class Scenario(NamedTuple):
    make: Callable[[], Any]
    output: Any = None
    answers: tuple[Any, ...] = ()
    """What a person answers, one after the other."""
    error: str = ""
    """What the turn fails with, after the answers."""
    script: tuple[Any, ...] = ()
    """What the models answer."""
    says: str = ""
    """The text that readers of the last turn get."""
    message: str = "go"
    ran: tuple[str, ...] = ()
    """What ran, in all turns together, in any order: see `note`."""
    plugin: type[BasePlugin] | None = None
    only_resumable: bool = False
    """Without ADK's resumability the model goes on while the call waits."""


_noted: list[str] = []


def note(name: str) -> None:
    """Note that something ran."""
    _noted.append(name)


def event(**fields: Any) -> Event:
    """Make an event as a node yields it."""
    return Event.model_validate(fields)


def text(value: str) -> Any:
    """Make a node that puts out a text."""

    def say(node_input: Any) -> str:
        note(value)
        return value

    return node(say, name=value)


def asking(name: str, schema: Any = str) -> Any:
    """Make a node that asks; the answer is its output."""

    async def ask(node_input: Any) -> AsyncGenerator[Any, None]:
        yield RequestInput(message=f"{name}?", response_schema=schema)

    return node(ask, name=name)


def asking_again(name: str) -> Any:
    """Make a node that asks, and runs again with the answer."""

    async def ask(ctx: Any, node_input: Any) -> AsyncGenerator[Any, None]:
        note(name)
        if name in ctx.resume_inputs:
            yield f"{name} {ctx.resume_inputs[name]}"
        else:
            yield RequestInput(interrupt_id=name, message=f"{name}?", response_schema=str)

    return node(ask, name=name, rerun_on_resume=True)


def flow(*edges: Any, **more: Any) -> Callable[[], Workflow]:
    return lambda: Workflow(name="flow", edges=list(edges), **more)


def listed(node_input: Any) -> list[Any]:
    return [node_input]


def numbers(node_input: Any) -> list[int]:
    return [1, 2, 3]


def double(node_input: int) -> int:
    return 2 * node_input


def join_values(node_input: Any) -> list[str]:
    return sorted(f"{name}={value}" for name, value in node_input.items())


def broken(node_input: Any) -> str:
    raise ValueError("it is broken")


async def run_scenario(url: str, scenario: Scenario, *, resumable: bool = False) -> None:
    """Run a scenario to its end, and check what came of it."""
    provider = ScriptedProvider(scenario.script)
    _noted.clear()

    def root() -> Any:
        if not (resumable or scenario.plugin):
            return scenario.make()
        config = ResumabilityConfig(is_resumable=True) if resumable else None
        plugins: Any = [scenario.plugin("own")] if scenario.plugin else []
        return App(name="app", root_agent=scenario.make(), resumability_config=config, plugins=plugins)

    events: list[TurnEvent] = []
    for number, value in enumerate((None, *scenario.answers)):
        if number:
            assert isinstance(events[-1], TurnDone), events[-1]
            assert events[-1].status == "waiting", (number, events[-1])
        async with open_runtime(settings_for(url), root_agent=root(), provider=provider) as runtime:
            turn = await (_answer(runtime, value) if number else runtime.submit("s", scenario.message))
            events = await collect(turn.follow())
    if scenario.ran:
        assert Counter(_noted) == Counter(scenario.ran)
    if scenario.error:
        assert re.search(scenario.error, last_error(events).message), events[-1]
        return
    assert isinstance(events[-1], TurnDone), events[-1]
    assert (events[-1].status, events[-1].output) == ("done", scenario.output)
    if scenario.says:
        assert text_of(events) == scenario.says


async def _answer(runtime: Runtime, value: Any) -> Any:
    for request in await open_inputs(runtime, "s"):
        return await submit_input(runtime, "s", request.id, value)
    for awaited in await awaited_results(runtime, "s"):
        return await submit_results(runtime, "s", {awaited.call_id: value})
    [wait] = await runtime.waits("s")
    return await runtime.answer("s", wait.id, Approve() if value else Refuse())
