"""Draw one running turn: streamed text, tool calls, errors."""

import asyncio
import time
from typing import TYPE_CHECKING, assert_never

from rich.text import Text

from lango import events
from lango.cli.chat.collapsed_sections import (
    CollapsedSection,
    call_title,
    format_seconds,
    node_title,
    show_node,
    show_section,
    tool_call_section,
)
from lango.cli.chat.terminal.markdown_blocks import MarkdownBlocks, TerminalMarkdown
from lango.cli.chat.terminal.typed_line import HINT
from lango.cli.chat.wait_cards import show_wait
from lango.cli.terminal_text import counted, describe_progress, describe_resumption, one_line, printable
from lango.events.text import TextOrder, is_withdrawn
from lango.waits import ApprovalWait, CredentialWait, InputWait, QuestionWait

if TYPE_CHECKING:
    from lango.cli.chat.terminal.screen import Screen

_FRAME_S = 1 / 15
_TICK_S = 1.0
_DRAWING_SHARE = 4
"""Drawing takes at most a fifth of the time: a long block is drawn less often."""


class TurnView:
    """Shows the events of a turn. On a terminal the unfinished tail is redrawn, also while no events arrive."""

    def __init__(self, screen: "Screen", sections: list[CollapsedSection], root_agent: str = "") -> None:
        """The name of an agent is shown when another one begins to speak; at first `root_agent` is expected."""
        self._screen = screen
        self._sections = sections
        self._blocks = MarkdownBlocks()
        self._order = TextOrder()
        self._author = root_agent
        self._thought = ""
        self._streamed: list[tuple[events.TextDelta, int]] = []
        """The pieces of text so far, and their lengths as they are shown."""
        self._queue_place = 0
        self._calls: dict[str, tuple[events.ToolStart, float]] = {}
        self._progress: dict[str, str] = {}
        """The progress of running calls, in words."""
        self._nodes: dict[str, tuple[events.NodeProgress, float]] = {}
        """The nodes of a workflow that run, and since when."""
        self._began = time.monotonic()
        self._last_line_empty = False  # of the permanent lines
        self._stopping = False
        self._typed = ""
        """The message that is being typed."""
        self._next_frame = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._schedule_draw(_TICK_S)

    def show(self, event: events.TurnEvent) -> None:
        """Show an event. While an agent speaks, the texts of those beside it wait."""
        for ready in self._order.add(event):
            self._show(ready)
        self._schedule_draw(0.0)

    def _show(self, event: events.TurnEvent) -> None:
        match event:
            case events.Accepted() | events.Queued():
                self._show_waiting(event)
            case events.TextDelta():
                self._add_text(event)
            case events.ThoughtDelta():
                self._thought += event.text
            case events.ToolStart() | events.ToolProgress():
                self._show_running_call(event)
            case events.ToolEnd():
                self._progress.pop(event.call_id, None)
                self._add_tool_call(event)
            case events.WaitOpened() | events.WaitClosed() | events.TurnDone():
                self._show_wait(event)
            case events.NodeProgress() | events.ArtifactSaved():
                self._show_step(event)
            case events.TurnError():
                self._show_error(event)
            case events.Resumed() | events.TextWithdrawn() | events.TextEnd() | events.Steered():
                self._show_resumption(event)
            case _:
                assert_never(event)

    def _show_running_call(self, event: events.ToolStart | events.ToolProgress) -> None:
        if isinstance(event, events.ToolProgress):
            self._progress[event.call_id] = describe_progress(event)
        else:
            self._end_text()
            self._calls[event.call_id] = (event, time.monotonic())

    def show_typed(self, text: str) -> None:
        """Show the message that is being typed, below the answer."""
        self._typed = text
        self._schedule_draw(0.0)

    def show_stopping(self) -> None:
        """Show that the turn is being stopped."""
        self._stopping = True
        self._schedule_draw(0.0)

    def pause(self) -> None:
        """Write the text so far, and stop drawing."""
        if self._timer:
            self._timer.cancel()
        self._timer = None
        self._end_text()
        self._screen.draw([], [])

    def go_on(self) -> None:
        """Draw again after a pause."""
        self._schedule_draw(0.0)

    def close(self) -> None:
        """Write the rest of the turn, and stop drawing."""
        self.pause()
        for started, _ in self._calls.values():
            self._line(
                f"{self._screen.symbol('✗', 'x')} {call_title(started.name, started.arguments)} stopped", "yellow"
            )
        self._calls.clear()
        self._nodes.clear()

    def _show_waiting(self, event: events.Accepted | events.Queued) -> None:
        if isinstance(event, events.Queued):
            self._queue_place = event.place
        elif event.waiting:
            self._line("the session is busy: your message is queued", "dim")

    # -- text -----------------------------------------------------------------------------------------------------

    def _add_text(self, event: events.TextDelta) -> None:
        text, author = printable(event.text), event.author
        self._end_thought()
        if author and author != self._author:
            self._end_text()
            if self._author:
                self._line(f"{author}:", "bold dim")
            self._author = author
        self._streamed.append((event, len(text)))
        if self._screen.live:
            self._blocks.add(text)
        else:
            self._screen.stream(text)

    def _withdraw(self, withdrawal: events.TextWithdrawn) -> None:
        """Remove withdrawn text from the tail; if it is written permanently, say that it does not count."""
        size = sum(length for event, length in self._streamed if is_withdrawn(event, withdrawal))
        self._streamed = [(event, size) for event, size in self._streamed if not is_withdrawn(event, withdrawal)]
        self._thought = ""
        if self._screen.live and self._author == withdrawal.author:
            size -= self._blocks.drop_last(size)
        if size:
            self._line("the answer above is withdrawn and begins again", "yellow")

    def _end_text(self) -> None:
        self._end_thought()
        if self._screen.live:
            self._write_markdown(self._blocks.take_all())
        else:
            self._screen.end_line()

    def _end_thought(self) -> None:
        thought, self._thought = self._thought.strip(), ""
        if thought:
            words = counted(len(thought.split()), "word")
            self._add_section(CollapsedSection("thought", [("", printable(thought))], words))

    def _write_markdown(self, blocks: list[str]) -> None:
        lines = markdown_lines(self._screen, blocks)
        if lines:
            self._screen.draw([*([] if self._last_line_empty else [""]), *lines, ""], self._tail())
            self._last_line_empty = True

    # -- tools ----------------------------------------------------------------------------------------------------

    def _add_tool_call(self, event: events.ToolEnd) -> None:
        started = self._calls.pop(event.call_id, None)
        took_s = time.monotonic() - started[1] if started and event.duration_s is None else event.duration_s
        self._end_text()
        self._add_section(
            tool_call_section(event.name, started[0].arguments if started else {}, event.result, event.ok, took_s)
        )

    def _add_section(self, section: CollapsedSection) -> None:
        show_section(self._screen, self._sections, section)
        self._last_line_empty = False

    def _show_error(self, event: events.TurnError) -> None:
        self._end_text()
        if event.fatal and event.error != "TurnCancelled":  # the line of a tool shows its failure
            self._line(event.message, "red")

    def _show_resumption(self, event: events.Resumed | events.TextWithdrawn | events.TextEnd | events.Steered) -> None:
        """Show that the turn continues: after an interruption, or with a message that it took in."""
        if isinstance(event, events.TextWithdrawn):
            self._withdraw(event)
        elif isinstance(event, events.Steered):
            self._end_text()
            self._line(f"> {event.text}", "bold")
        elif isinstance(event, events.Resumed):
            self._line(f"resumed: {describe_resumption(event.reason)}", "yellow")

    def _show_step(self, event: events.NodeProgress | events.ArtifactSaved) -> None:
        """Show that an artifact was saved, or that a node of a workflow ended; while it runs, it is in the tail."""
        if isinstance(event, events.ArtifactSaved):
            self._end_text()
            self._line(f"saved the artifact {one_line(event.name)}, version {event.version}", "dim")
            return
        self._nodes.pop(event.path, None)
        if event.status == "started":
            self._nodes[event.path] = (event, time.monotonic())
            return
        self._end_text()
        show_node(self._screen, event)
        self._last_line_empty = False

    def _show_wait(self, event: events.WaitOpened | events.WaitClosed | events.TurnDone) -> None:
        """End the text, and show what the turn waits for; the chat asks for approvals once the turn has ended."""
        self._end_text()
        if not isinstance(event, events.WaitOpened):
            return
        if not isinstance(event.wait, QuestionWait | InputWait | CredentialWait):
            self._calls.pop(event.wait.call_id, None)
        if not isinstance(event.wait, ApprovalWait):
            show_wait(self._screen, event.wait)
            self._last_line_empty = False

    def _line(self, text: str, style: str = "") -> None:
        self._screen.print_line(text, style)
        self._last_line_empty = False

    # -- the tail -------------------------------------------------------------------------------------------------

    def _schedule_draw(self, delay_s: float) -> None:
        """Draw after the delay, once for all events until then."""
        if not self._screen.live:
            return
        loop = asyncio.get_running_loop()
        at = max(loop.time() + delay_s, self._next_frame)
        if self._timer is None or self._timer.when() > at:
            if self._timer:
                self._timer.cancel()
            self._timer = loop.call_at(at, self._draw)

    def _draw(self) -> None:
        began = time.monotonic()
        self._timer = None
        self._write_markdown(self._blocks.take_finished())
        self._screen.draw([], self._tail())
        spent = time.monotonic() - began
        self._next_frame = asyncio.get_running_loop().time() + max(_FRAME_S, _DRAWING_SHARE * spent)
        self._schedule_draw(_TICK_S)

    def _tail(self) -> list[str]:
        lines = markdown_lines(self._screen, [self._blocks.growing])
        now = time.monotonic()
        running = [(node_title(node), at) for node, at in self._nodes.values()]
        running += [
            (call_title(started.name, started.arguments) + self._progress.get(started.call_id, ""), at)
            for started, at in self._calls.values()
        ]
        for title, at in running:
            line = f"{self._screen.symbol('▹', '>')} {title} {format_seconds(now - at)}"
            lines += self._screen.render_lines(Text(line, style="cyan", no_wrap=True, overflow="ellipsis"))
        lines += self._screen.render_lines(Text(self._activity(now), style="dim", no_wrap=True, overflow="ellipsis"))
        if self._typed:
            lines += self._screen.render_lines(Text(HINT, style="dim"))
            lines += self._screen.render_lines(Text(f"> {printable(self._typed)}", style="bold"))
        return lines

    def _activity(self, now: float) -> str:
        what = "thinking" if self._thought else "answering" if self._blocks.growing else "working"
        if self._queue_place:
            what = f"queued at place {self._queue_place}"
        if self._stopping:
            what = "stopping"
        excerpt = f": {one_line(self._thought[-60:])}" if self._thought else ""
        return f"{what} {now - self._began:.0f} s, Ctrl-C stops{excerpt}"


def markdown_lines(screen: "Screen", blocks: list[str]) -> list[str]:
    """Render blocks with exactly one empty line between them."""
    rendered: list[str] = []
    for block in blocks:
        lines = screen.render_lines(TerminalMarkdown(block)) if block.strip() else []
        while lines and not lines[0]:
            lines.pop(0)
        while lines and not lines[-1]:
            lines.pop()
        rendered += [*([""] if rendered and lines else []), *lines]
    return rendered
