"""Write the progress of a workflow's nodes, requests for input or a credential, and awaited results on the terminal."""

import json
from typing import TYPE_CHECKING, Any, cast

from lango.cli.chat.collapsed_sections import call_title
from lango.cli.terminal_text import describe_schema, format_cell, one_line, printable
from lango.events import NodeProgress, ToolProgress, output_to_text
from lango.waits import CredentialWait, InputWait, LongRunningWait, QuestionWait

if TYPE_CHECKING:
    from lango.cli.chat.terminal.screen import Screen

_SHOWN_OUTPUT_CHARACTERS = 100
ALLOW_HINT = "/credential then asks for the address that you are sent to; /skip closes the request"
GIVE_HINT = "/credential asks you for it, and does not show it; /skip closes the request"
TOOL_ANSWER_HINT = "the tool waits for your answer: /skip declines, Ctrl-C stops the turn"
ANSWER_HINT = "your next message is the answer; /skip closes the request"

RESULT_HINT = "/result CALL VALUE gives the result, /update CALL VALUE says how far it is; you can write meanwhile"


def show_awaited_result(screen: "Screen", awaited: LongRunningWait) -> None:
    """Write that a long-running tool waits for its result."""
    title = call_title(awaited.tool, awaited.arguments)
    screen.print_line(f"{screen.symbol('…', '~')} {title} waits for its result ({printable(awaited.call_id)})", "dim")


def node_title(event: NodeProgress) -> str:
    """Return the path of a node below its workflow, with the number of its run where it is not the first."""
    steps = [step.rpartition("@") for step in event.path.split("/")[1:]]
    names = [name if run == "1" else f"{name} {run}" for name, _, run in steps]
    title = one_line(" / ".join(names) or event.name)
    return title if event.attempt == 1 else f"{title}, attempt {event.attempt}"


def show_node(screen: "Screen", event: NodeProgress) -> None:
    """Write a line about a node that ended, failed or waits."""
    match event.status:
        case "started":
            return
        case "ended":
            output = "" if event.output is None else one_line(output_to_text(event.output), _SHOWN_OUTPUT_CHARACTERS)
            screen.print_line(f"{screen.symbol('✓', '+')} {node_title(event)}{': ' if output else ''}{output}", "dim")
        case "failed":
            line = f"{screen.symbol('✗', 'x')} {node_title(event)} failed: {one_line(event.error)}"
            screen.print_line(line, "yellow")
        case "waiting":
            screen.print_line(f"{screen.symbol('…', '~')} {node_title(event)} waits", "dim")


def show_input_request(screen: "Screen", event: InputWait | QuestionWait) -> None:
    """Write a request for input: what is asked, what fits, and until when."""
    screen.print_line(printable(event.message) or "the workflow needs your input", "bold")
    payload: Any = event.payload
    is_question = isinstance(event, QuestionWait)
    if is_question and isinstance(payload, dict):
        asked = cast("dict[str, Any]", payload)
        screen.print_line(f"asked by the MCP server {one_line(str(asked.get('server')))}", "dim")
        if address := asked.get("url"):
            screen.print_address(str(address))
    elif event.payload is not None:
        screen.print_line(printable(json.dumps(event.payload, ensure_ascii=False, indent=2, default=str)))
    if not is_question and (fits := describe_schema(event.schema)):
        screen.print_line(f"expected: {fits}", "dim")
    until = f" (until {format_cell(event.expires_at)})" if event.expires_at else ""
    screen.print_line(f"{TOOL_ANSWER_HINT if is_question else ANSWER_HINT}{until}", "dim")


def describe_progress(event: ToolProgress) -> str:
    """Return how far a running tool is, after its title."""
    share = f"{event.progress:g}" if event.total is None else f"{event.progress:g} of {event.total:g}"
    return f" {share}{': ' if event.message else ''}{one_line(event.message)}"


def show_credential_request(screen: "Screen", event: CredentialWait) -> None:
    """Write a request for a credential: what it is for, where to allow it, and until when."""
    screen.print_line(printable(event.message) or "a tool needs access to an account of yours", "bold")
    if event.scopes:
        screen.print_line(f"for: {one_line(', '.join(event.scopes))}", "dim")
    if event.auth_url:
        screen.print_line("allow it at")
        screen.print_address(event.auth_url)
    hint = ALLOW_HINT if event.auth_url else GIVE_HINT
    until = f" (until {format_cell(event.expires_at)})" if event.expires_at else ""
    screen.print_line(f"{hint}{until}", "dim")
