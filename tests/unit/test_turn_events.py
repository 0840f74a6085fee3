"""Events of a turn as JSON: the tag first, every kind in the union, and values that only Python can hold."""

import math
from datetime import UTC, datetime
from enum import Enum
from typing import Any, get_args

import pytest
from pydantic import BaseModel

from lango.errors import SchemaError, Unstorable
from lango.events import (
    ArtifactSaved,
    NodeProgress,
    TextDelta,
    ToolEnd,
    ToolProgress,
    ToolStart,
    TurnDone,
    TurnError,
    TurnEvent,
    WaitClosed,
    WaitOpened,
    from_json,
    is_final,
    to_json,
    to_plain_values,
)
from lango.events.text import MAX_JOINED, join_text_deltas
from lango.store.turns.event_log import LoggedEvent
from lango.waits import ApprovalWait, InputWait

AT = datetime(2026, 1, 2, tzinfo=UTC)


class Colour(Enum):
    RED = "red"


class Model(BaseModel):
    colour: Colour = Colour.RED


@pytest.mark.parametrize(
    ("event", "text"),
    [
        (
            TextDelta(7, "half \ud800", "a", 2),
            '{"type":"text_delta","id":7,"text":"half \\ud800","author":"a","block":2}',
        ),
        (
            ToolStart(1, "c", "f", {"bytes": b"\xff", "nan": math.nan, "$lango:bytes": None}),
            '{"type":"tool_start","id":1,"call_id":"c","name":"f","arguments":{"bytes":{"$lango:bytes":"/w=="},'
            '"nan":{"$lango:float":"nan"},"$lango:key:$lango:bytes":null},"author":""}',
        ),
        (
            WaitOpened(
                1, ApprovalWait(id="w", session_id="s", turn=1, opened_at=AT, expires_at=AT, tool="f", call_id="c")
            ),
            '{"type":"wait_opened","id":1,"wait":{"kind":"approval","id":"w","session_id":"s","turn":1,'
            '"opened_at":"2026-01-02T00:00:00Z","expires_at":"2026-01-02T00:00:00Z","tool":"f","call_id":"c",'
            '"arguments":{},"hint":"","payload":null}}',
        ),
        (
            TurnDone(1, 2),
            '{"type":"done","id":1,"turn":2,"status":"done","usage":{"input_tokens":0,"output_tokens":0,'
            '"cached_tokens":0,"model_calls":0,"cost_usd":null,"thought_tokens":0,"cache_write_tokens":0},'
            '"finish_reason":"","output":null,"waits":[],"stop_sequence":""}',
        ),
        (
            WaitClosed(
                1, InputWait(id="w", session_id="s", turn=None, opened_at=AT, schema={"type": "integer"}), "expired"
            ),
            '{"type":"wait_closed","id":1,"wait":{"kind":"input","id":"w","session_id":"s","turn":null,'
            '"opened_at":"2026-01-02T00:00:00Z","expires_at":null,"message":"","schema":{"type":"integer"},'
            '"payload":null,"author":"","path":""},"outcome":"expired","answered_by":""}',
        ),
        (
            ToolProgress(1, "c", "count", 2.0, 3.0, "half"),
            '{"type":"tool_progress","id":1,"call_id":"c","name":"count","progress":2.0,"total":3.0,"message":"half"}',
        ),
        (
            ArtifactSaved(1, "a.csv", 2, "clerk"),
            '{"type":"artifact_saved","id":1,"name":"a.csv","version":2,"author":"clerk"}',
        ),
        (
            NodeProgress(1, "ask", "flow@1/ask@1", "ended", output=[1]),
            '{"type":"node","id":1,"name":"ask","path":"flow@1/ask@1","status":"ended","attempt":1,"input":null,"output":[1],'
            '"error":""}',
        ),
    ],
)
def test_an_event_is_encoded_once_and_read_back(event: TurnEvent, text: str) -> None:
    logged = LoggedEvent.of(event)
    assert logged.data == text
    assert repr(LoggedEvent.decode(text).event) == repr(event)


def test_values_of_other_types_become_plain() -> None:
    result = {"model": Model(), Colour.RED: (1, b"\xff"), "at": datetime(2026, 1, 2, tzinfo=UTC)}
    event = ToolEnd(1, "c", "f", result=result)  # pyright: ignore[reportArgumentType] - a tool may return it
    plain = {"model": {"colour": "red"}, "red": [1, "/w=="], "at": "2026-01-02T00:00:00Z"}
    assert to_plain_values(result) == plain | {"red": (1, "/w==")}
    assert from_json(to_json(event)) == ToolEnd(1, "c", "f", result=plain | {"red": (1, "/w==")})
    with pytest.raises(Unstorable, match="type object"):
        to_json(ToolEnd(1, "c", "f", result={"x": object()}))


def test_only_the_end_of_a_turn_is_final() -> None:
    assert is_final(TurnDone(1, 1))
    assert is_final(TurnError(1, "TurnFailed", ""))
    assert not is_final(TurnError(1, "ToolFailed", "", fatal=False))
    assert not is_final(TextDelta(1, ""))


def test_no_event_has_a_name_that_a_browsers_event_source_uses_itself() -> None:
    assert {kind.__struct_config__.tag for kind in get_args(TurnEvent)}.isdisjoint({"open", "message", "error"})


def test_joined_pieces_of_text_stay_within_what_a_socket_client_accepts() -> None:
    events: list[TurnEvent] = [TextDelta(number, "x" * 40_000) for number in range(1, 8)]
    events += [ToolStart(8, "c1", "look", {}), TextDelta(9, "a"), TextDelta(10, "b"), TextDelta(11, "c", "other", 1)]
    joined = join_text_deltas(events)
    assert [event.id for event in joined] == [2, 4, 6, 7, 8, 10, 11]
    texts = [event.text for event in joined if isinstance(event, TextDelta)]
    assert "".join(texts) == "x" * 280_000 + "abc"
    assert max(map(len, texts)) <= MAX_JOINED


@pytest.mark.parametrize("fields", [{"type": "moved"}, {"type": "wait_opened", "id": 1, "wait": {"kind": "moon"}}])
def test_an_event_of_a_newer_version_is_refused_with_one_sentence(fields: dict[str, Any]) -> None:
    with pytest.raises(SchemaError, match=f"newer Lango stored an event '{fields['type']}' .*: install"):
        from_json(fields)
