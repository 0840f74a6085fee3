"""Observational memory with models that nobody here scripted: a small one talks, a larger one observes it."""

from collections.abc import AsyncGenerator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from msgspec.structs import replace

from lango import Settings, open_runtime
from lango.memory import transcript
from lango.memory.note_format import OBSERVE_PROMPT
from lango.providers import Delta, Request
from lango.providers.local import SMOLLM2, LocalProvider, pull
from lango.providers.local.known_models import QWEN
from tests.agents.memory_parts import quoted, spoken

STORY = (
    "My name is Ann, I live in Lisbon with my dog Rex, and I work as a carpenter. Next week I travel to Bern by train, "
    "to repair a wooden bridge. I bring two saws and a box of long nails, and stay for nine days. My neighbour Tom "
    "takes care of the garden and of three hens while Rex and I are away from home."
)


class Overheard(LocalProvider):
    """The embedded models, brief and without dice, and what they were asked."""

    def __init__(self) -> None:
        self.requests: list[Request] = []

    async def stream(self, request: Request) -> AsyncGenerator[Delta]:
        self.requests.append(request)
        async for delta in super().stream(replace(request, temperature=0.0, max_tokens=request.max_tokens or 40)):
            yield delta


@pytest.mark.long
async def test_o1_an_embedded_model_observes_a_conversation_and_the_notes_go_to_the_agent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def one_day(_: float) -> datetime:
        return datetime(2026, 11, 15, 9, 30, tzinfo=UTC)

    monkeypatch.setattr(
        transcript, "as_datetime", one_day
    )  # what a model without dice reads, it answers in the same way
    pull(SMOLLM2)
    pull(QWEN)
    settings = Settings.model_validate(
        {
            "agent": {"model": f"local/{SMOLLM2.name}", "instruction": "Answer in one short sentence."},
            "store": {"url": f"sqlite:///{tmp_path}/lango.db"},
            "memory": {
                "enabled": True,
                "model": f"local/{QWEN.name}",  # a model of 135 million parameters cannot take notes
                "observe_at_tokens": 60,  # the story alone is more, whatever the answer to it
                "keep_turns": 0,
                "close_wait_s": 0,
            },
        }
    )
    models = Overheard()
    async with open_runtime(settings, provider=models) as runtime:
        await runtime.run("s", STORY)
        await runtime.memory.settle()
        recalled = await runtime.memory.show("s")
        notes = [note for batch in recalled.batches for note in batch.observations]
        said = " ".join(note.text for note in notes).lower()
        assert any(word in said for word in ("ann", "lisbon", "rex", "carpenter", "bern", "bridge", "tom")), said
        assert not any(len(note.text) > 20 and note.text in OBSERVE_PROMPT for note in notes), "not its instructions"
        for batch in recalled.batches:
            assert batch.model == f"local/{QWEN.name}"
            assert batch.input_tokens > 100
            assert batch.output_tokens > 0
            assert all(
                batch.first_seq <= note.first_seq <= note.last_seq <= batch.last_seq for note in batch.observations
            )
        assert await runtime.run("s", "What is my name?"), "and the conversation goes on"
    asked = [request for request in models.requests if request.model == SMOLLM2.name]
    assert STORY in spoken(asked[0])
    assert STORY not in spoken(asked[-1]), "what was observed is not sent again"
    assert all(note.text in quoted(asked[-1]) for note in notes), "its notes are"
