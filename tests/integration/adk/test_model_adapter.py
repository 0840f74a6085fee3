"""`ProviderLlm` in a user's own ADK Runner."""

from collections.abc import Callable
from typing import Any

import pytest
from google.adk.agents import LlmAgent
from google.adk.agents.run_config import RunConfig, StreamingMode  # pyright: ignore[reportPrivateImportUsage]
from google.adk.events import Event
from google.adk.runners import Runner
from google.adk.sessions import InMemorySessionService
from google.genai import types
from pydantic import BaseModel

from lango.adk import ProviderLlm, SqlSessionService
from lango.errors import ProviderProtocolError, ProviderUnavailable
from lango.history import INTERRUPTED
from lango.messages import Message, Signature, ToolCall
from lango.providers.protocol import CallDelta, Delta, Finish, Request, TextDelta, ThoughtDelta, UsageDelta
from lango.testing import ScriptedProvider
from tests.support.provider_rules import broken_rules

SSE = RunConfig(streaming_mode=StreamingMode.SSE)


def add(a: int, b: int) -> dict[str, int]:
    """Add two numbers."""
    return {"sum": a + b}


def agent_of(provider: ScriptedProvider, model: str = "m", **fields: Any) -> LlmAgent:
    fields = {"name": "root", "tools": [add], "instruction": "Be exact."} | fields
    return LlmAgent(model=ProviderLlm(provider, model), **fields)


class Chat:
    """A session, with runners that may change."""

    def __init__(self, agent: LlmAgent, service: Any = None) -> None:
        self.service = service or InMemorySessionService()
        self.agent = agent
        self.session_id = ""

    async def say(self, text: str, run_config: RunConfig | None = None) -> list[Event]:
        if not self.session_id:
            session = await self.service.create_session(app_name="app", user_id="u")
            self.session_id = session.id
        runner = Runner(app_name="app", agent=self.agent, session_service=self.service)
        message = types.Content(role="user", parts=[types.Part(text=text)])
        events = runner.run_async(
            user_id="u", session_id=self.session_id, new_message=message, run_config=run_config or RunConfig()
        )
        return [event async for event in events]

    async def stored(self) -> list[Event]:
        session = await self.service.get_session(app_name="app", user_id="u", session_id=self.session_id)
        assert session is not None
        return session.events


def text_of(event: Event) -> str:
    parts = (event.content and event.content.parts) or []
    return "".join(part.text or "" for part in parts if not part.thought)


async def test_m2_a_text_answer() -> None:
    provider = ScriptedProvider([["Hi", UsageDelta(12, 3)]])
    chat = Chat(agent_of(provider))
    [event] = await chat.say("hello")
    assert (text_of(event), event.author, event.partial, event.turn_complete) == ("Hi", "root", False, True)
    assert event.is_final_response()
    assert event.usage_metadata is not None
    assert event.usage_metadata.total_token_count == 15
    [sent] = provider.requests
    assert sent.messages == (Message("user", "hello"),)
    assert "Be exact." in sent.system
    assert [tool.name for tool in sent.tools] == ["add"]
    assert sent.tools[0].parameters["properties"].keys() == {"a", "b"}


async def test_m3_streaming_shows_partials_and_stores_only_the_final() -> None:
    chat = Chat(agent_of(ScriptedProvider([[ThoughtDelta("hm"), TextDelta("Hel"), TextDelta("lo"), Finish("stop")]])))
    events = await chat.say("hello", SSE)
    assert [(event.partial, text_of(event)) for event in events] == [
        (True, ""),
        (True, "Hel"),
        (True, "lo"),
        (False, "Hello"),
    ]
    assert [text_of(event) for event in await chat.stored()] == ["hello", "Hello"]


