"""Draw what a turn waits for, with a card per kind, and ask the user for the answer."""

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, assert_never, cast

from lango.cli.chat.collapsed_sections import call_title, exact_arguments, show_diff
from lango.cli.terminal_text import describe_schema, format_cell, one_line, printable
from lango.cli.wait_answers import describe_wait, read_answer
from lango.grants import NewGrant
from lango.waits import (
    Answer,
    ApprovalWait,
    Approve,
    ClientResultWait,
    Credential,
    CredentialWait,
    Decline,
    EventWait,
    InputWait,
    LongRunningWait,
    QuestionWait,
    Refuse,
    TimerWait,
    Value,
    Wait,
)

if TYPE_CHECKING:
    from lango.cli.chat.terminal.keyboard import KeyboardReader
    from lango.cli.chat.terminal.message_reader import LineReader
    from lango.cli.chat.terminal.screen import Screen

    MessageReader = KeyboardReader | LineReader

DECLINE = "/skip"
HOW_TO_ANSWER: Mapping[type[Wait], str] = {
    ApprovalWait: "",
    InputWait: "your next message is the answer; /skip closes the request",
    CredentialWait: "/answer asks for it, and does not show what you type; /skip closes the request",
    ClientResultWait: "the client that runs the tool sends it",
    LongRunningWait: "/answer ID VALUE gives it, /update ID VALUE reports progress; you can write in between",
    TimerWait: "/answer ID wake continues now, /answer ID cancel ends it; you can write in between",
    EventWait: "/answer ID DATA gives the event by hand, /answer ID cancel ends it; you can write in between",
    QuestionWait: "the tool waits for your answer: /skip declines, Ctrl-C stops the turn",
}
_APPROVAL_PROMPT = (
    "run exactly this? y: yes, a: always in this session, n: no, r: no with a reason, Ctrl-C: decide later"
)
_REASON_PROMPT = "why not? The model reads it:"
_WORDS = {"yes": True, "y": True, "true": True, "no": False, "n": False, "false": False}


def show_wait(screen: "Screen", wait: Wait, diff: str = "") -> None:
    """Write what a turn waits for, how to answer, and until when; `diff` is what a call to approve would change."""
    match wait:
        case ApprovalWait():
            _show_approval(screen, wait, diff)
        case InputWait():
            _show_input(screen, wait)
        case QuestionWait():
            _show_question(screen, wait)
        case CredentialWait():
            _show_credential(screen, wait)
        case TimerWait() | EventWait():
            sign = screen.symbol("◷", "~")
            screen.print_line(f"{sign} {printable(describe_wait(wait))} ({printable(wait.id)})", "bold")
        case ClientResultWait() | LongRunningWait():
            _show_call(screen, wait)
        case _:
            assert_never(wait)
    until = "" if isinstance(wait, TimerWait | EventWait) else format_cell(wait.expires_at)
    hint = HOW_TO_ANSWER[type(wait)]
    if until:
        hint = f"{hint} (until {until})" if hint else f"denied if not answered by {until}"
    if hint:
        screen.print_line(hint, "dim")


def _show_input(screen: "Screen", wait: InputWait) -> None:
    screen.print_line(printable(wait.message) or "the workflow needs your input", "bold")
    if wait.payload is not None:
        screen.print_line(printable(json.dumps(wait.payload, ensure_ascii=False, indent=2, default=str)))
    if fits := describe_schema(wait.schema):
        screen.print_line(f"expected: {fits}", "dim")


def _show_call(screen: "Screen", wait: ClientResultWait | LongRunningWait) -> None:
    title = call_title(wait.tool, wait.arguments)
    screen.print_line(f"{screen.symbol('…', '~')} {title} waits for its result ({printable(wait.id)})", "dim")


def _show_question(screen: "Screen", wait: QuestionWait) -> None:
    payload: Any = wait.payload
    asked = cast("dict[str, Any]", payload) if isinstance(payload, dict) else {}
    screen.print_line(printable(wait.message) or "the tool needs your input", "bold")
    screen.print_line(f"asked by the MCP server {one_line(str(asked.get('server')))}", "dim")
    if address := asked.get("url"):
        screen.print_address(str(address))


def _show_credential(screen: "Screen", wait: CredentialWait) -> None:
    screen.print_line(printable(describe_wait(wait)), "bold")
    if wait.scopes:
        screen.print_line(f"for: {one_line(', '.join(wait.scopes))}", "dim")
    if wait.auth_url:
        screen.print_line("allow it at")
        screen.print_address(wait.auth_url)


