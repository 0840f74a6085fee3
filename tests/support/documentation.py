"""The pages of the documentation and their code blocks."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted((ROOT / "examples").rglob("*.md")),
]
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def blocks(language: str) -> dict[str, str]:
    """Return the code blocks of a language, by page and line."""
    return {
        f"{page.relative_to(ROOT)}:{page.read_text()[: found.start()].count(chr(10)) + 1}": found[2]
        for page in PAGES
        for found in BLOCK.finditer(page.read_text())
        if found[1] == language
    }
