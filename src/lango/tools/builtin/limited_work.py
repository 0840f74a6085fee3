"""Work on hostile input in a child process of `limited_process`: match lines, and convert HTML to Markdown.

It is started by path, with the name of the work; matching has no packages, only the standard library.
"""

import json
import re
import sys
from typing import Any

_MAX_CHARACTERS = 2_000_000
_HEAD_CHARACTERS = 20_000
_EXCLUDED_TAGS = ["iframe", "noscript", "object", "script", "style", "svg", "template"]


def match_lines() -> None:
    """Read the job and the files; write the matches.

    The first line of stdin is the job, each further line a file as `[path, text]`; stdout is a JSON object.
    """
    job: dict[str, Any] = json.loads(sys.stdin.readline())
    try:
        expression = re.compile(str(job["expression"]), re.IGNORECASE if job["ignore_case"] else 0)
    except (re.error, RecursionError, OverflowError) as error:
        sys.stdout.write(json.dumps({"wrong": str(error)}))
        return
    max_matches, max_characters = job["limits"]["matches"], job["limits"]["line"]
    matches: list[dict[str, Any]] = []
    for line in sys.stdin:
        file: list[str] = json.loads(line)
        path, text = file
        for number, content in enumerate(text.split("\n"), 1):
            if found := expression.search(content):
                start = max(0, found.start() - max_characters // 2)
                matches.append({"path": path, "line": number, "text": content[start : start + max_characters]})
            if len(matches) > max_matches:
                sys.stdout.write(json.dumps({"matches": matches[:max_matches], "more": True}))
                return
    sys.stdout.write(json.dumps({"matches": matches}))


def convert_html() -> None:
    """Read the page; write its title and its text.

    The first line of stdin is the page's address as JSON, the rest its HTML in UTF-8; stdout is a JSON object with
    `title` and `text`. Scripts and styles are dropped; addresses of links become absolute.
    """
    from html_to_markdown import ConversionOptions, PreprocessingOptions, convert

    options = ConversionOptions(
        base_url=json.loads(sys.stdin.buffer.readline()),
        exclude_selectors=_EXCLUDED_TAGS,
        extract_metadata=False,  # else it precedes the text
        inline_data_media="alt_text_only",
        preprocessing=PreprocessingOptions(enabled=False),  # keep navigation and forms
    )
    html = sys.stdin.buffer.read().decode("utf-8", "replace")
    text = (convert(html, options).content or "").strip()[:_MAX_CHARACTERS]
    head = convert(html[:_HEAD_CHARACTERS], ConversionOptions())
    title = " ".join((head.metadata.document.title or "").split())
    sys.stdout.write(json.dumps({"title": title, "text": text}))


if __name__ == "__main__":
    {"match_lines": match_lines, "convert_html": convert_html}[sys.argv[2]]()