def _show_approval(screen: "Screen", wait: ApprovalWait, diff: str) -> None:
    screen.print_line(f"{wait.tool} asks to run with", "bold")
    screen.print_line(exact_arguments(wait.arguments))
    if wait.hint:
        screen.print_line(f"{wait.tool} says: {printable(wait.hint)}")
    if wait.payload is not None:
        screen.print_line(f"with: {printable(json.dumps(wait.payload, ensure_ascii=False))}")
    if diff:
        show_diff(screen, diff)


async def ask_answer(
    reader: "MessageReader", screen: "Screen", wait: Wait, refused: Answer | None = None
) -> Answer | None:
    """Return the answer of the user to a wait, or None for no answer now. Raise `InputInterrupted` for Ctrl-C.

    `refused` is the answer before, which did not fit: an empty line keeps what it had.
    """
    match wait:
        case ApprovalWait():
            return await _ask_approval(reader, screen, wait)
        case QuestionWait() | InputWait():
            before: Any = refused.value if isinstance(refused, Value) else None
            given = cast("dict[str, Any]", before) if isinstance(before, dict) else {}
            value = await _fill_form(wait, reader, given)
            if value == DECLINE:
                return Decline() if isinstance(wait, QuestionWait) else None
            return None if value is None else Value(value)
        case CredentialWait():
            what = "the address that you were sent to" if wait.auth_url else f"the credential ({wait.scheme_type})"
            if wait.scheme == "basic":
                what = "name and password, as name:password"
            secret = await reader.ask_line(f"{what}:", hidden=True)
            return Credential(secret) if secret else None
        case TimerWait():
            return None
        case ClientResultWait() | LongRunningWait() | EventWait():
            text = await reader.ask_line(f"the result of {one_line(wait.tool)}, as text or JSON:")
            return read_answer(wait, text) if text else None
        case _:
            assert_never(wait)


async def _ask_approval(reader: "MessageReader", screen: "Screen", wait: ApprovalWait) -> Answer | None:
    decision, reason = await reader.ask_decision(_APPROVAL_PROMPT), ""
    if decision is None:
        return None
    if decision == "reason":
        reason, decision = await reader.ask_line(_REASON_PROMPT) or "", "no"
    style = "yellow" if decision == "no" else "green"
    screen.print_line(f"{decision}: {call_title(wait.tool, wait.arguments)}", style)
    if reason:
        screen.print_line(f"reason: {printable(reason)}", style)
    if decision == "always":
        screen.print_line(f"{wait.tool} runs without asking in this session: /grants revokes it", "dim")
    return Refuse(reason) if decision == "no" else Approve(NewGrant() if decision == "always" else None)


async def _fill_form(wait: QuestionWait | InputWait, reader: "MessageReader", given: Mapping[str, Any]) -> Any:
    """Ask for a value; return None at the end of the input, or `DECLINE` if the user declines.

    An empty line takes what was `given` before, then the default, and leaves out an optional field.
    """
    schema = wait.schema or {}
    properties: Mapping[str, Mapping[str, Any]] = schema.get("properties") or {}
    if not properties:
        agrees = not schema and isinstance(wait, QuestionWait)  # the user does what the message says
        line = await reader.ask_line(
            "press Enter when you are done:" if agrees else f"{describe_schema(schema) or 'your answer'}:"
        )
        return {} if line == "" and agrees else line
    values: dict[str, Any] = {}
    for name, field in properties.items():
        default = given.get(name, field.get("default"))
        line = await reader.ask_line(
            _field_prompt(name, field, default, optional=name not in (schema.get("required") or ()))
        )
        if line is None or line == DECLINE:
            return line
        if line or default is not None:
            values[name] = _read_value(field, line) if line else default
    return values


def _field_prompt(name: str, field: Mapping[str, Any], default: Any, *, optional: bool) -> str:
    without_line = "optional" if optional else ""
    if default is not None:
        without_line = f"Enter: {json.dumps(default, ensure_ascii=False)}"
    note = "; ".join(one_line(part) for part in (describe_schema(field), without_line) if part)
    what = one_line(str(field.get("title") or name))
    description = one_line(str(field.get("description") or ""))
    return f"{what}{f', {description}' if description else ''}{f' ({note})' if note else ''}:"


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
