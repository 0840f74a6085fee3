"""Write permanent lines and redraw the unfinished tail below them.

Only the tail is rewritten, in one write and without blanking it first, so that nothing flickers and the scrollback
contains every line once. A pipe or a dumb terminal gets no tail.
"""

import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from rich.console import Console
from rich.segment import Segment, Segments
from rich.text import Text

from lango.cli.terminal_text import printable

if TYPE_CHECKING:
    from rich.console import RenderableType

_MAX_WIDTH = 110
"""Longer lines are hard to read."""
_ROWS_LEFT = 2
_CLEAR = "\x1b[2J\x1b[H"


class Screen:
    """The terminal or pipe of a chat."""

    def __init__(self) -> None:
        self._console = Console(highlight=False, emoji=False, markup=False, soft_wrap=False)
        self.live = (
            self._console.is_terminal and not self._console.is_dumb_terminal and not self._console.legacy_windows
        )
        self._tail: list[str] = []
        self._at_line_start = True  # of the cursor

    @property
    def console(self) -> Console:
        """The rich console."""
        return self._console

    @property
    def width(self) -> int:
        """The width of text. The last column stays free: terminals differ in where a full line leaves the cursor."""
        return max(10, min(self._console.width - 1, _MAX_WIDTH))

    def symbol(self, sign: str, plain: str) -> str:
        """Return a sign, or ASCII if the terminal's encoding lacks it."""
        try:
            sign.encode(self._console.encoding)
        except UnicodeEncodeError:
            return plain
        return sign

    def print_line(self, text: str = "", style: str = "") -> None:
        """Write a permanent line, with control characters made visible."""
        self.print_renderables(Text(printable(text), style=style))

    def print_address(self, text: str) -> None:
        """Write a line that the terminal wraps, and not this program: it is copied and opened as one."""
        self._write([printable(text).replace("\n", " ")], self._tail)

    def print_renderables(self, *shown: "RenderableType") -> None:
        """Write permanent lines above the tail."""
        self._write([line for renderable in shown for line in self.render_lines(renderable)], self._tail)

    def render_lines(self, shown: "RenderableType") -> list[str]:
        """Render lines with colours, and without control characters of the text."""
        console = self._console
        laid_out = console.render(shown, console.options.update(width=self.width))
        rendered: list[str] = []
        for line in Segment.split_lines(_without_control_characters(laid_out)):
            with console.capture() as captured:
                console.print(Segments(_without_trailing_spaces(line)), end="", width=self.width)
            rendered.append(captured.get())
        return rendered

    def stream(self, text: str) -> None:
        """Write a piece of text at once, on a screen without a tail."""
        if text:
            sys.stdout.write(printable(text))
            sys.stdout.flush()
            self._at_line_start = text.endswith("\n")

    def end_line(self) -> None:
        """Start a new line, unless the cursor is at the start of one."""
        if not self._at_line_start:
            self.stream("\n")

    def draw(self, finished: Iterable[str], tail: Sequence[str]) -> None:
        """Write permanent lines, and redraw the tail."""
        room = max(1, self._console.height - _ROWS_LEFT)
        self._write(finished, tail[-room:])

    def clear(self) -> None:
        """Clear the terminal."""
        if self.live:
            sys.stdout.write(_CLEAR)
            sys.stdout.flush()

    def _write(self, finished: Iterable[str], tail: Sequence[str]) -> None:
        if not self.live:
            self.end_line()
            sys.stdout.write("".join(f"{line.rstrip()}\n" for line in finished))
            sys.stdout.flush()
            return
        above = len(self._tail) - 1  # too few if the terminal became narrower: then a piece stays, and no line is lost
        out = ["\r" if self._tail else "", f"\x1b[{above}A" if above > 0 else ""]
        out += [f"{line}\x1b[K\n" for line in finished]
        out += ["\x1b[K\n".join(tail), "\x1b[J" if self._tail or tail else ""]
        self._tail = list(tail)
        sys.stdout.write("".join(out))
        sys.stdout.flush()


def _without_control_characters(segments: Iterable[Segment]) -> Iterable[Segment]:
    """Remove control characters from rendered text as well: Markdown turns `&#27;` into an escape character."""
    for segment in segments:
        if not segment.control:
            yield Segment(printable(segment.text), segment.style)


def _without_trailing_spaces(line: list[Segment]) -> list[Segment]:
    """Remove the spaces that fill a line, for users who copy it."""
    kept = line[:]
    while kept and not kept[-1].text.strip() and not _is_coloured(kept[-1]):
        kept.pop()
    if kept and not _is_coloured(kept[-1]):
        kept[-1] = Segment(kept[-1].text.rstrip(), kept[-1].style)
    return kept


def _is_coloured(segment: Segment) -> bool:
    background = segment.style.bgcolor if segment.style else None
    return background is not None and not background.is_default
