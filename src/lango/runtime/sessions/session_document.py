"""Write a conversation as a document that people share: Markdown, or an HTML page that needs nothing else.

The HTML page never loads or runs anything that messages contain: all text is escaped, HTML in it is text,
pictures in the text are links, and the page itself forbids scripts and requests.
"""

import base64
import html
import json
import re
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
from typing import Any, Literal

from msgspec import Struct
from msgspec.structs import replace

from lango.messages import Message, StoredBytes, ToolCall, byte_size
from lango.sessions import CONFIRMATION_CALL, CREDENTIAL_CALL, INPUT_CALL, SessionInfo, StoredEvent, as_datetime
from lango.store import Store
from lango.store.sessions.window import read_message_page
from lango.threads import run_in_thread, stop_if_abandoned

DocumentFormat = Literal["markdown", "html"]

_PAGE = 200
_MAX_BLOCK_CHARACTERS = 20_000
_WRITTEN_AT_ONCE = 50
_MAX_RENDERED_CHARACTERS = 20_000
_FENCE = re.compile("^```", re.MULTILINE)
_MAX_PICTURE_BYTES = 2_000_000
_MAX_PICTURES_BYTES = 20_000_000
_PICTURES = ("image/png", "image/jpeg", "image/gif", "image/webp")
"""SVG is not one of them: it is a document that can hold scripts."""

_STYLE = """\
:root{color-scheme:light dark;--line:#d9d5cc;--soft:#66625a;--sunk:#f5f3ee}
@media(prefers-color-scheme:dark){:root{--line:#3a3e40;--soft:#a9a8a3;--sunk:#1d1f20}}
body{margin:0 auto;max-width:46rem;padding:1.5rem 1rem 4rem;font:1rem/1.6 system-ui,sans-serif;overflow-wrap:anywhere}
header{border-bottom:1px solid var(--line);margin-bottom:1.5rem}h1{font-size:1.4rem;margin:0}
.about{color:var(--soft);font-size:.875rem}
section{margin:0 0 1.25rem}.speaker{font-weight:600;font-size:.875rem;color:var(--soft);margin:0}
.user{background:var(--sunk);border-radius:12px;padding:.5rem .9rem}
details{border:1px solid var(--line);border-radius:9px;padding:.35rem .8rem;margin:.5rem 0;font-size:.9rem}
pre{overflow:auto;white-space:pre-wrap;background:var(--sunk);border-radius:9px;padding:.6rem .8rem;font-size:.85rem}
table{border-collapse:collapse;display:block;overflow-x:auto}td,th{border:1px solid var(--line);padding:.2rem .6rem}
img{max-width:100%;height:auto}
"""
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"


class _File(Struct, frozen=True):
    """A file of a message; without data it is only named."""

    name: str
    mime_type: str
    size: int
    data: bytes | None = None


class _Entry(Struct, frozen=True):
    """What one message shows."""

    speaker: str
    is_user: bool
    text: str
    thoughts: str
    calls: list[ToolCall]
    """Tool calls with their results, if there are any."""
    files: list[_File]


async def session_document(
    store: Store, session: SessionInfo, document_format: DocumentFormat
) -> AsyncGenerator[str, None]:
    """Yield the parts of the document of a session, in order."""
    title = session.display_title or session.name.id
    messages = await _read_messages(store, session)
    about = f"Session {session.name.id}, {as_datetime(session.created_at):%Y-%m-%d}"
    yield _page_start(title, about) if document_format == "html" else f"# {_one_line(title)}\n\n{about}\n"
    results = await run_in_thread(_results, messages)
    write = _to_markdown if document_format == "markdown" else _to_html
    left = _MAX_PICTURES_BYTES
    for start in range(0, len(messages), _WRITTEN_AT_ONCE):
        page: list[tuple[StoredEvent, list[_File]]] = []
        for stored in messages[start : start + _WRITTEN_AT_ONCE]:
            files = await _load_files(store, stored, left)
            left -= sum(len(file.data) for file in files if file.data)
            page.append((stored, files))
        for part in await run_in_thread(_write_entries, write, page, results):
            yield part
    if document_format == "html":
        yield "</main>\n</body>\n</html>\n"


