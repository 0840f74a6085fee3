"""HTML as plain text: what a person would read, links in brackets."""

import re
from html.parser import HTMLParser
from urllib.parse import urljoin

from typing_extensions import override

_SILENT = frozenset({"script", "style", "noscript", "template", "svg", "head", "iframe", "object"})
_BLOCKS = frozenset(
    {
        *(
            "address",
            "article",
            "aside",
            "blockquote",
            "br",
            "dd",
            "div",
            "dl",
            "dt",
            "fieldset",
            "figcaption",
            "figure",
        ),
        *("footer", "form", "h1", "h2", "h3", "h4", "h5", "h6", "header", "hr", "li", "main", "nav", "ol", "p", "pre"),
        *("section", "table", "tr", "ul"),
    }
)
_SPACES = re.compile(r"[ \t\r\f\v]+")
_EMPTY_LINES = re.compile(r"\n\s*\n+")


def html_to_text(html: str, base_url: str = "") -> tuple[str, str]:
    """Return the title and the text of a page."""
    reader = _Reader(base_url)
    reader.feed(html)
    reader.close()
    lines = (_SPACES.sub(" ", line).strip() for line in "".join(reader.pieces).split("\n"))
    text = _EMPTY_LINES.sub("\n\n", "\n".join(lines)).strip()
    return " ".join("".join(reader.title).split()), text


class _Reader(HTMLParser):
    def __init__(self, base_url: str) -> None:
        super().__init__(convert_charrefs=True)
        self.pieces: list[str] = []
        self.title: list[str] = []
        self._base_url = base_url
        self._silent: list[str] = []
        self._in_title = False
        self._link = ""

    @override
    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "title":
            self._in_title = True
        elif tag == "body":  # a head that was never closed
            self._silent.clear()
        elif tag in _SILENT:
            self._silent.append(tag)
        elif not self._silent:
            self._start(tag, dict(attrs))

    def _start(self, tag: str, attributes: dict[str, str | None]) -> None:
        if tag in _BLOCKS:
            self.pieces.append("\n- " if tag == "li" else "\n")
        elif tag in ("td", "th"):
            self.pieces.append(" ")
        elif tag == "a":
            target = urljoin(self._base_url, attributes.get("href") or "")
            self._link = target if target.startswith(("http://", "https://")) else ""
        elif tag == "img" and (words := attributes.get("alt")):
            self.pieces.append(f" {words} ")

    @override
    def handle_endtag(self, tag: str) -> None:
        if tag == "title":
            self._in_title = False
        elif tag in self._silent:
            while self._silent.pop() != tag:
                pass
        elif not self._silent:
            if tag == "a" and self._link:
                self.pieces.append(f" ({self._link})")
                self._link = ""
            elif tag in _BLOCKS:
                self.pieces.append("\n")

    @override
    def handle_data(self, data: str) -> None:
        if self._in_title:
            self.title.append(data)
        elif not self._silent:
            self.pieces.append(data)
