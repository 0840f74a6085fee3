"""Markdown as it streams: cut into blocks that are finished, and one that still grows."""

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
    """Collects the text of an answer. A block is finished when another one has begun after it."""

    def __init__(self) -> None:
        self._pending = ""

    def add(self, text: str) -> None:
        """Add a piece, wherever it was cut."""
        self._pending += text

    def take_finished(self) -> list[str]:
        """Take the blocks to which nothing can be added any more."""
        whole = self._pending[: self._pending.rfind("\n") + 1]  # half a line may turn out to be anything
        *done, growing = split_blocks(whole) or [""]
        self._pending = growing + self._pending[len(whole) :]
        return done

    @property
    def growing(self) -> str:
        """The block that is not finished."""
        return self._pending

    def take_all(self) -> list[str]:
        """Take all that is left: the answer is over."""
        rest, self._pending = self._pending, ""
        return split_blocks(rest)


def split_blocks(text: str) -> list[str]:
    """Cut markdown into its blocks; together they are the text again."""
    starts = [token.map[0] for token in _parser().parse(text) if token.level == 0 and token.map]
    offsets = _offsets(text)
    cuts = [0, *(offsets[start] for start in starts[1:]), len(text)]
    return [text[first:last] for first, last in pairwise(cuts) if first < last]


@cache
def _parser() -> "MarkdownIt":
    from markdown_it import MarkdownIt

    return MarkdownIt().enable("strikethrough").enable("table")


def _offsets(text: str) -> list[int]:
    """Return where each line begins, as the parser counts lines."""
    return [0, *(end.end() for end in _LINE_END.finditer(text))]


class _LeftHeading(Heading):
    """A heading that stands left, with the marks that its author wrote."""

    def __rich_console__(self, console: "Console", options: "ConsoleOptions") -> "RenderResult":
        level = int(self.tag[1:])
        yield Text.assemble(("#" * level + " ", "dim"), self.text.copy(), style="bold", justify="left", overflow="fold")


class _PlainTable(TableElement):
    """A table that wraps its cells rather than leave something out."""

    def __rich_console__(self, console: "Console", options: "ConsoleOptions") -> "RenderResult":
        for table in super().__rich_console__(console, options):
            if isinstance(table, Table):
                table.box = box.SIMPLE_HEAD
                for column in table.columns:
                    column.overflow = "fold"
            yield table


class TerminalMarkdown(Markdown):
    """Markdown for a terminal. Links are shown with their address: a link that hides it may lead anywhere."""

    elements = Markdown.elements | {"heading_open": _LeftHeading, "table_open": _PlainTable}

    def __init__(self, text: str) -> None:
        super().__init__(text, code_theme="ansi_dark", hyperlinks=False)
