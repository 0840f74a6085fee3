"""Versions of an app, the changes between them, and the moments at which an old version is stopped.

The name of a session is the moment at which its turn is stopped.
"""

import asyncio
import json
from collections import Counter
from collections.abc import AsyncGenerator, Callable
from typing import Any

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

from lango.adk import idempotent
from lango.adk.turn.turn_run import current_turn
from lango.sessions import UPDATE
from lango.store.engine.database import Operation
from lango.store.engine.schema import RECORD, load_migrations
from tests.agents.parts import TIMEOUT_S
from tests.integration.resume.test_input_legs import asking
from tests.support.agent_shapes import Own

HELD = ("model", "tool", "between")
MOMENTS = (*HELD, "approval", "result")
GRAPH_MOMENTS = (*HELD, "approval", "input")


class World(Struct):
    """What happened in all versions, and where the old one stops."""

    effects: dict[str, Counter[str]] = field(default_factory=dict[str, Counter[str]])
    report: Callable[[tuple[str, str]], object] = lambda _: None
    """Called with the session and the name of each effect."""
    holds: bool = False
    held: set[str] = field(default_factory=set[str])
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    release: asyncio.Event = field(default_factory=asyncio.Event)
    notes: set[str] = field(default_factory=set[str])

    def done(self, what: str) -> None:
        """Count an effect of a session's first message and of the answers to its requests."""
        if not answers_next():
            self.count(session(), what)
            self.report((session(), what))

    def count(self, session_id: str, what: str) -> None:
        self.effects.setdefault(session_id, Counter())[what] += 1

    async def hold(self, moment: str) -> None:
        """Stop here for good in the session of this moment; between two steps, until the process hands over."""
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


def answers_next() -> bool:
    """Whether the turn answers the message behind the first one."""
    turn = current_turn.get()
    content = turn.input_event.content if turn else None
    return any(part.text == "next" for part in (content and content.parts) or [])


class Planned(BaseLlm):
    """Makes the next call of its plan: as many were made as it reads results."""

    plan: Any = ()
    world: Any = None

    async def generate_content_async(
        self, llm_request: LlmRequest, stream: bool = False
    ) -> AsyncGenerator[LlmResponse, None]:
        parts = [part for content in llm_request.contents for part in content.parts or []]
        if any(UPDATE in (part.text or "") for part in parts):
            self.world.notes.add(session())
        results = [part.function_response for part in parts if part.function_response]
        names = [one.name for one in results if (one.response or {}).get("outcome") != "not run"]
        first = [step for step in _PREFIX.get(session(), ()) if step[0] not in names and self.plan[:1] != [TRANSFER]]
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
TRANSFER = ("transfer_to_agent", "shop")


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
    return agent(w, name, PAYMENTS, [paying(w), buying(w)])


class Watching(BasePlugin):
    def __init__(self) -> None:
        super().__init__(name="watching")


def no_callback(callback_context: Any) -> None:
    return None


class Change(Struct, frozen=True):
    """A change of the code, and what is different after it than if nothing had changed."""

    old: str
    """The name of the old version."""
    new: Callable[[World], Any]
    unpaid: bool = False
    """The new version cannot pay."""
    unbought: bool = False
    """The new version cannot buy."""
    ends: frozenset[str] = frozenset()
    """In which moments the turn ends with a typed error: nodes of its workflow are gone."""
    newer: Callable[[], Operation[None]] | None = None
    """What a newer version of Lango has written to the store."""


def shop(w: World) -> Any:
    return agent(w)


def two(w: World) -> Any:
    return sequence(*pair(w))


OLD = {"shop": shop, "two": two, "graph": old_graph}


def of(new: Callable[[World], Any], **more: Any) -> Change:
    return Change("shop", new, **more)


def of_pair(new: Callable[[World], Any], **more: Any) -> Change:
    return Change("two", new, **more)


def of_graph(new: Callable[[World], Any], *ends: str) -> Change:
    return Change("graph", new, ends=frozenset(ends))


def newer_fields() -> Operation[None]:
    """Add a member to each JSON object of a turn, as a newer version of Lango may."""
    for table, column in NEWER_FIELDS:
        for [text] in (yield f"SELECT DISTINCT {column} FROM {table} WHERE {column} IS NOT NULL", ()):
            value: Any = json.loads(text)
            objects: list[Any] = value if text.startswith("[") else [value, value.get("value")]
            for one in filter(None, objects):
                one["added_later"] = {"n": 1}
            yield f"UPDATE {table} SET {column} = $1 WHERE {column} = $2", (json.dumps(value), text)


NEWER_FIELDS = [
    ("messages", "extra"),
    ("messages", "tool_calls"),
    ("turns", "request"),
    ("turns", "extra"),
    ("turns", "queued_input"),
    ("turns", "resumptions"),
    ("waits", "data"),
    ("event_log", "data"),
    ("tool_journal", "actions"),
]


