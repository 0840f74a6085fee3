"""Convert HTML to Markdown (runs as a child process of `limited_process`).

The first line of stdin is the page's address as JSON, the rest its HTML in UTF-8; stdout is a JSON object with `title`
and `text`. Scripts and styles are dropped; addresses of links become absolute.
"""

import json
import sys

from html_to_markdown import ConversionOptions, PreprocessingOptions, convert

MAX_CHARACTERS = 2_000_000
_HEAD_CHARACTERS = 20_000
_EXCLUDED_TAGS = ["iframe", "noscript", "object", "script", "style", "svg", "template"]


def main() -> None:
    """Read the page; write its title and its text."""
    address = json.loads(sys.stdin.buffer.readline())
    html = sys.stdin.buffer.read().decode("utf-8", "replace")
    title, text = html_to_text(html, address)
    sys.stdout.write(json.dumps({"title": title, "text": text}))


def html_to_text(html: str, base_url: str = "") -> tuple[str, str]:
    """Return the title and the text of a page."""
    options = ConversionOptions(
        base_url=base_url,
        exclude_selectors=_EXCLUDED_TAGS,
        extract_metadata=False,  # else it precedes the text
        inline_data_media="alt_text_only",
        preprocessing=PreprocessingOptions(enabled=False),  # keep navigation and forms
    )
    text = convert(html, options).content or ""
    head = convert(html[:_HEAD_CHARACTERS], ConversionOptions())
    return " ".join((head.metadata.document.title or "").split()), text.strip()[:MAX_CHARACTERS]


if __name__ == "__main__":
    main()
