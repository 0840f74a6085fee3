"""Ask the agent's own model for a summary of a conversation, outside of any turn."""

from collections.abc import Iterable, Iterator
from contextlib import aclosing
from typing import Any

from google.adk.agents import LlmAgent
from google.adk.models.llm_request import LlmRequest
from google.genai import types

from lango.adk.agents.tree import walk_agents
from lango.adk.turn.model_calls import usage_of_response
from lango.errors import EmptyAnswer, UsageError
from lango.events import Usage
from lango.history.tokens import compact_json
from lango.messages import Message

_SYSTEM = (
    "You write the notes from which a conversation continues: its messages are dropped, and only your notes and the "
    "user's own messages are kept. Note what was asked, answered, decided, promised and found out, with every name, "
    "number, date, path and identifier that may be needed again, the results of tools that still matter, and what "
    "is still open. Do not answer the user, and add nothing that is not in the conversation."
)
_REQUEST = "Write the notes on the conversation up to here now."


async def summarize(root: Any, messages: Iterable[Message], instructions: str) -> tuple[str, Usage]:
    """Return a summary by the model of the first agent that has one, and the tokens that it took.

    What does not fit into the model's budget is left out, the oldest messages first. Raise `UsageError` if no agent
    has a model, and `EmptyAnswer` if the model writes nothing.
    """
    agent = next((one for one in walk_agents(root) if isinstance(one, LlmAgent)), None)
    if agent is None:
        raise UsageError("no agent has a model that can write a summary")
    contents = [*_contents(messages), types.Content(role="user", parts=[types.Part(text=_REQUEST)])]
    system = "\n\n".join([_SYSTEM, *filter(None, [instructions])])
    model = agent.canonical_model
    config = types.GenerateContentConfig(system_instruction=system)
    request = LlmRequest(model=model.model, contents=contents, config=config)
    last = None
    async with aclosing(model.generate_content_async(request)) as responses:
        async for response in responses:
            last = response
    parts = last.content.parts if last and last.content else None
    text = "".join(part.text for part in parts or () if part.text and not part.thought).strip()
    if last is None or not text:
        why = last.error_message if last else None
        raise EmptyAnswer(f"the model wrote no summary{f': {why}' if why else ''}")
    return text, usage_of_response(last.usage_metadata) + Usage(model_calls=1)


def _contents(messages: Iterable[Message]) -> Iterator[types.Content]:
    """Yield messages as text alone: calls are named in words, so that no model takes them for its own."""
    for message in messages:
        lines = [message.content] if message.content and message.role != "tool" else []
        for call in message.tool_calls:
            if call.output is not None:
                lines.append(f"[{call.name} returned {compact_json(call.output)}]")
            else:
                lines.append(f"[called {call.name} with {compact_json(call.input or {})}]")
        lines += [f"[a file: {file.name or 'unnamed'} ({file.mime_type})]" for file in message.media]
        if lines:
            role = "model" if message.role == "assistant" else "user"
            yield types.Content(role=role, parts=[types.Part(text="\n".join(lines))])
