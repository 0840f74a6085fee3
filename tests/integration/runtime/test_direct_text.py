"""Text bypasses ADK if nothing there could change it, and goes through ADK otherwise."""

from collections.abc import AsyncGenerator, Callable
from typing import Any

import pytest
from google.adk.agents import LlmAgent
from google.adk.agents.callback_context import CallbackContext
from google.adk.agents.invocation_context import InvocationContext
from google.adk.apps import App
from google.adk.events import Event
from google.adk.models.llm_response import LlmResponse
from google.adk.plugins import BasePlugin
from google.genai import types

from lango import open_runtime
from lango.errors import LangoError, ProviderUnavailable
from lango.events import TextDelta, ThoughtDelta
from lango.events.text import StreamedText
from lango.providers.protocol import Finish
from lango.providers.protocol import TextDelta as TextPiece
from lango.providers.protocol import ThoughtDelta as ThoughtPiece
from lango.testing import ScriptedProvider
from tests.agents.parts import collect, last_error, messages, settings_for, text_of

SECRET = "the code is 1234"


def hide(callback_context: CallbackContext, llm_response: LlmResponse) -> LlmResponse | None:
    """A user's callback that changes every piece of an answer."""
    del callback_context
    for part in (llm_response.content and llm_response.content.parts) or []:
        if part.text:
            part.text = "".join("*" if letter.isdigit() else letter for letter in part.text)
    return llm_response


class Hides(BasePlugin):
    def __init__(self) -> None:
        super().__init__(name="hides")

    async def after_model_callback(self, *, callback_context: CallbackContext, llm_response: LlmResponse) -> Any:
        return hide(callback_context, llm_response)


def with_callback() -> Any:
    return LlmAgent(name="mine", model="openai/x", after_model_callback=hide)


def with_plugin() -> Any:
    return App(name="mine", root_agent=LlmAgent(name="mine", model="openai/x"), plugins=[Hides()])


def plain() -> Any:
    return LlmAgent(name="mine", model="openai/x")


@pytest.mark.parametrize("make", [with_callback, with_plugin])
async def test_text_that_a_callback_changes_is_emitted_as_changed(sqlite_url: str, make: Callable[[], Any]) -> None:
    provider = ScriptedProvider([SECRET])
    async with open_runtime(settings_for(sqlite_url), provider=provider, root_agent=make()) as runtime:
        events = await collect(runtime.stream("s", "hi"))
        assert text_of(events) == "the code is ****"
        assert [message.content for message in await messages(runtime)] == ["hi", "the code is ****"]


def hide_at_the_end(callback_context: CallbackContext, llm_response: LlmResponse) -> LlmResponse | None:
    """A user's callback that checks only the complete answer."""
    return None if llm_response.partial else hide(callback_context, llm_response)


class HidesEvents(BasePlugin):
    """Changes the complete event, after the callbacks of the model."""

    async def on_event_callback(self, *, invocation_context: InvocationContext, event: Event) -> Event | None:
        if event.partial or event.author == "user" or not event.content:
            return None
        return event.model_copy(update={"content": types.ModelContent("the code is ****")})


def with_event_plugin() -> Any:
    return App(name="mine", root_agent=plain(), plugins=[HidesEvents(name="hides")])


def with_callback_at_the_end() -> Any:
    return LlmAgent(name="mine", model="openai/x", after_model_callback=hide_at_the_end)


@pytest.mark.parametrize("make", [with_callback_at_the_end, with_event_plugin])
async def test_streamed_text_that_the_complete_answer_lacks_is_withdrawn(
    sqlite_url: str, make: Callable[[], Any]
) -> None:
    async with open_runtime(
        settings_for(sqlite_url), provider=ScriptedProvider([SECRET, SECRET]), root_agent=make()
    ) as runtime:
        events = await collect(runtime.stream("s", "hi"))
        assert text_of(events) == SECRET + "the code is ****"
        assert StreamedText(events).text == "the code is ****"
        assert await runtime.run("s", "again") == "the code is ****"


async def test_text_that_nothing_changes_is_emitted_in_pieces_and_stored_once(sqlite_url: str) -> None:
    pieces = [ThoughtPiece("let me "), ThoughtPiece("see"), TextPiece("one "), TextPiece("two"), Finish("stop")]
    async with open_runtime(
        settings_for(sqlite_url), provider=ScriptedProvider([pieces]), root_agent=plain()
    ) as runtime:
        events = await collect(runtime.stream("s", "hi"))
        assert [event.text for event in events if isinstance(event, TextDelta)] == ["one ", "two"]
        assert [event.text for event in events if isinstance(event, ThoughtDelta)] == ["let me ", "see"]
        assert [event.id for event in events] == sorted({event.id for event in events})
        assert [message.content for message in await messages(runtime)] == ["hi", "one two"]


async def test_a_model_that_fails_midway_has_emitted_its_pieces_and_stored_no_answer(sqlite_url: str) -> None:
    async def broken(_: Any) -> Any:
        return [TextPiece("half an ans")]

    settings, provider = settings_for(sqlite_url, max_attempts=1), ScriptedProvider([broken, "whole"])
    async with open_runtime(settings, provider=provider) as runtime:
        events = await collect(runtime.stream("s", "hi"))
        assert text_of(events) == "half an ans"
        assert last_error(events).error == "ProviderProtocolError"
        assert not any("half" in message.content for message in await messages(runtime))
        assert await runtime.run("s", "again") == "whole"


async def test_an_error_before_the_first_piece_is_the_turns_error(sqlite_url: str) -> None:
    provider = ScriptedProvider([ProviderUnavailable("down", provider="scripted")])
    async with open_runtime(settings_for(sqlite_url), provider=provider) as runtime:
        with pytest.raises(LangoError, match="down"):
            await runtime.run("s", "hi")


async def test_text_of_a_model_that_streams_only_thoughts_comes_from_the_final_event(sqlite_url: str) -> None:
    """A model of ADK may stream only its thoughts: its text then comes from the final event."""
    from google.adk.models import BaseLlm

    class Thinker(BaseLlm):
        async def generate_content_async(
            self, llm_request: Any, stream: bool = False
        ) -> AsyncGenerator[LlmResponse, None]:
            del llm_request, stream
            thought = types.Part(text="hm", thought=True)
            yield LlmResponse(content=types.Content(role="model", parts=[thought]), partial=True)
            parts = [thought, types.Part(text="a"), types.Part(text="b")]
            yield LlmResponse(content=types.Content(role="model", parts=parts))

    agent = LlmAgent(name="mine", model=Thinker(model="thinker"))
    async with open_runtime(settings_for(sqlite_url), root_agent=agent) as runtime:
        events = await collect(runtime.stream("s", "hi"))
        assert [event.text for event in events if isinstance(event, TextDelta)] == ["a", "b"]
        assert [event.text for event in events if isinstance(event, ThoughtDelta)] == ["hm"]
