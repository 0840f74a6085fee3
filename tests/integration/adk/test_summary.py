"""Summaries of conversations by the agent's own model."""

import pytest
from google.adk.workflow import Workflow

from lango import Settings, open_runtime
from lango.errors import EmptyAnswer, UsageError
from lango.messages import Media, Message, ToolCall
from lango.providers.protocol import Finish, TextDelta, ThoughtDelta, UsageDelta
from lango.testing import ScriptedProvider

_TALK = [
    Message("user", "Where is it?", media=(Media("image/png", b"x", name="map.png"),)),
    Message("assistant", "I look.", (ToolCall("c1", "lookup", {"at": 1}),)),
    Message("tool", "", (ToolCall("c1", "lookup", None, {"place": "Rome"}),)),
    Message("assistant", "In Rome."),
]


async def test_the_model_reads_the_conversation_as_text_and_nothing_is_stored(sqlite_url: str) -> None:
    counted = UsageDelta(100, 20, 50, 5)
    answer = [ThoughtDelta("hm"), TextDelta("It is "), TextDelta("in Rome."), counted, Finish("stop")]
    provider = ScriptedProvider([answer, ""])
    settings = Settings.model_validate({"store": {"url": sqlite_url}})
    async with open_runtime(settings, provider=provider) as runtime:
        text, usage = await runtime.summarize(_TALK, "In English.")
        with pytest.raises(EmptyAnswer, match="wrote no summary"):
            await runtime.summarize(_TALK)
        assert not await runtime.sessions.list()
    assert text == "It is in Rome."
    assert (usage.input_tokens, usage.output_tokens, usage.cached_tokens, usage.thought_tokens) == (100, 20, 50, 5)
    request = provider.requests[0]
    assert request.system.endswith("In English.")
    assert (request.tools, [message.role for message in request.messages]) == ((), ["user", "assistant"] * 2 + ["user"])
    sent = [message.content for message in request.messages]
    assert sent[0] == "Where is it?\n[a file: map.png (image/png)]"
    assert sent[1] == 'I look.\n[called lookup with {"at":1}]'
    assert sent[2] == '[lookup returned {"place":"Rome"}]'


def _step() -> str:
    return "done"


async def test_an_agent_without_a_model_writes_no_summary(sqlite_url: str) -> None:
    settings = Settings.model_validate({"store": {"url": sqlite_url}})
    async with open_runtime(settings, root_agent=Workflow(name="steps", edges=[("START", _step)])) as runtime:
        with pytest.raises(UsageError, match="no agent has a model"):
            await runtime.summarize(_TALK)
