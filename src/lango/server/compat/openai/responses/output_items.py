"""Turn the events of a turn into the output items of a response, and into the events that stream them.

- Text is a `message`, and a model's thoughts are the summary of a `reasoning` item.
- A call of a tool that the client runs is a `function_call`. It is added when the turn ends: the agent answers an
  invalid call itself.
- A call of the agent's own tools is an `mcp_call`, OpenAI's item for a tool that ran at the server, and an approval
  request is an `mcp_approval_request`. Both have the agent's name as `server_label`. A call that waits for approval is
  only the request; its `mcp_call` is in the response that answers it. Where a tool asks while it runs, the request
  replaces the call that was added.
- Requests for input and for credentials are notes in the text, as in chat completions.
"""

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from msgspec import Struct

from lango import events
from lango.events.text import FinalText, LastText, TextOrder
from lango.server.compat.client_view import pause_note
from lango.server.compat.openai.responses.response_ids import approval_request_id, item_id
from lango.server.json_body import tool_value_text
from lango.waits import ApprovalWait

Item = dict[str, Any]
StreamEvent = dict[str, Any]
"""An event of a response without its sequence number."""


class _OpenText(Struct):
    """A message or reasoning item whose text still grows."""

    index: int
    item: Item
    pieces: list[str] = []

    @property
    def is_message(self) -> bool:
        return self.item["type"] == "message"


