"""A workflow for servers and terminals under test: it asks for a size, and says what it got.

A message `free` asks without a schema; any other message asks for an object with a size. The id of that request has
characters that a client would have to escape in an address.
"""

from collections.abc import AsyncGenerator
from typing import Any
from uuid import uuid4

from google.adk.events import Event, RequestInput
from google.adk.workflow import START, Workflow, node

SIZE = {
    "type": "object",
    "properties": {"size": {"type": "integer", "minimum": 1}, "color": {"type": "string", "enum": ["red", "blue"]}},
    "required": ["size"],
}


def prepare(node_input: Any) -> Event:
    text = "".join(part.text or "" for part in node_input.parts)
    return Event.model_validate({"output": text, "route": "free" if text == "free" else "size"})


async def ask_size(node_input: Any) -> AsyncGenerator[Any, None]:
    yield RequestInput(
        interrupt_id=f"size/color? {uuid4()}",
        message="How large, and which color?",
        response_schema=SIZE,
        payload={"shop": "Bern"},
    )


async def ask_freely(node_input: Any) -> AsyncGenerator[Any, None]:
    yield RequestInput(message="What else?", response_schema=None)


def order(node_input: Any) -> dict[str, Any]:
    return {"ordered": node_input}


preparing, ordering, sized, free = node(prepare), node(order), node(ask_size), node(ask_freely)
root_agent = Workflow(
    name="obedient",
    edges=[(START, preparing), (preparing, {"size": sized, "free": free}), ((sized, free), ordering)],
)
