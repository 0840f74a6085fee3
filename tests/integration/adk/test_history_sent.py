"""A turn sends all of a stored history that fits, through ADK's real Runner, in a valid request."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
from google.adk.agents import (
    BaseAgent,
    LlmAgent,
    ParallelAgent,  # pyright: ignore[reportDeprecated]
)
from google.adk.events import Event, EventActions
from google.adk.runners import Runner
from google.adk.tools.tool_confirmation import ToolConfirmation
from google.genai import types

from lango.adk import ProviderLlm, SqlSessionService
from lango.history import INTERRUPTED, count_tokens
from lango.messages import Message
from lango.providers.protocol import Request
from lango.store.engine.database import Operation, Row
from lango.testing import ScriptedProvider
from tests.support.histories import OTHER, ROOT, History, histories
from tests.support.sent_requests import (
    APP,
    MODEL,
    USER,
    Recorder,
    Share,
    broken,
    sent_by_lango,
    store,
    take_turn,
    words_of,
)


@pytest.fixture(params=[None, 32_000], ids=["all events", "window"])
async def service(request: pytest.FixtureRequest, sqlite_url: str) -> AsyncIterator[SqlSessionService]:
    async with SqlSessionService(sqlite_url, budget_tokens=request.param) as service:
        yield service


async def test_m8_adversarial_histories_are_sent_whole_and_valid(service: SqlSessionService) -> None:
    share = Share()
    for number, history in enumerate(histories(40)):
        request = await sent_by_lango(service, history, str(number), 32_000)
        assert broken(request) == [], number
        share.add(history, words_of(request.messages))
    assert share.of_texts >= 99.5
    assert share.of_results >= 99


async def test_h3_a_small_budget_leaves_no_hole_in_the_middle(sqlite_url: str) -> None:
    budget, cut = 400, 0
    async with SqlSessionService(sqlite_url, budget_tokens=budget) as service:
        for number, history in enumerate(histories(25, seed=2)):
            request = await sent_by_lango(service, history, str(number), budget)
            assert broken(request) == [], number
            assert count_tokens(request.messages) <= budget
            sent_text = words_of(request.messages)
            sent = [word in sent_text for word in history.texts]
            assert sent == sorted(sent), f"{number}: what is kept is the newest part"
            cut += False in sent
    assert cut > 5, "the budget cuts some of them"


# the ways in which calls and results can be unpaired


def call(name: str, call_id: str | None = None, **args: Any) -> types.Part:
    return types.Part(function_call=types.FunctionCall(id=call_id, name=name, args=args))


def result(name: str | None, call_id: str | None = None, **response: Any) -> types.Part:
    return types.Part(function_response=types.FunctionResponse(id=call_id, name=name, response=response))


def event(author: str, role: str | None, *parts: types.Part | str, **fields: Any) -> Event:
    made = [types.Part(text=part) if isinstance(part, str) else part for part in parts]
    return Event(author=author, content=types.Content(role=role, parts=made), **fields)


async def sent(service: SqlSessionService, *events: Event, budget_tokens: int = 32_000) -> Request:
    request = await sent_by_lango(service, History(list(events)), "s", budget_tokens)
    assert broken(request) == []
    return request


def outputs(request: Request) -> list[tuple[str, Any]]:
    return [(c.id, c.output) for m in request.messages if m.role == "tool" for c in m.tool_calls]


@pytest.mark.parametrize("name", ["pay", None])
@pytest.mark.parametrize("missing", [None, ""])
async def test_s6_a_result_without_an_id_answers_its_call(
    service: SqlSessionService, missing: str | None, name: str | None
) -> None:
    message = event("user", "user", "pay it")
    request = await sent(
        service,
        message,
        event(ROOT, "model", call("pay", "abc")),
        event(ROOT, "user", result(name, missing, paid=True)),
    )
    assert outputs(request) == [("abc", {"paid": True})]
    assert INTERRUPTED not in words_of(request.messages)


async def test_s6_a_result_answers_a_call_without_an_id(service: SqlSessionService) -> None:
    request = await sent(
        service, event(ROOT, "model", call("pay")), event(ROOT, "user", result("pay", "toolu_1", paid=True))
    )
    assert outputs(request) == [("call_pay", {"paid": True})]


async def test_s6_parallel_results_without_ids_answer_by_position(service: SqlSessionService) -> None:
    request = await sent(
        service,
        event(ROOT, "model", call("read", "a"), call("read"), call("find", "c")),
        event(ROOT, "user", result("find", n=3)),
        event(ROOT, "user", result("read", n=1), result("read", n=2)),
    )
    assert dict(outputs(request)) == {"a": {"n": 1}, "call_read": {"n": 2}, "c": {"n": 3}}


async def test_s6_a_result_that_is_paired_when_it_is_appended_closes_its_call(service: SqlSessionService) -> None:
    history = History([event(ROOT, "model", call("pay", "abc")), event(ROOT, "user", result("pay", paid=True))])
    await store(service, history, "s")
    session = await service.get_session(app_name=APP, user_id=USER, session_id="s")
    assert session
    assert [response.id for shown in session.events for response in shown.get_function_responses()] == ["abc"]
    assert await service.store.read(_open_calls) == [], "or the next turn would store that its outcome is unknown"


def _open_calls() -> Operation[list[Row]]:
    return (yield "SELECT call_id FROM open_calls", ())


async def test_m8_a_result_before_its_call_is_quoted_in_its_place(service: SqlSessionService) -> None:
    """ADK drops the call, which has no result after it; the result is sent all the same."""
    request = await sent(
        service, event(ROOT, "user", result("read", "a", n=1)), event(ROOT, "model", "I read it", call("read", "a"))
    )
    [quoted, sent_texts, _] = request.messages
    assert (quoted.role, sent_texts.content) == ("user", "I read it")
    assert '{"n":1}' in quoted.content


async def test_m8_a_result_without_a_call_and_a_second_one_are_quoted_in_their_places(
    service: SqlSessionService,
) -> None:
    request = await sent(
        service,
        event(ROOT, "user", result("gone", "x", n=0)),
        event("user", "user", "read it"),
        event(ROOT, "model", call("read", "a")),
        event(ROOT, "user", result("read", "a", n=1)),
        event(ROOT, "model", "it is 1"),
        event(ROOT, "user", result("read", "a", n=2)),
    )
    sent_texts = [(message.role, message.content) for message in request.messages if message.role != "tool"]
    assert [role for role, _ in sent_texts] == ["user", "user", "assistant", "assistant", "user", "user"]
    assert '"gone"' in sent_texts[0][1]
    assert '{"n":0}' in sent_texts[0][1]
    assert '{"n":2}' in sent_texts[4][1]
    assert outputs(request) == [("a", {"n": 1})]


async def test_m8_an_event_without_a_role_is_sent(service: SqlSessionService) -> None:
    request = await sent(service, event("user", None, "my name is Ann"), event(ROOT, None, "hello Ann"))
    assert request.messages[:2] == (Message("user", "my name is Ann"), Message("assistant", "hello Ann"))
    session = await service.get_session(app_name=APP, user_id=USER, session_id="s")
    assert session
    assert session.events[0].content
    assert session.events[0].content.role is None, "what is stored stays as it is"


async def test_any_model_reads_results_that_answer_no_call(service: SqlSessionService) -> None:
    """A user's own model gets them as text in ADK's request."""
    await store(service, History([event(ROOT, "user", result("gone", "x", n=7))]), "s")
    model = Recorder(requests=[])
    await take_turn(service, model, "s")
    [request] = model.requests
    [quoted, _] = request.contents
    assert quoted.role == "user"
    assert quoted.parts
    assert '{"n":7}' in (quoted.parts[0].text or "")


async def test_the_last_update_of_a_long_running_tool_is_its_result(service: SqlSessionService) -> None:
    """In ADK, a later update replaces the earlier one."""
    request = await sent(
        service,
        event(ROOT, "model", call("build", "a"), long_running_tool_ids={"a"}),
        event(ROOT, "user", result("build", "a", status="pending")),
        event("user", "user", result("build", "a", status="done")),
    )
    assert outputs(request) == [("a", {"status": "done"})]
    assert "pending" not in words_of(request.messages)


async def test_the_result_of_an_approved_call_replaces_its_waiting_result(service: SqlSessionService) -> None:
    asks = EventActions(requested_tool_confirmations={"a": ToolConfirmation()})
    request = await sent(
        service,
        event(ROOT, "model", call("pay", "a")),
        event(ROOT, "user", result("pay", "a", status="waits"), actions=asks),
        event(ROOT, "user", result("pay", "a", status="paid")),
    )
    assert outputs(request) == [("a", {"status": "paid"})]
    assert "waits" not in words_of(request.messages)


@pytest.mark.filterwarnings("ignore:ParallelAgent")
async def test_an_unpaired_result_of_another_branch_stays_there(service: SqlSessionService) -> None:
    stray = [event("user", "user", result("gone", name, n=name), branch=f"both.{name}") for name in ("left", "right")]
    await store(service, History(stray), "s")
    providers = {name: ScriptedProvider(["yes"]) for name in ("left", "right")}
    agents = [LlmAgent(name=name, model=ProviderLlm(provider, MODEL)) for name, provider in providers.items()]
    both = ParallelAgent(name="both", sub_agents=[*agents])  # pyright: ignore[reportDeprecated]
    await run_turn(service, both)
    for name, provider in providers.items():
        [request] = provider.requests
        assert [f'"{other}"' in words_of(request.messages[:-1]) for other in (name, *{*providers} - {name})] == [
            True,
            False,
        ]


async def test_an_agent_without_history_gets_no_unpaired_result(service: SqlSessionService) -> None:
    await store(service, History([event(ROOT, "user", result("gone", "x", n=7))]), "s")
    provider = ScriptedProvider(["yes"])
    await run_turn(service, LlmAgent(name=ROOT, model=ProviderLlm(provider, MODEL), include_contents="none"))
    assert provider.requests[-1].messages == (Message("user", "and now?"),)


async def run_turn(service: SqlSessionService, agent: BaseAgent) -> None:
    runner = Runner(app_name=APP, agent=agent, session_service=service)
    message = types.Content(role="user", parts=[types.Part(text="and now?")])
    async for _ in runner.run_async(user_id=USER, session_id="s", new_message=message):
        pass


async def test_an_unpaired_result_of_another_agent_is_quoted_by_adk(service: SqlSessionService) -> None:
    stray = event(OTHER, "user", result("gone", "x", n=7))
    request = await sent(service, stray, event(ROOT, "model", "the root agent goes on"))
    assert f"[{OTHER}] said" in request.messages[0].content
    assert '{"n":7}' in request.messages[0].content


# H4: large results.

HUGE = "line of output " * 40_000


async def test_h4_a_huge_result_in_the_turn_before_keeps_its_turn_and_all_before_it(service: SqlSessionService) -> None:
    request = await sent(
        service,
        event("user", "user", "my name is Ann"),
        event(ROOT, "model", "hello Ann"),
        event("user", "user", "list the files"),
        event(ROOT, "model", "I list them", call("exec", "a", cmd="ls -R")),
        event(ROOT, "user", result("exec", "a", out=HUGE)),
        event(ROOT, "model", "many files"),
    )
    assert [message.role for message in request.messages] == [
        *["user", "assistant", "user", "assistant", "tool", "assistant", "user"],
    ]
    assert request.messages[3].content == "I list them"
    assert request.messages[3].tool_calls[0].input == {"cmd": "ls -R"}
    [(_, clipped)] = outputs(request)
    assert "tokens left out" in clipped["out"]
    assert 7_000 < count_tokens(clipped["out"]) <= 8_000, "a quarter of the budget"
    assert count_tokens(request.messages) <= 32_000


async def test_h4_a_huge_result_of_another_agent_displaces_nothing(service: SqlSessionService) -> None:
    request = await sent(
        service,
        event("user", "user", "my name is Ann"),
        event(OTHER, "model", call("exec", "a")),
        event(OTHER, "user", result("exec", "a", out=HUGE)),
        event(ROOT, "model", "the root agent goes on"),
    )
    assert request.messages[0] == Message("user", "my name is Ann")
    assert "tokens left out" in request.messages[2].content
    assert count_tokens(request.messages) <= 32_000


async def test_h4_clipped_tokens_are_logged(service: SqlSessionService, caplog: pytest.LogCaptureFixture) -> None:
    big = event(ROOT, "user", result("exec", "a", out=HUGE))
    await sent(service, event("user", "user", "go"), event(ROOT, "model", call("exec", "a")), big)
    [warning] = [record.getMessage() for record in caplog.records if record.name == "lango.history"]
    tokens = int(warning.split("clipped ")[1].split()[0])
    assert tokens > 100_000


async def test_h4_many_large_results_share_the_budget(service: SqlSessionService) -> None:
    events: list[Event] = []
    for number in range(10):
        events += [
            event("user", "user", f"question {number}"),
            event(ROOT, "model", call("exec", f"c{number}")),
            event(ROOT, "user", result("exec", f"c{number}", out=f"result {number} " + "data " * 12_000)),
        ]
    request = await sent(service, *events)
    sent_text = words_of(request.messages)
    assert all(f"question {number}" in sent_text for number in range(7, 10))
    assert count_tokens(request.messages) <= 32_000