def _write_entries(
    write: Callable[[_Entry], str],
    page: Sequence[tuple[StoredEvent, list[_File]]],
    results: Mapping[tuple[int, str], Mapping[str, Any]],
) -> list[str]:
    written: list[str] = []
    for stored, files in page:
        stop_if_abandoned()
        if (entry := _to_entry(stored, results, files)) is not None:
            written.append(write(entry))
    return written


# -- what is shown ----------------------------------------------------------------------------------------------------


async def _read_messages(store: Store, session: SessionInfo) -> list[StoredEvent]:
    pages: list[Sequence[StoredEvent]] = []
    before: int | None = None
    while page := await store.read(read_message_page, session, before=before, limit=_PAGE):
        pages.append(page)
        before = page[0].seq
    return [stored for page in reversed(pages) for stored in page]


def _results(messages: Sequence[StoredEvent]) -> dict[tuple[int, str], Mapping[str, Any]]:
    """Return the last result of each call, by the message that made it: some models use an id again."""
    made_by: dict[str, int] = {}
    results: dict[tuple[int, str], Mapping[str, Any]] = {}
    for stored in messages:
        message = stored.message
        for call in message.tool_calls if message else ():
            if message and message.role == "assistant":
                made_by[call.id] = stored.seq
            elif call.output is not None and call.id in made_by:
                results[made_by[call.id], call.id] = call.output
    return results


async def _load_files(store: Store, stored: StoredEvent, budget_bytes: int) -> list[_File]:
    files: list[_File] = []
    for file in stored.attachments:
        size = byte_size(file.data)
        data: bytes | None = None
        if file.mime_type in _PICTURES and size <= min(_MAX_PICTURE_BYTES, budget_bytes):
            data = await store.load_content(file.data) if isinstance(file.data, StoredBytes) else file.data
            budget_bytes -= size
        files.append(_File(file.name or "file", file.mime_type, size, data))
    return files


def _to_entry(
    stored: StoredEvent, results: Mapping[tuple[int, str], Mapping[str, Any]], files: list[_File]
) -> _Entry | None:
    message = stored.message
    if message is None or message.role not in ("user", "assistant", "tool"):
        return None
    is_user = message.role == "user"
    text = "" if message.role == "tool" else message.content
    calls: list[ToolCall] = []
    for call in message.tool_calls:
        if message.role == "assistant" and call.name == INPUT_CALL:
            text = "\n\n".join(filter(None, [text, str((call.input or {}).get("message") or "")]))
        elif message.role == "assistant" and call.name not in (CONFIRMATION_CALL, CREDENTIAL_CALL):
            calls.append(replace(call, output=results.get((stored.seq, call.id))))
    if answer := _given_input(message):
        is_user, text = True, answer
    if not (text.strip() or calls or files):
        return None
    speaker = "User" if is_user else message.author or "Agent"
    return _Entry(speaker, is_user, text, stored.thoughts if not is_user else "", calls, files)


def _given_input(message: Message) -> str:
    """Return a person's answer to a request for input, or an empty text if the message has none."""
    answers = [call.output for call in message.tool_calls if call.name == INPUT_CALL and call.output is not None]
    if message.role != "tool" or message.author != "user" or not answers:
        return ""
    value: Any = answers[0].get("result", answers[0])
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _shown_json(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False, indent=2, default=str)
    left_out = len(text) - _MAX_BLOCK_CHARACTERS
    return text if left_out <= 0 else f"{text[:_MAX_BLOCK_CHARACTERS]}\n... {left_out:,} more characters"


def _note(file: _File) -> str:
    return f"{file.name} ({file.mime_type}, {file.size:,} bytes, not included)"


def _data_address(file: _File) -> str:
    return f"data:{file.mime_type};base64,{base64.b64encode(file.data or b'').decode()}"


def _one_line(text: str) -> str:
    return " ".join(text.split())


# -- Markdown ---------------------------------------------------------------------------------------------------------


