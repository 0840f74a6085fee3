"""Code changes times moments: what an old version began continues with a new one, and nothing of it is done again.

The old version is stopped while one session is in a model call, one in a tool, one between two steps, and others wait
for an approval, a result or a person's input. Then the new version opens the same store.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Callable
from typing import TYPE_CHECKING, Any

import pytest
from google.adk.agents import (
    LlmAgent,
    LoopAgent,  # pyright: ignore[reportDeprecated]
    ParallelAgent,  # pyright: ignore[reportDeprecated]
    SequentialAgent,  # pyright: ignore[reportDeprecated]
)
from google.adk.apps import App
from google.adk.models import BaseLlm
from google.adk.models.llm_request import LlmRequest
from google.adk.models.llm_response import LlmResponse
from google.adk.plugins import BasePlugin
from google.adk.tools import FunctionTool, LongRunningFunctionTool
from google.adk.tools.agent_tool import AgentTool
from google.adk.workflow import START, Workflow
from google.genai import types
from msgspec import Struct, field

from lango import Runtime, Settings, open_runtime
from lango.adk import idempotent
from lango.adk.run.updates import UPDATE_NOTE
from lango.adk.turn.turn_run import current_turn
from lango.events import TurnDone, TurnEvent
from lango.waits import ApprovalWait, Approve, InputWait, LongRunningWait, Result, Value, Wait
from tests.agents.parts import TIMEOUT_S, collect, rows, settings_for
from tests.integration.resume.test_input_legs import asking
from tests.support.agent_shapes import Own
from tests.support.runtimes import store_of, supervisor_of

if TYPE_CHECKING:
    from lango.runtime import RunningTurn

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of ADK: it still has these agents

MOMENTS = ("model", "tool", "between", "approval", "result")
GRAPH_MOMENTS = ("model", "tool", "between", "input")
HAND_OVER_S = 0.3


class World(Struct):
    """What happened in all versions, and where the old one stops."""

    effects: dict[str, Counter[str]] = field(default_factory=dict[str, Counter[str]])
    holds: bool = True
    held: set[str] = field(default_factory=set[str])
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    release: asyncio.Event = field(default_factory=asyncio.Event)
    notes: set[str] = field(default_factory=set[str])

    def done(self, what: str) -> None:
        self.effects.setdefault(session(), Counter())[what] += 1

    async def hold(self, moment: str) -> None:
        """Stop here for good in the session of this moment; between two steps, until the process stops."""
        if self.holds and session() == moment:
            self.held.add(moment)
            self.changed.set()
            await (self.release.wait() if moment == "between" else asyncio.Event().wait())

    async def until_held(self, moments: set[str]) -> None:
        async with asyncio.timeout(TIMEOUT_S):
            while not moments <= self.held:
                self.changed.clear()
                await self.changed.wait()


def session() -> str:
    turn = current_turn.get()
    assert turn is not None
    return turn.session.id


class Planned(BaseLlm):
    """Makes the next call of its plan: as many were made as it reads results."""

    plan: Any = ()
    world: Any = None

    async def generate_content_async(
        self, llm_request: LlmRequest, stream: bool = False
    ) -> AsyncGenerator[LlmResponse, None]:
        parts = [part for content in llm_request.contents for part in content.parts or []]
        if any(UPDATE_NOTE in (part.text or "") for part in parts):
            self.world.notes.add(session())
        names = [part.function_response.name for part in parts if part.function_response]
        first = [step for step in _PREFIX.get(session(), ()) if step[0] not in names and self.plan[:1] != [_TRANSFER]]
        steps = [step for step in (*first, *self.plan) if step[0] in llm_request.tools_dict]
        made = sum(name not in ("buy", "order") for name in names)
        if made == 1:
            await self.world.hold("model")
        made = 0 if first and steps[:1] == first else made
        if made < len(steps) and not any(part.text == "next" for part in parts):
            name, x = steps[made]
            argument = {"agent_name": x} if name == "transfer_to_agent" else {"x": x}
            content = types.Part(function_call=types.FunctionCall(name=name, args=argument))
        else:
            content = types.Part(text="done")
        yield LlmResponse(content=types.Content(role="model", parts=[content]), partial=False, turn_complete=True)


_PREFIX = {"approval": [("buy", "9")], "result": [("order", "7")]}
_TRANSFER = ("transfer_to_agent", "shop")


def paying(world: World, name: str = "pay") -> Any:
    async def pay(x: str) -> dict[str, str]:
        """Pay something."""
        world.done(f"pay {x}")
        await world.hold("tool" if x == "2" else "between")
        return {"paid": x}

    pay.__name__ = name
    return pay


def paying_in(world: World) -> Any:
    async def pay(x: str, currency: str = "EUR") -> dict[str, str]:
        """Pay something, in a currency."""
        world.done(f"pay {x}")
        return {"paid": x, "currency": currency}

    return pay


def buying(world: World, name: str = "buy") -> Any:
    async def buy(x: str) -> dict[str, str]:
        """Buy something."""
        world.done(f"buy {x}")
        return {"bought": x}

    buy.__name__ = name
    return FunctionTool(buy, require_confirmation=True)


def buying_many(world: World) -> Any:
    async def buy(x: str, count: int = 1) -> dict[str, str]:
        """Buy some."""
        world.done(f"buy {x}")
        return {"bought": x}

    return FunctionTool(buy, require_confirmation=True)


def ordering(world: World) -> Any:
    def order(x: str) -> None:
        """Order something, which takes days."""

    return LongRunningFunctionTool(order)


PAYMENTS = [("pay", "1"), ("pay", "2")]


def agent(w: World, name: str = "shop", plan: Any = None, tools: Any = None, **more: Any) -> LlmAgent:
    made = plan if plan is not None else PAYMENTS
    model = Planned(model=more.pop("model_name", "planned"), plan=made, world=w)
    own = tools if tools is not None else [paying(w), buying(w), ordering(w)]
    return LlmAgent(name=name, model=model, tools=own, **more)


def pair(w: World, first: str = "a", second: str = "b") -> list[Any]:
    return [
        agent(w, first, [("pay", "1")]),
        agent(w, second, [("pay", "2")], [paying(w)]),
    ]


def sequence(*agents: Any, name: str = "r") -> Any:
    return SequentialAgent(name=name, sub_agents=[*agents])  # pyright: ignore[reportDeprecated]


def parallel(*agents: Any) -> Any:
    return ParallelAgent(name="r", sub_agents=[*agents])  # pyright: ignore[reportDeprecated]


def loop(*agents: Any, name: str = "r") -> Any:
    return LoopAgent(name=name, sub_agents=[*agents], max_iterations=1)  # pyright: ignore[reportDeprecated]


def function(w: World, name: str, output: str = "") -> Any:
    def run(node_input: Any) -> str:
        w.done(name)
        return output or f"from {name}"

    run.__name__ = name
    return run


def graph(w: World, *nodes: Any, name: str = "r") -> Any:
    return Workflow(name=name, edges=[(START, *nodes)])


def old_graph(w: World) -> Any:
    return graph(w, function(w, "one"), node_agent(w), asking(), function(w, "two"))


def node_agent(w: World, name: str = "shop") -> Any:
    return agent(w, name, PAYMENTS, [paying(w)])


class Watching(BasePlugin):
    def __init__(self) -> None:
        super().__init__(name="watching")


def no_callback(callback_context: Any) -> None:
    return None


class Change(Struct, frozen=True):
    """A change of the code, and what is different after it than if nothing had changed."""

    old: Callable[[World], Any]
    new: Callable[[World], Any]
    unpaid: bool = False
    """The new version cannot pay."""
    ends: frozenset[str] = frozenset()
    """In which moments the turn ends with a typed error: nodes of its workflow are gone."""


def shop(w: World) -> Any:
    return agent(w)


def two(w: World) -> Any:
    return sequence(*pair(w))


def of(new: Callable[[World], Any], **more: Any) -> Change:
    return Change(shop, new, **more)


def of_pair(new: Callable[[World], Any], **more: Any) -> Change:
    return Change(two, new, **more)


def of_graph(new: Callable[[World], Any], *ends: str) -> Change:
    return Change(old_graph, new, ends=frozenset(ends))


ALL = GRAPH_MOMENTS
CHANGES = {
    "nothing": of(shop),
    "instruction": of(lambda w: agent(w, instruction="Be brief.")),
    "description": of(lambda w: agent(w, description="A shop.")),
    "model": of(lambda w: agent(w, model_name="another")),
    "output key": of(lambda w: agent(w, output_key="answer")),
    "callback added": of(lambda w: agent(w, before_agent_callback=no_callback)),
    "plugin added": of(lambda w: App(name="app", root_agent=agent(w), plugins=[Watching()])),
    "tool added": of(lambda w: agent(w, tools=[paying(w), buying(w), ordering(w), paying(w, "tip")])),
    "tools in another order": of(lambda w: agent(w, tools=[ordering(w), buying(w), paying(w)])),
    "tool removed": of(lambda w: agent(w, tools=[buying(w), ordering(w)]), unpaid=True),
    "tool renamed": of(
        lambda w: agent(w, plan=[("charge", "1"), ("charge", "2")], tools=[paying(w, "charge"), buying(w), ordering(w)])
    ),
    "schema changed": of(lambda w: agent(w, tools=[paying_in(w), buying(w), ordering(w)])),
    "effect changed": of(lambda w: agent(w, tools=[FunctionTool(idempotent(paying_in(w))), buying(w), ordering(w)])),
    "schema of the approved tool changed": of(lambda w: agent(w, tools=[paying(w), buying_many(w), ordering(w)])),
    "approved tool removed": of(lambda w: agent(w, tools=[paying(w), ordering(w)])),
    "awaited tool removed": of(lambda w: agent(w, tools=[paying(w), buying(w)])),
    "root renamed": of(lambda w: agent(w, "store")),
    "root and description changed": of(lambda w: agent(w, "store", description="x")),
    "sub-agent added": of(lambda w: agent(w, sub_agents=[agent(w, "clerk", [])])),
    "wrapped in a sequence": of(lambda w: sequence(agent(w), name="outer")),
    "wrapped in a loop": of(lambda w: loop(agent(w), name="outer")),
    "wrapped in an own agent": of(lambda w: Own(name="outer", sub_agents=[agent(w)])),
    "a boss above": of(lambda w: agent(w, "boss", [_TRANSFER], [], sub_agents=[agent(w)])),
    "a sequence of that name": of(lambda w: sequence(agent(w, "till"), name="shop")),
    "an own class of that name": of(lambda w: Own(name="shop", sub_agents=[agent(w, "till")])),
    "a parallel agent of that name": of(
        lambda w: ParallelAgent(name="shop", sub_agents=[agent(w, "till")]),  # pyright: ignore[reportDeprecated],
    ),
    "agent inside a tool": of(lambda w: agent(w, "front", [], [AgentTool(agent(w, "clerk", [], []))]), unpaid=True),
    "two agents": of_pair(two),
    "first agent renamed": of_pair(lambda w: sequence(*pair(w, "a2"))),
    "second agent renamed": of_pair(lambda w: sequence(*pair(w, "a", "b2"))),
    "agents in another order": of_pair(lambda w: sequence(*pair(w)[::-1])),
    "agent lost": of_pair(lambda w: sequence(agent(w, "b", [("pay", "2")])), unpaid=True),
    "agent added at the end": of_pair(lambda w: sequence(*pair(w), agent(w, "c", [], []))),
    "agent added first": of_pair(lambda w: sequence(agent(w, "c", [], []), *pair(w))),
    "agent added between": of_pair(lambda w: sequence(pair(w)[0], agent(w, "c", [], []), pair(w)[1])),
    "sequence made parallel": of_pair(lambda w: parallel(*pair(w))),
    "sequence made a loop": of_pair(lambda w: loop(*pair(w))),
    "sequence renamed": of_pair(lambda w: sequence(*pair(w), name="s")),
    "own class instead of a sequence": of_pair(lambda w: Own(name="r", sub_agents=pair(w))),
    "one agent instead of two": of_pair(lambda w: agent(w, "r")),
    "graph": of_graph(old_graph),
    "node added last": of_graph(
        lambda w: graph(w, function(w, "one"), node_agent(w), asking(), function(w, "two"), function(w, "three"))
    ),
    "another return value": of_graph(
        lambda w: graph(w, function(w, "one", "else"), node_agent(w), asking(), function(w, "two"))
    ),
    "node added first": of_graph(
        lambda w: graph(w, function(w, "zero"), function(w, "one"), node_agent(w), asking(), function(w, "two")), *ALL
    ),
    "node renamed": of_graph(lambda w: graph(w, function(w, "uno"), node_agent(w), asking(), function(w, "two")), *ALL),
    "node removed": of_graph(lambda w: graph(w, node_agent(w), asking(), function(w, "two")), *ALL),
    "agent node renamed": of_graph(
        lambda w: graph(w, function(w, "one"), node_agent(w, "till"), asking(), function(w, "two")), *ALL
    ),
    "nodes in another order": of_graph(
        lambda w: graph(w, node_agent(w), function(w, "one"), asking(), function(w, "two")), *ALL
    ),
    "node that asks renamed": of_graph(
        lambda w: graph(w, function(w, "one"), node_agent(w), asking("question"), function(w, "two")), "input"
    ),
    "later node removed": of_graph(lambda w: graph(w, function(w, "one"), node_agent(w), asking())),
    "workflow renamed": of_graph(
        lambda w: graph(w, function(w, "one"), node_agent(w), asking(), function(w, "two"), name="store"), *ALL
    ),
    "an agent instead of a workflow": of_graph(lambda w: agent(w, "r"), *ALL),
}


def test_the_table_has_at_least_forty_changes() -> None:
    assert len(CHANGES) >= 40


@pytest.mark.parametrize("name", CHANGES)
async def test_what_an_old_version_began_continues(store_url: str, name: str) -> None:
    change, world = CHANGES[name], World()
    moments = GRAPH_MOMENTS if change.old is old_graph else MOMENTS
    settings = settings_for(store_url, name="app", input_expires_s=0, retry_delay_s=0)
    await begin(settings, change.old, world, moments)
    world.holds = False
    async with open_runtime(settings, root_agent=change.new(world)) as runtime:
        ends = {moment: await end_of(runtime, moment) for moment in moments}
        assert {moment for moment, end in ends.items() if end != "done"} == change.ends, ends
        check(world, change, moments)
        for moment in moments:
            last = await answer_all(runtime, moment, "next")
            assert isinstance(last, TurnDone), f"{moment}: the queue continues"


async def begin(settings: Settings, make: Callable[[World], Any], world: World, moments: tuple[str, ...]) -> None:
    """Let each session come to its moment, then stop the process."""
    async with open_runtime(settings, root_agent=make(world)) as runtime:
        turns: dict[str, RunningTurn] = {}
        for moment in moments:
            await runtime.sessions.create(moment)
            turns[moment] = await runtime.submit(moment, "go")
        held = {"model", "tool", "between"}
        await asyncio.gather(*(collect(turns[moment].follow()) for moment in moments if moment not in held))
        await world.until_held(held)
        stopping = asyncio.create_task(supervisor_of(runtime).hand_over(HAND_OVER_S))
        await asyncio.sleep(0)
        world.release.set()
        await stopping


async def end_of(runtime: Runtime, moment: str) -> str:
    """Answer what a session waits for until its turn has ended; return how."""
    async with asyncio.timeout(TIMEOUT_S):
        while await open_turns(runtime, moment):
            await asyncio.sleep(0.01)
    if moment in ("approval", "result", "input"):
        await answer_all(runtime, moment)
    [*_, [status]] = await rows(store_of(runtime), _STATUS.format(moment))
    return status


_STATUS = (
    "SELECT t.status FROM turns t JOIN sessions s ON s.session_key = t.session_key WHERE s.id = '{}' ORDER BY t.turn"
)


async def open_turns(runtime: Runtime, moment: str) -> list[Any]:
    found = await rows(store_of(runtime), _STATUS.format(moment))
    return [status for [status] in found if status in ("queued", "running")]


async def answer_all(runtime: Runtime, moment: str, text: str = "") -> TurnEvent | None:
    """Send a message, if any, and answer every wait until there is none; return the last event."""
    last = (await collect((await runtime.submit(moment, text)).follow()))[-1] if text else None
    for _ in range(4):
        if not (waits := await runtime.waits(moment)):
            break
        turn = await runtime.answer(moment, waits[0].id, answer_to(waits[0]))
        last = (await collect(turn.follow()))[-1]
    return last


def answer_to(wait: Wait) -> Any:
    match wait:
        case ApprovalWait():
            return Approve()
        case LongRunningWait():
            return Result({"ordered": "7"})
        case InputWait():
            return Value("3")
        case _:
            raise AssertionError(wait)


def check(world: World, change: Change, moments: tuple[str, ...]) -> None:
    """Nothing took effect twice, and everything took effect, unless the new version cannot do it."""
    for moment in moments:
        effects = world.effects.get(moment, Counter())
        first = {what: effects[what] for what in ("pay 1", "pay 2", "buy 9", "one")}
        assert max(first.values()) <= 1, f"{moment}: {effects}"
        # after a pause, ADK runs only the agent of a sequence that asked
        is_whole = change.old is not two or moment not in ("approval", "result")
        if is_whole and not change.unpaid and moment not in change.ends:
            assert effects["pay 1"] == effects["pay 2"] == 1, f"{moment}: {effects}"
