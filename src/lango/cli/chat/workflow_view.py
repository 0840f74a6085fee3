"""Write the progress of a workflow's nodes and of running tools on the terminal."""

from typing import TYPE_CHECKING

from lango.cli.terminal_text import one_line
from lango.events import NodeProgress, ToolProgress, output_to_text

if TYPE_CHECKING:
    from lango.cli.chat.terminal.screen import Screen

_SHOWN_OUTPUT_CHARACTERS = 100


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


def describe_progress(event: ToolProgress) -> str:
    """Return how far a running tool is, after its title."""
    share = f"{event.progress:g}" if event.total is None else f"{event.progress:g} of {event.total:g}"
    return f" {share}{': ' if event.message else ''}{one_line(event.message)}"
