"""The terminal image of the README: drawn from a real run by `make pictures`, and checked otherwise."""

import os
import re
from pathlib import Path

import pyte
from rich.console import Console
from rich.style import Style
from rich.text import Text

from tests.support.terminal import Terminal, terminal

FILE = Path(__file__).parents[3] / "docs" / "images" / "terminal.svg"
COLUMNS, ROWS = 76, 29
SHOWN = ("> note buy milk", "note", "> markdown", "Prices", "apple", "def total(prices):")


def test_the_picture_shows_a_conversation_in_the_terminal(tmp_path: Path) -> None:
    with terminal(tmp_path, "chat", columns=COLUMNS, rows=ROWS) as chat:
        chat.wait_prompt()
        chat.ask("note buy milk")
        chat.ask("markdown")
        for words in SHOWN:
            assert words in chat.shown
        if os.environ.get("LANGO_PICTURES"):
            FILE.parent.mkdir(parents=True, exist_ok=True)
            FILE.write_text(drawn(chat))
    picture = FILE.read_text()
    assert not re.search(r"url\((?!#)|<script|href=", picture), "nothing from elsewhere"
    seen = re.sub(r"<[^>]+>|&#160;|\s", "", picture).replace(
        "&gt;", ">"
    )  # a place for each run of characters, no spaces
    for words in SHOWN:
        assert words.replace(" ", "") in seen, f"{FILE} does not show {words!r}: make pictures"


def drawn(chat: Terminal) -> str:
    """Draw the screen, without the fonts that rich would have fetched."""
    with Path(os.devnull).open("w") as nowhere:
        console = Console(record=True, width=COLUMNS, file=nowhere, force_terminal=True, color_system="truecolor")
        for row in chat.cells:
            console.print(Text.assemble(*((cell.data, style_of(cell)) for cell in row)), end="\n", overflow="crop")
        svg = console.export_svg(title="lango chat", unique_id="lango")
    return re.sub(r"@font-face \{.*?\}\n?", "", svg, flags=re.DOTALL)


def style_of(cell: pyte.screens.Char) -> Style:
    return Style(
        color=color_of(cell.fg), bgcolor=color_of(cell.bg), bold=cell.bold, italic=cell.italics, reverse=cell.reverse
    )


def color_of(name: str) -> str | None:
    if name == "default":
        return None
    if re.fullmatch("[0-9a-f]{6}", name):
        return f"#{name}"
    return {"brown": "yellow", "brightblack": "bright_black"}.get(name, name.replace("bright", "bright_"))
