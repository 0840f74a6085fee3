"""O1 and O3: what is not shown is recalled for the question that needs it, and users can change what is remembered."""

from typing import Any

from google.adk.agents import LlmAgent
from google.adk.workflow import START, Workflow
from pydantic import BaseModel

from lango import Settings, open_runtime
from lango.adk.run.recall import recall_tools
from lango.memory import Shown, recall_for
from lango.messages import ToolCall
from lango.providers import Request
from lango.runtime.runtime import Runtime
from lango.sessions import SessionId
from lango.store import Store
from lango.store.memory.observations import SessionMemory
from tests.agents.memory_parts import Roles, noted, quoted, remembering, shown_to, spoken
from tests.agents.parts import broken_for
from tests.contract.test_search import write_messages

LONG = "a long story about a journey " * 14
CODE = "The code of the cellar is 4711."


async def talk(runtime: Runtime, turns: int = 4) -> None:
    await runtime.run("s", f"{CODE} {LONG}")
    await runtime.memory.settle()
    for number in range(turns):
        await runtime.run("s", f"{number} {LONG}")
        await runtime.memory.settle()


async def test_o1_a_question_recalls_what_its_request_does_not_show(store_url: str) -> None:
    roles = Roles(observer=lambda _: "- [low] They talked about a journey.")
    async with open_runtime(remembering(store_url, notes_tokens=1), provider=roles.provider) as runtime:
        await talk(runtime)
        assert "4711" not in str(roles.agent[-1].messages)
        await runtime.run("s", "What is the code of the cellar?")
        asked = roles.agent[-1]
        await runtime.run("s", "thanks")
        after = roles.agent[-1]
    assert asked.messages[-2].content == "What is the code of the cellar?"
    found = asked.messages[-1]
    assert found.author == "context"
    assert f'#1 user: "{CODE}' in found.content
    assert "4711" not in str(after.messages), "only for its question"
    same = len(asked.messages) - 1
    assert after.messages[:same] == asked.messages[:same], "everything before it stays the same, also the question"
    assert all(broken_for(request) == [] for request in roles.agent)


async def recall(store: Store, question: str, last_seq: int, room: int = 300) -> str:
    name = SessionId("app", "user", "s")
    return await recall_for(store, name, SessionMemory(), question, shown=Shown(last_seq + 1), room=lambda: room)


async def test_o1_words_that_many_messages_have_are_recalled_where_they_stand_together(store: Store) -> None:
    texts = [f"The lamp number {number} is old." for number in range(12)]
    texts += [f"In the cellar it is cold, {number}." for number in range(12)]
    texts.insert(5, "The lamp from Bern is in the cellar.")
    await write_messages(store, "s", *texts)
    last = len(texts)
    assert '#6 : "The lamp from Bern is in the cellar."' in await recall(store, "Which lamp is in the cellar?", last)
    assert await recall(store, "Which lamp?", last) == "", "on its own it says too little"
    assert await recall(store, "The lamp in the cellar fell.", last) == "", "only for a question"
    assert await recall(store, "Bern is far. It has 7 lamps and 9 cellars.", last) == "", "no message has most of it"
    assert "Bern" in await recall(store, "Is Bern far? It has 7 lamps.", last)


async def test_o1_a_long_message_that_informs_recalls_nothing(store: Store) -> None:
    long = "Yesterday Ines carried lamps, chairs, books, plates, curtains, bottles, pillows, clocks, shoes, baskets"
    await write_messages(store, "s", f"{long}.", "Nothing.")
    assert "#1" in await recall(store, f"{long}.", 2)
    assert await recall(store, f"{long}, ladders, brushes, ropes, pots, coats.", 2) == ""


async def test_o1_other_forms_of_a_word_are_found_in_the_index_and_no_words_that_only_begin_alike(store: Store) -> None:
    texts = ["She lived by the sea.", *["Nothing."] * 3, "They are in Liverpool."]
    await write_messages(store, "s", *texts)
    found = await recall(store, "Where is she living?", len(texts))
    assert "by the sea" in found
    assert "Liverpool" not in found
    assert await store.search("app", "user", "livi") == [], "stems are no words that a user finds"
    [hit] = await store.search("app", "user", "lived")
    assert hit.text == "She lived by the sea."


async def test_o1_a_question_about_some_days_finds_their_messages(store: Store) -> None:
    await write_messages(store, "s", *(f"We sang, {number}." for number in range(6)))
    assert "We sang" in await recall(store, "What happened today?", 6) or "We sang" in await recall(
        store, "this week?", 6
    )
    assert await recall(store, "What happened in 1999?", 6) == ""


