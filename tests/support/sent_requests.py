"""What of a stored history one turn sends to a model: by Lango, and by ADK alone."""

import json
from collections.abc import AsyncGenerator, Iterable
from typing import Any

from google.adk.agents import LlmAgent
from google.adk.models import BaseLlm
from google.adk.models.llm_request import LlmRequest
from google.adk.models.llm_response import LlmResponse
from google.adk.runners import Runner
from google.adk.sessions import BaseSessionService, InMemorySessionService
from google.genai import types
from msgspec import Struct

from lango.adk import ProviderLlm, SqlSessionService
from lango.messages import Message
from lango.providers import anthropic, gemini, openai, openai_responses
from lango.providers.protocol import Request
from lango.testing import ScriptedProvider
from tests.support import wire_rules
from tests.support.histories import OTHER, ROOT, History
from tests.support.provider_rules import broken_rules

APP, USER, QUESTION = "app", "user", "and now?"
MODEL = "m"


class Recorder(BaseLlm):
    """An ADK model that answers at once, and keeps its requests."""

    model: str = "recorder"
    requests: list[LlmRequest]

    async def generate_content_async(
        self, llm_request: LlmRequest, stream: bool = False
    ) -> AsyncGenerator[LlmResponse, None]:
        self.requests.append(llm_request)
        yield LlmResponse(content=types.Content(role="model", parts=[types.Part(text="yes")]))


async def store(service: BaseSessionService, history: History, session_id: str) -> None:
    """Append the events of a history to a new session."""
    session = await service.create_session(app_name=APP, user_id=USER, session_id=session_id)
    for event in history.events:
        await service.append_event(session, event.model_copy(deep=True))


async def take_turn(service: BaseSessionService, model: BaseLlm, session_id: str) -> None:
    """Run one turn of the root agent."""
    root = LlmAgent(name=ROOT, model=model, sub_agents=[LlmAgent(name=OTHER, model=model)])
    runner = Runner(app_name=APP, agent=root, session_service=service)
    message = types.Content(role="user", parts=[types.Part(text=QUESTION)])
    async for _ in runner.run_async(user_id=USER, session_id=session_id, new_message=message):
        pass


async def sent_by_lango(service: SqlSessionService, history: History, session_id: str, budget_tokens: int) -> Request:
    """Store a history and return what the next turn sends."""
    await store(service, history, session_id)
    provider = ScriptedProvider(["yes"])
    await take_turn(service, ProviderLlm(provider, MODEL, budget_tokens=budget_tokens, max_messages=None), session_id)
    [request] = provider.requests
    return request


async def sent_by_adk(history: History) -> str:
    """Return the words that ADK alone sends, from its own store in memory."""
    service, model = InMemorySessionService(), Recorder(requests=[])
    await store(service, history, "s")
    await take_turn(service, model, "s")
    [request] = model.requests
    return "\n".join(content.model_dump_json() for content in request.contents)


def words_of(messages: Iterable[Message]) -> str:
    """Return the texts of messages."""
    return "\n".join(_words_of(message) for message in messages)


def _words_of(message: Message) -> str:
    calls: list[Any] = [[call.input, call.output] for call in message.tool_calls]
    return f"{message.content}\n{json.dumps(calls)}"


def broken(request: Request) -> list[str]:
    """Return what is wrong with a request, for any of the providers."""

    def own(name: str) -> frozenset[bytes]:
        return wire_rules.own_signatures(request.messages, name, request.model)

    return [
        *broken_rules(request.messages),
        *wire_rules.gemini(gemini.encode(request, provider="gemini"), own("gemini")),
        *wire_rules.openai_chat(openai.encode(request)),
        *wire_rules.openai_responses(openai_responses.encode(request, provider="openai"), own("openai")),
        *wire_rules.anthropic(anthropic.encode(request, provider="anthropic"), own("anthropic"), cut=request.cut),
    ]


class Share(Struct):
    """How many of the stored texts and results were sent."""

    texts: int = 0
    texts_sent: int = 0
    results: int = 0
    results_sent: int = 0

    def add(self, history: History, words: str) -> None:
        """Count what a request holds of a history."""
        self.texts += len(history.texts)
        self.texts_sent += sum(word in words for word in history.texts)
        self.results += len(history.results)
        self.results_sent += sum(word in words for word in history.results)

    @property
    def of_texts(self) -> float:
        """The percentage of the texts."""
        return 100 * self.texts_sent / self.texts

    @property
    def of_results(self) -> float:
        """The percentage of the results."""
        return 100 * self.results_sent / self.results