@pytest.mark.parametrize("run_config", [RunConfig(), SSE])
async def test_m6_a_call_and_its_result_keep_one_id(run_config: RunConfig) -> None:
    provider = ScriptedProvider([["Adding.", ToolCall("", "add", {"a": 2, "b": 3})], "It is 5."])
    chat = Chat(agent_of(provider))
    events = await chat.say("2 + 3?", run_config)
    assert text_of(events[-1]) == "It is 5."
    [_, calling, answered] = provider.requests[1].messages
    assert calling.tool_calls[0].id == answered.tool_calls[0].id
    assert not calling.tool_calls[0].id.startswith("adk-")
    assert answered.tool_calls[0].output == {"sum": 5}
    ids = {call.id for event in await chat.stored() for call in event.get_function_calls()}
    assert ids == {calling.tool_calls[0].id}


async def test_m6_parallel_calls_of_one_name_keep_apart() -> None:
    calls = [ToolCall("same", "add", {"a": n, "b": n}) for n in range(3)]
    provider = ScriptedProvider([calls, "done"])
    await Chat(agent_of(provider)).say("go")
    [_, calling, answered] = provider.requests[1].messages
    assert len({call.id for call in calling.tool_calls}) == 3
    assert {c.id: c.output for c in answered.tool_calls} == {
        c.id: {"sum": 2 * n} for n, c in enumerate(calling.tool_calls)
    }


async def test_m6_calls_of_a_model_that_repeats_an_id_get_unique_ids() -> None:
    again = ToolCall("call_0", "add", {"a": 1, "b": 1})
    provider = ScriptedProvider([again, again, again, "done"])
    chat = Chat(agent_of(provider))
    await chat.say("go")
    ids = [call.id for event in await chat.stored() for call in event.get_function_calls()]
    assert len(set(ids)) == 3
    assert broken_rules(provider.requests[-1].messages) == []


async def test_m7_malformed_arguments_never_run() -> None:
    ran: list[int] = []

    def add(a: int, b: int) -> dict[str, int]:
        """Add two numbers."""
        ran.append(a + b)
        return {"sum": a + b}

    bad: list[Delta] = [CallDelta(0, "c1", "add", '{"a": 2, '), Finish("tool_calls")]
    provider = ScriptedProvider([bad, ToolCall("c2", "add", {"a": 2, "b": 3}), "It is 5."])
    chat = Chat(agent_of(provider, tools=[add]))
    events = await chat.say("2 + 3?")
    assert text_of(events[-1]) == "It is 5."
    assert ran == [5]
    assert "not run" in str(provider.requests[1].messages[-1])
    stored = [call.id for event in await chat.stored() for call in event.get_function_calls()]
    assert stored == ["c2"]  # the malformed one was never a call


@pytest.mark.parametrize("run_config", [RunConfig(), SSE])
async def test_m4_a_providers_error_reaches_the_caller_and_no_answer_is_stored(run_config: RunConfig) -> None:
    broken: list[Delta] = [TextDelta("half an ans")]  # no end: the connection was cut
    chat = Chat(agent_of(ScriptedProvider([ProviderUnavailable("busy"), broken, "back again"])))
    with pytest.raises(ProviderUnavailable, match="busy"):
        await chat.say("hello", run_config)
    with pytest.raises(ProviderProtocolError, match="finished"):
        await chat.say("hello?", run_config)
    # ADK stores an event of the error, which has no content.
    assert [text_of(event) for event in await chat.stored() if event.content] == ["hello", "hello?"]
    assert text_of((await chat.say("hello!", run_config))[-1]) == "back again"


async def test_a8_a_call_without_a_result_is_sent_as_interrupted() -> None:
    def crash() -> dict[str, str]:
        """Crash."""
        raise RuntimeError("boom")

    provider = ScriptedProvider([ToolCall("c1", "crash", {}), "I see."])
    chat = Chat(agent_of(provider, tools=[crash]))
    with pytest.raises(RuntimeError, match="boom"):
        await chat.say("go")
    await chat.say("and?")
    messages = provider.requests[1].messages
    assert broken_rules(messages) == []
    # whether ADK leaves an unanswered call out or sends it: the request is valid
    assert INTERRUPTED in str(messages) or not any(message.tool_calls for message in messages)