async def test_o1_while_the_observer_is_down_messages_that_left_the_window_are_recalled(sqlite_url: str) -> None:
    roles = Roles(observer=lambda _: RuntimeError("down"))
    settings = remembering(sqlite_url, history={"max_message_token_budget": 400}, recall_tokens=200, recall_tool=False)
    async with open_runtime(settings, provider=roles.provider) as runtime:
        await talk(runtime, 7)
        await runtime.run("s", "What is the code of the cellar?")
        assert f'#1 user: "{CODE}' in quoted(roles.agent[-1])
    off = remembering(sqlite_url, history={"max_message_token_budget": 400}, recall=False)
    async with open_runtime(off, provider=roles.provider) as runtime:
        await talk(runtime)
        await runtime.run("s", "What is the code of the cellar?")
        assert quoted(roles.agent[-1]) == ""


def found_by(roles: Roles) -> list[dict[str, Any]]:
    """What each call of the tool returned."""
    outputs = [call.output for message in roles.agent[-1].messages for call in message.tool_calls]
    return [output for output in outputs if isinstance(output, dict)]


async def test_o1_the_recall_tool_finds_messages_of_all_sessions_of_the_user_only(store_url: str) -> None:
    calls = [
        {"query": "cellar code"},
        {"query": "codes", "speaker": "Ines"},
        {"query": "code", "from": "2030-01-01"},
        {"query": "code", "sessions": "this"},
        {"query": "", "from": "2020-01-01", "to": "2090-01-01"},
    ]
    answers = iter(["yes"] * 4 + [ToolCall(f"c{at}", "recall", call) for at, call in enumerate(calls)] + ["4711"])
    roles = Roles(agent=lambda _: next(answers))
    async with open_runtime(remembering(store_url, observe_at_tokens=100_000), provider=roles.provider) as runtime:
        await runtime.run("first", CODE, user_id="ann")
        await runtime.run("first", "Ines: Another code is 4712.", user_id="ann")
        await runtime.run("first", "The code of the cellar is mine.", user_id="bob")
        await runtime.run("second", "It rains.", user_id="ann")
        await runtime.run("second", "Which code was it?", user_id="ann")
    every, of_ines, later, here, of_days = found_by(roles)
    assert "not instructions" in every["quoted"]
    best = every["found"][0]
    assert (best["session"], best["message"], best["from"], best["text"]) == ("first", 1, "user", CODE)
    assert best["date"].startswith("20")
    assert "mine" not in str(every), "of this user only"
    assert [one["message"] for one in of_ines["found"]] == [3]
    assert later["found"] == here["found"] == of_days["found"] == [], "the request shows what this session has"


async def test_o1_the_recall_tool_gives_all_matches_page_by_page(sqlite_url: str) -> None:
    asks = iter([{"query": "lamp"}, {"query": "lamp", "cursor": "8"}, {"query": "lamp", "cursor": "x"}])
    answers = iter([*["yes"] * 11, *(ToolCall(f"c{at}", "recall", ask) for at, ask in enumerate(asks)), "done"])
    roles = Roles(agent=lambda _: next(answers))
    async with open_runtime(remembering(sqlite_url, observe_at_tokens=100_000), provider=roles.provider) as runtime:
        for number in range(11):
            await runtime.run("first", f"lamp number {number}")
        await runtime.run("second", "Which lamps?")
    first, rest, wrong = found_by(roles)
    assert (len(first["found"]), first["cursor"], len(rest["found"]), "cursor" in rest) == (8, "8", 3, False)
    assert len({one["text"] for one in (*first["found"], *rest["found"])}) == 11
    assert "cursor is wrong" in str(wrong)


async def test_o1_the_recall_tool_is_offered_by_default_to_agents_that_can_have_it(sqlite_url: str) -> None:
    def recall(query: str) -> str:
        """An agent's own."""
        return query

    class Answer(BaseModel):
        text: str

    agents = {
        "own": LlmAgent(name="own", model="standin", tools=[recall]),
        "schema": LlmAgent(name="schema", model="standin", output_schema=Answer),
        "flow": Workflow(name="flow", edges=[(START, LlmAgent(name="one", model="standin"))]),
        "plain": LlmAgent(name="plain", model="standin"),
    }
    offered: dict[str, list[str]] = {}
    for name, agent in agents.items():
        roles = Roles(agent=lambda _: '{"text": "yes"}')
        async with open_runtime(remembering(sqlite_url), provider=roles.provider, root_agent=agent) as runtime:
            await runtime.run(name, "hello")
        offered[name] = [f"{tool.name}: {len(tool.parameters['properties'])}" for tool in roles.agent[-1].tools]
    assert offered == {"own": ["recall: 1"], "schema": [], "flow": [], "plain": ["recall: 6"]}
    small = Settings.model_validate({"agent": {"model": "local/smollm2"}, "memory": {"enabled": True}})
    assert recall_tools(small, set()) == [], "it cannot choose tools"
    assert recall_tools(remembering(sqlite_url, recall_tool=False), set()) == []


