"""Get JSON from a model whose API cannot constrain its answer: by a tool that takes the answer, or by an instruction.

Some APIs take no schema of the answer, or none together with tools, but all take a schema of a tool's arguments. So the
model must call a tool, one of the agent's or the one that takes the answer, and the arguments of that call become the
text of the answer. For a JSON object of any shape, the model is only asked to write one; text around it is left out.
"""

from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from json import JSONDecoder

from msgspec.structs import replace

from lango.providers.protocol import CallDelta, Delta, Finish, Request, TextDelta, ToolSpec

JSON_INSTRUCTION = "Answer with one JSON object and nothing else: no text before or after it, no code fence."
_DECODER = JSONDecoder(strict=False)


def stream_json(
    request: Request, stream: Callable[[Request], AsyncGenerator[Delta, None]]
) -> AsyncGenerator[Delta, None]:
    """Stream an answer that must be JSON from an API that cannot constrain it."""
    if request.response_schema is not None:
        return _answer_from_tool(stream(with_answer_tool(request)), _answer_tool_name(request))
    return _only_json_object(stream(replace(with_json_instruction(request), json_object=False)))


def with_json_instruction(request: Request) -> Request:
    """Return the request with the instruction to answer with a JSON object, of any shape."""
    return replace(request, system=f"{request.system}\n\n{JSON_INSTRUCTION}".strip())


def with_answer_tool(request: Request) -> Request:
    """Return the request with a tool that takes the answer instead of a schema of the answer."""
    name = _answer_tool_name(request)
    tools = () if request.tool_choice == "none" else request.tools
    answer = ToolSpec(name, "Give the final answer once nothing else is left to do.", request.response_schema or {})
    system = f"{request.system}\n\nGive your final answer by calling the function {name}.".strip()
    choice = "required" if tools else name
    return replace(request, system=system, tools=(*tools, answer), tool_choice=choice, response_schema=None)


def _answer_tool_name(request: Request) -> str:
    """Return the name of the tool that takes the answer: one that no other tool of the request has."""
    name = "final_answer"
    while any(tool.name == name for tool in request.tools):
        name += "_"
    return name


async def _answer_from_tool(deltas: AsyncGenerator[Delta, None], name: str) -> AsyncGenerator[Delta, None]:
    """Yield the arguments of the call that gives the answer as text; other text only if there is no call."""
    answer: int | None = None
    calls, text = set[int](), ""
    async with aclosing(deltas):
        async for delta in deltas:
            if isinstance(delta, TextDelta):
                text += delta.text
                continue
            if isinstance(delta, CallDelta):
                calls.add(delta.index)
                answer = delta.index if delta.name == name else answer
                if delta.index == answer:
                    if delta.arguments:
                        yield TextDelta(delta.arguments)
                    continue
            if isinstance(delta, Finish):
                if text and not calls:
                    yield TextDelta(text)
                if delta.reason == "tool_calls" and calls == {answer}:
                    delta = replace(delta, reason="stop")
            yield delta


async def _only_json_object(deltas: AsyncGenerator[Delta, None]) -> AsyncGenerator[Delta, None]:
    """Yield the text at the end of the answer, cut to the JSON object in it; text without one is left as it is."""
    pieces: list[str] = []
    async with aclosing(deltas):
        async for delta in deltas:
            if isinstance(delta, TextDelta):
                pieces.append(delta.text)
                continue
            if isinstance(delta, Finish) and pieces:
                yield TextDelta(_first_object("".join(pieces)))
            yield delta


def _first_object(text: str) -> str:
    start = text.find("{")
    try:
        return text[start : _DECODER.raw_decode(text, start)[1]] if start >= 0 else text
    except (ValueError, RecursionError):
        return text