def _to_markdown(entry: _Entry) -> str:
    parts = [f"## {_one_line(entry.speaker)}"]
    if entry.thoughts.strip():
        parts.append(_folded("Thoughts", _fenced(entry.thoughts, "text")))
    if entry.text.strip():
        parts.append(entry.text.strip())
    for made in entry.calls:
        blocks = [_fenced(_shown_json(dict(made.input or {})), "json")]
        if made.output is not None:
            blocks.append(_fenced(_shown_json(dict(made.output)), "json"))
        parts.append(_folded(f"Tool {made.name}", "\n\n".join(blocks)))
    for file in entry.files:
        name = re.sub(r"([^\w\s])", r"\\\1", _one_line(file.name))  # no sign of it ends the link
        parts.append(f"- {_one_line(_note(file))}" if file.data is None else f"![{name}]({_data_address(file)})")
    return "\n" + "\n\n".join(parts) + "\n"


def _folded(summary: str, content: str) -> str:
    return f"<details>\n<summary>{html.escape(_one_line(summary))}</summary>\n\n{content}\n\n</details>"


def _fenced(text: str, language: str) -> str:
    """Return a block of code whose fence does not occur in the text."""
    longest = max((len(run) for run in re.findall("`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}{language}\n{text}\n{fence}"


# -- HTML -------------------------------------------------------------------------------------------------------------


def _page_start(title: str, about: str) -> str:
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="referrer" content="no-referrer">\n'
        f"<title>{html.escape(title)}</title>\n<style>\n{_STYLE}</style>\n</head>\n<body>\n"
        f'<header>\n<h1>{html.escape(title)}</h1>\n<p class="about">{html.escape(about)}</p>\n</header>\n<main>\n'
    )


def _to_html(entry: _Entry) -> str:
    parts = [f'<p class="speaker">{html.escape(entry.speaker)}</p>']
    if entry.thoughts.strip():
        parts.append(_details("Thoughts", f"<pre>{html.escape(entry.thoughts)}</pre>"))
    if entry.text.strip():
        plain = html.escape(entry.text.strip()).replace("\n", "<br>\n")
        parts.append(f"<p>{plain}</p>" if entry.is_user else rendered(entry.text))
    for made in entry.calls:
        content = f"<pre>{html.escape(_shown_json(dict(made.input or {})))}</pre>"
        if made.output is not None:
            content += f"\n<pre>{html.escape(_shown_json(dict(made.output)))}</pre>"
        parts.append(_details(f"Tool {made.name}", content))
    for file in entry.files:
        if file.data is None:
            parts.append(f"<p>{html.escape(_note(file))}</p>")
        else:
            parts.append(f'<p><img src="{_data_address(file)}" alt="{html.escape(file.name)}"></p>')
    kind = "user" if entry.is_user else "agent"
    return f'<section class="{kind}">\n' + "\n".join(parts) + "\n</section>\n"


def _details(summary: str, content: str) -> str:
    return f"<details>\n<summary>{html.escape(summary)}</summary>\n{content}\n</details>"


def rendered(text: str) -> str:
    """Render Markdown without HTML and pictures; only addresses of the web and of mail become links."""
    from markdown_it import MarkdownIt  # for some texts, it takes time that grows with the square of their length

    markdown = MarkdownIt("commonmark", {"html": False}).enable("table").disable(["image", "html_block", "html_inline"])
    markdown.validateLink = _is_shared_link  # pyright: ignore[reportAttributeAccessIssue]
    shown = "".join(str(markdown.render(piece)) for piece in _markdown_pieces(text))
    return shown.replace("<a href=", '<a rel="noopener noreferrer nofollow" href=')


def _markdown_pieces(text: str) -> Iterator[str]:
    """Split a long text between paragraphs, else anywhere, so that rendering takes time linear in its length."""
    start, opening = 0, ""
    while start < len(text):
        stop_if_abandoned()
        end = start + _MAX_RENDERED_CHARACTERS
        if end < len(text) and (paragraph := text.rfind("\n\n", start + 1, end)) > 0:
            end = paragraph
        piece = opening + text[start:end]
        opening = "```\n" if len(_FENCE.findall(piece)) % 2 else ""  # a block of code continues in the next piece
        yield f"{piece}\n```\n" if opening else piece
        start = end


def _is_shared_link(address: str) -> bool:
    return re.match(r"(https?://|mailto:)", address, re.IGNORECASE) is not None
