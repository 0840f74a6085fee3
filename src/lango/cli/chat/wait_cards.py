"""Draw what a turn waits for, with a card per kind, and ask the user for the answer."""

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, assert_never, cast

from msgspec import UNSET

from lango.cli.chat.collapsed_sections import call_title, exact_arguments, show_diff
from lango.cli.chat.value_form import DECLINE, HOW_TO_FILL, FormLeft, ValueForm, has_fields, members_of, schema_of
from lango.cli.terminal_text import describe_schema, format_cell, one_line, printable
from lango.cli.wait_answers import describe_wait, read_answer
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
    NewGrant,
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

HOW_TO_ANSWER: Mapping[type[Wait], str] = {
    ApprovalWait: "",
    InputWait: "your next message is the answer, or /answer asks for it; /skip closes the request",
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
_EDIT_PROMPT = _APPROVAL_PROMPT.replace(", Ctrl-C", ", e: change what it asks with, Ctrl-C")
_REASON_PROMPT = "why not? The model reads it:"


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
    hint = HOW_TO_FILL if has_form(wait) else HOW_TO_ANSWER[type(wait)]
    if until:
        hint = f"{hint} (until {until})" if hint else f"denied if not answered by {until}"
    if hint:
        screen.print_line(hint, "dim")


def _show_input(screen: "Screen", wait: InputWait) -> None:
    screen.print_line(printable(wait.message) or "the workflow needs your input", "bold")
    if wait.payload is not None:
        screen.print_line(printable(json.dumps(wait.payload, ensure_ascii=False, indent=2, default=str)))
    if not has_fields(wait.schema) and (fits := describe_schema(wait.schema)):
        screen.print_line(f"expected: {fits}", "dim")


def _show_call(screen: "Screen", wait: ClientResultWait | LongRunningWait) -> None:
    title = call_title(wait.tool, wait.arguments)
    screen.print_line(f"{screen.symbol('…', '~')} {title} waits for its result ({printable(wait.id)})", "dim")


def _json(value: Any) -> str:
    return printable(json.dumps(value, ensure_ascii=False, default=str))


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
        screen.print_line(f"with: {_json(wait.payload)}")
    if diff:
        show_diff(screen, diff)


def has_form(wait: Wait) -> bool:
    """Whether a workflow waits for a value of several fields."""
    return isinstance(wait, InputWait) and has_fields(wait.schema)


async def ask_answer(
    reader: "MessageReader", screen: "Screen", wait: Wait, refused: Answer | None = None
) -> Answer | None:
    """Return the answer of the user to a wait, or None for no answer now. Raise `InputInterrupted` for Ctrl-C.

    `refused` is the answer before, which did not fit: an empty line keeps what it had. `Decline` closes the request of
    a workflow, too.
    """
    match wait:
        case ApprovalWait():
            return await _ask_approval(reader, screen, wait)
        case QuestionWait() | InputWait():
            before: Any = asked_payload(wait) if isinstance(wait, InputWait) else UNSET
            given = refused.value if isinstance(refused, Value) else before
            value = await _fill_form(wait, reader, screen, given)
            if value == DECLINE:
                return Decline()
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
    payload, reason = wait.payload, ""
    asks_with = payload is not None
    while (decision := await reader.ask_decision(_EDIT_PROMPT if asks_with else _APPROVAL_PROMPT)) == "edit":
        if asks_with:
            payload = await _edit_payload(reader, screen, payload)
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
    changed = payload if payload != wait.payload else None
    if decision == "no":
        return Refuse(reason, changed)
    return Approve(NewGrant() if decision == "always" else None, changed)


async def _edit_payload(reader: "MessageReader", screen: "Screen", payload: Any) -> Any:
    """Ask for each value of what a tool asks with; an empty line keeps it."""
    schema = schema_of(payload)
    screen.print_line(HOW_TO_FILL.replace("closes the request", "changes nothing"), "dim")
    try:
        edited = await ValueForm(schema, reader.ask_line, screen.print_line).fill(payload)
    except FormLeft:
        return payload
    screen.print_line(f"with: {_json(edited)}")
    return edited


async def _fill_form(wait: QuestionWait | InputWait, reader: "MessageReader", screen: "Screen", given: Any) -> Any:
    """Ask for a value; return None at the end of the input, or `DECLINE` if the user declines.

    An empty line takes what was `given` before, then the default, and leaves out an optional field.
    """
    schema = wait.schema or {}
    if has_fields(schema):
        if isinstance(wait, QuestionWait):
            screen.print_line(HOW_TO_FILL, "dim")
        try:
            return await ValueForm(schema, reader.ask_line, screen.print_line).fill(given)
        except FormLeft as left:
            return str(left) or None
    agrees = not schema and isinstance(wait, QuestionWait)  # the user does what the message says
    line = await reader.ask_line(
        "press Enter when you are done:" if agrees else f"{describe_schema(schema) or 'your answer'}:"
    )
    return {} if line == "" and agrees else line


def asked_payload(wait: InputWait) -> Any:
    """Return what a node that asks for confirmation begins with: its payload may be changed."""
    properties: Mapping[str, Any] = (wait.schema or {}).get("properties") or {}
    payload = members_of(wait.payload).get("confirmation_payload")
    return UNSET if payload is None or "confirmed" not in properties else {"payload": payload}
