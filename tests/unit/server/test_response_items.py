"""The events of a turn as output items of a response, and as the events that stream them."""

from datetime import UTC, datetime
from typing import Any

from lango.events import (
    Accepted,
    TextDelta,
    TextWithdrawn,
    ThoughtDelta,
    ToolEnd,
    ToolStart,
    TurnDone,
    TurnError,
    TurnEvent,
    WaitOpened,
)
from lango.server.compat.openai.responses.output_items import OutputItems
from lango.waits import ApprovalWait, CredentialWait, InputWait


def fold(*events: TurnEvent, **more: Any) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return the items and the streamed events, of which the items can be put together again."""
    output = OutputItems("resp_7_1", "agent", {"pick"}, **more)
    streamed = [event for added in events for event in output.add(added)]
    put_together = {event["output_index"]: event["item"] for event in streamed if event["type"].endswith("item.done")}
    if isinstance(events[-1], TurnDone | TurnError):
        assert [put_together[index] for index in sorted(put_together)] == output.items
    return output.items, streamed


def texts(items: list[dict[str, Any]]) -> list[str]:
    return [item["content"][0]["text"] for item in items if item["type"] == "message"]


def test_text_thoughts_and_calls_are_items_in_order_with_ids_of_their_own() -> None:
    items, _ = fold(
        Accepted(1, 1),
        ThoughtDelta(2, "hm"),
        TextDelta(3, "let me "),
        TextDelta(4, "see"),
        ToolStart(5, "c1", "note", {"a": 1}),
        ToolStart(6, "c2", "note"),
        ToolEnd(7, "c2", "note", ok=False, result={"error": "no"}),
        ToolEnd(8, "c1", "note", result={"b": 2}),
        TextDelta(9, "done"),
        ToolStart(10, "c3", "pick", {"text": "x"}),
        TurnDone(11, 1),
    )
    kinds = ["reasoning", "message", "mcp_call", "mcp_call", "message", "function_call"]
    assert [item["type"] for item in items] == kinds
    ids = ["rs_7_1_1", "msg_7_1_1", "mcp_7_1_1", "mcp_7_1_2", "msg_7_1_2", "fc_7_1_1"]
    assert [item["id"] for item in items] == ids
    assert texts(items) == ["let me see", "done"]
    assert [(item["status"], item["output"], item["error"]) for item in items[2:4]] == [
        ("completed", '{"b": 2}', None),
        (
            "failed",
            None,
            {"type": "mcp_tool_execution_error", "content": [{"type": "text", "text": '{"error": "no"}'}]},
        ),
    ]
    assert (items[5]["call_id"], items[5]["arguments"]) == ("c3", '{"text": "x"}')


def test_an_open_item_shows_its_text_so_far() -> None:
    items, _ = fold(Accepted(1, 1), TextDelta(2, "half"))
    assert (items[0]["status"], texts(items)) == ("in_progress", ["half"])


def test_an_invalid_call_of_a_clients_function_is_not_the_clients_to_run() -> None:
    items, streamed = fold(
        Accepted(1, 1),
        ToolStart(2, "c1", "pick", {"n": 1}),
        ToolEnd(3, "c1", "pick", ok=False, result={"error": "text is missing"}),
        TurnDone(4, 1),
    )
    assert [(item["type"], item["status"]) for item in items] == [("mcp_call", "failed")]
    assert not any("function_call" in event["type"] for event in streamed)


def test_withdrawn_text_is_not_streamed_twice() -> None:
    _, streamed = fold(
        Accepted(1, 1),
        TextDelta(2, "half of ", block=1),
        TextWithdrawn(3, 1),
        TextDelta(4, "half of it", block=2),
        TurnDone(5, 1),
    )
    assert [event["delta"] for event in streamed if event["type"].endswith("text.delta")] == ["half of ", "it"]


def test_an_answer_in_json_is_the_text_after_the_last_call() -> None:
    items, _ = fold(
        Accepted(1, 1),
        TextDelta(2, "let me see"),
        ToolStart(3, "c1", "note"),
        ToolEnd(4, "c1", "note"),
        TextDelta(5, "{}"),
        TurnDone(6, 1),
        only_last_text=True,
    )
    assert texts(items) == ["{}"]


def test_pauses_are_an_approval_request_or_a_note() -> None:
    opened: dict[str, Any] = {"id": "w", "session_id": "s", "turn": 1, "opened_at": datetime(2026, 1, 2, tzinfo=UTC)}
    items, _ = fold(
        Accepted(1, 1),
        TextDelta(2, "wait"),
        WaitOpened(3, ApprovalWait(**opened, tool="wipe", call_id="c1", arguments={"a": 1})),
        WaitOpened(4, InputWait(**opened, message="How many?")),
        WaitOpened(5, CredentialWait(**opened, auth_url="https://x", message="the calendar")),
        TurnDone(6, 1, "waiting"),
    )
    assert (items[1]["type"], items[1]["id"], items[1]["name"]) == ("mcp_approval_request", "mcpr_7_1_c1", "wipe")
    assert (
        texts(items)[1]
        == "\n\n[This needs input: How many?]\n\n[This needs access: the calendar; allow it at https://x]"
    )


def test_a_failure_leaves_no_item_open() -> None:
    items, _ = fold(Accepted(1, 1), ToolStart(2, "c1", "note"), TextDelta(3, "half"), TurnError(4, "TurnFailed", "no"))
    assert [item["status"] for item in items] == ["incomplete", "incomplete"]
