"""A lending library as an MCP server over stdio. Lango starts it: see lango.toml beside it."""

import json
from pathlib import Path

try:
    from mcp.server.mcpserver import MCPServer
except ImportError:  # mcp 1.x
    from mcp.server.fastmcp import FastMCP as MCPServer  # pyright: ignore

LOANS = Path("loans.json")
BOOKS = {
    "The Dispossessed": "Ursula K. Le Guin",
    "The Left Hand of Darkness": "Ursula K. Le Guin",
    "Solaris": "Stanisław Lem",
}

server = MCPServer("library")


def _loans() -> dict[str, str]:
    return json.loads(LOANS.read_text("utf-8")) if LOANS.exists() else {}


@server.tool()
def find_books(words: str) -> list[dict[str, str]]:
    """Find books whose title or author contains all words, and who borrowed them."""
    wanted = words.lower().split()
    loans = _loans()
    return [
        {"title": title, "author": author, "lent_to": loans.get(title, "")}
        for title, author in BOOKS.items()
        if all(word in f"{title} {author}".lower() for word in wanted)
    ]


@server.tool()
def lend_book(title: str, reader: str) -> str:
    """Lend a book to a reader."""
    loans = _loans()
    if title not in BOOKS:
        raise ValueError(f"there is no book {title!r}")
    if title in loans:
        raise ValueError(f"{title} is with {loans[title]}")
    LOANS.write_text(json.dumps(loans | {title: reader}), "utf-8")
    return f"{title} is lent to {reader}"


if __name__ == "__main__":
    server.run()