def newer_columns() -> Operation[None]:
    """Run an expand step of a newer version."""
    for table in ("turns", "messages", "waits", "event_log", "tool_journal"):
        yield f"ALTER TABLE {table} ADD COLUMN added_later TEXT NOT NULL DEFAULT ''", ()
    yield RECORD.format(load_migrations().newest + 1, 1), ()


def newer_events() -> Operation[None]:
    """Write an event of a kind that this version does not know to each turn that has not ended."""
    for key, turn, newest in (yield _NEWEST_EVENTS, ()):
        event = {"type": "added_later", "id": newest + 1, "text": "hello"}
        yield _INSERT_EVENT, (key, newest + 1, turn, "added_later", json.dumps(event))


def newer() -> Operation[None]:
    """Change a store in all these ways."""
    yield from newer_fields()
    yield from newer_events()
    yield from newer_columns()


_NEWEST_EVENTS = "SELECT session_key, turn, MAX(id) FROM event_log GROUP BY session_key, turn HAVING MAX(final) = 0"
_INSERT_EVENT = "INSERT INTO event_log (session_key, id, turn, type, data) VALUES ($1, $2, $3, $4, $5)"

ALL = GRAPH_MOMENTS
CHANGES = {
    "nothing": of(shop),
    "Lango's next version": of(shop, newer=newer),
    "instruction, description and output key": of(
        lambda w: agent(w, instruction="Be brief.", description="A shop.", output_key="answer")
    ),
    "model, callback and plugin": of(
        lambda w: App(
            name="app",
            root_agent=agent(w, model_name="another", before_agent_callback=no_callback),
            plugins=[Watching()],
        )
    ),
    "tool added, and another order": of(
        lambda w: agent(w, tools=[ordering(w), buying(w), paying(w), paying(w, "tip")])
    ),
    "tool removed": of(lambda w: agent(w, tools=[buying(w), ordering(w)]), unpaid=True),
    "tool renamed": of(
        lambda w: agent(w, plan=[("charge", "1"), ("charge", "2")], tools=[paying(w, "charge"), buying(w), ordering(w)])
    ),
    "schema changed": of(lambda w: agent(w, tools=[paying_in(w), buying(w), ordering(w)])),
    "effect changed": of(lambda w: agent(w, tools=[FunctionTool(idempotent(paying_in(w))), buying(w), ordering(w)])),
    "schema of the approved tool changed": of(lambda w: agent(w, tools=[paying(w), buying_many(w), ordering(w)])),
    "approved tool removed": of(lambda w: agent(w, tools=[paying(w), ordering(w)]), unbought=True),
    "awaited tool removed": of(lambda w: agent(w, tools=[paying(w), buying(w)])),
    "root and description changed": of(lambda w: agent(w, "store", description="x")),
    "sub-agent added": of(lambda w: agent(w, sub_agents=[agent(w, "clerk", [])])),
    "wrapped in a sequence": of(lambda w: sequence(agent(w), name="outer")),
    "wrapped in a loop": of(lambda w: loop(agent(w), name="outer")),
    "wrapped in an own agent": of(lambda w: Own(name="outer", sub_agents=[agent(w)])),
    "a boss above": of(lambda w: agent(w, "boss", [TRANSFER], [], sub_agents=[agent(w)])),
    "a sequence of that name": of(lambda w: sequence(agent(w, "till"), name="shop")),
    "an own class of that name": of(lambda w: Own(name="shop", sub_agents=[agent(w, "till")])),
    "a parallel agent of that name": of(
        lambda w: ParallelAgent(name="shop", sub_agents=[agent(w, "till")]),  # pyright: ignore[reportDeprecated],
    ),
    "agent inside a tool": of(
        lambda w: agent(w, "front", [], [AgentTool(agent(w, "clerk", [], []))]), unpaid=True, unbought=True
    ),
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
    "graph of Lango's next version": Change("graph", old_graph, newer=newer_fields),
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

CONTINUED_AT_MODEL_CALL = {
    "schema of the approved tool changed": ("approval",),
    "approved tool removed": ("approval",),
    "root and description changed": MOMENTS,
    "wrapped in a sequence": HELD,
    "wrapped in a loop": HELD,
    "wrapped in an own agent": HELD,
    "a boss above": HELD,
    "a sequence of that name": (*HELD, "approval"),
    "an own class of that name": (*HELD, "approval"),
    "a parallel agent of that name": (*HELD, "approval"),
    "agent inside a tool": MOMENTS,
    "first agent renamed": MOMENTS,
    "second agent renamed": ("tool",),
    "agents in another order": HELD,
    "agent lost": MOMENTS,
    "agent added first": HELD,
    "agent added between": ("tool",),
    "sequence made parallel": HELD,
    "one agent instead of two": MOMENTS,
}
"""The changes and moments where the record does not fit. Everywhere else a turn is replayed, or ends."""