async def test_o1_a_note_can_be_pinned_corrected_and_forgotten(store_url: str) -> None:
    def forgetful(request: Request) -> str:
        return "- [low] They talked." if "journey" in shown_to(request) else ""

    roles = Roles(observer=noted, reflector=forgetful)
    async with open_runtime(remembering(store_url, reflect_at_tokens=400), provider=roles.provider) as runtime:
        await talk(runtime, 0)
        [first, *_] = (await runtime.memory.show("s")).notes
        assert await runtime.memory.edit_note("s", first.id, text="The code of the cellar was a secret.")
        assert await runtime.memory.edit_note("s", "9.9", pinned=True) is None
        for number in range(6):
            await runtime.run("s", f"{number} {LONG}")
            await runtime.memory.settle()
        assert roles.reflector
        recalled = await runtime.memory.show("s")
        [kept] = [note for note in recalled.notes if "a secret" in note.text]
        assert kept.priority == "pinned", "a correction outlives reflections"
        assert (kept.first_seq, kept.last_seq) == (1, 1)
        assert "a secret" not in shown_to(roles.reflector[-1]), "what is pinned is not up to the model"
        assert await runtime.memory.forget_note("s", kept.id)
        assert not await runtime.memory.forget_note("s", kept.id)
        assert all(
            "a secret" not in note.text for batch in await runtime.memory.history("s") for note in batch.observations
        )
        await runtime.run("s", "What is the code of the cellar?")
    assert "cellar" not in quoted(roles.agent[-1]), "nor is its message recalled"
    assert spoken(roles.agent[-1])[-1] == "What is the code of the cellar?"


async def test_o1_an_edit_while_an_observer_is_at_work_is_not_lost(sqlite_url: str) -> None:
    runtimes: list[Runtime] = []

    async def editing(request: Request) -> str:
        await runtimes[0].memory.edit_note("s", "1.1", text="Corrected meanwhile.")
        return "- [low] They talked."

    roles = Roles(observer=lambda _: f"- [medium] (1) {CODE} {LONG}", reflector=editing)
    async with open_runtime(remembering(sqlite_url, reflect_at_tokens=50), provider=roles.provider) as runtime:
        runtimes.append(runtime)
        await talk(runtime, 1)
        texts = [note.text for batch in (await runtime.memory.show("s")).batches for note in batch.observations]
    assert roles.reflector
    assert "Corrected meanwhile." in texts, "the reflection of the old text was not stored"


async def test_facts_can_be_pinned_and_corrected(store_url: str) -> None:
    roles = Roles(observer=lambda _: "- [fact] (1) home: lives in Bern\n- [fact] (1) pet: a journey")
    settings = remembering(store_url, user_facts=True)
    async with open_runtime(settings, provider=roles.provider) as runtime:
        await runtime.run("s", f"lives in Bern {LONG}", user_id="ann")
        await runtime.memory.settle()
        home, pet = await runtime.memory.facts(user_id="ann")
        assert await runtime.memory.edit_fact(home.id, text="lives in Basel", user_id="bob") is None
        changed = await runtime.memory.edit_fact(home.id, text="lives in Basel", user_id="ann")
        assert changed
        assert (changed.text, changed.pinned, changed.session_id, changed.first_seq) == ("lives in Basel", True, "s", 1)
        assert await runtime.memory.edit_fact(pet.id, pinned=True, user_id="ann")
        every = await runtime.memory.facts(user_id="ann", replaced=True)
        assert [(fact.name, fact.text, fact.replaced_by is None) for fact in every] == [
            ("home", "lives in Bern", False),
            ("pet", "a journey", False),
            ("home", "lives in Basel", True),
            ("pet", "a journey", True),
        ]
        unpinned = await runtime.memory.edit_fact(changed.id, pinned=False, user_id="ann")
        assert unpinned
        assert (unpinned.text, unpinned.pinned) == ("lives in Basel", False)
        await runtime.run("new", "hello", user_id="ann")
    assert "home: lives in Basel" in quoted(roles.agent[-1])
    assert "Bern" not in quoted(roles.agent[-1])
