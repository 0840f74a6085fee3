"""Observational memory with a model that nobody here scripted: it talks, observes itself and goes on."""

from pathlib import Path

import pytest

from lango import Settings, open_runtime
from lango.providers.local import SMOLLM2, pull


@pytest.mark.long
async def test_o1_the_embedded_model_observes_its_own_conversation(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    pull(SMOLLM2)
    settings = Settings.model_validate(
        {
            "agent": {"model": f"local/{SMOLLM2.name}", "instruction": "Answer in one short sentence."},
            "store": {"url": f"sqlite:///{tmp_path}/lango.db"},
            "memory": {"enabled": True, "observe_at_tokens": 120, "keep_turns": 0, "close_wait_s": 60},
        }
    )
    async with open_runtime(settings) as runtime:
        await runtime.run("s", "My name is Ann. I live in Lisbon with my dog Rex, and I work as a carpenter.")
        await runtime.run(
            "s",
            "Next week I travel to Bern by train. I am to repair a wooden bridge there, and I bring my own tools: two "
            "saws, a hammer, and a box of long nails. I stay for nine days in a small hotel close to the river, and my "
            "neighbour Tom takes care of the garden, of the mail and of three hens while Rex and I are away from home.",
        )
        await runtime.memory.settle()
        recalled = await runtime.memory.show("s")
        notes = [note for batch in recalled.batches for note in batch.observations]
        # a model of 135 million parameters may find no words: then nothing is taken for observed, and the log says so
        assert bool(notes) == (recalled.observed_seq > 0) == ("gave no notes" not in caplog.text)
        said = " ".join(note.text for note in notes).lower()
        assert "transcript" not in said, "not its instructions"
        for batch in recalled.batches:
            assert batch.model == f"local/{SMOLLM2.name}"
            assert batch.input_tokens > 100
            assert batch.output_tokens > 0
            assert all(batch.first_seq <= note.first_seq <= note.last_seq <= batch.last_seq for note in notes[:1])
        assert await runtime.run("s", "What is my name?")
