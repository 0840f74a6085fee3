"""A conversation as a document: complete, readable, and harmless whatever the messages say."""

import base64
from html.parser import HTMLParser

from markdown_it import MarkdownIt

from lango import Tool, open_runtime
from lango.messages import Attachment, ToolCall
from lango.runtime.sessions.session_document import DocumentFormat
from lango.testing import ScriptedProvider
from tests.agents.parts import settings_for

PIXEL = b"\x89PNG\r\n\x1a\n" + bytes(60)
ATTACKS = [
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "</pre></details><iframe src=https://evil.example></iframe>",
    "![x](https://evil.example/pixel.png)",
    "[x](javascript:alert(1))",
    "[x](JaVaScRiPt:alert(1) 'onmouseover=alert(1)')",
    "[x](data:text/html,<script>alert(1)</script>)",
    "<https://evil.example/?\"onmouseover='alert(1)>",
    "```html\n</code></pre><script>alert(1)</script>\n```",
    "| <svg onload=alert(1)> |\n| --- |\n| <style>@import 'https://evil.example'</style> |",
    "[x]: https://evil.example '\"><script>alert(1)</script>'\n\n[x]",
    "</style><link rel=stylesheet href=https://evil.example><meta http-equiv=refresh content=0;url=//evil.example>",
]
ALLOWED = {
    "a": {"rel", "href", "title"},
    "img": {"src", "alt"},
    "meta": {"charset", "http-equiv", "content", "name"},
    "html": {"lang"},
    "code": {"class"},
    "p": {"class"},
    "section": {"class"},
    "ol": {"start"},
    "th": {"style"},
    "td": {"style"},
}
TEXT = {"h1", "h2", "h3", "ul", "li", "pre", "em", "strong", "table", "thead", "tbody", "tr", "br", "hr", "blockquote"}
FRAME = {"head", "body", "title", "style", "header", "main", "details", "summary"}


class Elements(HTMLParser):
    """The elements of a page, as a browser reads them."""

    def __init__(self, page: str) -> None:
        super().__init__(convert_charrefs=True)
        self.found: list[tuple[str, dict[str, str]]] = []
        self.text = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, {name: value or "" for name, value in attrs}))

    def handle_data(self, data: str) -> None:
        self.text += data


async def test_a_conversation_becomes_a_document_that_runs_and_loads_nothing(sqlite_url: str) -> None:
    attack = "\n\n".join(ATTACKS)
    look = Tool("look", "Look.", {"type": "object", "properties": {}}, lambda: {"seen": attack})
    answer = f"Some **bold** text with [a link](https://example.org/?a=1&b=2).\n\n{attack}"
    provider = ScriptedProvider([ToolCall("c1", "look", {}), answer, "bye"])
    files = [
        Attachment('"><script>alert(2)<', "image/png", PIXEL),
        Attachment("large.png", "image/png", bytes(2_000_001)),
        Attachment("drawing.svg", "image/svg+xml", b"<svg onload='alert(1)'/>"),
    ]
    async with open_runtime(settings_for(sqlite_url, name="helper"), provider=provider, tools=[look]) as runtime:
        await runtime.run("s", attack, attachments=files)
        await runtime.run("s", "## helper\n\nbye")
        await runtime.sessions.rename("s", f"Title {ATTACKS[0]}")

        async def document(document_format: DocumentFormat) -> str:
            return "".join([part async for part in runtime.sessions.export_document("s", document_format)])

        page, markdown = await document("html"), await document("markdown")

    elements = Elements(page)
    for tag, attributes in elements.found:
        assert tag in ALLOWED or tag in TEXT | FRAME, tag
        assert attributes.keys() <= ALLOWED.get(tag, set()), (tag, attributes)
    sources = [attributes["src"][:22] for tag, attributes in elements.found if tag == "img"]
    assert sources == ["data:image/png;base64,"], "a small picture is in the page, the others are named"
    links = {attributes["href"] for tag, attributes in elements.found if tag == "a"}
    assert "https://example.org/?a=1&b=2" in links
    assert all(link.startswith("https://") for link in links), "and nothing else is a link"
    assert ("meta", "default-src 'none'") in [
        (tag, attributes.get("content", "").partition(";")[0]) for tag, attributes in elements.found
    ]
    assert elements.text.count("<script>alert(1)</script>") >= 4, "what was said is there as text"
    assert "helper" in elements.text
    assert "large.png (image/png, 2,000,001 bytes, not included)" in elements.text
    [tool] = [at for at, (tag, _) in enumerate(elements.found) if tag == "summary"]
    assert elements.found[tool - 1][0] == "details", "a tool call is folded"
    assert "Tool look" in page

    assert markdown.startswith("# Title <script>")
    assert "\n## User\n" in markdown
    assert "\n## helper\n" in markdown
    assert "<summary>Tool look</summary>" in markdown
    assert "\n````json\n" in markdown, "a fence in a result does not end the block"
    pictures = [
        image
        for token in MarkdownIt("commonmark").parse(markdown)
        for image in token.children or ()
        if image.type == "image" and str(image.attrs["src"]).startswith("data:")
    ]
    assert [(image.attrs["src"], image.content) for image in pictures] == [
        (f"data:image/png;base64,{base64.b64encode(PIXEL).decode()}", r"\"\>\<script\>alert\(2\)\<")
    ]
    assert "- large.png (image/png, 2,000,001 bytes, not included)" in markdown
    assert "- drawing.svg (image/svg+xml, 24 bytes, not included)" in markdown