class OutputItems:
    """The output items of one response, as the events so far show them."""

    def __init__(
        self,
        response_id: str,
        server_label: str,
        client_tools: Collection[str],
        *,
        only_last_text: bool = False,
        approval_requests: Mapping[str, str] | None = None,
    ) -> None:
        """`only_last_text`: the answer must be JSON, so text before a tool call is left out.

        `approval_requests`: the ids of the approval requests that the response answers, by their calls.
        """
        self._approval_requests = approval_requests or {}
        self._response_id = response_id
        self._server_label = server_label
        self._client_tools = client_tools
        self._items: list[Item] = []
        self._counts: dict[str, int] = {}
        self._open: _OpenText | None = None
        self._final_text = LastText() if only_last_text else FinalText()
        self._order = TextOrder()
        self._own_calls: dict[str, int] = {}
        """The indexes of the agent's own calls that run."""
        self._client_calls: dict[str, events.ToolStart] = {}

    @property
    def items(self) -> list[Item]:
        """All items; an open one has the text so far."""
        if self._open is None:
            return list(self._items)
        items = list(self._items)
        items[self._open.index] = _with_text(self._open, "in_progress")
        return items

    def add(self, event: events.TurnEvent) -> Iterator[StreamEvent]:
        """Add the next event of the turn; yield the events that stream its changes."""
        for ready in self._order.add(event):
            yield from self._add_ordered(ready)

    def _add_ordered(self, event: events.TurnEvent) -> Iterator[StreamEvent]:
        if text := self._final_text.add(event):
            yield from self._add_text("message", text)
        match event:
            case events.ThoughtDelta():
                yield from self._add_text("reasoning", event.text)
            case events.ToolStart() | events.ToolEnd():
                yield from self._add_call_event(event)
            case events.WaitOpened(wait=ApprovalWait() as wait):
                yield from self._add_approval_request(wait)
            case events.WaitOpened():
                if note := pause_note(event.wait):
                    yield from self._add_text("message", note)
            case events.TurnDone() | events.TurnError(fatal=True):
                yield from self._end(event)
            case _:
                pass

    def _end(self, event: events.TurnDone | events.TurnError) -> Iterator[StreamEvent]:
        if isinstance(event, events.TurnDone):
            yield from self._close_text("completed")
            for start in self._client_calls.values():
                yield from self._add_client_call(start)
        else:
            yield from self._close_text("incomplete")
        yield from self._abandon_own_calls()

    # -- text and thoughts ----------------------------------------------------------------------------------------

    def _add_text(self, kind: str, text: str) -> Iterator[StreamEvent]:
        if self._open is None or self._open.item["type"] != kind:
            yield from self._close_text("completed")
            yield from self._open_text(kind)
        assert self._open
        self._open.pieces.append(text)
        if self._open.is_message:
            yield self._place(self._open, "output_text.delta", content_index=0, delta=text, logprobs=[])
        else:
            yield self._place(self._open, "reasoning_summary_text.delta", summary_index=0, delta=text)

    def _open_text(self, kind: str) -> Iterator[StreamEvent]:
        if kind == "message":
            item = self._new_item("message", "msg", status="in_progress", role="assistant", content=[])
        else:
            item = self._new_item("reasoning", "rs", summary=[])
        self._open = _OpenText(len(self._items), item)
        yield self._added(item)
        if self._open.is_message:
            yield self._place(self._open, "content_part.added", content_index=0, part=text_part(""))
        else:
            yield self._place(self._open, "reasoning_summary_part.added", summary_index=0, part=_summary_part(""))

    def _close_text(self, status: str) -> Iterator[StreamEvent]:
        if self._open is None:
            return
        closed, self._open = self._open, None
        text = "".join(closed.pieces)
        item = self._items[closed.index] = _with_text(closed, status)
        if closed.is_message:
            yield self._place(closed, "output_text.done", content_index=0, text=text, logprobs=[])
            yield self._place(closed, "content_part.done", content_index=0, part=text_part(text))
        else:
            yield self._place(closed, "reasoning_summary_text.done", summary_index=0, text=text)
            yield self._place(closed, "reasoning_summary_part.done", summary_index=0, part=_summary_part(text))
        yield _done(closed.index, item)

    # -- calls ----------------------------------------------------------------------------------------------------

    def _add_call_event(self, event: events.ToolStart | events.ToolEnd) -> Iterator[StreamEvent]:
        if isinstance(event, events.ToolEnd):
            yield from self._end_own_call(event)
        elif event.name in self._client_tools:
            self._client_calls[event.call_id] = event
        elif event.call_id not in self._own_calls:  # a resumed turn may start it again
            yield from self._start_own_call(event.call_id, event.name, tool_value_text(event.arguments))

    def _start_own_call(self, call_id: str, name: str, arguments: str) -> Iterator[StreamEvent]:
        yield from self._close_text("completed")
        index = self._own_calls[call_id] = len(self._items)
        item = self._new_item(
            "mcp_call",
            "mcp",
            status="in_progress",
            server_label=self._server_label,
            name=name,
            arguments="",
            output=None,
            error=None,
            approval_request_id=self._approval_requests.get(call_id),
        )
        yield self._added(item)
        place = {"output_index": index, "item_id": item["id"]}
        yield {"type": "response.mcp_call.in_progress", **place}
        self._items[index] = item | {"arguments": arguments}
        if arguments:
            yield {"type": "response.mcp_call_arguments.delta", **place, "delta": arguments}
        yield {"type": "response.mcp_call_arguments.done", **place, "arguments": arguments}

    def _end_own_call(self, end: events.ToolEnd) -> Iterator[StreamEvent]:
        if start := self._client_calls.pop(end.call_id, None):  # an invalid call, which the agent answered itself
            yield from self._start_own_call(start.call_id, start.name, tool_value_text(start.arguments))
        elif end.call_id not in self._own_calls:  # a call that was approved continues without a start
            yield from self._start_own_call(end.call_id, end.name, "")
        index = self._own_calls.pop(end.call_id)
        item = self._items[index] = self._items[index] | call_outcome(end.result, ok=end.ok)
        kind = "response.mcp_call.completed" if end.ok else "response.mcp_call.failed"
        yield {"type": kind, "output_index": index, "item_id": item["id"]}
        yield _done(index, item)

    def _abandon_own_calls(self) -> Iterator[StreamEvent]:
        """End the calls without a result: the turn failed, or their results come later."""
        for index in self._own_calls.values():
            item = self._items[index] = self._items[index] | {"status": "incomplete"}
            yield _done(index, item)
        self._own_calls.clear()

    def _add_approval_request(self, needed: ApprovalWait) -> Iterator[StreamEvent]:
        yield from self._close_text("completed")
        item: Item = {
            "id": approval_request_id(self._response_id, needed.call_id),
            "type": "mcp_approval_request",
            "server_label": self._server_label,
            "name": needed.tool,
            "arguments": tool_value_text(needed.arguments),
        }
        if (index := self._own_calls.pop(needed.call_id, None)) is None:
            yield self._added(item)
            index = len(self._items) - 1
        self._items[index] = item
        yield _done(index, item)

    def _add_client_call(self, start: events.ToolStart) -> Iterator[StreamEvent]:
        index, arguments = len(self._items), tool_value_text(start.arguments)
        item = self._new_item(
            "function_call", "fc", status="in_progress", call_id=start.call_id, name=start.name, arguments=""
        )
        yield self._added(item)
        place = {"output_index": index, "item_id": item["id"]}
        yield {"type": "response.function_call_arguments.delta", **place, "delta": arguments}
        yield {
            "type": "response.function_call_arguments.done",
            **place,
            "name": start.name,
            "arguments": arguments,
        }
        item = self._items[index] = item | {"status": "completed", "arguments": arguments}
        yield _done(index, item)

    # -- items ----------------------------------------------------------------------------------------------------

    def _new_item(self, kind: str, prefix: str, **fields: Any) -> Item:
        number = self._counts[prefix] = self._counts.get(prefix, 0) + 1
        return {"id": item_id(prefix, self._response_id, number), "type": kind, **fields}

    def _added(self, item: Item) -> StreamEvent:
        self._items.append(item)
        return {"type": "response.output_item.added", "output_index": len(self._items) - 1, "item": item}

    def _place(self, place: _OpenText, kind: str, **fields: Any) -> StreamEvent:
        return {"type": f"response.{kind}", "item_id": place.item["id"], "output_index": place.index, **fields}


def _done(index: int, item: Mapping[str, Any]) -> StreamEvent:
    return {"type": "response.output_item.done", "output_index": index, "item": item}


def _with_text(text: _OpenText, status: str) -> Item:
    whole = "".join(text.pieces)
    if text.is_message:
        return text.item | {"status": status, "content": [text_part(whole)]}
    return text.item | {"summary": [_summary_part(whole)]}


def call_outcome(result: Mapping[str, Any], *, ok: bool) -> Item:
    """Return how a call of the agent's own tools ended, as OpenAI's `mcp_call` says it."""
    text = tool_value_text(result)
    if ok:
        return {"status": "completed", "output": text, "error": None}
    error = {"type": "mcp_tool_execution_error", "content": [{"type": "text", "text": text}]}
    return {"status": "failed", "output": None, "error": error}


def text_part(text: str) -> dict[str, Any]:
    """Return the part of a message that is a text of the agent."""
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


def _summary_part(text: str) -> dict[str, Any]:
    return {"type": "summary_text", "text": text}
