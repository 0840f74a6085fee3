"""Split streamed Markdown into finished blocks and render them."""

import re
from functools import cache
from itertools import pairwise
from typing import TYPE_CHECKING

from rich import box
from rich.markdown import Heading, Markdown, TableElement
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from rich.console import Console, ConsoleOptions, RenderResult

_LINE_END = re.compile(r"\r\n?|\n")


class MarkdownBlocks:
    """Collects the text of an answer. A block is finished when the next one begins."""

    def __init__(self) -> None:
        self._pending = ""

    def add(self, text: str) -> None:
        """Add a piece of text, cut anywhere."""
        self._pending += text

    def take_finished(self) -> list[str]:
        """Remove and return the finished blocks."""
        whole = self._pending[: self._pending.rfind("\n") + 1]  # the rest of an incomplete line may change its meaning
        *done, growing = split_blocks(whole) or [""]
        self._pending = growing + self._pending[len(whole) :]
        return done

    @property
    def growing(self) -> str:
        """The unfinished block."""
        return self._pending

    def drop_last(self, count: int) -> int:
        """Remove up to this many characters from the end of the unfinished block; return how many were there."""
        dropped = min(count, len(self._pending))
        self._pending = self._pending[: len(self._pending) - dropped]
        return dropped

    def take_all(self) -> list[str]:
        """Remove and return all blocks at the end of the answer."""
        rest, self._pending = self._pending, ""
        return split_blocks(rest)


def split_blocks(text: str) -> list[str]:
    """Split Markdown into its blocks; joined, they are the text again."""
    starts = [token.map[0] for token in _parser().parse(text) if token.level == 0 and token.map]
    offsets = [0, *(end.end() for end in _LINE_END.finditer(text))]  # of the lines, as the parser counts them
    cuts = [0, *(offsets[start] for start in starts[1:]), len(text)]
    return [text[first:last] for first, last in pairwise(cuts) if first < last]


@cache
def _parser() -> "MarkdownIt":
    from markdown_it import MarkdownIt

    return MarkdownIt().enable("strikethrough").enable("table")


class _LeftHeading(Heading):
    """A left-aligned heading with its `#` marks."""

    def __rich_console__(self, console: "Console", options: "ConsoleOptions") -> "RenderResult":
        level = int(self.tag[1:])
        yield Text.assemble(("#" * level + " ", "dim"), self.text.copy(), style="bold", justify="left", overflow="fold")


class _PlainTable(TableElement):
    """A table that wraps its cells instead of cutting them."""

    def __rich_console__(self, console: "Console", options: "ConsoleOptions") -> "RenderResult":
        for table in super().__rich_console__(console, options):
            if isinstance(table, Table):
                table.box = box.SIMPLE_HEAD
                for column in table.columns:
                    column.overflow = "fold"
            yield table


class TerminalMarkdown(Markdown):
    """Markdown for a terminal. Links show their address: a hidden one may lead anywhere."""

    elements = Markdown.elements | {"heading_open": _LeftHeading, "table_open": _PlainTable}

    def __init__(self, text: str) -> None:
        super().__init__(text, code_theme="ansi_dark", hyperlinks=False)