def signed_answer(name: str, model: str) -> Callable[[Request], list[Delta]]:
    """A model that thinks, calls and signs everything, and refuses foreign signatures."""

    def answer(request: Request) -> list[Delta]:
        assert broken_rules(request.messages) == []
        signatures = [
            signature
            for message in request.messages
            for signature in (
                message.signature,
                *(thought.signature for thought in message.thoughts),
                *(call.signature for call in message.tool_calls),
            )
            if signature is not None
        ]
        assert all((s.provider, s.model) == (name, model) for s in signatures)
        own = Signature(name, model, b"\x00signed")
        if request.messages[-1].role == "tool":
            return [ThoughtDelta("so", own), TextDelta(f"{name} says so"), Finish("stop", signature=own)]
        return [
            ThoughtDelta("let me add", own),
            CallDelta(0, "", "add", '{"a": 1, ', own),
            CallDelta(0, arguments='"b": 1}'),
            Finish("tool_calls"),
        ]

    return answer


@pytest.mark.parametrize("sql", [False, True])
async def test_m8_the_provider_may_change_in_mid_session_in_every_direction(sql: bool) -> None:
    makers = [("gemini", "g1"), ("openai", "o1"), ("anthropic", "a1"), ("gemini", "g2")]
    service = SqlSessionService("sqlite:///:memory:") if sql else None
    chat = Chat(agent_of(ScriptedProvider([])), service)
    seen: list[int] = []
    for name, model in [*makers, *reversed(makers), makers[0]]:
        provider = ScriptedProvider([signed_answer(name, model)] * 2, name=name)
        chat.agent = agent_of(provider, model)
        events = await chat.say("1 + 1?")
        assert text_of(events[-1]) == f"{name} says so"
        seen.append(sum(bool(t.signature) for m in provider.requests[-1].messages for t in m.thoughts))
    # In its own turn a model gets its signatures back; on its return also those of its earlier turns.
    assert seen == [1, 1, 1, 1, 3, 3, 3, 3, 5]
    if service is not None:
        await service.close()


async def test_h5_the_budget_holds_in_a_turn_of_hundreds_of_calls() -> None:
    def look(n: int) -> dict[str, str]:
        """Look."""
        return {"seen": f"thing {n} " * 30}

    script: list[Any] = [ToolCall("", "look", {"n": n}) for n in range(120)]
    provider = ScriptedProvider([*script, "done"])
    agent = LlmAgent(name="root", model=ProviderLlm(provider, "m", budget_tokens=3_000), tools=[look])
    events = await Chat(agent).say("look at everything")
    assert text_of(events[-1]) == "done"
    for sent in provider.requests:
        assert sent.messages[0] == Message("user", "look at everything")
        assert broken_rules(sent.messages) == []
    assert provider.requests[-1].cut


async def test_structured_output_with_and_without_tools() -> None:
    class Sum(BaseModel):
        value: int

    provider = ScriptedProvider(['{"value": 5}'])
    await Chat(agent_of(provider, tools=[], output_schema=Sum)).say("2 + 3?")
    schema = provider.requests[0].response_schema
    assert schema is not None
    assert schema["properties"].keys() == {"value"}

    # with tools, ADK uses a tool of its own instead
    provider = ScriptedProvider([ToolCall("c1", "set_model_response", {"value": 5})])
    events = await Chat(agent_of(provider, output_schema=Sum)).say("2 + 3?")
    assert provider.requests[0].response_schema is None
    assert '"value": 5' in text_of(events[-1]).replace('"value":5', '"value": 5')


async def test_messages_of_other_agents_are_quoted_text() -> None:
    provider = ScriptedProvider([ToolCall("t1", "transfer_to_agent", {"agent_name": "helper"})])
    helper_provider = ScriptedProvider(["I help."])
    helper = agent_of(helper_provider, name="helper", description="helps", tools=[])
    chat = Chat(agent_of(provider, sub_agents=[helper]))
    events = await chat.say("help me")
    assert text_of(events[-1]) == "I help."
    [sent] = helper_provider.requests
    assert broken_rules(sent.messages) == []
    assert sent.messages[0] == Message("user", "help me")
    assert any("transfer_to_agent" in message.content for message in sent.messages[1:])
