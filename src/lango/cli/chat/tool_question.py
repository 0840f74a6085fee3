"""Ask the user what a running tool asks, field by field, and answer it."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, cast

from lango.cli.terminal_text import describe_schema, one_line
from lango.errors import InvalidAnswer, WaitNotOpen
from lango.store.sessions.sessions import find_session
from lango.waits import Decline, QuestionWait, Value

if TYPE_CHECKING:
    from lango.cli.chat.terminal.message_reader import MessageReader
    from lango.cli.chat.terminal.screen import Screen
    from lango.runtime import RunningTurn
    from lango.runtime.runtime import Runtime
    from lango.sessions import SessionId

DECLINE = "/skip"
_LATER = "not answered: `lango inbox answer ID VALUE` in another terminal answers it while the tool waits"
_CLOSED = "the question is closed: it was answered elsewhere, or its time is over"
_POLL_S = 1.0
"""How often a question is looked for, besides when the store reports a change."""

AskLine = Callable[[str], Awaitable[str | None]]
"""Asks for a line; None: the input has ended."""

_WORDS = {"yes": True, "y": True, "true": True, "no": False, "n": False, "false": False}


async def answer_tool_question(
    runtime: "Runtime", session: "SessionId", reader: "MessageReader", screen: "Screen", event: QuestionWait
) -> "RunningTurn | None":
    """Ask until an answer fits, and return the turn that goes on with it; None: no answer, or the question is closed.

    Raise `InputInterrupted` for Ctrl-C.
    """
    given: dict[str, Any] = {}
    while True:
        asking = asyncio.ensure_future(_fill_form(event, reader.ask_line, given))
        closing = asyncio.ensure_future(_wait_until_closed(runtime, session, event.id))
        try:
            await asyncio.wait({asking, closing}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            asking.cancel()
            closing.cancel()
            await asyncio.wait({asking, closing})  # the prompt leaves the terminal to others
        if asking.cancelled():
            screen.print_line(_CLOSED, "yellow")
            return None
        value = asking.result()
        if value is None:
            screen.print_line(_LATER, "yellow")
            return None
        try:
            answer = Decline() if value == DECLINE else Value(value)
            return await runtime.answer(session.id, event.id, answer, user_id=session.user_id)
        except InvalidAnswer as error:
            screen.print_line(str(error), "red")
            given = cast("dict[str, Any]", value) if isinstance(value, dict) else {}
        except WaitNotOpen:
            screen.print_line(_CLOSED, "yellow")
            return None


async def _wait_until_closed(runtime: "Runtime", session: "SessionId", wait_id: str) -> None:
    """Wait until a question cannot be answered any more."""
    record = await runtime.store.read(find_session, session)
    if record is None:
        return
    async with runtime.store.watch(record.key) as changed:
        while any(wait.id == wait_id for wait in await runtime.waits(session.id, user_id=session.user_id)):
            await changed(_POLL_S)


async def _fill_form(event: QuestionWait, ask: AskLine, given: Mapping[str, Any]) -> Any:
    """Ask for the value of a question; None: the input has ended; `DECLINE`: the user declines.

    An empty line takes what was `given` before, then the default, and leaves out an optional field.
    """
    schema = event.schema or {}
    properties: Mapping[str, Mapping[str, Any]] = schema.get("properties") or {}
    if not properties:
        what = (_what_fits(schema) or "your answer") if schema else "press Enter when you are done"
        line = await ask(f"{what}:")
        return {} if line == "" and not schema else line
    values: dict[str, Any] = {}
    for name, field in properties.items():
        default = given.get(name, field.get("default"))
        line = await ask(_field_prompt(name, field, default, optional=name not in (schema.get("required") or ())))
        if line is None or line == DECLINE:
            return line
        if line or default is not None:
            values[name] = _read_value(field, line) if line else default
    return values


def _field_prompt(name: str, field: Mapping[str, Any], default: Any, *, optional: bool) -> str:
    notes = [
        _what_fits(field),
        "optional" if optional and default is None else "",
        "" if default is None else f"Enter: {json.dumps(default, ensure_ascii=False)}",
    ]
    note = "; ".join(one_line(part) for part in notes if part)
    what = one_line(str(field.get("title") or name))
    description = one_line(str(field.get("description") or ""))
    return f"{what}{f', {description}' if description else ''}{f' ({note})' if note else ''}:"


def _what_fits(field: Mapping[str, Any]) -> str:
    choices = _choices(field)
    if field.get("type") == "array":
        return f"several of {', '.join(_choices(field.get('items') or {}))}, with commas between"
    return f"one of {', '.join(choices)}" if choices else describe_schema(field)


def _choices(field: Mapping[str, Any]) -> list[str]:
    """Return the values to choose from; MCP names them in one of two ways."""
    titled = cast("list[Mapping[str, Any]]", field.get("oneOf") or field.get("anyOf") or [])
    return [str(value) for value in field.get("enum") or [choice["const"] for choice in titled if "const" in choice]]


def _read_value(field: Mapping[str, Any], line: str) -> Any:
    """Return what a line stands for in a field; what does not fit is refused with the whole answer."""
    match field.get("type"):
        case "boolean":
            return _WORDS.get(line.lower(), line)
        case "integer" | "number":
            try:
                return json.loads(line)
            except ValueError:
                return line
        case "array":
            return [item.strip() for item in line.split(",") if item.strip()]
        case _:
            return line
