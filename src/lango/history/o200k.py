"""Count the o200k tokens of short texts from a table on disk, without a tokenizer in memory.

The tokenizer takes 42 MB of memory, and 0.2 s to load. Its vocabulary has 1.4 MB: here it is a hash table in a file,
mapped into memory, so that a process holds only the pages that it has read. Python merges the bytes as the tokenizer
does, only slower; texts for which the two might differ are left to the tokenizer.

The file holds `SLOTS` numbers, then the offset of each token and the end of the last one, then the tokens. A slot is 0,
or the rank of a token plus 1: the first free slot from the CRC-32 of its bytes on. Numbers have 32 bits, little-endian.
`python -m tests.vocabulary` writes the file from the tokenizer's own vocabulary.
"""

import mmap
import re
import sys
import unicodedata
from functools import cache, lru_cache
from pathlib import Path
from zlib import crc32

from msgspec import Struct

FILE = Path(__file__).with_name("o200k.bin")
SLOTS = 1 << 19
TOKENS = 199_998
FIRST_TOKEN = 4 * (SLOTS + TOKENS + 1)
_LONGEST_PIECE = 128
"""In bytes: the time to merge them grows with their square."""

# The pattern of o200k, for texts in which a single character stands for each category: Q and q for upper- and lowercase
# letters that are not ASCII, these three for other letters, marks and unknown characters, 0 for digits, a tab for
# spaces, and ! for anything else.
_LETTER, _MARK, _UNKNOWN = "\1", "\2", "\3"
_UPPER, _LOWER = rf"[A-Z{_LETTER}{_MARK}]", rf"[a-z{_LETTER}{_MARK}]"
_BEFORE = rf"[^\r\nA-Za-z0-9{_LETTER}]?"
_AFTER = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
_PIECE = re.compile(
    rf"{_BEFORE}{_UPPER}*{_LOWER}+{_AFTER}|{_BEFORE}{_UPPER}+{_LOWER}*{_AFTER}|[0-9]{{1,3}}"
    rf"| ?[^\sA-Za-z0-9{_LETTER}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_KINDS = {
    **dict.fromkeys(("Lu", "Lt"), "Q"),
    "Ll": "q",
    **dict.fromkeys(("Lm", "Lo"), _LETTER),
    **dict.fromkeys(("Mn", "Mc", "Me"), _MARK),
    **dict.fromkeys(("Nd", "Nl", "No"), "0"),
    **dict.fromkeys(("Zs", "Zl", "Zp"), "\t"),
    **dict.fromkeys(("Cn", "Cs"), _UNKNOWN),  # a newer Unicode may have it; a surrogate has no bytes
}


class _Shape(dict[int, str]):
    """Maps each character to the one that stands for its category, looked up at its first use."""

    def __missing__(self, code: int) -> str:
        """Look up a character, and remember it: the user's languages limit how many there are."""
        self[code] = kind = _KINDS.get(unicodedata.category(chr(code)), "!")
        return kind


_SHAPES = _Shape(
    {code: chr(code) for code in range(128)}
    | dict.fromkeys([*range(4), *range(0x1C, 0x20)], "!")  # for Python, some of these are spaces
    | {0x85: "\t", 0x17F: _UNKNOWN}  # a long s equals an s if case is ignored
)


class _Table(Struct, frozen=True):
    content: mmap.mmap
    slots: memoryview
    offsets: memoryview

    def rank(self, token: bytes) -> int:
        """Return the rank of a token, `TOKENS` if it is none: the lowest rank is merged first."""
        slot = crc32(token) % SLOTS
        while number := self.slots[slot]:
            if bytes(self.content[self.offsets[number - 1] : self.offsets[number]]) == token:
                return number - 1
            slot = (slot + 1) % SLOTS
        return TOKENS


@cache
def _table() -> _Table:
    with FILE.open("rb") as file:
        content = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    numbers = memoryview(content)[:FIRST_TOKEN].cast("I")
    return _Table(content, numbers[:SLOTS], numbers[SLOTS:])


def count(text: str) -> int | None:
    """Count the tokens of a text as the tokenizer does; None if only the tokenizer can."""
    shape = text.translate(_SHAPES)
    if _UNKNOWN in shape or sys.byteorder != "little":
        return None
    total = 0
    for piece in _PIECE.finditer(shape):
        tokens = _piece_tokens(text[piece.start() : piece.end()].encode())
        if tokens is None:
            return None
        total += tokens
    return total


@lru_cache(maxsize=2048)
def _piece_tokens(piece: bytes) -> int | None:
    """Merge the bytes of a piece, the lowest rank first, until no two neighbours are a token; return how many are left.

    Return None if that would take too long.
    """
    table = _table()
    if table.rank(piece) < TOKENS:
        return 1
    if len(piece) > _LONGEST_PIECE:
        return None
    starts = list(range(len(piece) + 1))
    ranks = [table.rank(piece[at : at + 2]) for at in range(len(piece) - 1)]
    while (lowest := min(ranks, default=TOKENS)) < TOKENS:
        at = ranks.index(lowest)
        del starts[at + 1], ranks[at]
        if at < len(ranks):
            ranks[at] = table.rank(piece[starts[at] : starts[at + 2]])
        if at > 0:
            ranks[at - 1] = table.rank(piece[starts[at - 1] : starts[at + 1]])
    return len(starts) - 1
